"""Ranks that push."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeClock
from ring_files import record
from straggler.model.rank import RankFacts, RankState
from straggler.sources.push.reasons import PUSH_REASONS
from straggler.sources.push.store import PushOutcome, PushStore
from straggler.wire import layout
from straggler.wire.push import PushBatch, encode_push
from straggler.wire.records import Identity, Live

CREATED = 1_700_000_000_000_000_000


class Pusher:
    """A process that pushes, with the network under the test's control."""

    def __init__(self, store: PushStore, *, created: int = CREATED, rank: int = 0, run: str = "r") -> None:
        self.store = store
        self.created = created
        self.identity = Identity(run=run, rank=rank, node="n1")
        self.state = Live(0, 0, 0, 0, layout.STATUS_RUNNING, None)
        self.serial = 0

    def make(self, steps: int = 1, *, drop: int = 0, arrive: int = 0, **live: Any) -> bytes:
        """The body with the next steps; the first ``drop`` of them did not fit into the queue."""
        first = self.serial + 1 + drop
        self.serial += steps
        self.state = self.state._replace(
            updated_monotonic_ns=self.state.updated_monotonic_ns + 1,
            arrivals=self.state.arrivals + steps + arrive,
            **live,
        )
        records = tuple(record(serial) for serial in range(first, self.serial + 1))
        return encode_push(PushBatch(self.state, self.identity, records, self.created))

    def push(self, steps: int = 1, *, namespace: str | None = None, **changes: Any) -> PushOutcome:
        """Make the next body and deliver it."""
        return self.store.accept(self.make(steps, **changes), allowed_namespace=namespace)


@pytest.fixture
def clock() -> FakeClock:
    """Both clocks."""
    return FakeClock()


def make_store(clock: FakeClock, **changes: Any) -> PushStore:
    """A store with the policy's limits."""
    arguments: dict[str, Any] = {
        "hang_steps": 10.0,
        "hang_min_seconds": 120.0,
        "hang_excluded_seconds": 3600.0,
        "gone_seconds": 300.0,
    }
    return PushStore(clock, **(arguments | changes))


@pytest.fixture
def store(clock: FakeClock) -> PushStore:
    """The store."""
    return make_store(clock)


def only(store: PushStore) -> RankFacts:
    """The one rank that is there."""
    (facts,) = store.collect().facts
    return facts


def steps_of(store: PushStore) -> int:
    """Its count of steps."""
    totals = only(store).totals
    assert totals is not None
    return totals.steps


def test_pushed_steps_become_facts(store: PushStore) -> None:
    """Totals and window of a pushed rank are those of its records; the source says push."""
    outcome = Pusher(store, rank=3).push(40)

    facts = only(store)

    assert (outcome.ok, outcome.accepted, outcome.repeated) == (True, 40, 0)
    assert (facts.key, facts.source, facts.state, facts.step) == (("r", 3), "push", RankState.RUNNING, 40)
    assert facts.totals is not None
    assert facts.totals.own_seconds == pytest.approx(1.6)
    assert facts.recent is not None
    assert facts.recent.own_mean_seconds == pytest.approx(0.04)


def test_same_body_twice_changes_nothing(store: PushStore) -> None:
    """A body that is repeated after a lost answer is taken once."""
    body = Pusher(store).make(10)
    store.accept(body, allowed_namespace=None)
    before = only(store)

    outcome = store.accept(body, allowed_namespace=None)

    assert (outcome.ok, outcome.accepted, outcome.repeated) == (True, 0, 10)
    assert only(store) == before
    assert store.counters.records_read == 10


def test_late_body_does_not_turn_time_back(store: PushStore) -> None:
    """A body that arrives after its successor changes neither totals nor phase."""
    pusher = Pusher(store)
    first = pusher.make(10, excluded_phase=layout.PHASE_INDEX["eval"])
    pusher.push(10, excluded_phase=None)
    store.accept(first, allowed_namespace=None)

    assert (steps_of(store), only(store).excluded_phase) == (20, None)


def test_late_body_does_not_undo_the_goodbye(store: PushStore) -> None:
    """A body from before the goodbye that arrives after it revives nobody."""
    pusher = Pusher(store)
    first = pusher.make(10)
    pusher.push(10, status=layout.STATUS_FINISHED)
    store.accept(first, allowed_namespace=None)

    assert only(store).state is RankState.FINISHED


@given(order=st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_any_order_and_repetition_gives_the_newest_totals(order: list[int]) -> None:
    """However six bodies are repeated and reordered, totals are those of the newest one that came, and never fall."""
    store = make_store(FakeClock())
    pusher = Pusher(store)
    bodies = [pusher.make(7) for _ in range(6)]
    known = 0
    for index in order:
        store.accept(bodies[index], allowed_namespace=None)
        known = max(known, 7 * (index + 1))
        assert steps_of(store) == known
    assert store.counters.records_read + store.counters.records_missed <= known


def test_dropped_records_are_counted(store: PushStore) -> None:
    """Records that did not fit into the sender's queue are counted, and the totals are exact all the same."""
    pusher = Pusher(store)
    pusher.push(10)
    pusher.push(10, drop=4)

    assert (store.counters.records_read, store.counters.records_missed) == (16, 4)
    assert steps_of(store) == 20


def test_restarted_rank_begins_anew(store: PushStore) -> None:
    """A process that began later takes over, with its own totals, though its serials start at 1."""
    Pusher(store).push(100)

    assert Pusher(store, created=CREATED + 1).push(3).ok
    assert steps_of(store) == 3


def test_second_process_with_the_same_name_is_refused(store: PushStore) -> None:
    """While a process lives, one that began earlier cannot speak for its rank."""
    older = Pusher(store, created=CREATED - 1)
    Pusher(store).push(5)

    assert older.push(50).reason == "duplicate_rank"
    assert steps_of(store) == 5


def test_clock_that_was_behind_does_not_lock_a_restart_out(store: PushStore, clock: FakeClock) -> None:
    """After the last process fell silent, one with an earlier clock is taken."""
    Pusher(store).push(5)
    clock.advance(61)

    assert Pusher(store, created=CREATED - 10**12).push(2).ok
    assert steps_of(store) == 2


def test_silent_rank_is_unseen_after_three_intervals(store: PushStore, clock: FakeClock) -> None:
    """A rank that pushes every 5 s is there for 15 s of silence, and then it is unseen: no state, no counters."""
    pusher = Pusher(store)
    for _ in range(5):
        pusher.push()
        clock.advance(5)
    clock.advance(10)
    assert only(store).state is RankState.RUNNING
    clock.advance(0.1)

    assert store.collect().facts == ()


def test_rank_that_was_unseen_comes_back(store: PushStore, clock: FakeClock) -> None:
    """After a break of the network the same process goes on, with exact totals."""
    pusher = Pusher(store)
    pusher.push(5)
    clock.advance(1000)
    assert store.collect().facts == ()
    pusher.push(5)

    assert steps_of(store) == 10


def test_body_without_records_is_a_sign_of_life(store: PushStore, clock: FakeClock) -> None:
    """A hung rank goes on pushing; it is hung, not unseen."""
    pusher = Pusher(store)
    pusher.push(5)
    for _ in range(13):
        clock.advance(10)
        pusher.push(0)

    assert only(store).state is RankState.HUNG
    assert only(store).since_progress_seconds == 130


def test_arrivals_keep_a_rank_from_hanging(store: PushStore, clock: FakeClock) -> None:
    """Arrivals without steps are progress."""
    pusher = Pusher(store)
    pusher.push(5)
    for _ in range(30):
        clock.advance(10)
        pusher.push(0, arrive=1)

    assert only(store).state is RankState.RUNNING


def test_checkpoint_may_take_an_hour(store: PushStore, clock: FakeClock) -> None:
    """In a checkpoint the longer limit holds."""
    pusher = Pusher(store)
    pusher.push(5, excluded_phase=layout.PHASE_INDEX["checkpoint"])
    for _ in range(100):
        clock.advance(30)
        pusher.push(0)

    assert (only(store).state, only(store).excluded_phase) == (RankState.RUNNING, "checkpoint")


@pytest.mark.parametrize(
    ("status", "state"),
    [(layout.STATUS_FINISHED, RankState.FINISHED), (layout.STATUS_EXCEPTION, RankState.CRASHED)],
)
def test_goodbye_keeps_the_counters_for_five_minutes(
    store: PushStore, clock: FakeClock, status: int, state: RankState
) -> None:
    """After its goodbye a rank has no window; totals and state stay five minutes."""
    Pusher(store).push(5, status=status)
    assert (only(store).state, only(store).recent) == (state, None)
    clock.advance(300)
    assert steps_of(store) == 5
    clock.advance(1)

    assert store.collect().facts == ()


def test_hook_that_is_off_is_blind_and_no_rank(store: PushStore) -> None:
    """A hook that switched itself off gives no rank, but says that one is unseen."""
    pusher = Pusher(store)
    pusher.push(5)
    pusher.push(0, status=layout.STATUS_OFF)

    reading = store.collect()

    assert reading.facts == ()
    assert [(problem.reason, problem.count) for problem in reading.blind] == [("hook_off", 1)]


@pytest.mark.parametrize(
    ("run", "namespace_of_rank", "allowed", "ok"),
    [
        ("team-a/job", "", "team-a", True),
        ("team-a/job", "team-a", "team-a", True),
        ("team-b/job", "team-b", "team-a", False),
        ("team-b/job", "team-a", "team-a", False),
        ("team-a/job", "team-b", "team-a", False),
        ("team-a", "", "team-a", False),
        ("team-a-evil/job", "", "team-a", False),
        ("anything", "team-b", None, True),
    ],
)
def test_token_speaks_for_its_namespace_only(
    store: PushStore,
    run: str,
    namespace_of_rank: str,
    allowed: str | None,
    ok: bool,  # noqa: FBT001  # a parameter
) -> None:
    """A token bound to a namespace writes runs called ``NAMESPACE/…`` and no others."""
    pusher = Pusher(store, run=run)
    pusher.identity = pusher.identity._replace(namespace=namespace_of_rank)
    outcome = pusher.push(1, namespace=allowed)

    assert outcome.reason == ("" if ok else "wrong_namespace")
    assert len(store.collect().facts) == ok


def test_too_many_ranks_are_refused(clock: FakeClock) -> None:
    """Ranks over the limit are refused; those that are there are not touched, and there is room after one is gone."""
    store = make_store(clock, max_ranks=2)
    pushers = [Pusher(store, rank=rank) for rank in range(3)]

    assert [pusher.push().reason for pusher in pushers] == ["", "", "too_many_ranks"]
    assert pushers[0].push().ok
    clock.advance(61)
    assert pushers[2].push().ok


@given(body=st.binary(max_size=400))
def test_any_body_is_taken_or_has_a_reason(body: bytes) -> None:
    """Any bytes are refused under a listed reason, and change nothing."""
    store = make_store(FakeClock())
    outcome = store.accept(body, allowed_namespace=None)

    assert outcome.reason in PUSH_REASONS
    assert store.collect().facts == ()


@given(data=st.data())
def test_spoilt_body_is_refused_whole(data: st.DataObject) -> None:
    """A body with one wrong byte is refused as a whole, or says the same."""
    store = make_store(FakeClock())
    body = bytearray(Pusher(store).make(3))
    index = data.draw(st.integers(0, len(body) - 1))
    body[index] ^= data.draw(st.integers(1, 255))
    outcome = store.accept(bytes(body), allowed_namespace=None)

    assert outcome.reason in PUSH_REASONS
    assert store.collect().facts == ()


def test_blank_run_is_refused(store: PushStore) -> None:
    """A run of blanks is no name."""
    assert Pusher(store, run="\N{NO-BREAK SPACE}").push().reason == "bad_identity"


def test_threads_lose_nothing(clock: FakeClock) -> None:
    """Eight threads that push at the same time lose no record and count none twice."""
    store = make_store(clock)
    pushers = [Pusher(store, rank=rank) for rank in range(8)]
    accepted: list[int] = []

    def run(pusher: Pusher) -> None:
        accepted.extend(pusher.push(5).accepted for _ in range(40))

    threads = [threading.Thread(target=run, args=(pusher,)) for pusher in pushers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(accepted) == store.counters.records_read == 8 * 40 * 5
    assert {facts.step for facts in store.collect().facts} == {200}
