"""The fuzz of ``fuzz.py``, guided by which lines an input reaches: Atheris, in a venv of its own (``make fuzz``).

Usage:
    python tests/faults/guided.py rings|pushes|pages|logs [SECONDS]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

atheris: Any = import_module("atheris")  # not among the development tools: no wheel for some Pythons

with atheris.instrument_imports(include=["straggler.wire", "straggler.sources", "straggler.model"]):
    from faults import fuzz, logs


def _rings(place: Path) -> Callable[[bytes], None]:
    eater = fuzz.RingEater(place)
    return lambda data: eater.eat(fuzz.repair_ring(data))


def _pushes(_: Path) -> Callable[[bytes], None]:
    eater = fuzz.PushEater()
    return lambda data: eater.eat(fuzz.repair_push(data))


def _pages(_: Path) -> Callable[[bytes], None]:
    return fuzz.PageEater().eat


def _logs(place: Path) -> Callable[[bytes], None]:
    return logs.LogEater(place).eat


_TARGETS: dict[str, tuple[Callable[[Path], Callable[[bytes], None]], Callable[[], list[bytes]]]] = {
    "rings": (_rings, lambda: [fuzz.small_ring()]),
    "pushes": (_pushes, lambda: [fuzz.push_body()]),
    "pages": (_pages, fuzz.dcgm_pages),
    "logs": (_logs, lambda: [logs.real_log()]),
}


def main(target: str, seconds: str = "60") -> None:
    """Fuzz; ends the process, with an exit code other than 0 after a crash."""
    make, seeds = _TARGETS[target]
    with tempfile.TemporaryDirectory() as name:
        corpus, place = Path(name) / "corpus", Path(name) / "place"
        corpus.mkdir()
        place.mkdir()
        for number, seed in enumerate(seeds()):
            (corpus / str(number)).write_bytes(seed)
        options = [f"-max_total_time={seconds}", "-max_len=20000", "-verbosity=0", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={Path.cwd()}/build/", str(corpus)], make(place))
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
