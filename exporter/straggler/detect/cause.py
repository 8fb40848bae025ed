"""Why a slow rank is slow: how much of its gap each possible cause explains, beside its peers.

The gap is what its own time exceeds the peers' by, in seconds a step over the last five minutes. Each cause predicts a
part of it from what machines do:

- a clock below the peers' stretches compute by their ratio: ``peers' compute x (peers' clock / clock - 1)``;
- a PCIe link below the peers' stretches copies: seen where the hook times copies, reckoned from the bytes elsewhere;
- a training thread that is ready but has no CPU, or stands still for want of memory, loses just that time;
- more tokens, or more tensor arithmetic per time than the peers do, is more work, and not a slower GPU;
- waiting for the next batch is a phase of its own;
- a GPU that is slow at its peers' clock and work, and has reported errors, is taken to be slow for them.

A cause is named only if it explains most of the gap (``Policy.cause_share``). The deeper cause wins: a loader starved
of CPU is the CPU. Else it is unknown, with what was looked at and what could not be seen. Formulas and order are those
of ``rules/recording/cause.yaml``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from straggler.detect.lately import HELD_BY, Lately
from straggler.detect.policy import Policy
from straggler.detect.slowdown import LOWER_QUARTILE, MEDIAN, UPPER_QUARTILE, quantile, reference

UNKNOWN = "unknown"
CAUSES = (
    "power_brake",
    "thermal",
    "power_cap",
    "clocks_set_low",
    "pcie_degraded",
    "host_cpu",
    "memory",
    "work",
    "data_loading",
    "gpu_errors",
    UNKNOWN,
)
"""Of a slow rank, in the order of precedence. The names are public: labels, JSON and runbooks use them.

``link`` and ``transport`` are not among them: they make no rank slow, but all wait longer; ``hardware.degraded_ports``
and ``transport.poor_transport`` find them."""


class Peers(NamedTuple):
    """What a rank of the group should have: quartiles and medians over all of it, the slow rank included."""

    own: float | None
    now: float | None
    data: float | None
    h2d: float | None
    tokens: float | None
    run_delay: float | None
    memory: float | None
    clock: float | None
    tensor: float | None
    pcie: float | None

    @property
    def compute(self) -> float | None:
        """Own time without loading and copying."""
        return None if self.own is None else self.own - (self.data or 0.0) - (self.h2d or 0.0)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one rank is slow."""

    name: str
    """One of ``CAUSES``."""
    share: float | None
    """How much of the gap it explains: about 1 for all of it; ``None`` for ``unknown``."""
    gap: float | None
    """Seconds a step; ``None`` where own time over the last minutes is not known."""
    rank: Lately | None
    peers: Peers


def peers_of(group: Iterable[Lately]) -> Peers:
    """The references of one peer group.

    Args:
        group: all its comparable ranks, any order.
    """
    ranks = list(group)

    def at(q: float, value: Callable[[Lately], float | None]) -> float | None:
        known = [found for rank in ranks if (found := value(rank)) is not None]
        return quantile(q, known) if known else None

    return Peers(
        own=at(LOWER_QUARTILE, lambda rank: rank.own_seconds),
        now=reference([rank.now_seconds for rank in ranks if rank.now_seconds is not None]),
        data=at(LOWER_QUARTILE, lambda rank: rank.data_seconds),
        h2d=at(LOWER_QUARTILE, lambda rank: rank.h2d_seconds),
        tokens=at(MEDIAN, lambda rank: rank.tokens),
        run_delay=at(LOWER_QUARTILE, lambda rank: rank.run_delay_seconds),
        memory=at(LOWER_QUARTILE, lambda rank: rank.memory_stall_seconds),
        clock=at(UPPER_QUARTILE, lambda rank: rank.sm_clock_hertz),
        tensor=at(MEDIAN, lambda rank: rank.tensor_hertz),
        pcie=at(UPPER_QUARTILE, lambda rank: rank.pcie_bytes_per_second),
    )


def explain(rank: Lately | None, group: Sequence[Lately], policy: Policy) -> Cause:
    """Name the cause of one slow rank.

    Args:
        rank: the slow one.
        group: its peer group, itself included, any order.
        policy: the thresholds.
    """
    peers = peers_of(group)
    gap, now = (_above(rank.own_seconds, peers.own), _above(rank.now_seconds, peers.now)) if rank else (0.0, 0.0)
    if rank is None or gap <= 0 or now <= 0:
        return Cause(UNKNOWN, None, None, rank, peers)
    shares = _shares(rank, peers, gap, now, policy)
    named = [name for name in CAUSES if shares.get(name, 0.0) > policy.cause_share]
    return Cause(named[0] if named else UNKNOWN, shares[named[0]] if named else None, gap, rank, peers)


def _shares(rank: Lately, peers: Peers, gap: float, now: float, policy: Policy) -> dict[str, float]:
    """Parts of the gap, by cause: what was counted over minutes, of theirs; what is so now, of that of now."""
    compute = _above(rank.compute_seconds, peers.compute) / gap
    more = max(_more(rank.tokens, peers.tokens) / gap, _more(rank.tensor_hertz, peers.tensor) / now)
    counted = {
        "pcie_degraded": _longer_copies(rank, peers, gap, now, policy),
        "host_cpu": _above(rank.run_delay_seconds, peers.run_delay) / gap,
        "memory": _above(rank.memory_stall_seconds, peers.memory) / gap,
        "work": more * (peers.compute or 0.0),
    }
    # Compute time that these have taken, neither a clock nor errors can explain.
    rest = compute - sum(max(0.0, share) for share in counted.values())
    slowed = min(_stretch(rank, peers) / now, rest)
    return {
        **counted,
        clock_cause(rank, policy): slowed,
        "data_loading": _above(rank.data_seconds, peers.data) / gap,
        "gpu_errors": rest - max(0.0, slowed) if rank.errors else 0.0,
    }


def _stretch(rank: Lately, peers: Peers) -> float:
    if not rank.sm_clock_hertz or peers.clock is None or peers.compute is None:
        return 0.0
    return peers.compute * (peers.clock / rank.sm_clock_hertz - 1)


def clock_cause(rank: Lately, policy: Policy) -> str:
    """What holds a low clock down. A power cap is normal under load, so heat and the brake come first."""
    held = {name: share for name, share in rank.held.items() if share > policy.throttled_share}
    if "thermal" in held or "power_brake" in held:
        return "thermal" if held.get("thermal", 0.0) > held.get("power_brake", 0.0) else "power_brake"
    if "power_cap" in held:
        return "power_cap"
    # Nothing holds it down, and we would see it: somebody has set it. Newer drivers give no reason for that.
    return "clocks_set_low" if rank.set_low or rank.held.keys() == HELD_BY.keys() else UNKNOWN


def _longer_copies(rank: Lately, peers: Peers, gap: float, now: float, policy: Policy) -> float:
    """As the hook timed them, or as the bytes of a step take longer over this link than over the peers'."""
    link, usual = rank.pcie_bytes_per_second, peers.pcie
    if not link or usual is None or link >= policy.degraded_pcie_ratio * usual:
        return 0.0
    received = (rank.pcie_received_bytes_per_second or 0.0) * rank.step_seconds
    return max(received * (1 / link - 1 / usual) / now, _above(rank.h2d_seconds, peers.h2d) / gap)


def _more(mine: float | None, usual: float | None) -> float:
    return 0.0 if mine is None or not usual else mine / usual - 1


def _above(mine: float | None, usual: float | None) -> float:
    return 0.0 if mine is None or usual is None else mine - usual
