"""What a folder of inputs gives: for each file the facts that are read from it, or the reasons why not. As a table.

Pages of exporters, logs of NCCL, traces of torch.profiler and trees of ``/sys/class/infiniband`` are told apart by name
and place. Nothing raises: a file that does would be a defect. The exact values are in the tests beside each source;
this is for looking at files that nobody has looked at yet.

Usage:
    python tests/field_inputs.py [FOLDER]      default: ../shared/corpus beside the checkout
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from straggler.model.reading import Problem
from straggler.sources.dcgm.parse import GpuPageParser
from straggler.sources.infiniband.read import InfinibandSource
from straggler.sources.nccl.read import LOOKS_BEFORE_SILENT, NcclSource
from straggler.sources.trace.parse import parse_trace
from straggler.sources.trace.read import is_trace, read_entries
from straggler.sources.trace.steps import step_times

Row = tuple[str, str, str, str]
"""File, source, facts, what is refused."""


def page(path: Path) -> Row:
    """A page about GPUs."""
    read = GpuPageParser().parse(path.read_bytes().decode("utf-8", "replace"))
    values = sum(len(gpu.values) for gpu in read.facts)
    return path.name, "dcgm", f"{len(read.facts)} GPUs, {values} values" if read.facts else "", _reasons(read.problems)


def log(path: Path) -> Row:
    """A log, perhaps of NCCL."""
    source = NcclSource([str(path)])
    readings = [source.collect() for _ in range(LOOKS_BEFORE_SILENT)]
    facts = readings[-1].facts
    return (
        path.name,
        "nccl",
        f"{len(facts)} ranks" if facts else "",
        _reasons(problem for reading in readings for problem in reading.problems),
    )


def trace(path: Path) -> Row:
    """A Chrome trace."""
    if not is_trace(path):
        return path.name, "trace", "", "not_a_trace=1"
    read = parse_trace(read_entries(path))
    refused = f"events={read.refused_events}" if read.refused_events else ""
    return path.name, "trace", f"{read.events} events, {len(step_times(read))} steps", refused


def tree(path: Path) -> Row:
    """A ``/sys/class/infiniband``; ``path`` is what stands for ``/sys``."""
    read = InfinibandSource(path).collect()
    values = sum(len(port.counters) for port in read.facts)
    facts = f"{len(read.facts)} ports, {values} counters" if read.facts else ""
    return path.name, "infiniband", facts, _reasons((*read.problems, *read.blind))


def rows(folder: Path) -> Iterator[Row]:
    """Look at all files and trees below a folder, in the order of their names."""
    trees = {path.parent.parent for path in folder.rglob("infiniband") if path.parent.name == "class"}
    for path in sorted(trees):
        yield tree(path)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(path.is_relative_to(one) for one in trees):
            look = _reader(path)
            if look is not None:
                yield look(path)


def _reader(path: Path) -> Callable[[Path], Row] | None:
    if path.suffix in {".prom", ".metrics"} or path.parent.name == "dcgm_exporter":
        return page
    if path.suffix == ".log":
        return log
    return trace if path.name.endswith((".json", ".json.gz")) else None


def _reasons(problems: Iterable[Problem]) -> str:
    counts: Counter[str] = Counter()
    for problem in problems:
        counts[problem.reason] += problem.count
    return " ".join(f"{reason}={count}" for reason, count in counts.items())


def table(found: Iterable[Row]) -> str:
    """As lines of text."""
    lines = [("file", "source", "facts", "refused"), *found]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join(
        "  ".join((*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[3])) for line in lines
    )


def main(arguments: list[str]) -> int:
    """Print the table; 1 if there is nothing to look at."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2] / "shared" / "corpus"
    found = list(rows(folder))
    if not found:
        print(f"{folder}: nothing to look at", file=sys.stderr)  # noqa: T201 - a command's answer
        return 1
    print(table(found))  # noqa: T201 - a command's answer
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
