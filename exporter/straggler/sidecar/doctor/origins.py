"""The sources, asked once by the very code that the sidecar runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from straggler.detect import wording
from straggler.detect.policy import DEFAULT
from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.model.network import PortFacts
from straggler.model.rank import RankFacts
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sidecar.clock import SystemClock
from straggler.sidecar.config import Config
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sidecar.scrape import Request, Source
from straggler.sidecar.sources import Node

_TIMEOUT_SECONDS = 10.0

_FIXES: dict[tuple[str, str], str] = {
    ("rings", "absent"): "run a training step with StepTimer and the same STRAGGLER_DIR",
    ("rings", "unreadable"): "run the sidecar in the ring directory's group (rings are 0640), or as root",
    ("rings", "writable_by_others"): "chmod go-w FILE; the hook makes rings that only their owner can write",
    ("rings", "wrong_owner"): "add the user to rings.owners",
    ("rings", "too_many_ranks"): "raise limits.ranks",
    ("dcgm", "absent"): "start dcgm-exporter, or say where it is: --dcgm-url http://HOST:9400/metrics",
    ("dcgm", "refused"): "start dcgm-exporter, or say where it is: --dcgm-url http://HOST:9400/metrics",
    ("infiniband", "counters_hidden"): "infiniband.sys_dir: /host/sys, with the host's /sys mounted there",
    (
        "infiniband",
        "unreadable",
    ): "run the sidecar where /sys/class/infiniband is readable; or infiniband.enabled: false",
    ("push", "absent"): "only if training shares no directory with the sidecar: --push-tokens-file FILE",
    ("nccl", "absent"): "in the job NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/var/log/nccl/%h.%p.log, here --nccl-logs PATTERN",
    ("nccl", "no_nccl_lines"): "run the job with NCCL_DEBUG=INFO",
    ("nccl", "unreadable"): "chmod g+r the logs, for the sidecar's group",
    ("nccl", "writable_by_others"): "chmod o-w the logs",
    ("nccl", "wrong_owner"): "add the user to rings.owners",
}
"""By source and reason, where the detail does not say it already."""


def examine_sources(config: Config) -> Iterator[Finding]:
    """Ask each source once, and remove nothing.

    Raises:
        ConfigError: a file that a setting names cannot be used.
    """
    node = Node(config.model_copy(update={"remove_after_seconds": 0.0}), DEFAULT, SystemClock())
    for source in node.sources:
        yield from examine_source(source)


def examine_source(source: Source) -> Iterator[Finding]:
    """Ask one, as if ranks lived here."""
    try:
        reading = source.look(Request(_TIMEOUT_SECONDS, stepping=False, occupied=True))
    except SourceAbsentError as error:
        yield Finding(source.name, Health.ABSENT, str(error), _FIXES.get((source.name, "absent"), ""))
        return
    except SourceFailedError as error:
        yield Finding(source.name, Health.BROKEN, str(error), _FIXES.get((source.name, error.reason), ""))
        return
    if reading.state is SourceState.ABSENT:
        text = "; ".join(problem.detail for problem in reading.problems) or "not on this node"
        yield Finding(source.name, Health.ABSENT, text, _FIXES.get((source.name, "absent"), ""))
        return
    faults = [_finding(source.name, problem) for problem in _kinds((*reading.problems, *reading.blind))]
    if source.name == "nccl" and not reading.facts and not faults:
        fix = _FIXES["nccl", "no_nccl_lines"]
        yield Finding(source.name, Health.ABSENT, "no log so called has NCCL's lines", fix)
    elif reading.state is SourceState.OK:
        yield Finding(source.name, Health.OK, _summary(reading))
    elif not faults:
        yield Finding(source.name, Health.BROKEN, reading.state.value)
    yield from faults


def _kinds(problems: Iterable[Problem]) -> Iterator[Problem]:
    """One for each reason, with the count of all."""
    first: dict[str, Problem] = {}
    counts: dict[str, int] = {}
    for problem in problems:
        first.setdefault(problem.reason, problem)
        counts[problem.reason] = counts.get(problem.reason, 0) + problem.count
    for reason, problem in first.items():
        yield Problem(reason=reason, detail=problem.detail, count=counts[reason])


def _finding(name: str, problem: Problem) -> Finding:
    times = f" ({problem.count} times)" if problem.count > 1 else ""
    text = f"{problem.reason}{times}: {problem.detail}" if problem.detail else f"{problem.reason}{times}"
    detail, _, fix = problem.detail.partition("add to the csv file of dcgm-exporter: ")
    if fix:
        return Finding(name, Health.BROKEN, f"{problem.reason}{times}: {detail or 'fields are switched off'}", fix)
    return Finding(name, Health.BROKEN, text, _FIXES.get((name, problem.reason), ""))


def _summary(reading: Reading[Any]) -> str:
    ports = [fact for fact in reading.facts if isinstance(fact, PortFacts)]
    if ports:
        return f"{sum(port.up is True for port in ports)} of {len(ports)} ports are up"
    if reading.source == "nccl":
        logs = {facts.path for facts in reading.facts}
        return f"{wording.count(len(logs), 'log')}, of {wording.count(len(reading.facts), 'rank')}"
    ranks = [fact for fact in reading.facts if isinstance(fact, RankFacts)]
    if ranks:
        living = sum(rank.alive for rank in ranks)
        newest = max((rank.last_step_timestamp_seconds or 0.0 for rank in ranks), default=0.0)
        age = f", the newest step {time.time() - newest:.1f} s old" if newest else ", no step yet"
        return f"{living} of {len(ranks)} ranks live{age}"
    kinds = {"rings": "ranks", "push": "ranks", "dcgm": "GPUs", "nvml": "GPUs"}
    return f"{len(reading.facts)} {kinds[reading.source]}" if reading.source in kinds else "can be read"
