"""The command ``straggler``: arguments, exit codes, one file per sub-command."""
