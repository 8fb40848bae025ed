"""``straggler replay``: recorded per-rank step times, and the verdicts they would have had live."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from straggler.cli.replay_report import as_json, as_text
from straggler.detect.policy import DEFAULT
from straggler.detect.replay import Replay, replay
from straggler.errors import ConfigError, ParseError, SourceAbsentError, SourceFailedError
from straggler.model.reading import Problem, Reading
from straggler.model.recorded import RecordedStep
from straggler.sources.recording.columns import COLUMNS, parse_mapping
from straggler.sources.recording.parse import UNITS
from straggler.sources.recording.read import read_recording

_EPILOG = f"""\
columns (durations in seconds, or see --unit):
{chr(10).join(f"  {name:<11} {meaning}" for name, meaning in COLUMNS.items())}

step, rank and wall are needed, and own or wait. A rank is compared with the ranks of its peer_group; a verdict needs
32 steps, and holds in the recording for as long as the live alert waits.

After --openmetrics OUT, `promtool tsdb create-blocks-from openmetrics OUT DIR` makes blocks for the data directory of a
Prometheus, so that rules and dashboards can be tried on last month.

exit codes: 0 done, whatever was found; 1 a verdict was found and --fail-on-verdict was given; 2 wrong use, or a file
that cannot be read.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="CSV, gzipped CSV or Parquet; - for standard input")
    parser.add_argument(
        "--columns",
        default="",
        metavar="OURS=THEIRS[,…]",
        help="what the file calls our columns, e.g. own=compute_seconds,peer_group=stage",
    )
    parser.add_argument("--unit", choices=list(UNITS), default="s", help="unit of all durations (default s)")
    parser.add_argument("--run", dest="run_name", metavar="NAME", help="name of the run (default: the file's name)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--openmetrics", metavar="OUT", help="also write the live metrics of the recording, to backfill a Prometheus"
    )
    parser.add_argument("--fail-on-verdict", action="store_true", help="exit with 1 if there is any verdict")


def run(arguments: argparse.Namespace) -> int:
    """Judge a recording.

    Raises:
        ConfigError: a flag is wrong, or the file cannot be used.
    """
    mapping = parse_mapping(arguments.columns) if arguments.columns else {}
    reading = _read(arguments.file, mapping, arguments.unit)
    for problem in reading.problems:
        print(f"straggler: refused {problem.count} ({problem.reason}): {problem.detail}", file=sys.stderr)
    if not reading.facts:
        raise ConfigError("file", f"{arguments.file} has {_nothing(reading.problems)}")
    name = arguments.run_name or _run_name(arguments.file)
    result = replay(reading.facts, DEFAULT, name)
    if arguments.openmetrics:
        _write_openmetrics(Path(arguments.openmetrics), result, name)
    if arguments.json:
        print(json.dumps(as_json(result, name, reading.problems), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(as_text(result, name))
    return 1 if arguments.fail_on_verdict and result.findings else 0


def _read(file: str, mapping: dict[str, str], unit: str) -> Reading[RecordedStep]:
    """Read the file; whatever is wrong with it is wrong use of the command."""
    try:
        return read_recording(sys.stdin.buffer if file == "-" else Path(file), mapping, unit)
    except (SourceAbsentError, SourceFailedError, ParseError) as error:
        raise ConfigError("file", str(error)) from error


def _nothing(problems: Sequence[Problem]) -> str:
    if not problems:
        return "column names but no rows"
    reasons = ", ".join(f"{problem.count} {problem.reason}" for problem in problems)
    return f"no row that can be used ({reasons})"


def _run_name(file: str) -> str:
    if file == "-":
        return "stdin"
    name = Path(file).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet"):
        name = name.removesuffix(ending)
    return name or "recording"


def _write_openmetrics(path: Path, result: Replay, name: str) -> None:
    try:
        from straggler.metrics.backfill import backfill_lines
    except ModuleNotFoundError as error:
        raise ConfigError(
            "openmetrics", f"needs {error.name}; install it with: pip install 'straggler-exporter[sidecar]'"
        ) from error
    try:
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(backfill_lines(result.line, name))
    except OSError as error:
        raise ConfigError("openmetrics", f"cannot write {path}: {error.strerror}") from error
    if not result.line.dated:
        print(
            "straggler: the recording has no times: its metrics begin at the epoch; give a column time to date them",
            file=sys.stderr,
        )
