"""The text of the rank's own page: what the sidecar says of a rank, without what a join would add.

Names, types, help texts, labels and limits stand here once more, since a training process must not load the exporter's
code. Tests hold both together: same families, same series, same values, same cleaning of labels.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from straggler.wire import layout
from straggler.wire.recent import Recent
from straggler.wire.records import Identity, StepRecord

RANK_LABELS = ("run", "rank", "peer_group", "rank_node")
INFO_LABELS = (
    *RANK_LABELS,
    "attempt",
    "local_rank",
    "world_size",
    "UUID",
    "gpu",
    "pci_bus_id",
    "GPU_I_ID",
    "gpu_model",
    "rank_pod",
    "rank_namespace",
    "rank_container",
    "slurm_job",
    "rank_user",
    "framework",
    "clock",
    "own",
    "own_reason",
    "evidence",
    "gpu_source",
    "hook_version",
)
_RECENT = "over the last 32 steps or 10 s, whichever is more"
_NS = 1e-9
_MAX_LABEL_CHARACTERS = 128
_DIGEST_CHARACTERS = 9

HANG_STEPS = 10.0
HANG_MIN_SECONDS = 120.0
HANG_EXCLUDED_SECONDS = 3600.0


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    help: str
    label: str = ""
    """The label besides those of the rank."""


FAMILIES = (
    Family("training_step_seconds", "summary", "Wall time of a step; the same on all ranks of a synchronous run"),
    Family("training_own_seconds_total", "counter", "Time not blocked on peers, without checkpoint and eval"),
    Family("training_wait_seconds_total", "counter", "Time blocked on peers, in collectives and send/recv"),
    Family("training_recent_own_seconds", "gauge", f"Mean own time of a step {_RECENT}"),
    Family("training_recent_own_median_seconds", "gauge", f"Median own time of a step {_RECENT}"),
    Family("training_recent_step_seconds", "gauge", f"Mean wall time of a step {_RECENT}"),
    Family("training_recent_wait_seconds", "gauge", f"Mean time blocked on peers in a step {_RECENT}"),
    Family("training_recent_min_wait_seconds", "gauge", f"Least time blocked on peers in a step {_RECENT}"),
    Family("training_recent_steps", "gauge", "Number of steps that the training_recent_ values are over"),
    Family("training_phase_seconds_total", "counter", "Time in each phase; the phases add up to the step", "phase"),
    Family("training_host_data_seconds_total", "counter", "Host time waiting for a batch where phases are GPU time"),
    Family("training_step", "gauge", "Number of the last finished step, as the training loop counts"),
    Family("training_last_step_timestamp_seconds", "gauge", "When the last finished step ended"),
    Family("training_rank_arrivals_total", "counter", "How often the rank reached a blocking point"),
    Family("training_rank_phase", "gauge", "1 while the rank is in checkpoint or eval", "phase"),
    Family("training_tokens_total", "counter", "Tokens trained on, where the loop says so"),
    Family("training_samples_total", "counter", "Samples trained on, where the loop says so"),
    Family("training_flops_total", "counter", "Model floating point operations, where known"),
    Family("training_allreduce_bytes_total", "counter", "Bytes given to all-reduce, where known"),
    Family("training_rank_state", "gauge", "1 for the state the rank is in", "state"),
    Family("training_world_size", "gauge", "Ranks that the run was started with"),
    Family("training_rank_info", "info", "Identity of the rank and of its GPU; value 1"),
)
"""In the catalogue's order."""


class Facts(NamedTuple):
    """What the page is made from."""

    identity: Identity
    newest: StepRecord | None
    """The last record, with the totals."""
    recent: Recent | None
    arrivals: int
    excluded_phase: int | None
    own_reason: str
    silent_seconds: float
    """Since anything about the rank moved."""


Samples = dict[str, list[tuple[str, float | None]]]
"""For each family: the part behind its name, with labels, and the value; ``None`` is absent."""


def render(facts: Facts) -> str:
    """Make the page in the text format 0.0.4."""
    samples = _samples(facts)
    lines = []
    for family in FAMILIES:
        present = [(series, value) for series, value in samples.get(family.name, ()) if value is not None]
        if present:
            kind = "gauge" if family.kind == "info" else family.kind
            lines.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n")
            lines.extend(f"{family.name}{series} {float(value)!r}\n" for series, value in present)
    return "".join(lines)


def _samples(facts: Facts) -> Samples:
    identity, record, recent = facts.identity, facts.newest, facts.recent
    values = _rank_values(identity)
    labels = _pairs(RANK_LABELS, values)
    plain = f"{{{labels}}}"
    hung = is_hung(facts)
    states = {"running": not hung, "hung": hung, "crashed": False, "finished": False}
    samples: Samples = {
        "training_rank_state": [(_with(labels, "state", state), float(now)) for state, now in states.items()],
        "training_rank_info": [(f"{{{_pairs(INFO_LABELS, (*values, *_info_values(facts)))}}}", 1)],
        "training_world_size": [(plain, identity.world_size)],
        "training_rank_phase": [
            (_with(labels, "phase", layout.PHASES[index]), float(facts.excluded_phase == index))
            for index in layout.EXCLUDED
        ],
    }
    if record is not None:
        for name, value in _totals(record, facts.arrivals, identity.clock).items():
            samples[name] = [(plain, value)]
        samples["training_step_seconds"] = [
            (f"_count{plain}", record.total_steps),
            (f"_sum{plain}", record.total_wall_ns * _NS),
        ]
        samples["training_phase_seconds_total"] = [
            (_with(labels, "phase", phase), total * _NS)
            for phase, total in zip(layout.PHASES, record.total_phase_ns, strict=True)
        ]
    if recent is not None:
        for name, value in _recent(recent).items():
            samples[name] = [(plain, value)]
    return samples


def _totals(record: StepRecord, arrivals: int, clock: str) -> dict[str, float | None]:
    measured = record.total_steps > record.total_unmeasured_steps
    known = record.flags
    return {
        "training_own_seconds_total": record.total_own_ns * _NS if measured else None,
        "training_wait_seconds_total": record.total_wait_ns * _NS if measured else None,
        "training_host_data_seconds_total": record.total_host_data_ns * _NS if clock == "cuda" else None,
        "training_rank_arrivals_total": max(arrivals, record.arrivals),
        "training_tokens_total": record.total_tokens if known & layout.FLAG_TOKENS else None,
        "training_samples_total": record.total_samples if known & layout.FLAG_SAMPLES else None,
        "training_flops_total": record.total_flops if known & layout.FLAG_FLOPS else None,
        "training_allreduce_bytes_total": record.total_allreduce_bytes if known & layout.FLAG_ALLREDUCE else None,
        "training_step": record.step,
        "training_last_step_timestamp_seconds": record.end_realtime_ns * _NS,
    }


def _recent(recent: Recent) -> dict[str, float | None]:
    return {
        "training_recent_own_seconds": recent.own_mean_seconds,
        "training_recent_own_median_seconds": recent.own_median_seconds,
        "training_recent_step_seconds": recent.step_mean_seconds,
        "training_recent_wait_seconds": recent.wait_mean_seconds,
        "training_recent_min_wait_seconds": recent.wait_min_seconds,
        "training_recent_steps": recent.steps,
    }


def is_hung(facts: Facts) -> bool:
    """Whether nothing has moved for longer than a living rank may be silent, by the sidecar's rule."""
    if facts.recent is None:
        return facts.silent_seconds > HANG_EXCLUDED_SECONDS
    limit = max(HANG_STEPS * facts.recent.step_mean_seconds, HANG_MIN_SECONDS)
    if facts.excluded_phase is not None:
        limit = max(limit, HANG_EXCLUDED_SECONDS)
    return facts.silent_seconds > limit


def _rank_values(identity: Identity) -> tuple[str, ...]:
    return identity.run, str(identity.rank), identity.peer_group, identity.node


def _info_values(facts: Facts) -> tuple[str, ...]:
    identity = facts.identity
    return (
        _text(identity.attempt),
        _text(identity.local_rank),
        _text(identity.world_size),
        identity.gpu_uuid,
        _text(identity.gpu),
        identity.pci_bus_id,
        _text(identity.gpu_instance),
        "",
        identity.pod,
        identity.namespace,
        identity.container,
        identity.slurm_job,
        identity.user,
        identity.framework,
        identity.clock,
        "measured" if facts.own_reason == "measured" else "none",
        facts.own_reason,
        "",
        "",
        identity.hook_version,
    )


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{_escape(clean(value))}"' for name, value in zip(names, values, strict=True))


def _with(labels: str, name: str, value: str) -> str:
    return f'{{{labels},{name}="{value}"}}'


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def clean(text: str) -> str:
    """Make a label value printable and bounded, as the sidecar does."""
    printable = text.strip()
    if not printable.isprintable():
        printable = "".join(c if c.isprintable() else "\ufffd" for c in printable)
    if len(printable) <= _MAX_LABEL_CHARACTERS:
        return printable
    digest = crc32(text.encode("utf-8", "replace"))
    return f"{printable[: _MAX_LABEL_CHARACTERS - _DIGEST_CHARACTERS]}~{digest:08x}"
