"""Reads all ports of all RDMA adapters, each file on its own: one that fails costs one value.

Missing, refused and zero stay three things. A file that is not there, or of which the driver says that it does not
count, gives nothing. One that should be readable and is not, or holds something else, is counted with a reason. A node
without adapters has no such source; one that had some and shows none has a source that failed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from straggler.errors import SourceFailedError
from straggler.model.network import PortFacts, PortKey
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.infiniband.counters import INTERFACE, JUDGED
from straggler.sources.infiniband.files import is_absence, names_in, opened
from straggler.sources.infiniband.port import ETHERNET, Adapter, PortLook, read_port
from straggler.sources.infiniband.reasons import Refusals

SOURCE: Final = "infiniband"

MOST_PORTS: Final = 256
"""More than any server has, virtual functions included."""

# mlx5_0, rocep1s0f0, mlx5_bond_0, hfi1_0
_DEVICE = re.compile(r"[A-Za-z0-9][\w.:-]{0,63}", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)


class InfinibandSource:
    """The adapters of one node. For one thread at a time.

    Args:
        sysfs: ``/sys``, or where the host's is mounted in a container.
        ignore: adapters that are left alone, as shell patterns, e.g. ``mlx5_bond_*``.
    """

    def __init__(self, sysfs: Path, *, ignore: Sequence[str] = ()) -> None:
        self._sysfs = sysfs
        self._class = sysfs / "class" / "infiniband"
        self._ignore = tuple(ignore)
        self._known: dict[PortKey, bool] = {}
        """Ports seen so far, and whether each may go unmissed: virtual functions move into containers."""
        self._best: dict[PortKey, float] = {}
        """The highest rate of each port that has been up."""

    def collect(self) -> Reading[PortFacts]:
        """Look once.

        Raises:
            SourceFailedError: the adapters cannot be listed, or there were some and none is left.
        """
        refusals = Refusals()
        looks = list(self._looks(refusals))
        ports = tuple(self._remembered(look.facts) for look in looks)
        seen = {port.key for port in ports}
        self._known = {key: may_go for key, may_go in self._known.items() if key in seen or not may_go}
        self._best = {key: best for key, best in self._best.items() if key in self._known}
        missed = [key for key in self._known if key not in seen]
        problems = refusals.problems()
        if not ports and missed:
            raise SourceFailedError(
                "gone", f"{missed[0]} was here, and no port is left: `lspci -nn | grep -i mellanox`"
            )
        if not ports:
            state = SourceState.FAILED if problems else SourceState.ABSENT
            return Reading(source=SOURCE, state=state, problems=problems)
        return Reading(
            source=SOURCE,
            state=SourceState.OK,
            facts=ports,
            problems=problems,
            blind=(*_saturated(ports), *self._hidden(looks), *_gone(missed)),
        )

    def _remembered(self, port: PortFacts) -> PortFacts:
        """Add what only earlier looks can tell. A port that has never been up is one that nobody uses, maybe."""
        if port.up:
            self._best[port.key] = max(port.rate_bytes_per_second or 0.0, self._best.get(port.key, 0.0))
        best = self._best.get(port.key)
        lost = None if port.up is None else not port.up and best is not None
        return replace(port, best_rate_bytes_per_second=best or None, lost=lost)

    def _looks(self, refusals: Refusals) -> Iterable[PortLook]:
        left = MOST_PORTS
        for device in self._devices(refusals):
            for look in self._device(device, left, refusals):
                left -= 1
                yield look

    def _devices(self, refusals: Refusals) -> Iterable[str]:
        try:
            names = names_in(str(self._class), MOST_PORTS)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SourceFailedError("unreadable", f"{self._class}: {error.strerror}") from error
        for name in names:
            if _DEVICE.fullmatch(name) is None:
                refusals.add("bad_name", f"{name[:80]!r} is no name of an adapter")
            elif not any(fnmatchcase(name, pattern) for pattern in self._ignore):
                yield name

    def _device(self, device: str, most: int, refusals: Refusals) -> list[PortLook]:
        # The class holds links to where the adapters really are, which is in sysfs too.
        place = os.path.realpath(self._class / device)
        if not place.startswith(f"{os.path.realpath(self._sysfs)}/"):
            refusals.add("outside", f"{device} leads to {place}, which is not in {self._sysfs}")
            return []
        looks: list[PortLook] = []
        try:
            with opened(place) as directory, opened("ports", directory) as ports, _interface(place) as interface:
                names = [name for name in names_in(ports, most) if _PORT.fullmatch(name)]
                if len(names) > most:
                    refusals.add("too_many_ports", f"{device}: more than {MOST_PORTS} ports on this node")
                adapter = Adapter(directory, alone=len(names) == 1, interface=interface)
                for name in names[:most]:
                    key = PortKey(device, int(name))
                    with opened(name, ports) as port:
                        look = read_port(key, port, adapter, refusals)
                    if look is not None:
                        if key not in self._known:
                            self._known[key] = Path(place, "device", "physfn").exists()
                        looks.append(look)
        except OSError as error:
            if not is_absence(error):
                refusals.add("unreadable", f"{device}: {error.strerror}")
        return looks

    def _hidden(self, looks: Sequence[PortLook]) -> tuple[Problem, ...]:
        """Where the kernel shows ports and no counters: in a network namespace that is not the host's."""
        hidden = sum(look.facts.link_layer != ETHERNET or bool(look.facts.board) for look in looks)
        if not hidden or any(look.shows_counters for look in looks):
            return ()
        detail = (
            f"{self._sysfs} shows ports and no counters, as in a container with its own network: mount the host's /sys "
            "and set infiniband.sys_dir"
        )
        return (Problem(reason="counters_hidden", detail=detail, count=hidden),)


@contextmanager
def _interface(place: str) -> Iterator[int | None]:
    """The network interface beside an adapter, if the kernel shows exactly one: a switch's adapter has many."""
    bus = Path(place).parent.parent
    with ExitStack() as stack:
        found = None
        # /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/infiniband/mlx5_0
        if "devices" in bus.parts:
            with suppress(OSError):
                net = stack.enter_context(opened(INTERFACE, stack.enter_context(opened(str(bus)))))
                names = names_in(net, 1)
                found = stack.enter_context(opened(names[0], net)) if len(names) == 1 else None
        yield found


def _saturated(ports: Iterable[PortFacts]) -> tuple[Problem, ...]:
    stopped = [(port, name) for port in ports if port.up for name in port.saturated if name in JUDGED]
    if not stopped:
        return ()
    (device, number), name = stopped[0][0].key, stopped[0][1]
    detail = (
        f"{name} of {device} port {number} stands at its maximum and counts no more: "
        f"`perfquery -C {device} -P {number} -R` resets it"
    )
    return (Problem(reason="counter_saturated", detail=detail, count=len(stopped)),)


def _gone(missed: Sequence[PortKey]) -> tuple[Problem, ...]:
    if not missed:
        return ()
    detail = f"{missed[0]} was here: `dmesg -T | grep -i {missed[0].device}`; a restart of the sidecar forgets it"
    return (Problem(reason="port_gone", detail=detail, count=len(missed)),)
