"""What a simulated run is like: how long each rank works in each step, and what is wrong with which rank.

Pure and repeatable: the same scenario gives the same durations on every machine, whether real processes act them
out (``trainer.py``) or a suite computes them step by step.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from random import Random

from straggler.errors import ConfigError
from straggler.simulate.faults import KINDS, Hits, Kind, Symptoms
from straggler.simulate.work import Work

__all__ = ["Fault", "Scenario", "Work"]

_LEAST_NOISE = 0.1
"""A part never shrinks below this share of its length, however large the jitter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong, with whom, and when."""

    name: str = "none"
    """A key of ``KINDS``."""
    rank: int = 0
    """The one with the fault; of a fault that hits all, one on the node that has it."""
    factor: float = 1.0
    """The afflicted parts take this many times as long."""
    begins_step: int = 1
    """First step under the fault; the first step of a run is 1."""
    ends_step: int | None = None
    """First step that is well again; ``None`` for never."""

    @property
    def kind(self) -> Kind:
        """What it is like."""
        return KINDS[self.name]

    @property
    def slows(self) -> bool:
        """Whether any step becomes longer."""
        return self.factor != 1.0 and bool(self.kind.lengthens)

    @property
    def is_none(self) -> bool:
        """Whether nothing is wrong at all."""
        return self.name == "none" or bool(self.kind.lengthens and self.factor == 1.0)

    @property
    def symptoms(self) -> Symptoms:
        """What GPU, adapter and NCCL of the afflicted rank show."""
        return Symptoms() if self.is_none else self.kind.symptoms

    def lasts_in(self, step: int) -> bool:
        """Whether it is there in this step."""
        return not self.is_none and step >= self.begins_step and (self.ends_step is None or step < self.ends_step)

    def afflicts(self, rank: int, step: int) -> bool:
        """Whether the fault makes this step of this rank longer."""
        return self.slows and self.lasts_in(step) and (rank == self.rank or self.kind.hits is Hits.EXCHANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. JSON and back without loss: ``Scenario.from_json(s.to_json()) == s``.

    Raises:
        ConfigError: on construction, if a value is out of range; its key is the field's name.
    """

    run: str = "demo"
    ranks: int = 8
    work: Work = field(default_factory=Work)
    """What a healthy rank does in a step."""
    fault: Fault = field(default_factory=Fault)
    jitter: float = 0.005
    """Standard deviation of each own part, relative to its length. Each rank and step draws anew."""
    seed: int = 1
    tokens: int = 8192
    """Per rank and step."""
    nodes: int = 1
    """Ranks are spread over so many nodes, in order."""

    def __post_init__(self) -> None:
        """Refuse what cannot be acted out."""
        if not 1 <= self.ranks <= 1024:
            raise ConfigError("ranks", f"{self.ranks} is not in 1 … 1024")
        if not 1 <= self.nodes <= self.ranks:
            raise ConfigError("ranks", f"{self.ranks} ranks cannot be on {self.nodes} nodes")
        if self.fault.name not in KINDS:
            raise ConfigError("fault", f"{self.fault.name!r} is none of {', '.join(KINDS)}")
        if not 0 <= self.fault.rank < self.ranks:
            raise ConfigError("slow_rank", f"{self.fault.rank} is not in 0 … {self.ranks - 1}")
        if not 0.1 <= self.fault.factor <= 100:
            raise ConfigError("slow_factor", f"{self.fault.factor} is not in 0.1 … 100")
        if not 0 <= self.jitter <= 1:
            raise ConfigError("jitter", f"{self.jitter} is not in 0 … 1")
        if min(asdict(self.work).values()) < 0 or self.work.compute_seconds == 0:
            raise ConfigError("work", "a part of a step cannot be shorter than nothing, and nobody trains without one")

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong, so that nothing may be said."""
        return self.fault.is_none

    def node_of(self, rank: int) -> int:
        """Number of the node that a rank is on."""
        return rank * self.nodes // self.ranks

    def ranks_on(self, node: int) -> range:
        """The ranks of one node."""
        return range(-(-node * self.ranks // self.nodes), -(-(node + 1) * self.ranks // self.nodes))

    def work_of(self, rank: int, step: int) -> Work:
        """What this rank does in this step, with jitter and fault."""
        own = self.expected_work(rank, step)
        if self.jitter == 0:
            return own
        dice = Random(f"{self.seed}/{rank}/{step}")  # noqa: S311 - repeatable on purpose; nothing secret
        return replace(
            own,
            data_seconds=own.data_seconds * self._noise(dice),
            forward_seconds=own.forward_seconds * self._noise(dice),
            backward_seconds=own.backward_seconds * self._noise(dice),
            optimizer_seconds=own.optimizer_seconds * self._noise(dice),
            h2d_seconds=own.h2d_seconds * self._noise(dice),
        )

    def _noise(self, dice: Random) -> float:
        return max(_LEAST_NOISE, dice.gauss(1.0, self.jitter))

    def expected_work(self, rank: int, step: int) -> Work:
        """The same without jitter."""
        if not self.fault.afflicts(rank, step):
            return self.work
        longer = {part: getattr(self.work, part) * self.fault.factor for part in self.fault.kind.lengthens}
        return replace(self.work, **longer)

    def clock_ratio(self, rank: int, step: int) -> float:
        """The share of its full SM clock at which the rank's GPU computes."""
        is_lower = self.fault.kind.lowers_clock and self.fault.afflicts(rank, step)
        return 1 / self.fault.factor if is_lower else 1.0

    def expected_step_seconds(self, step: int) -> float:
        """How long the step takes for every rank, without jitter: the last to arrive sets the pace."""
        works = (self.work, self.expected_work(self.fault.rank, step))
        return (
            max(work.until_arrival_seconds for work in works)
            + max(work.all_reduce_seconds for work in works)
            + max(work.optimizer_seconds for work in works)
        )

    @property
    def expected_efficiency(self) -> float:
        """Healthy step over step under the fault: the share of the run's speed that is left."""
        return self._well.expected_step_seconds(1) / self.expected_step_seconds(self.fault.begins_step)

    @property
    def _well(self) -> Scenario:
        return replace(self, fault=Fault())

    def step_after(self, seconds: float) -> int:
        """Number of the first step that begins at least so long after the start of a healthy run."""
        return 1 + round(seconds / self._well.expected_step_seconds(1))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Read what ``to_json`` wrote.

        Raises:
            ConfigError: a value is out of range.
            TypeError: a key is unknown or missing.
        """
        values = json.loads(text)
        return cls(**{**values, "work": Work(**values["work"]), "fault": Fault(**values["fault"])})
