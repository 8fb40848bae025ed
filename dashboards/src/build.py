"""Write ``dashboards/*.json``, or say which of them are not what the source makes.

``python -m dashboards.src.build`` writes; ``--check`` only compares and ends with 1 on a difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards.src import exporter, fleet, rank, run

FOLDER = Path(__file__).resolve().parents[1]
DASHBOARDS = {"fleet": fleet.build, "run": run.build, "rank": rank.build, "exporter": exporter.build}


def render(name: str) -> str:
    """The text of one file."""
    return json.dumps(DASHBOARDS[name](), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or compare all files.

    Returns:
        The exit code.
    """
    stale = 0
    for name in DASHBOARDS:
        path = FOLDER / f"{name}.json"
        text = render(name)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{path.relative_to(FOLDER.parent)} is not what dashboards/src makes: run `make dashboards`")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(FOLDER.parent)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
