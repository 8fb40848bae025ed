"""What a scenario says: how a run is, what happens to it, and which verdicts it deserves.

Moments are minutes since the run's first step, durations seconds where a name says so. Nothing here knows a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ONSET = 6.0
"""Minute at which trouble begins, where a scenario does not say otherwise: the run is warm, its windows are full."""
FOREVER = float("inf")


class Expect(NamedTuple):
    """One alert that must be told."""

    verdict: str
    severity: str = "warning"
    about: str = ""
    """The rank's number, the node, the peer group or the reason; ``""`` for the run as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """These ranks need ``factor`` times their own time; with a rhythm, only for the first part of each period."""

    ranks: tuple[int, ...]
    factor: float
    begins: float = ONSET
    ends: float = FOREVER
    period: float = FOREVER
    on: float = FOREVER
    """Minutes of each period in which they are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Every rank's every step is as long as its batch: log-normal with this sigma."""

    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """One rank at a time has the popular experts: another one after so many steps."""

    factor: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Every rank's every step may stall, each on its own: garbage collection, or a loader that hiccups."""

    seconds: float
    chance: float
    phase: str = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStall:
    """One rank stalls once."""

    rank: int
    seconds: float
    at: float = ONSET


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The first steps take longer, on each rank by another amount: compilation, caches, autotuning."""

    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The ranks (all, or only the first while the others wait for it) write a checkpoint or evaluate."""

    phase: str
    every: float
    seconds: float
    everyone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """All ranks need ``own`` times their own time, and exchange ``exchange`` times as long."""

    own: float = 1.0
    exchange: float = 1.0
    begins: float = ONSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """All ranks wait for their batch for this share of the step before anything else happens."""

    share: float
    begins: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A rank enters no collective any more; its process lives on. The watchdog may end the job."""

    rank: int | None
    """``None``: all have arrived, and the collective itself does not end."""
    at: float = ONSET
    killed_after: float = FOREVER
    """Seconds until the communication library's watchdog ends all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A rank dies without a goodbye. A launcher may take the others down, and may start the run anew."""

    rank: int
    at: float = ONSET
    others_after: float = FOREVER
    """Seconds."""
    restart_after: float = FOREVER
    """Seconds after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """All ranks say goodbye, the last ones ``straggling`` seconds after the first: they write results."""

    at: float = ONSET
    straggling: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """All ranks are stopped and come back as another attempt, perhaps fewer or more of them."""

    at: float = ONSET
    down: float = 45.0
    ranks: int | None = None
    polite: bool = True
    """Whether the old processes say goodbye."""
    new_gpus: bool = False
    """Whether the ranks come back on other GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Scrapes of a node fail."""

    node: int
    seconds: float
    at: float = ONSET
    every: float = FOREVER
    """Minutes after which it happens again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarRestart:
    """The sidecar of a node is restarted: what it knew beyond the rings is gone."""

    node: int
    down: float = 20.0
    at: float = ONSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """The clocks of a node, both of them, are off."""

    node: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Nobody reports these ranks: no hook, no sidecar, or a ring that freezes."""

    ranks: tuple[int, ...]
    begins: float = 0.0
    frozen: bool = False
    """Their rings stay, with a process that lives, but nothing is written any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Own time of these ranks cannot be measured."""

    ranks: tuple[int, ...]
    reason: str = "hidden_collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """What the GPUs say about themselves, from some moment on."""

    utilization: float | None = 0.95
    sm_active: float | None = 0.62
    begins: float = 0.0
    state: str = "ok"
    """Of the source: ``ok``, ``stale``, ``failed``."""
    blind: str = ""
    """A reason, if the source can see only a part."""
    instances: bool = False
    """Whether the ranks are on MIG instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """Something holds the clock of a rank's GPU down for a share of the time; it makes nobody slow by itself."""

    rank: int
    reason: str
    share: float = 0.6
    begins: float = ONSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty:
    """The GPU of a rank reports an XID, once every so many minutes."""

    rank: int
    xid: int = 94
    begins: float = ONSET
    every: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowLink:
    """The GPU of a rank has half of its PCIe lanes."""

    rank: int
    begins: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What the nodes have for their network, and what NCCL's logs say that it uses between them."""

    ports: bool = True
    """Four RDMA ports a node, or none."""
    transport: str = "ib"
    """``""`` for no log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPort:
    """One RDMA port of a node is bad; the run makes up for it by the others."""

    node: int
    fault: str
    """Its cable is ``out``, it has ``half`` of its speed, its link ``flaps``, or it ``errs``: counts symbol errors."""
    every: float = 1.0
    """Minutes between two flaps or errors."""
    begins: float = ONSET


Trouble = (
    Slow
    | Uneven
    | Hot
    | Stalls
    | OneStall
    | WarmUp
    | Pause
    | Everywhere
    | Loading
    | Hang
    | Kill
    | End
    | Restart
    | Gap
    | SidecarRestart
    | Skew
    | Unseen
    | Unmeasured
    | Gpus
    | Throttled
    | Faulty
    | NarrowLink
    | Adapters
    | BadPort
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run, and what it deserves."""

    name: str
    troubles: tuple[Trouble, ...] = ()
    expect: tuple[Expect, ...] = ()
    """What must be told, each once at least."""
    also: frozenset[str] = field(default_factory=frozenset)
    """Verdicts that are true too but need not be told."""
    paged: bool | None = None
    """Whether a critical alert is right, wrong, or (``None``) either, where nothing critical is expected."""
    ranks: int = 8
    per_node: int = 8
    stages: tuple[float, ...] = (1.0,)
    """Own time of each pipeline stage relative to the first; ranks are dealt to the stages in order."""
    known_stages: bool = True
    own_seconds: float = 1.0
    exchange_share: float = 0.23
    """Of the exchange in a healthy step: the reference step's."""
    data_share: float = 0.04
    jitter: float = 0.03
    """Standard deviation of a step's own time, each rank and step anew."""
    spread: float = 0.01
    """Standard deviation between GPUs of one kind, for the whole run."""
    minutes: float = 26.0
    probe: bool = False
    """Whether it only measures how sensitive the verdicts are: it stands in the curve, and not in the matrix."""
