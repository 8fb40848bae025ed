"""The one place that swallows errors: the first is reported, then the hook is off.

What the training loop can reach is wrapped by one of the functions below, apart from sums of our own integers. A
``try`` that nothing is raised in costs nothing, the extra call 50 to 100 ns. ``KeyboardInterrupt`` and ``SystemExit``
are not ours: they pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Guarded(Protocol):
    """What the decorators need of the object that a method belongs to."""

    def fail(self, error: Exception) -> None:
        """Take note of an error that nobody expected."""


P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=Guarded)
A = TypeVar("A")


def guarded(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R | None]:
    """Make a method that raises nothing; it returns ``None`` when it fails."""

    def call(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            self.fail(error)
            return None

    call.__doc__ = method.__doc__
    return call


def guarded_none(method: Callable[[G], R]) -> Callable[[G], R | None]:
    """As ``guarded``, for a method without arguments that runs in each step: nothing to pack, 0.1 to 1 us less."""

    def call(self: G, /) -> R | None:
        try:
            return method(self)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            self.fail(error)
            return None

    call.__doc__ = method.__doc__
    return call


def guarded_one(method: Callable[[G, A], R]) -> Callable[[G, A], R | None]:
    """As ``guarded_none``, for a method with one argument, given by position."""

    def call(self: G, argument: A, /) -> R | None:
        try:
            return method(self, argument)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            self.fail(error)
            return None

    call.__doc__ = method.__doc__
    return call


def guarded_arrive(function: Callable[[int], None], fail: Callable[[Exception], None]) -> Callable[[int], None]:
    """As ``guarded``, for the function that each arrival calls: without packing of arguments, which takes 100 ns."""

    def arrive(now: int) -> None:
        try:
            function(now)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            fail(error)

    return arrive


Record = Callable[[int, int, list[int], A, int, int, int], None]


def guarded_record(function: Record[A], fail: Callable[[Exception], None]) -> Record[A]:
    """As ``guarded_arrive``, for the function that the end of each step calls."""

    def record(  # noqa: PLR0917 - by position, for speed
        end: int, wall: int, phases: list[int], amounts: A, flags: int, reason: int, host_data: int
    ) -> None:
        try:
            function(end, wall, phases, amounts, flags, reason, host_data)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            fail(error)

    return record


class Reporter:
    """Says things by ``logging``, each at most once. ``logging`` is imported when there is something to say."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, about: str, text: str) -> None:
        """Log one warning about a subject; later ones about the same subject are dropped.

        Args:
            about: one of a few fixed names, so that the set stays small.
            text: what happened and what to do.
        """
        if about in self._said:
            return
        self._said.add(about)
        try:
            import logging  # noqa: PLC0415 - only a process in trouble pays for it

            logging.getLogger("straggler").warning("%s", text)
        except Exception:  # noqa: BLE001, S110 - a broken log handler must not reach the loop either
            pass


def attempt(action: Callable[..., Any], *arguments: Any) -> Exception | None:
    """Run something whose failure changes nothing any more; the error is the result."""
    try:
        action(*arguments)
    except Exception as error:  # noqa: BLE001 - see the top of this file
        return error
    return None
