"""Ranks that push: taken in from HTTP threads, given out once a scrape.

A push needs no answer to be right: records are known by their serial and the sender by the moment at which its process
began, so a body that comes twice, late or after a restart of either side changes nothing twice.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from straggler.errors import WireError
from straggler.model.clock import Clock
from straggler.model.identity import clean_identity
from straggler.model.progress import HangLimits
from straggler.model.rank import RankFacts, RankKey
from straggler.model.reading import Problem, Reading, SourceState
from straggler.sources.push.reasons import DUPLICATE_RANK, TOO_MANY_RANKS, WRONG_NAMESPACE
from straggler.sources.push.sender import Sender
from straggler.wire.push import PushBatch, decode_push
from straggler.wire.records import Identity

SOURCE = "push"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """What became of one push. A refused one has changed nothing."""

    accepted: int = 0
    """Records that were new."""
    repeated: int = 0
    reason: str = ""
    """Empty, or one of ``reasons.PUSH_REASONS``."""
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was taken."""
        return not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PushCounters:
    """Since the store was made."""

    records_read: int = 0
    records_missed: int = 0
    """Left out by senders whose queue was full."""


class PushStore:
    """Keeps what pushing ranks said. Every method may be called from any thread.

    Args:
        clock: both clocks.
        hang_steps: ``Policy.hang_steps``.
        hang_min_seconds: ``Policy.hang_min_seconds``.
        hang_excluded_seconds: ``Policy.hang_excluded_seconds``.
        gone_seconds: how long a rank that said goodbye keeps its counters and state.
        expire_after_intervals: a rank that stays silent for so many of its own intervals is unseen, and dropped.
        max_ranks: more are refused; each takes up to 1 MB.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        hang_steps: float,
        hang_min_seconds: float,
        hang_excluded_seconds: float,
        gone_seconds: float,
        expire_after_intervals: float = 3.0,
        max_ranks: int = 512,
    ) -> None:
        self._clock = clock
        self._limits = HangLimits(
            steps=hang_steps, min_seconds=hang_min_seconds, excluded_seconds=hang_excluded_seconds
        )
        self._gone_seconds = gone_seconds
        self._expire_after_intervals = expire_after_intervals
        self._max_ranks = max_ranks
        self._senders: dict[RankKey, Sender] = {}
        self._read = self._missed = 0
        self._lock = threading.Lock()

    @property
    def counters(self) -> PushCounters:
        """A copy of the counts so far."""
        with self._lock:
            return PushCounters(records_read=self._read, records_missed=self._missed)

    def accept(self, body: bytes, *, allowed_namespace: str | None) -> PushOutcome:
        """Take in the body of one push.

        Args:
            body: as ``wire.push`` describes it.
            allowed_namespace: what the token is bound to: only runs called ``NAMESPACE/…`` are taken; ``None``: all.
        """
        try:
            batch = decode_push(body)
            batch = batch._replace(identity=clean_identity(batch.identity))
        except WireError as error:
            return PushOutcome(reason=error.reason, detail=error.detail)
        if allowed_namespace is not None and not _is_in(allowed_namespace, batch.identity):
            return PushOutcome(
                reason=WRONG_NAMESPACE,
                detail=f"the token is for runs called {allowed_namespace}/…, this one is {batch.identity.run!r}",
            )
        with self._lock:
            return self._take(batch, self._clock.monotonic())

    def collect(self) -> Reading[RankFacts]:
        """Give all ranks that are heard of, or ended a short while ago. Refused pushes are in their outcomes alone.

        Blind reason: ``hook_off``.
        """
        began = self._clock.monotonic()
        with self._lock:
            now = self._clock.monotonic()
            self._drop_silent(now)
            facts = tuple(
                sender.facts(self._limits, now) for _, sender in sorted(self._senders.items()) if not sender.is_off
            )
            off = [key for key, sender in self._senders.items() if sender.is_off]
        detail = f"rank {off[0].rank} of {off[0].run!r}: its log says why the hook switched itself off" if off else ""
        return Reading(
            source=SOURCE,
            state=SourceState.OK,
            facts=facts,
            blind=(Problem(reason="hook_off", detail=detail, count=len(off)),) if off else (),
            duration_seconds=self._clock.monotonic() - began,
        )

    def _take(self, batch: PushBatch, now: float) -> PushOutcome:
        key = RankKey(batch.identity.run, batch.identity.rank)
        sender = self._senders.get(key)
        is_same = sender is not None and sender.created_realtime_ns == batch.created_realtime_ns
        if sender is None or not is_same:
            if sender is None:
                self._drop_silent(now)
                if len(self._senders) >= self._max_ranks:
                    return PushOutcome(reason=TOO_MANY_RANKS, detail=f"more than {self._max_ranks}")
            elif batch.created_realtime_ns < sender.created_realtime_ns and not self._is_over(sender, now):
                detail = f"rank {key.rank} of {key.run!r} is pushed by a process that began later"
                return PushOutcome(reason=DUPLICATE_RANK, detail=detail)
            sender = self._senders[key] = Sender(batch, now)
        taken = sender.take(batch, now, first=not is_same)
        self._read += taken.accepted
        self._missed += taken.missed
        return PushOutcome(accepted=taken.accepted, repeated=taken.repeated)

    def _is_over(self, sender: Sender, now: float) -> bool:
        """Whether nothing more is to be expected: another process, of whatever age, may speak for the rank."""
        if sender.has_ended:
            return True
        return sender.silence(now) > self._expire_after_intervals * sender.interval_seconds

    def _drop_silent(self, now: float) -> None:
        for key, sender in list(self._senders.items()):
            if self._is_over(sender, now) and not (sender.has_ended and sender.silence(now) <= self._gone_seconds):
                del self._senders[key]


def _is_in(namespace: str, identity: Identity) -> bool:
    in_run = identity.run.startswith(f"{namespace}/")
    return in_run and identity.namespace in ("", namespace)
