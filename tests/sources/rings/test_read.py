"""What the source says about whole directories."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeClock
from ring_files import RingFile, record, trainer
from straggler.model.rank import RankFacts, RankState
from straggler.model.reading import SourceState
from straggler.sources.rings.read import RingSource
from straggler.sources.rings.reasons import RING_REASONS
from straggler.wire import layout
from straggler.wire.decode import file_bytes
from straggler.wire.encode import encode_preamble, encode_record
from straggler.wire.recent import Recent

MakeSource = Callable[..., RingSource]

_opened: list[str] | None = None


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and str(arguments[0]).endswith(".ring"):
        _opened.append(str(arguments[0]))


sys.addaudithook(_note_open)  # the interpreter's own report of each open: nothing is replaced to count them


def opens(source: RingSource) -> int:
    """How many ring files one look opens."""
    global _opened  # noqa: PLW0603  # an audit hook can reach nothing else
    _opened = []
    source.collect()
    count, _opened = len(_opened), None
    return count


def only(source: RingSource) -> RankFacts:
    """The one rank that is there."""
    (facts,) = source.collect().facts
    return facts


def ranks(source: RingSource) -> list[tuple[str, int, str]]:
    """Who is there, and how."""
    return [(*facts.key, facts.state.value) for facts in source.collect().facts]


def reasons(source: RingSource) -> list[str]:
    """What began to be refused since the last look."""
    return [problem.reason for problem in source.collect().problems]


def test_facts_of_a_stepping_rank(root: Path, source: RingSource) -> None:
    """A rank of 50 ms steps, 10 of them waiting: totals since its start, and the window."""
    ring = RingFile(root / "a.ring", rank=3)
    ring.step(40, total_tokens=4096, flags=layout.FLAG_OWN | layout.FLAG_TOKENS)

    facts = only(source)

    assert facts.key == ("r", 3)
    assert (facts.state, facts.source, facts.own_reason, facts.step) == (RankState.RUNNING, "rings", "measured", 40)
    assert facts.last_step_timestamp_seconds == pytest.approx(1_700_000_002.0)
    assert facts.totals is not None
    assert (facts.totals.steps, facts.totals.arrivals, facts.totals.tokens) == (40, 40, 4096)
    assert facts.totals.step_seconds == pytest.approx(2.0)
    assert facts.totals.own_seconds == pytest.approx(1.6)
    assert facts.totals.wait_seconds == pytest.approx(0.4)
    assert facts.totals.phase_seconds == pytest.approx(dict.fromkeys(layout.PHASES, 0) | {"forward": 1.6, "wait": 0.4})
    assert (facts.totals.samples, facts.totals.flops, facts.totals.allreduce_bytes) == (None, None, None)
    assert facts.recent == pytest.approx(Recent(40, 0.05, 0.04, 0.04, 0.01, 0.01))


def test_rank_before_its_first_step(root: Path, source: RingSource) -> None:
    """Before the first step there are no totals: they are absent, not zero."""
    RingFile(root / "a.ring")

    facts = only(source)

    assert (facts.totals, facts.recent, facts.step, facts.last_step_timestamp_seconds) == (None, None, None, None)
    assert facts.state is RankState.RUNNING


def test_own_time_that_was_never_measured_is_absent(root: Path, source: RingSource) -> None:
    """Without a measured step there are no own totals, and the reason says why."""
    ring = RingFile(root / "a.ring")
    for serial in range(1, 4):
        ring.put(record(serial, wait_ns=0, flags=0, own_reason=1, total_own_ns=0, total_unmeasured_steps=serial))

    facts = only(source)

    assert facts.totals is not None
    assert (facts.totals.own_seconds, facts.totals.wait_seconds) == (None, None)
    assert facts.own_reason == "no_wait_phase"
    assert facts.recent == pytest.approx(Recent(3, 0.05, None, None, None, None))


@pytest.mark.parametrize(("clock_name", "seconds"), [("host", None), ("cuda", 0.5)])
def test_host_data_time_is_a_figure_of_the_gpu_clock(
    root: Path, source: RingSource, clock_name: str, seconds: float | None
) -> None:
    """Host time for data is given where the phases are GPU time, and only there."""
    ring = RingFile(root / "a.ring", clock=clock_name)
    ring.step(1, total_host_data_ns=500_000_000)

    totals = only(source).totals

    assert totals is not None
    assert totals.host_data_seconds == seconds


def test_missing_directory_is_absent(root: Path, source: RingSource) -> None:
    """No directory: absent, and no problem."""
    root.rmdir()

    reading = source.collect()

    assert (reading.state, reading.facts, reading.problems) == (SourceState.ABSENT, (), ())


def test_empty_directory_is_fine(source: RingSource) -> None:
    """A directory without rings: fine, with nobody there."""
    reading = source.collect()

    assert (reading.state, reading.facts, reading.problems) == (SourceState.OK, (), ())


def test_directory_may_come_later(root: Path, source: RingSource) -> None:
    """A directory that appears after the sidecar is found."""
    root.rmdir()
    source.collect()
    root.mkdir()
    RingFile(root / "a.ring").step()

    assert ranks(source) == [("r", 0, "running")]


def _spoil(ring: RingFile, part: str) -> None:
    if part == "bad_magic":
        ring.write(0, b"NOTARING")
    elif part == "unknown_version":
        ring.write(0, encode_preamble(ring.preamble._replace(version=2)))
    elif part == "bad_checksum":
        ring.write(20, b"\xff")
    elif part == "bad_geometry":
        ring.write(0, encode_preamble(ring.preamble._replace(capacity=layout.MAX_CAPACITY + 1)))
    elif part == "truncated":
        os.ftruncate(ring.descriptor, 5000)
    elif part == "too_short":
        os.ftruncate(ring.descriptor, 40)


@pytest.mark.parametrize(
    "reason", ["bad_magic", "unknown_version", "bad_checksum", "bad_geometry", "truncated", "too_short"]
)
def test_spoilt_file_is_refused_and_loses_only_itself(root: Path, source: RingSource, reason: str) -> None:
    """A file that is no ring is refused under its reason, once; the ring beside it is read."""
    _spoil(RingFile(root / "a.ring"), reason)
    RingFile(root / "b.ring", rank=1).step()

    reading = source.collect()

    assert [facts.identity.rank for facts in reading.facts] == [1]
    assert [problem.reason for problem in reading.problems] == [reason]
    assert reasons(source) == []
    assert source.counters.refused == {reason: 1}
    assert source.counters.refused_now == {reason: 1}
    assert reason in RING_REASONS


def test_refusal_ends_with_the_file(root: Path, source: RingSource) -> None:
    """When a refused file is gone, nothing is refused any more; the count stays."""
    (root / "a.ring").symlink_to("b")
    source.collect()
    (root / "a.ring").unlink()
    source.collect()

    assert source.counters.refused == {"symlink": 1}
    assert source.counters.refused_now == {}


def test_refused_file_is_looked_at_again_when_it_changes(root: Path, source: RingSource) -> None:
    """A file that becomes a good ring is read."""
    ring = RingFile(root / "a.ring")
    ring.write(0, b"NOTARING")
    source.collect()
    ring.write(0, encode_preamble(ring.preamble))
    ring.step()

    assert ranks(source) == [("r", 0, "running")]


def test_identity_without_a_run_is_refused(root: Path, source: RingSource) -> None:
    """A run whose name is nothing but blanks cannot be told from another."""
    RingFile(root / "a.ring", run="\N{NO-BREAK SPACE}")
    RingFile(root / "b.ring", run="\x07\x1b[31m" + "x" * 200)

    (facts,) = source.collect().facts

    assert source.counters.refused_now == {"bad_identity": 1}
    assert facts.identity.run.isprintable()
    assert len(facts.identity.run) == 128


def test_file_in_the_making_is_waited_for(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A file without its preamble is not refused for ten seconds, and read as soon as it is whole."""
    ring = RingFile(root / "a.ring")
    ring.write(0, bytes(64))
    assert reasons(source) == []
    clock.advance(9)
    assert reasons(source) == []
    ring.write(0, encode_preamble(ring.preamble))

    assert ranks(source) == [("r", 0, "running")]


def test_file_that_is_never_finished_is_refused(root: Path, clock: FakeClock, source: RingSource) -> None:
    """After ten seconds a file without a preamble is refused."""
    (root / "a.ring").touch()
    source.collect()
    clock.advance(10)

    assert reasons(source) == ["not_ready"]


def test_file_truncated_while_it_is_read(root: Path, source: RingSource) -> None:
    """A ring that is cut off under the reader is refused, and its rank is not shown with old figures."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    os.ftruncate(ring.descriptor, 0)

    reading = source.collect()

    assert reading.facts == ()
    assert [problem.reason for problem in reading.problems] == ["truncated"]


def test_file_rewritten_while_it_is_read(root: Path, source: RingSource) -> None:
    """A preamble that changes under the reader makes the whole file unbelievable."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    ring.write(0, encode_preamble(ring.preamble._replace(pid=1)))

    assert reasons(source) == ["replaced"]


def test_finished_rank_keeps_its_counters_for_five_minutes(root: Path, clock: FakeClock, source: RingSource) -> None:
    """When a rank is gone its window goes at once, its totals and state stay, and then it goes altogether."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    ring.step(1)
    ring.goodbye()
    facts = only(source)
    assert (facts.state, facts.recent, facts.alive) == (RankState.FINISHED, None, False)
    assert facts.totals is not None
    assert facts.totals.steps == 6, "the last step before the goodbye counts"
    clock.advance(300)
    assert ranks(source) == [("r", 0, "finished")]
    clock.advance(1)

    assert ranks(source) == []


def test_old_crash_is_not_published_again(root: Path, clock: FakeClock, make_source: MakeSource) -> None:
    """A sidecar that starts ten minutes after a crash does not report it as a new one."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    ring.age(600, clock.time())

    reading = make_source().collect()

    assert (reading.facts, reading.problems) == ((), ())


def test_young_crash_is_published_for_the_rest_of_its_time(
    root: Path, clock: FakeClock, make_source: MakeSource
) -> None:
    """A sidecar that starts 200 s after a crash shows it for another 100 s."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    ring.age(200, clock.time())
    source = make_source()

    assert ranks(source) == [("r", 0, "crashed")]
    clock.advance(99)
    assert ranks(source) == [("r", 0, "crashed")]
    clock.advance(2)
    assert ranks(source) == []


def test_dead_ring_that_moves_again_is_followed_again(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Whatever was thought dead and writes again is alive."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    ring.age(600, clock.time())
    assert ranks(source) == []
    ring.step(1)

    assert ranks(source) == [("r", 0, "running")]


def test_hang(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A locked ring that stands still is hung, keeps its window, and tells for how long."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        source.collect()
        clock.advance(121)
        facts = only(source)

    assert facts.state is RankState.HUNG
    assert facts.since_progress_seconds == pytest.approx(121, abs=5)
    assert facts.recent is not None


def test_checkpoint_is_told(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A rank in a checkpoint says so, and is not hung for an hour."""
    with trainer(root / "a.ring") as process:
        process.do("step", 40)
        process.do("checkpoint")
        source.collect()
        clock.advance(3000)
        facts = only(source)

    assert (facts.state, facts.excluded_phase) == (RankState.RUNNING, "checkpoint")


def test_restarted_sidecar_has_exact_totals(root: Path, make_source: MakeSource) -> None:
    """Totals come from the newest record, so a reader that starts late or anew is as exact as one that was there."""
    ring = RingFile(root / "a.ring", capacity=64)
    ring.step(10)
    first = make_source()
    first.collect()
    ring.step(200)

    totals = only(make_source()).totals

    assert totals is not None
    assert totals == only(first).totals
    assert totals.steps == 210


def test_overwritten_records_are_counted(root: Path, source: RingSource) -> None:
    """A lapped reader counts what it missed, and what it read."""
    ring = RingFile(root / "a.ring", capacity=64)
    ring.step(10)
    source.collect()
    ring.step(100)
    source.collect()

    assert (source.counters.records_read, source.counters.records_missed) == (74, 36)


def test_torn_record_is_counted(root: Path, source: RingSource) -> None:
    """A record that was never completed is a problem with a reason."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    ring.write(ring.offset(6), encode_record(record(6))[:100])
    ring.put(record(7))

    assert reasons(source) == ["torn"]
    assert source.counters.records_torn == 1


def test_identity_may_grow(root: Path, source: RingSource) -> None:
    """What the rank learns later about itself is taken over."""
    ring = RingFile(root / "a.ring")
    ring.step()
    assert only(source).identity.gpu_uuid == ""
    ring.identity(only(source).identity._replace(gpu_uuid="GPU-1"))

    assert only(source).identity.gpu_uuid == "GPU-1"


def test_half_written_identity_keeps_the_old_one(root: Path, source: RingSource) -> None:
    """An identity in the middle of its writing is not believed, and loses nothing."""
    ring = RingFile(root / "a.ring", node="old")
    source.collect()
    ring.write(layout.IDENTITY_OFFSET + 10, b"garbage")

    assert only(source).identity.node == "old"
    assert source.counters.refused == {}


def test_half_written_live_block_keeps_the_old_one(root: Path, source: RingSource) -> None:
    """A live block in the middle of its writing is not believed, and loses nothing."""
    ring = RingFile(root / "a.ring")
    ring.live(excluded_phase=layout.PHASE_INDEX["eval"])
    source.collect()
    ring.write(layout.LIVE_OFFSET, b"\xff" * 7)

    assert only(source).excluded_phase == "eval"


def test_hook_that_is_off_is_blind_and_no_crash(root: Path, source: RingSource) -> None:
    """A hook that switched itself off gives no rank, but says that one is unseen."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    ring.goodbye(layout.STATUS_OFF)

    reading = source.collect()

    assert reading.facts == ()
    assert [(problem.reason, problem.count) for problem in reading.blind] == [("hook_off", 1)]


def test_unlinked_file_of_a_living_rank_is_followed(root: Path, source: RingSource) -> None:
    """A file that loses its name while the process lives is still read."""
    ring = RingFile(root / "a.ring")
    ring.step(5)
    source.collect()
    ring.path.unlink()
    ring.step(1)

    assert only(source).step == 6


def test_too_many_ranks_are_refused(root: Path, make_source: MakeSource) -> None:
    """Ranks over the limit are refused and counted; the others are read."""
    for rank in range(5):
        RingFile(root / f"{rank}.ring", rank=rank).step()
    source = make_source(max_ranks=3)

    assert len(source.collect().facts) == 3
    assert source.counters.refused_now == {"too_many_ranks": 2}


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_lost(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Refused, dead and living files leave no descriptor behind after the source is closed."""
    before = _open_descriptors()
    rings = [RingFile(root / f"{rank}.ring", rank=rank) for rank in range(6)]
    for reason, ring in zip(("bad_magic", "truncated", "too_short"), rings, strict=False):
        _spoil(ring, reason)
    rings[3].age(900, clock.time())
    rings[4].goodbye()
    for _ in range(3):
        source.collect()
        clock.advance(200)
    source.close()
    for ring in rings:
        ring.close()

    assert _open_descriptors() == before


def _stale_rings(root: Path, count: int, mtime: float) -> None:
    """Many rings of dead ranks, as copies of one."""
    ring = RingFile(root / "0.ring", capacity=1)
    ring.step()
    data = ring.path.read_bytes()
    assert len(data) == file_bytes(ring.preamble)
    ring.close()
    for number in range(1, count):
        (root / f"{number}.ring").write_bytes(data)
    for number in range(count):
        os.utime(root / f"{number}.ring", (mtime, mtime))


@pytest.mark.slow
def test_ten_thousand_stale_rings_cost_no_opens(root: Path, clock: FakeClock, source: RingSource) -> None:
    """Dead rings are opened once, a thousand a look; from then on they stay closed, and the living one is first."""
    _stale_rings(root, 10_000, clock.time() - 7200)
    living = RingFile(root / "living.ring", rank=1)
    living.step()

    assert opens(source) == 1000
    assert ranks(source) == [("r", 1, "running")]
    for _ in range(9):
        source.collect()
    assert [opens(source) for _ in range(3)] == [0, 0, 0]


def test_dead_ring_is_removed_after_an_hour(root: Path, clock: FakeClock, source: RingSource) -> None:
    """The file of a dead rank goes an hour after its last write."""
    ring = RingFile(root / "a.ring")
    ring.goodbye()
    ring.age(0, clock.time())
    source.collect()
    clock.advance(3599)
    source.collect()
    source.collect()
    assert ring.path.exists()
    clock.advance(301)
    source.collect()

    assert not ring.path.exists()
    assert source.counters.removed == 1


def test_what_a_profile_left_goes_with_the_ring(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A trace is megabytes of tmpfs: it does not outlive its ring; what has another name stays."""
    ring = RingFile(root / "a.ring")
    ring.goodbye()
    ring.age(0, clock.time())
    for name in ("a.profile", "a.profiled", "a.trace.json.gz", "b.trace.json.gz", "a.txt"):
        (root / name).write_text("x")
    for _ in range(2):
        source.collect()
        clock.advance(3900)
    source.collect()

    assert sorted(path.name for path in root.iterdir()) == ["a.txt", "b.trace.json.gz"]


def test_wall_clock_jump_removes_nothing(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A wall clock set forward by a year makes every file old; none is removed before it was known dead for a while."""
    ring = RingFile(root / "a.ring")
    ring.goodbye()
    clock.jump(365 * 86400)
    for _ in range(3):
        source.collect()
        clock.advance(90)

    assert ring.path.exists()


def test_locked_ring_is_never_removed(root: Path, clock: FakeClock, source: RingSource) -> None:
    """A process that said goodbye and lives on keeps its file."""
    with trainer(root / "a.ring") as process:
        process.do("goodbye", layout.STATUS_FINISHED)
        for _ in range(5):
            source.collect()
            clock.advance(4000)
        assert (root / "a.ring").exists()
        process.kill()
        source.collect()

    assert not (root / "a.ring").exists()


def test_foreign_file_is_never_removed(root: Path, clock: FakeClock, source: RingSource) -> None:
    """What is refused may be anybody's; it stays."""
    (root / "a.ring").write_bytes(b"my precious data" * 100)
    for _ in range(5):
        source.collect()
        clock.advance(4000)

    assert (root / "a.ring").exists()


def test_no_removal_if_switched_off(root: Path, clock: FakeClock, make_source: MakeSource) -> None:
    """Without an age nothing is removed."""
    RingFile(root / "a.ring").goodbye()
    source = make_source(remove_after_seconds=None)
    for _ in range(5):
        source.collect()
        clock.advance(4000)

    assert (root / "a.ring").exists()
