"""Rings of people who should not be believed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ring_files
from fakes import FakeClock
from ring_files import RingFile, Trainer, started
from straggler.errors import ConfigError
from straggler.sidecar.settings import load
from straggler.sources.rings.read import RingSource
from straggler.sources.rings.strangers import RingPolicy
from straggler.wire import layout

ANN, BOB = 12345, 12346
MakeSource = Callable[..., RingSource]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to several users")


def ring(path: Path, uid: int, **arguments: Any) -> RingFile:
    """A ring of that user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = RingFile(path, **arguments)
    os.chown(path, uid, -1)
    return made


def published(source: RingSource) -> list[tuple[str, int, int | None]]:
    """Run, rank and step of what is believed."""
    return [(rank.key.run, rank.key.rank, rank.step) for rank in source.collect().facts]


@pytest.mark.parametrize("mode", [0o660, 0o646, 0o666])
def test_ring_that_others_may_write(root: Path, source: RingSource, mode: int) -> None:
    """A ring that anybody but its owner may write to proves nothing; once that is repaired it counts."""
    made = RingFile(root / "a.ring")
    made.step(3)
    (root / "a.ring").chmod(mode)
    assert published(source) == []
    assert source.counters.refused_now == {"writable_by_others": 1}

    (root / "a.ring").chmod(0o640)
    assert published(source) == [("r", 0, 3)]
    made.close()


@needs_root
def test_owners_of_the_policy(root: Path, make_source: MakeSource) -> None:
    """Only the users that the administrator names may write rings."""
    source = make_source(policy=RingPolicy(owners=(range(ANN, ANN + 1),)))
    rings = [ring(root / "a.ring", ANN, rank=0), ring(root / "b.ring", BOB, rank=1)]
    for each in rings:
        each.step(1)

    assert published(source) == [("r", 0, 1)]
    assert source.counters.refused_now == {"wrong_owner": 1}
    for each in rings:
        each.close()


@needs_root
def test_run_belongs_to_who_was_first(root: Path, source: RingSource) -> None:
    """Another user can neither forge a rank of a run, nor add one, nor have the run's own rings refused."""
    mine = ring(root / "a.ring", ANN, rank=0)
    mine.step(5)
    assert published(source) == [("r", 0, 5)]

    forged = [ring(root / "b.ring", BOB, rank=0, created=2**62), ring(root / "c.ring", BOB, rank=7)]
    for each in forged:
        each.step(99)
    for _ in range(3):  # the forgery moves, and the true ring stands still
        forged[0].step(1)
        assert published(source) == [("r", 0, 5)]

    assert source.counters.refused_now == {"foreign_run": 2}
    reading = source.collect()
    assert reading.problems == ()  # said once
    for each in (mine, *forged):
        each.close()


@needs_root
def test_crash_is_not_hidden_by_a_forged_survivor(
    root: Path, source: RingSource, clock: FakeClock, start: Callable[..., Trainer]
) -> None:
    """A run whose rank was killed stays its owner's, as long as the crash is told; then the name is free."""
    victim = start(root / "a.ring", ANN)
    victim.do("step", 40)
    source.collect()
    victim.kill()
    forged = start(root / "b.ring", BOB)
    forged.do("step", 50)
    clock.advance(5)
    (told,) = source.collect().facts
    assert (told.step, told.alive) == (40, False)

    clock.advance(301)
    source.collect()
    forged.do("step", 1)
    assert published(source) == [("r", 0, 51)]


@needs_root
def test_name_is_free_after_a_goodbye(root: Path, source: RingSource, start: Callable[..., Trainer]) -> None:
    """When a run has ended in order the next user may have the same name at once, as `localhost:29500` makes it."""
    first = start(root / "a.ring", ANN)
    first.do("step", 40)
    source.collect()
    first.do("goodbye", layout.STATUS_FINISHED)
    first.kill()
    second = start(root / "b.ring", BOB)
    second.do("step", 3)

    assert published(source) == [("r", 0, 3)]
    assert source.counters.refused_now == {}


@needs_root
def test_two_claims_before_the_reader_came(root: Path, source: RingSource) -> None:
    """A reader that finds two living users with one run believes neither, and says whom to ask."""
    rings = [ring(root / "a.ring", ANN, rank=0), ring(root / "b.ring", BOB, rank=1)]
    for each in rings:
        each.step(1)
    reading = source.collect()

    assert reading.facts == ()
    assert {problem.reason for problem in reading.problems} == {"foreign_run"}
    told = " ".join(problem.detail for problem in reading.problems)
    assert f"user {ANN}" in told
    assert f"user {BOB}" in told
    assert "STRAGGLER_RUN" in told
    for each in rings:
        each.close()


def test_namespaces_are_claimants(root: Path, source: RingSource) -> None:
    """Under Kubernetes everybody may be root: there a run belongs to the namespace whose directory it is in."""
    first = RingFile(_pod(root, "team-a", "1"), rank=0)
    first.step(2)
    assert published(source) == [("r", 0, 2)]
    same = RingFile(_pod(root, "team-a", "2"), rank=1)
    foreign = RingFile(_pod(root, "team-b", "3"), rank=2)

    assert [(run, rank) for run, rank, _ in published(source)] == [("r", 0), ("r", 1)]
    assert source.counters.refused_now == {"foreign_run": 1}
    for each in (first, same, foreign):
        each.close()


def test_ranks_say_whose_directory_they_are_in(root: Path, source: RingSource) -> None:
    """The kubelet made the directory of a pod: what lies beside the ring is of the same writer."""
    rings = (RingFile(_pod(root, "team-a", "1"), rank=0), RingFile(root / "b.ring", run="other"))
    facts = source.collect().facts
    for made in rings:
        made.close()

    assert {rank.directory: rank.uid for rank in facts} == {"team-a/1": os.geteuid(), ".": os.geteuid()}
    assert {rank.pid for rank in facts} == {os.getpid()}


def test_namespaced_runs(root: Path, make_source: MakeSource) -> None:
    """With the policy a pod cannot speak for a run of another namespace, also where that has no pod on this node."""
    source = make_source(policy=RingPolicy(namespaced_runs=True))
    rings = [
        RingFile(_pod(root, "team-a", "1"), run="team-a/job", namespace="team-a"),
        RingFile(_pod(root, "team-b", "2"), run="team-c/job"),
        RingFile(_pod(root, "team-b", "3"), run="team-b/job", namespace="team-c"),
    ]

    assert [run for run, _, _ in published(source)] == ["team-a/job"]
    assert source.counters.refused_now == {"wrong_namespace": 2}
    for each in rings:
        each.close()


@pytest.mark.parametrize("text", ["me", "1-", "5-3", "-1", "1,,x"])
def test_owners_are_numbers(text: str) -> None:
    """The setting takes users by number, and says so."""
    with pytest.raises(ConfigError, match="0,1000-60000"):
        load({"rings_owners": text}, {})


def test_owners_may_be_empty() -> None:
    """Nothing given is everybody."""
    assert load({"rings_owners": "0, 1000-60000"}, {}).rings.owners == "0, 1000-60000"
    assert load({}, {}).rings.owners == ""


def _pod(root: Path, namespace: str, uid: str) -> Path:
    directory = root / namespace / uid
    directory.mkdir(parents=True)
    return directory / "x.ring"


@pytest.fixture
def start() -> Any:
    """Start a trainer whose ring is that user's."""
    with contextlib.ExitStack() as stack:

        def begin(path: Path, uid: int) -> Trainer:
            made = stack.enter_context(started([sys.executable, ring_files.__file__, str(path), json.dumps({})]))
            os.chown(path, uid, -1)
            return made

        yield begin
