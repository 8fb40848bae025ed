"""``straggler diagnose``: who is slow, since when, at what cost, why, and what to type next."""

from __future__ import annotations

import argparse
import json
import time

from straggler.cli.access import access_of, add_access_arguments, server_url
from straggler.cli.top import DEFAULT_URL, ranks_url, read_ranks
from straggler.errors import SourceFailedError
from straggler.sidecar.diagnosis.finding import RunState, document, lines
from straggler.sidecar.diagnosis.from_prometheus import diagnose
from straggler.sidecar.diagnosis.from_sidecar import diagnose_node
from straggler.sidecar.diagnosis.prometheus import Prometheus

_MOST_BYTES = 1 << 26
_EPILOG = """\
--prometheus asks a server that has our rules (Prometheus, VictoriaMetrics, Thanos, Mimir). --local asks this node's
sidecar alone: it compares only the ranks of this node, and does not know since when or what it has cost.
Causes: docs/causes.md. The command under `next` is for the slow rank's node.

Exit code 0: nobody is slow and nothing else fires about the runs; 1: somebody is, or it could not be asked (then it
says why on standard error); 2: wrong use.
--json prints {"ok": true|false, "runs": [{"run", "cluster", "ranks", "step_seconds", "lost_gpu_hours_an_hour",
"lost_gpu_hours", "alerts": [...], "slow": [{"rank", "peer_group", "node", "gpu", "gpu_uuid", "pod", "slurm_job",
"slowdown_ratio", "own_seconds", "peers_own_seconds", "since", "lost_share", "cause", "cause_text",
"next_command"}]}]}; what is not known is absent.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="ask this server, e.g. http://prometheus:9090")
    source.add_argument(
        "--local",
        nargs="?",
        const=DEFAULT_URL,
        metavar="URL",
        help=f"ask one sidecar alone (default {DEFAULT_URL})",
    )
    parser.add_argument("--run", dest="run_name", metavar="RUN", help="one training run only, as /metrics names it")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")
    add_access_arguments(parser, "a server")


def run(arguments: argparse.Namespace) -> int:
    """Print what is known.

    Raises:
        ConfigError: a URL or a file cannot be used.
        SourceFailedError: the server cannot be asked, or knows no run.
    """
    states = _states(arguments)
    is_well = all(state.is_well for state in states)
    if arguments.json:
        print(json.dumps({"ok": is_well, "runs": [document(state) for state in states]}, indent=2))
        return 0 if is_well else 1
    now = time.time()
    for index, state in enumerate(states):
        if index:
            print()
        print("\n".join(lines(state, now)))
    return 0 if is_well else 1


def _states(arguments: argparse.Namespace) -> list[RunState]:
    access = access_of(arguments, max_body_bytes=_MOST_BYTES)
    if arguments.local is not None:
        states = diagnose_node(read_ranks(ranks_url(arguments.local), access), arguments.run_name)
        if not states:
            whose = "" if arguments.run_name is None else " of that run"
            raise SourceFailedError("no_run", f"no living rank{whose} is on this node; `straggler top` shows all")
        return states
    url = server_url(arguments.prometheus, "prometheus", "http://127.0.0.1:9090")
    return diagnose(Prometheus(url, access), arguments.run_name)
