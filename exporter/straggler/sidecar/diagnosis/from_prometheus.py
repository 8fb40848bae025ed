"""What a Prometheus with our rules knows about slow ranks.

Everything comes from recorded series, which exist for slow ranks only: a few dozen small questions, at any size of run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from straggler.detect.cause import CAUSES, UNKNOWN, Cause, Peers
from straggler.detect.cause_text import sentence
from straggler.detect.lately import Lately
from straggler.detect.slowdown import LOWER_QUARTILE, MEDIAN, UPPER_QUARTILE
from straggler.errors import SourceFailedError
from straggler.model.identity import clean_text
from straggler.sidecar.diagnosis.finding import RunState, SlowRank
from straggler.sidecar.diagnosis.prometheus import Prometheus, Sample, selector

_SLOW = "run_rank:training_recent_own_seconds:slowdown_ratio"
_GROUP = ("cluster", "run", "peer_group")
_RANK = (*_GROUP, "rank", "rank_node")
_ON = f"on ({', '.join(_RANK)})"
_MOST_EXPLAINED = 3
"""Slow ranks of a run whose cause is put into words: the slowest."""
_TOLD_ELSEWHERE = frozenset({"TrainingStraggler", "TrainingNodeStraggling"})

Labels = Mapping[str, str]


class _Run(NamedTuple):
    cluster: str
    run: str


def diagnose(server: Prometheus, run: str | None) -> list[RunState]:
    """All runs that are seen, or one.

    Args:
        server: with our rules; vmalert's results in VictoriaMetrics are the same.
        run: its name; ``None`` for all.

    Raises:
        SourceFailedError: it cannot be asked, or knows no run, with what to do about it.
    """
    only = selector(run=run) if run is not None else ""
    alive = _by_run(server.query(f"run:training_ranks_alive:count{only}"))
    slow = server.query(f"sort_desc({_SLOW}{only})")
    if not alive and not slow:
        raise SourceFailedError("no_run", _why_no_run(server, run))
    facts = _Facts(server, only)
    steps = _by_run(server.query(f"run:training_recent_step_seconds:mean{only}"))
    rate = _by_run(server.query(f"run:training_lost_gpu_seconds:per_second{only}"))
    lost = _by_run(server.query(f"run:training_lost_gpu_seconds:since_start{only}"))
    firing = only[:-1] + "," if only else "{"
    alerts = server.query(f'ALERTS{firing}alertstate="firing",severity!="info"}}')
    states = []
    for key in sorted({*alive, *(_run_of(one.labels) for one in slow)}):
        mine = [one for one in slow if _run_of(one.labels) == key]
        states.append(
            RunState(
                run=clean_text(key.run),
                cluster=clean_text(key.cluster),
                ranks=int(alive[key]) if key in alive else None,
                step_seconds=steps.get(key),
                slow=tuple(facts.slow_rank(one, explain=index < _MOST_EXPLAINED) for index, one in enumerate(mine)),
                lost_gpu_hours_an_hour=rate.get(key),
                lost_gpu_hours=lost[key] / 3600 if key in lost else None,
                alerts=_alerts([one.labels for one in alerts if _run_of(one.labels) == key]),
            )
        )
    return states


class _Facts:
    """What is asked once for all slow ranks."""

    def __init__(self, server: Prometheus, only: str) -> None:
        self._server = server
        self._causes = {
            _key(one.labels): one.labels["cause"] for one in server.query(f"run_rank:straggler_cause{only}")
        }
        self._lost = self._values(f"run_rank:training_recent_own_seconds:excess_share{only}")
        self._own = self._values(f"max by ({', '.join(_RANK)}) (training_recent_own_seconds{only} and {_ON} {_SLOW})")
        since = "ALERTS_FOR_STATE" + (only[:-1] + "," if only else "{") + 'alertname="TrainingStraggler"}'
        self._since = self._values(f"min by ({', '.join(_RANK)}) ({since})")
        self._info = {
            _key(one.labels): one.labels for one in server.query(f"training_rank_info{only} and {_ON} {_SLOW}")
        }

    def _values(self, expression: str) -> dict[tuple[str, ...], float]:
        return {_key(one.labels): one.value for one in self._server.query(expression)}

    def slow_rank(self, slow: Sample, *, explain: bool) -> SlowRank:
        """One of them; with the cause in words, if wanted: that asks some twenty small questions."""
        key, labels = _key(slow.labels), {name: clean_text(value) for name, value in slow.labels.items()}
        info = {name: clean_text(value) for name, value in self._info.get(key, {}).items()}
        own, cause = self._own.get(key), self._causes.get(key, UNKNOWN)
        cause = cause if cause in CAUSES else UNKNOWN
        return SlowRank(
            run=labels["run"],
            rank=int(labels["rank"]),
            peer_group=labels.get("peer_group", ""),
            node=labels.get("rank_node", ""),
            gpu=info.get("gpu", ""),
            gpu_uuid=info.get("UUID", ""),
            pod=info.get("rank_pod", ""),
            slurm_job=info.get("slurm_job", ""),
            slowdown_ratio=slow.value,
            own_seconds=own,
            peers_own_seconds=own / slow.value if own is not None and slow.value > 0 else None,
            since=self._since.get(key),
            lost_share=self._lost.get(key),
            cause=cause,
            cause_text=sentence(self._explained(slow.labels, cause, info.get("UUID", ""))) if explain else "",
        )

    def _explained(self, labels: Labels, cause: str, uuid: str) -> Cause:
        rank = selector(**{name: labels.get(name, "") for name in _RANK})
        group = selector(**{name: labels.get(name, "") for name in _GROUP})
        ask = self._server
        gap = ask.number(f"run_rank:training_own_seconds:excess{rank}")
        share = ask.number(f"run_rank:training_cause:explained_share{rank[:-1]},cause={_quoted(cause)}}}")
        return Cause(cause, share, gap, self._lately(rank, uuid) if gap is not None else None, self._peers(group))

    def _lately(self, rank: str, uuid: str) -> Lately:
        found = self._server.query(
            f'{{__name__=~"run_rank:training_.+:(per_step|mean|possible|held_share|last_hour)",{rank[1:]}'
        )
        values = {_series(one.labels): one.value for one in found}
        held = {
            one.labels["cause"]: min(1.0, one.value)  # a counter that moves every 30 s gives a rate above 1
            for one in found
            if one.labels.get("__name__", "").endswith(":held_share")
        }
        has_errors = any(one.labels.get("__name__", "").endswith(":last_hour") for one in found)
        return Lately(
            step_seconds=0.0,
            own_seconds=values.get("own_seconds"),
            data_seconds=values.get("phase_seconds/data", 0.0),
            h2d_seconds=values.get("phase_seconds/h2d", 0.0),
            tokens=values.get("tokens"),
            run_delay_seconds=values.get("run_delay_seconds"),
            memory_stall_seconds=values.get("memory_stall_seconds"),
            sm_clock_hertz=values.get("gpu_sm_clock_hertz"),
            tensor_hertz=values.get("gpu_tensor_hertz"),
            held={name: share for name, share in held.items() if name != "clocks_set_low"},
            set_low=held.get("clocks_set_low", 0.0) > 0,
            pcie_bytes_per_second=values.get("gpu_pcie_bytes_per_second"),
            errors=self._errors(uuid) if has_errors else (),
        )

    def _errors(self, uuid: str) -> tuple[str, ...]:
        seen = self._server.query(f"max by (xid) (gpu_xid_events_by_number_total{selector(UUID=uuid)})")
        numbers = sorted(one.labels["xid"] for one in seen if one.labels.get("xid", "").isdigit())
        return tuple(f"XID {number}" for number in numbers) or ("an uncorrected ECC error or a row to be remapped",)

    def _peers(self, group: str) -> Peers:
        def at(q: float, name: str, phase: str = "") -> float | None:
            chosen = group if not phase else f"{group[:-1]},phase={_quoted(phase)}}}"
            return self._server.number(f"quantile({q}, run_rank:training_{name}{chosen})")

        return Peers(
            own=at(LOWER_QUARTILE, "own_seconds:per_step"),
            now=None,
            data=at(LOWER_QUARTILE, "phase_seconds:per_step", "data"),
            h2d=at(LOWER_QUARTILE, "phase_seconds:per_step", "h2d"),
            tokens=at(MEDIAN, "tokens:per_step"),
            run_delay=at(LOWER_QUARTILE, "run_delay_seconds:per_step"),
            memory=at(LOWER_QUARTILE, "memory_stall_seconds:per_step"),
            clock=at(UPPER_QUARTILE, "gpu_sm_clock_hertz:mean"),
            tensor=at(MEDIAN, "gpu_tensor_hertz:mean"),
            pcie=at(UPPER_QUARTILE, "gpu_pcie_bytes_per_second:possible"),
        )


def _series(labels: Labels) -> str:
    """``own_seconds`` of ``run_rank:training_own_seconds:per_step``, with its phase if it has one."""
    name = labels.get("__name__", "").partition(":training_")[2].partition(":")[0]
    return f"{name}/{labels['phase']}" if "phase" in labels else name


def _why_no_run(server: Prometheus, run: str | None) -> str:
    if not server.query("straggler_exporter_build_info"):
        return "it scrapes no sidecar: `straggler doctor --prometheus URL` says what is missing"
    if not server.query("run:training_ranks_alive:count"):
        return "it has no recorded series: load rules/recording/*.yaml, or start a run"
    return f"it knows no run {run!r}; leave --run out to see all"


def _alerts(firing: Sequence[Labels]) -> tuple[str, ...]:
    told = set()
    for labels in firing:
        name = labels.get("alertname", "")
        if name and name not in _TOLD_ELSEWHERE:
            about = [
                f"{part.removeprefix('rank_')} {labels[part]}"
                for part in ("rank", "rank_node", "peer_group", "reason")
                if labels.get(part)
            ]
            told.add(clean_text(f"{name} ({labels.get('severity', '?')}){': ' if about else ''}{', '.join(about)}"))
    return tuple(sorted(told))


def _by_run(samples: Sequence[Sample]) -> dict[_Run, float]:
    return {_run_of(one.labels): one.value for one in samples}


def _run_of(labels: Labels) -> _Run:
    return _Run(labels.get("cluster", ""), labels.get("run", ""))


def _key(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in _RANK)


def _quoted(text: str) -> str:
    return selector(x=text)[3:-1]
