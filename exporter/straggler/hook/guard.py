"""The one place that swallows errors: the first is reported, then the hook is off.

What the training loop can reach is wrapped by one of the functions below, apart from sums of our own integers. A ``try``
that nothing is raised in costs nothing, the extra call 50 to 100 ns. ``KeyboardInterrupt`` and ``SystemExit`` are not
ours: they pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType


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


def protected_arrive(function: Callable[[int], None], fail: Callable[[Exception], None]) -> Callable[[int], None]:
    """As ``guarded``, for the function that each arrival calls: without packing of arguments, which takes 100 ns."""

    def arrive(now: int) -> None:
        try:
            function(now)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            fail(error)

    return arrive


def protected_finish(
    function: Callable[[int, int, list[int], A, bool], None], fail: Callable[[Exception], None]
) -> Callable[[int, int, list[int], A, bool], None]:
    """As ``protected_arrive``, for the function that the end of each step calls."""

    def finish(now: int, wall: int, spent: list[int], amounts: A, failed: bool) -> None:  # noqa: FBT001 - for speed
        try:
            function(now, wall, spent, amounts, failed)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            fail(error)

    return finish


def guarded_exit(
    method: Callable[[G, type[BaseException] | None], None],
) -> Callable[[G, type[BaseException] | None, BaseException | None, TracebackType | None], None]:
    """Make an ``__exit__`` that raises nothing and lets the loop's own exceptions pass."""

    def leave(
        self: G, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            method(self, kind)
        except Exception as error:  # noqa: BLE001 - see the top of this file
            self.fail(error)

    return leave


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
