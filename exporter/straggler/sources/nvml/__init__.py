"""The node's GPUs as the driver's own library describes them, read in a process that may hang without harm."""
