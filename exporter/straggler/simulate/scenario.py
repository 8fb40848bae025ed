"""What a simulated run is like: how long each rank works in each step, and what is wrong with which rank.

Pure and repeatable: the same scenario gives the same durations on every machine, whether real processes act them
out (``trainer.py``) or a suite computes them step by step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from types import MappingProxyType

from straggler.errors import ConfigError

SLOWED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "none": (),
        "slow-rank": ("forward_seconds", "backward_seconds"),
    }
)
"""Every fault by name, with the parts of ``Work`` that its factor makes longer on the afflicted rank."""

_LEAST_NOISE = 0.1
"""A part never shrinks below this share of its length, however large the jitter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one rank does in one step, in seconds: all parts but the waiting for others."""

    data_seconds: float = 0.006
    forward_seconds: float = 0.010
    backward_seconds: float = 0.016
    all_reduce_seconds: float = 0.010
    """The exchange itself, from the arrival of the last rank; the same for all ranks."""
    optimizer_seconds: float = 0.002

    @property
    def compute_seconds(self) -> float:
        """Forward and backward: the part that needs the GPU's multiprocessors."""
        return self.forward_seconds + self.backward_seconds

    @property
    def until_arrival_seconds(self) -> float:
        """From the start of the step to the barrier."""
        return self.data_seconds + self.compute_seconds

    @property
    def own_seconds(self) -> float:
        """The step without waiting and without the exchange."""
        return self.until_arrival_seconds + self.optimizer_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong, with whom, and when."""

    name: str = "none"
    """A key of ``SLOWED``."""
    rank: int = 0
    factor: float = 1.0
    """The afflicted parts take this many times as long."""
    begins_step: int = 1
    """First slow step; the first step of a run is 1."""
    ends_step: int | None = None
    """First step that is well again; ``None`` for never."""

    def afflicts(self, rank: int, step: int) -> bool:
        """Whether the fault makes this step of this rank longer."""
        return (
            self.factor != 1.0
            and bool(SLOWED[self.name])
            and rank == self.rank
            and step >= self.begins_step
            and (self.ends_step is None or step < self.ends_step)
        )


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

    def __post_init__(self) -> None:
        """Refuse what cannot be acted out."""
        if not 1 <= self.ranks <= 1024:
            raise ConfigError("ranks", f"{self.ranks} is not in 1 … 1024")
        if self.fault.name not in SLOWED:
            raise ConfigError("fault", f"{self.fault.name!r} is none of {', '.join(SLOWED)}")
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
        """Whether no rank ever becomes slower than the others."""
        return self.fault.factor == 1.0 or not SLOWED[self.fault.name]

    def work_of(self, rank: int, step: int) -> Work:
        """What this rank does in this step, with jitter and fault."""
        own = self.expected_work(rank, step)
        if self.jitter == 0:
            return own
        dice = Random(f"{self.seed}/{rank}/{step}")  # noqa: S311 - repeatable on purpose; nothing secret
        return Work(
            data_seconds=own.data_seconds * self._noise(dice),
            forward_seconds=own.forward_seconds * self._noise(dice),
            backward_seconds=own.backward_seconds * self._noise(dice),
            all_reduce_seconds=own.all_reduce_seconds,
            optimizer_seconds=own.optimizer_seconds * self._noise(dice),
        )

    def _noise(self, dice: Random) -> float:
        return max(_LEAST_NOISE, dice.gauss(1.0, self.jitter))

    def expected_work(self, rank: int, step: int) -> Work:
        """The same without jitter."""
        if not self.fault.afflicts(rank, step):
            return self.work
        longer = {part: getattr(self.work, part) * self.fault.factor for part in SLOWED[self.fault.name]}
        return replace(self.work, **longer)

    def expected_step_seconds(self, step: int) -> float:
        """How long the step takes for every rank, without jitter: the last to arrive sets the pace."""
        works = (self.work, self.expected_work(self.fault.rank, step))
        return (
            max(work.until_arrival_seconds for work in works)
            + self.work.all_reduce_seconds
            + max(work.optimizer_seconds for work in works)
        )

    @property
    def expected_efficiency(self) -> float:
        """Healthy step over step under the fault: the share of the run's speed that is left."""
        well = replace(self, fault=Fault()).expected_step_seconds(1)
        return well / self.expected_step_seconds(self.fault.begins_step)

    def step_after(self, seconds: float) -> int:
        """Number of the first step that begins at least so long after the start of a healthy run."""
        return 1 + round(seconds / replace(self, fault=Fault()).expected_step_seconds(1))

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
