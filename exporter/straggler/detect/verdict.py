"""What a verdict is. The names are public: rules, runbooks, JSON and scripts use them."""

from __future__ import annotations

from dataclasses import dataclass

INFO = "info"
"""Supports an investigation; nobody acts on it alone."""
WARNING = "warning"
"""A ticket."""
CRITICAL = "critical"
"""A page."""

SUBJECTS: dict[str, tuple[str, ...]] = {
    "straggling_rank": ("peer_group", "rank", "node"),
    "straggling_node": ("node",),
    "heavy_stage": ("peer_group",),
    "rotating_imbalance": (),
    "input_stall": (),
    "slow_everywhere": (),
    "hang": (),
    "crash": (),
    "missing_rank": (),
    "utilization_divergence": (),
    "throttled_gpu": ("rank", "node"),
    "degraded_gpu": ("peer_group", "rank", "node"),
    "degraded_link": ("rank", "node"),
    "slow_transport": ("reason",),
    "blind": ("source", "reason"),
}
"""All verdicts, each with what it is about besides the run. A fact that is not among them (the suspect of a hang, say)
may change while the verdict stays the same one: it belongs into the text, never into the identity."""

VERDICTS = tuple(SUBJECTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One finding about one run at one moment."""

    verdict: str
    """One of ``VERDICTS``."""
    severity: str
    run: str
    peer_group: str | None = None
    rank: int | None = None
    """The rank it is about or, in a hang or a crash, the suspect. ``None``: it is about no single rank."""
    node: str | None = None
    """``""`` where the node is unknown."""
    slowdown_ratio: float | None = None
    lost_share: float | None = None
    """The share of every step that this costs; ``None`` where nobody steps or it cannot be said."""
    waiting: int | None = None
    """How many other GPUs it holds up."""
    gpu_uuid: str = ""
    source: str = ""
    """What is blind: ``own_time`` or ``ranks``."""
    reason: str = ""
    """Why it is blind, as the metrics spell it; or what is wrong with the transport, where NCCL's log tells."""
    cause: str = ""
    """Why a rank or node is slow: one of ``cause.CAUSES``; ``""`` where the verdict has none."""
    cause_text: str = ""
    """The same as a sentence, with the peers' numbers."""
    evidence: str = ""
    """One sentence: the numbers that led to it, beside the peers'."""
    impact: str = ""
    """One sentence: who waits and what is lost."""
    since: float | None = None
    """When it began to hold, in seconds since the epoch; set by ``persistence``."""

    def __post_init__(self) -> None:
        if self.verdict not in SUBJECTS:
            raise ValueError(f"{self.verdict} is no verdict: one of {', '.join(VERDICTS)}")

    @property
    def subject(self) -> tuple[object, ...]:
        """What makes it the same verdict a moment later."""
        return (
            self.verdict,
            self.severity,
            self.run,
            *(getattr(self, name) for name in SUBJECTS[self.verdict]),
        )
