"""One package per origin of facts: ``read.py`` does the I/O, ``parse.py`` does none."""
