"""What is wrong with the RDMA ports of a node. Whoever trains there sends through all of them, so a bad one slows all.

A port that has never been up is most often one that nobody has cabled: it is no fault until it was seen to work. Error
counters only grow, so they are compared with their past; a few errors in an hour are within what the standard allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.join.network import expected_rates
from straggler.model.network import PortFacts, PortFault, PortKey

_SPACING_SECONDS: Final = 60.0
_BITS_PER_GIGABIT: Final = 1e9
_COUNTED: Final = {
    "link_downs_total": "losses of the link",
    "link_recoveries_total": "recoveries of the link",
    "symbol_errors_total": "symbol errors",
}


class _Mark(NamedTuple):
    at: float
    counters: dict[str, float]


class PortMemory:
    """Remembers the error counters of the last hour. Times are monotonic seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._marks: dict[PortKey, deque[_Mark]] = {}

    def look(self, now: float, ports: Sequence[PortFacts]) -> tuple[PortFault, ...]:
        """Tell what is wrong now, and take in how the counters stand.

        Args:
            now: the moment.
            ports: all of the node.
        """
        expected = expected_rates(ports)
        others_up = sum(port.up is True for port in ports)
        faults = []
        for port in ports:
            if port.lost and others_up:
                faults.append(_fault(port, "down", f"is {port.state} ({port.physical_state}), and was up"))
            if (rate := self._slow(port, expected.get(port.key))) is not None:
                faults.append(rate)
            if (errors := self._errors(now, port)) is not None:
                faults.append(errors)
        self._marks = {port.key: self._marks[port.key] for port in ports}
        return tuple(faults)

    def _slow(self, port: PortFacts, expected: float | None) -> PortFault | None:
        rate = port.rate_bytes_per_second
        if rate is None or expected is None or rate >= self._policy.network_rate_ratio * expected:
            return None
        text = f"has {_gigabits(rate)}, where its peers have, or it had, {_gigabits(expected)}"
        return _fault(port, "rate", text)

    def _errors(self, now: float, port: PortFacts) -> PortFault | None:
        policy = self._policy
        mark = _Mark(now, {name: port.counters[name] for name in _COUNTED if name in port.counters})
        marks = self._marks.setdefault(port.key, deque())
        found = None
        for seconds in (policy.network_errors_seconds, policy.network_errors_fast_seconds):
            before = next((old for old in reversed(marks) if old.at <= now - seconds), None)
            if found is None and before is not None:
                grown = self._grown(before, mark)
                text = f"counted {grown} in the last {wording.seconds(seconds)}"
                found = _fault(port, "errors", text) if grown else None
        while len(marks) > 1 and marks[1].at <= now - policy.network_errors_seconds:
            marks.popleft()
        if not marks or now - marks[-1].at >= _SPACING_SECONDS:
            marks.append(mark)
        return found

    def _grown(self, before: _Mark, now: _Mark) -> str:
        """Which counters grew too much, and by how much; ``""`` if none did."""
        told = []
        most = {"symbol_errors_total": self._policy.network_symbol_errors}
        for name, words in _COUNTED.items():
            if name in before.counters and name in now.counters:
                # A counter that was reset has fallen, and tells nothing yet.
                growth = now.counters[name] - before.counters[name]
                if growth > most.get(name, self._policy.network_flaps):
                    told.append(f"{growth:.0f} {words}")
        return ", ".join(told)


def _fault(port: PortFacts, fault: str, text: str) -> PortFault:
    return PortFault(port.key.device, port.key.port, fault, f"{port.key} {text}")


def _gigabits(bytes_per_second: float) -> str:
    return f"{bytes_per_second * 8 / _BITS_PER_GIGABIT:g} Gb/s"
