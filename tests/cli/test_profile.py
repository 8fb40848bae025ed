"""Asking ranks for a profile: whom, how, and what is said when they do not answer."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ring_files import RingFile, trainer
from straggler.cli.main import main
from straggler.cli.profile import choose_peer, first_common_step
from straggler.sources.rings.living import LivingRing, read_living
from straggler.wire import layout
from straggler.wire.profile import ANSWER_SUFFIX, REQUEST_SUFFIX, TRACE_SUFFIX, Answer, decode_request, encode

RANK_KEYS = {"rank", "peer", "state", "reason", "detail", "trace", "first_step", "steps", "trace_bytes"}
TORCH: dict[str, Any] = {"run": "llama", "framework": "torch 2.13.0"}


class Ran:
    """What a run of the command left."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.code = main(["profile", *arguments])
        self.out, self.err = capsys.readouterr()

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What the JSON says of each."""
        return list(json.loads(self.out)["ranks"])


@contextlib.contextmanager
def answering(ring: Path, **told: Any) -> Iterator[list[Any]]:
    """A rank that answers its first request; gives what it was asked."""
    asked: list[Any] = []
    ends = threading.Event()

    def answer() -> None:
        path = ring.with_suffix(REQUEST_SUFFIX)
        while not ends.is_set():
            if path.exists():
                asked.append(decode_request(path.read_bytes()))
                answer = Answer(asked[0].id, **{"state": "done", "first_step": 41, "steps": asked[0].steps, **told})
                ring.with_suffix(ANSWER_SUFFIX).write_bytes(encode(answer))
                return
            time.sleep(0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        ends.set()
        thread.join()


def trace_beside(ring: Path, content: bytes = b"a trace") -> str:
    """Its trace; gives the name."""
    path = ring.with_suffix(TRACE_SUFFIX)
    path.write_bytes(content)
    return path.name


def test_a_rank_and_its_peer_are_asked_for_the_same_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One request for both; each answer has its line and the way on; the requests are gone afterwards."""
    slow, peer = tmp_path / "a.ring", tmp_path / "b.ring"
    with (
        trainer(slow, rank=3, **TORCH) as first,
        trainer(peer, rank=5, **TORCH) as second,
        answering(slow, trace=trace_beside(slow), trace_bytes=7) as asked,
        answering(peer, trace=trace_beside(peer)) as peer_asked,
    ):
        first.do("step", 40)
        second.do("step", 38)
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--steps", "4")

    assert ran.code == 0
    assert asked == peer_asked
    assert (asked[0].steps, asked[0].first_step) == (4, 40 + 2 + 60)
    assert ran.out.splitlines() == [
        f"rank 3: 4 steps from step 41, 0.0 MB: {slow.with_suffix(TRACE_SUFFIX)}",
        f"rank 5 (peer): 4 steps from step 41, 0.0 MB: {peer.with_suffix(TRACE_SUFFIX)}",
        f"look at it with: straggler inspect {slow.with_suffix(TRACE_SUFFIX)} {peer.with_suffix(TRACE_SUFFIX)}",
    ]
    assert not list(tmp_path.glob(f"*{REQUEST_SUFFIX}"))


def test_json_keys_are_stable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts rely on exactly these keys, and the help names them all."""
    ring = tmp_path / "a.ring"
    with trainer(ring, rank=3, **TORCH), answering(ring, state="refused", reason="too_soon", detail="in 9 s"):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--json")
    help_text = Ran(capsys, "--help").out

    assert ran.code == 1
    assert [rank.keys() for rank in ran.ranks] == [RANK_KEYS]
    assert (ran.ranks[0]["state"], ran.ranks[0]["reason"], ran.ranks[0]["detail"]) == ("refused", "too_soon", "in 9 s")
    assert [key for key in sorted(RANK_KEYS) if key not in help_text] == []


def test_traces_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--output`` the trace is there under a name that says which rank and step."""
    ring, output = tmp_path / "a.ring", tmp_path / "out"
    output.mkdir()
    with trainer(ring, rank=3, **TORCH), answering(ring, trace=trace_beside(ring)):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--output", str(output), "--json")

    assert ran.code == 0
    assert Path(ran.ranks[0]["trace"]).read_bytes() == b"a trace"
    assert Path(ran.ranks[0]["trace"]) == output / f"rank3-step41{TRACE_SUFFIX}"


def test_a_link_in_the_place_of_a_trace_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank cannot have root copy a file that the rank itself may not read."""
    ring, output = tmp_path / "a.ring", tmp_path / "out"
    output.mkdir()
    (tmp_path / "secret").write_text("secret")
    ring.with_suffix(TRACE_SUFFIX).symlink_to(tmp_path / "secret")
    with trainer(ring, rank=3, **TORCH), answering(ring, trace=ring.with_suffix(TRACE_SUFFIX).name):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--output", str(output), "--json")

    assert ran.code == 1
    assert ran.ranks[0]["reason"] == "cannot_read"
    assert list(output.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_answer_of_a_stranger_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever else writes an answer beside the ring is not believed."""
    ring = tmp_path / "a.ring"
    forged = ring.with_suffix(ANSWER_SUFFIX)
    forged.write_bytes(b"")
    os.chown(forged, 4711, -1)
    with trainer(ring, rank=3, **TORCH), answering(ring):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--timeout", "1", "--json")

    assert ran.code == 1
    assert (ran.ranks[0]["state"], ran.ranks[0]["reason"]) == ("silent", "no_answer")


def test_a_silent_rank_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank that does not answer in time is said to be silent, and its request is taken back."""
    with trainer(tmp_path / "a.ring", rank=3, **TORCH):
        ran = Ran(capsys, "llama", "--rank", "3", "--no-peer", "--ring-dir", str(tmp_path), "--timeout", "1")

    assert ran.code == 1
    assert "rank 3: no profile: no_answer: it made no step" in ran.out
    assert not list(tmp_path.glob(f"*{REQUEST_SUFFIX}"))


def test_a_profile_that_has_not_ended_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long steps need a longer timeout."""
    ring = tmp_path / "a.ring"
    with trainer(ring, rank=3, **TORCH), answering(ring, state="running"):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path), "--timeout", "1")

    assert ran.code == 1
    assert "--timeout" in ran.out


def test_nsys_keeps_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nsys is around the rank there is no trace of ours, and that is done too."""
    ring = tmp_path / "a.ring"
    with trainer(ring, rank=3, **TORCH), answering(ring):
        ran = Ran(capsys, "llama", "--rank", "3", "--no-peer", "--ring-dir", str(tmp_path))

    assert (ran.code, ran.out) == (0, "rank 3: 3 steps from step 41, in nsys' report\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["llama", "--rank", "9"], 1, "its ranks here: 3"),
        (["gpt", "--rank", "3"], 1, "no rank of it is here"),
        (["llama", "--rank", "3", "--peer", "4"], 1, "rank 4 of llama has no living ring"),
        (["llama", "--rank", "3", "--peer", "3"], 2, "is the rank itself"),
        (["llama", "--rank", "3", "--steps", "21"], 2, "not in 1 … 20"),
        (["llama", "--rank", "3", "--timeout", "0"], 2, "not in 1 … 3600"),
        (["llama", "--rank", "3", "--output", "/nonexistent"], 2, "no directory"),
        (["llama", "--rank", "3", "--ring-dir", "/nonexistent"], 1, "No such file"),
    ],
)
def test_what_cannot_be_asked_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    """Wrong use is 2, a rank that is not here 1, with what is here."""
    with trainer(tmp_path / "a.ring", rank=3, **TORCH):
        if "--ring-dir" not in arguments:
            arguments = [*arguments, "--ring-dir", str(tmp_path)]
        ran = Ran(capsys, *arguments)

    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err


def test_a_rank_with_marks_by_hand_has_no_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its loop never looks for a request: that is said at once, not after a timeout."""
    with trainer(tmp_path / "a.ring", rank=3, run="llama"):
        ran = Ran(capsys, "llama", "--rank", "3", "--ring-dir", str(tmp_path))

    assert ran.code == 1
    assert "marks its steps by hand" in ran.err


def living(tmp_path: Path, *ranks: tuple[int, str, int]) -> list[LivingRing]:
    """Rings of these ranks: number, peer group, own time of a step in milliseconds; all as if they lived."""
    for rank, group, own_ms in ranks:
        ring = RingFile(tmp_path / f"{rank}.ring", rank=rank, peer_group=group, **TORCH)
        ring.step(40, step_ns=100_000_000, wait_ns=(100 - own_ms) * 1_000_000)
        ring.close()
    found = []
    for path in sorted(tmp_path.glob("*.ring")):
        from straggler.sources.rings.snapshot import read_snapshot

        snapshot = read_snapshot(path)
        assert snapshot.identity is not None
        found.append(LivingRing(path=path, user=os.geteuid(), identity=snapshot.identity, snapshot=snapshot))
    return found


def test_the_peer_is_the_median_of_the_others_in_the_group(tmp_path: Path) -> None:
    """Neither another stage's rank, nor the slow one itself, nor the fastest."""
    rings = living(tmp_path, (0, "0", 20), (1, "0", 34), (2, "0", 35), (3, "0", 90), (4, "0", 36), (5, "1", 35))
    chosen = choose_peer(rings[3], rings, None, tmp_path)

    assert chosen is not None
    assert chosen.identity.rank in (1, 2)


def test_without_others_there_is_no_peer(tmp_path: Path) -> None:
    """A rank alone on its node, or in its stage, is profiled alone."""
    rings = living(tmp_path, (3, "0", 90), (5, "1", 35))

    assert choose_peer(rings[0], rings, None, tmp_path) is None


def test_ranks_without_a_step_begin_at_any(tmp_path: Path) -> None:
    """There is nothing to reckon a common first step from."""
    rings = living(tmp_path, (3, "0", 90))
    RingFile(tmp_path / "new.ring", rank=4, **TORCH).close()
    (young,) = (ring for ring in living(tmp_path) if ring.identity.rank == 4)

    assert first_common_step([rings[0]]) == 40 + 2 + 30
    assert first_common_step([rings[0], young]) == 0


def test_the_dead_are_not_asked(tmp_path: Path) -> None:
    """A ring without a lock, or with a goodbye, belongs to nobody who could answer."""
    RingFile(tmp_path / "killed.ring", rank=1).step(3)
    with trainer(tmp_path / "ended.ring", rank=2) as ended, trainer(tmp_path / "lives.ring", rank=3):
        ended.do("goodbye", layout.STATUS_FINISHED)

        assert [ring.identity.rank for ring in read_living(tmp_path)] == [3]
