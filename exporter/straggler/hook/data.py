"""``for batch in timer.data(loader):``: the time to get a batch is phase ``data``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from straggler.hook.timer import StepTimer

T = TypeVar("T")


class TimedIterator(Iterator[T]):
    """Hands the batches on and keeps none: a reference to one would hold its memory while the next is loaded."""

    __slots__ = ("_iterator", "_phase", "_timer")

    def __init__(self, timer: StepTimer, loader: Iterable[T]) -> None:
        self._timer = timer
        """Kept alive as long as the loop runs."""
        self._phase = timer.phase("data")
        with self._phase:
            self._iterator = iter(loader)

    def __next__(self) -> T:
        with self._phase:
            return next(self._iterator)


class TimedLoader(Generic[T]):
    """A loader whose batches are timed. All else is the loader's own: ``timer.data(loader).sampler.set_epoch(1)``."""

    def __init__(self, timer: StepTimer, loader: Iterable[T]) -> None:
        self._timer = timer
        self._loader = loader

    def __iter__(self) -> TimedIterator[T]:
        return TimedIterator(self._timer, self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while being unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)


class TimedSizedLoader(TimedLoader[T]):
    """The same for a loader that has a length."""

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # only made for loaders with a length


def timed(timer: StepTimer, loader: Iterable[T]) -> TimedLoader[T]:
    """Wrap a loader, or any iterable."""
    kind = TimedSizedLoader if hasattr(type(loader), "__len__") else TimedLoader
    return kind(timer, loader)
