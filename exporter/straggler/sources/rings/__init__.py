"""The step rings on this node: which ranks there are, how they stand, what their last steps say."""
