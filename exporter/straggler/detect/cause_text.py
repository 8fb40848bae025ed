"""A cause in words: the numbers beside the peers', and for an unknown one what was looked at and what nobody shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from straggler.detect import wording
from straggler.detect.cause import UNKNOWN, Cause, Peers
from straggler.detect.lately import HELD_BY, Lately

_ALIKE = 0.98
"""Of the peers': what differs less is not worth a word."""

NAMES: Mapping[str, str] = {
    "power_brake": "Power brake",
    "thermal": "Heat",
    "power_cap": "Power cap",
    "clocks_set_low": "Clocks set low",
    "pcie_degraded": "Degraded PCIe link",
    "host_cpu": "Host CPU",
    "memory": "Host memory",
    "work": "More work than its peers",
    "data_loading": "Data loading",
    "gpu_errors": "GPU errors",
    UNKNOWN: "Unknown",
}


def sentence(cause: Cause) -> str:
    """``Heat: SM clock 1,155 MHz, peers 1,980 MHz, held down by heat 62 % of the time; explains 94 % of the gap``."""
    if cause.rank is None or cause.gap is None:
        return "Unknown: its phases over the last minutes are not known"
    if cause.name == UNKNOWN:
        return f"Unknown: {_looked_at(cause, cause.rank, cause.gap)}"
    share = min(cause.share or 0.0, 1.0)
    evidence = _EVIDENCE[cause.name](cause.rank, cause.peers)
    return f"{NAMES[cause.name]}: {evidence}; explains {wording.percent(share)} of the gap"


def _clock(rank: Lately, peers: Peers) -> str:
    text = f"SM clock {_megahertz(rank.sm_clock_hertz)}, peers {_megahertz(peers.clock)}"
    if rank.sm_clock_hertz is not None and peers.clock is not None and rank.sm_clock_hertz > _ALIKE * peers.clock:
        return text  # what holds it down holds the peers' down as well
    held = [
        f"{what} {wording.percent(rank.held[name])} of the time"
        for name, what in (("thermal", "heat"), ("power_brake", "a power brake"), ("power_cap", "the power cap"))
        if rank.held.get(name, 0.0) > 0.01
    ]
    return f"{text}, held down by {' and '.join(held)}" if held else text


def _thermal(rank: Lately, peers: Peers) -> str:
    hot = "" if rank.temperature_celsius is None else f", at {rank.temperature_celsius:.0f} C"
    return _clock(rank, peers) + hot


def _power(rank: Lately, peers: Peers) -> str:
    limit = "" if rank.power_limit_watts is None else f", its power limit is {rank.power_limit_watts:.0f} W"
    return _clock(rank, peers) + limit


def _set_low(rank: Lately, peers: Peers) -> str:
    why = "application clocks are set" if rank.set_low else "no heat, brake or power cap holds it down"
    return f"{_clock(rank, peers)}, {why}"


def _pcie(rank: Lately, peers: Peers) -> str:
    link = f"PCIe link {_rate(rank.pcie_bytes_per_second)}, peers {_rate(peers.pcie)}"
    copies = f", copies {_beside(rank.h2d_seconds, peers.h2d)}" if rank.h2d_seconds else ""
    return link + copies


def _host_cpu(rank: Lately, peers: Peers) -> str:
    return f"ready but without a CPU {_beside(rank.run_delay_seconds, peers.run_delay)}"


def _memory(rank: Lately, peers: Peers) -> str:
    return f"stalled for want of memory {_beside(rank.memory_stall_seconds, peers.memory)}"


def _work(rank: Lately, peers: Peers) -> str:
    compared = ((rank.tokens, peers.tokens, "tokens"), (rank.tensor_hertz, peers.tensor, "tensor arithmetic"))
    parts = [
        f"{mine / usual:.2f} x the {name}" for mine, usual, name in compared if mine and usual and usual < _ALIKE * mine
    ]
    return f"{' and '.join(parts)} of its peers{_same_clock(rank, peers)}"


def _data(rank: Lately, peers: Peers) -> str:
    return f"waits for its next batch {_beside(rank.data_seconds, peers.data)}"


def _errors(rank: Lately, peers: Peers) -> str:
    slow = f"computes {_beside(rank.compute_seconds, peers.compute)}{_same_clock(rank, peers)}"
    return f"{slow}; in the last hour: {', '.join(rank.errors)}"


_EVIDENCE: Mapping[str, Callable[[Lately, Peers], str]] = {
    "power_brake": _clock,
    "thermal": _thermal,
    "power_cap": _power,
    "clocks_set_low": _set_low,
    "pcie_degraded": _pcie,
    "host_cpu": _host_cpu,
    "memory": _memory,
    "work": _work,
    "data_loading": _data,
    "gpu_errors": _errors,
}


def _looked_at(cause: Cause, rank: Lately, gap: float) -> str:
    peers = cause.peers
    parts = [
        ("waiting for data", rank.data_seconds, peers.data),
        ("copying", rank.h2d_seconds, peers.h2d),
        ("computing or host code", rank.compute_seconds, peers.compute),
    ]
    phases = [
        f"{wording.percent((mine - usual) / gap)} {name}"
        for name, mine, usual in parts
        if mine is not None and usual is not None and (mine - usual) / gap > 0.05
    ]
    text = f"the gap is {', '.join(phases)}" if phases else "no phase stands out"
    if rank.sm_clock_hertz is not None and peers.clock is not None:
        text += f"; {_clock(rank, peers)}"
    if rank.errors:
        text += f"; in the last hour: {', '.join(rank.errors)}"
    missing = unseen(rank)
    return f"{text}. Not visible: {', '.join(missing)}" if missing else f"{text}. Nothing else that is seen differs"


def unseen(rank: Lately) -> list[str]:
    """What nobody shows of a rank, and would be needed to rule out a cause."""
    needed = [
        ("SM clock", rank.sm_clock_hertz),
        *((f"{_REASONS[name]} (clocks event reason)", rank.held.get(name)) for name in HELD_BY),
        ("tensor activity", rank.tensor_hertz),
        ("PCIe link", rank.pcie_bytes_per_second),
        ("run delay of its process", rank.run_delay_seconds),
        ("memory pressure", rank.memory_stall_seconds),
    ]
    return [name for name, value in needed if value is None]


_REASONS = {"thermal": "heat", "power_brake": "power brake", "power_cap": "power cap"}


def _same_clock(rank: Lately, peers: Peers) -> str:
    if rank.sm_clock_hertz is None or peers.clock is None:
        return ""
    return f" at {_megahertz(rank.sm_clock_hertz)} (peers {_megahertz(peers.clock)})"


def _beside(value: float | None, usual: float | None) -> str:
    return f"{wording.seconds(value or 0.0)} a step, peers {wording.seconds(usual or 0.0)}"


def _megahertz(hertz: float | None) -> str:
    return "unknown" if hertz is None else f"{hertz / 1e6:,.0f} MHz"


def _rate(bytes_per_second: float | None) -> str:
    return "unknown" if bytes_per_second is None else f"{bytes_per_second / 1e9:.1f} GB/s"
