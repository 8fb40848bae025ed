"""The command ``straggler``: ``main.py`` for arguments and exit codes, one file for each sub-command."""
