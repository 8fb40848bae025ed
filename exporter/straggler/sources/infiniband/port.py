"""Reads one port: its files, each on its own."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeVar

from straggler.errors import ParseError
from straggler.model.identity import clean_text
from straggler.model.network import PortFacts, PortKey
from straggler.sources.infiniband.counters import COUNTERS, INTERFACE, Counter
from straggler.sources.infiniband.files import is_absence, opened, read_text
from straggler.sources.infiniband.parse import parse_counter, parse_rate, parse_state
from straggler.sources.infiniband.reasons import Refusals

Value = TypeVar("Value")

ETHERNET: Final = "Ethernet"
_COUNTER_DIRECTORIES: Final = ("counters", "counters_ext", "hw_counters")
_ODD: Final = frozenset({errno.ELOOP, errno.EBADF, errno.EISDIR})


class PortLook(NamedTuple):
    """What one look at a port gave."""

    facts: PortFacts
    shows_counters: bool
    """Whether there is any directory of counters, whatever is in it."""


class Adapter(NamedTuple):
    """What the ports of an adapter share: directories, opened."""

    directory: int
    alone: bool
    """Whether it has one port only: then its own counters, and those of its network interface, are the port's."""
    interface: int | None = None
    """Of its network interface, if it has exactly one."""


def read_port(key: PortKey, port: int, adapter: Adapter, refusals: Refusals) -> PortLook | None:
    """Look at a port.

    Args:
        key: which one.
        port: its directory.
        adapter: whose it is.
        refusals: takes what cannot be used.

    Returns:
        ``None`` if there is nothing to tell, as when the adapter goes away meanwhile.
    """
    reader = _Reader(f"{key}", refusals)
    state = reader.value("state", port, parse_state)
    physical = reader.value("phys_state", port, parse_state)
    link_layer = reader.value("link_layer", port, clean_text) or ""
    up = state.carries if state is not None else None
    with ExitStack() as stack:
        directories = reader.open_counters(stack, port, adapter.directory if adapter.alone else None)
        shows_counters = bool(directories)
        if adapter.alone and adapter.interface is not None:
            directories[INTERFACE] = adapter.interface
        counters, saturated = reader.counters(directories, everywhere=link_layer == ETHERNET)
    if state is None and not counters:
        return None
    # Of a link that is down the driver tells some speed or other.
    rate_text = (reader.value("rate", port, clean_text) or "") if up else ""
    facts = PortFacts(
        key=key,
        up=up,
        rate_bytes_per_second=reader.parsed("rate", rate_text, parse_rate) if rate_text else None,
        counters=counters,
        saturated=saturated,
        link_layer=link_layer,
        state=state.name if state else "",
        physical_state=physical.name if physical else "",
        rate_text=rate_text,
        board=reader.value("board_id", adapter.directory, clean_text) or "",
        firmware=reader.value("fw_ver", adapter.directory, clean_text) or "",
    )
    return PortLook(facts, shows_counters)


class _Reader:
    """Turns files of one port into values, and counts what is refused."""

    def __init__(self, what: str, refusals: Refusals) -> None:
        self._what = what
        self._refusals = refusals

    def value(self, name: str, directory: int, parse: Callable[[str], Value]) -> Value | None:
        """What a file says; ``None`` where there is none, or it cannot be used."""
        try:
            text = read_text(name, directory)
        except OSError as error:
            self._refuse(name, error)
            return None
        return self.parsed(name, text, parse)

    def parsed(self, name: str, text: str, parse: Callable[[str], Value]) -> Value | None:
        """What a text says; ``None`` if it cannot be used."""
        try:
            return parse(text)
        except ParseError as error:
            self._refusals.add("bad_format", f"{self._what}, {name}: {error}")
            return None

    def open_counters(self, stack: ExitStack, port: int, device: int | None) -> dict[str, int]:
        """The directories of counters that are there, by name. The adapter's own stand in for the port's."""
        found: dict[str, int] = {}
        for name in _COUNTER_DIRECTORIES:
            for parent in (port, device):
                if parent is None or name in found:
                    continue
                try:
                    found[name] = stack.enter_context(opened(name, parent))
                except OSError as error:
                    self._refuse(name, error)
        return found

    def counters(self, directories: Mapping[str, int], *, everywhere: bool) -> tuple[dict[str, float], tuple[str, ...]]:
        """All counters that can be read, and those among them that have stopped.

        Args:
            directories: by name.
            everywhere: only those that mean something on any kind of link.
        """
        values: dict[str, float] = {}
        saturated: list[str] = []
        for counter in COUNTERS:
            found = self._counter(counter, directories, everywhere=everywhere)
            if found is not None:
                value, has_stopped = found
                values[counter.name] = value
                if has_stopped:
                    saturated.append(counter.name)
        return values, tuple(saturated)

    def _counter(
        self, counter: Counter, directories: Mapping[str, int], *, everywhere: bool
    ) -> tuple[float, bool] | None:
        """From the first file that is there. One that is refused has no stand-in: that would count something else."""
        for origin in counter.origins:
            directory = directories.get(origin.directory)
            if directory is None or (everywhere and not origin.everywhere):
                continue
            where = f"{origin.directory}/{origin.file}"
            try:
                count = parse_counter(read_text(origin.file, directory))
            except OSError as error:
                if is_absence(error):
                    continue
                self._refuse(where, error)
                return None
            except ParseError as error:
                self._refusals.add("bad_format", f"{self._what}, {where}: {error}")
                return None
            if count is not None:
                return float(count * origin.factor), count == origin.most
        return None

    def _refuse(self, name: str, error: OSError) -> None:
        """Count an error, unless it only says that there is nothing."""
        if not is_absence(error):
            reason = "odd_file" if error.errno in _ODD else "unreadable"
            self._refusals.add(reason, f"{self._what}, {name}: {error.strerror}")
