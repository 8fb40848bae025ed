"""The process on the node: the only place with sockets, threads and a clock."""
