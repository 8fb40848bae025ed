"""``python -m straggler``."""

from __future__ import annotations

from straggler.cli.main import entry

if __name__ == "__main__":
    entry()
