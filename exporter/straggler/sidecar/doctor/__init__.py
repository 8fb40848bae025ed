"""What is missing on this node, and the one command or line that adds it."""
