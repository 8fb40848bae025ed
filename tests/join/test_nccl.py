"""Whose a log is: by host and process, never by one of them alone, and never a guess."""

from __future__ import annotations

from typing import Any

import pytest

from facts import identity, rank_facts
from straggler.join.nccl import UNLINKED, Linked, link
from straggler.model.nccl import NcclFacts
from straggler.model.rank import RankFacts, RankKey, RankState

OWNER, STRANGER = 1000, 1001


def rank(number: int = 0, *, pid: int | None = 41, uid: int | None = OWNER, **changes: Any) -> RankFacts:
    """One rank on ``n1``, of a run of eight."""
    return rank_facts(number, identity=identity(number, **changes), pid=pid, uid=uid)


def log(**changes: Any) -> NcclFacts:
    """What a log says of rank 0."""
    values: dict[str, Any] = {
        "host": "n1",
        "pid": 41,
        "rank": 0,
        "nranks": 8,
        "uid": OWNER,
        "written": 100.0,
        "path": "/l/0",
    }
    return NcclFacts(**(values | {"path": "/l/0"} | changes))


def linked(ranks: list[RankFacts], logs: list[NcclFacts], *, trusted: tuple[int, ...] = ()) -> Linked:
    """Link, and check that no reason is one that nobody has listed."""
    found = link(ranks, logs, trusted=trusted)
    assert set(found.unlinked) <= set(UNLINKED)
    return found


def one(ranks: list[RankFacts], *logs: NcclFacts) -> NcclFacts | str:
    """What is told of the first rank, or why nothing is."""
    found = linked(ranks, list(logs))
    return found.by_rank.get(ranks[0].key) or next(iter(found.unlinked))


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ({"node": "n1"}, "n1"),
        ({"node": "n1.cluster.example"}, "n1"),
        ({"node": "N1"}, "n1"),
        ({"node": "gpu-7", "pod": "job-worker-0"}, "job-worker-0"),
        ({"node": "gpu-7", "pod": "p" * 80}, "p" * 63),
    ],
)
def test_host_and_process_are_enough(names: dict[str, Any], host: str) -> None:
    """NCCL cuts the host at its first dot; in a pod it is the pod's name, which may be cut too."""
    facts = log(host=host)

    assert one([rank(**names)], facts) is facts


def test_a_log_without_ranks_is_a_process_still() -> None:
    """With some subsystems only, a log names no rank: host and process do."""
    facts = log(rank=None, nranks=None)

    assert one([rank()], facts) is facts


def test_a_rank_of_a_smaller_communicator_is_no_contradiction() -> None:
    """Its number is that of the group and not the global one."""
    facts = log(rank=0, nranks=2)

    assert one([rank(5)], facts) is facts


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"host": ""}, "no_host"),
        ({"host": "n2"}, "other_node"),
        ({"uid": STRANGER}, "stranger"),
        ({"pid": 42}, "no_such_process"),
        ({"pid": None}, "no_such_process"),
        ({"rank": 3}, "contradictory"),
        ({"pci_bus_id": "00000000:2A:00.0"}, "contradictory"),
    ],
)
def test_what_does_not_fit_is_told_for_nobody(changes: dict[str, Any], reason: str) -> None:
    """Each with its reason."""
    assert one([rank(pci_bus_id="0000:1b:00.0")], log(**changes)) == reason


def test_a_dead_rank_has_no_log() -> None:
    """Its process' number may be another's by now."""
    dead = rank_facts(0, identity=identity(0), pid=41, uid=OWNER, state=RankState.CRASHED)

    assert linked([dead], [log()]) == Linked({}, {"other_node": 1})


def test_pods_with_the_same_process_number_are_told_apart() -> None:
    """In each container the trainer may be process 41: on one host the number among all ranks decides, if it can."""
    ranks = [rank(0), rank(1)]

    assert linked(ranks, [log(rank=1)]).by_rank == {RankKey("r", 1): log(rank=1)}
    assert linked(ranks, [log(rank=None, nranks=None)]) == Linked({}, {"ambiguous": 1})


def test_two_runs_on_one_host_are_not_mixed() -> None:
    """Both have a rank 0 of eight in a process 41: nobody knows whose log it is."""
    ranks = [rank(0), rank_facts(0, identity=identity(0, run="other"), pid=41, uid=OWNER)]

    assert linked(ranks, [log()]) == Linked({}, {"ambiguous": 1})


def test_a_pushed_rank_is_found_by_its_number() -> None:
    """It has no ring here, so no process: the whole world's rank on its host must be the same."""
    pushed = rank(3, pid=None, uid=None)

    assert linked([pushed], [log(rank=3)], trusted=(OWNER,)).by_rank == {pushed.key: log(rank=3)}
    assert linked([pushed], [log(rank=3, nranks=4)], trusted=(OWNER,)).unlinked == {"no_such_process": 1}
    assert linked([pushed], [log(rank=3)]).unlinked == {"stranger": 1}


def test_logs_of_root_are_believed() -> None:
    """A container's output is collected by root; who is root needs no forged log."""
    facts = log(uid=0)

    assert linked([rank()], [facts], trusted=(0,)).by_rank == {RankKey("r", 0): facts}


def test_a_log_among_the_rings_speaks_for_the_ring_beside_it() -> None:
    """Every pod is root in its own directory, and may write any host and process into its log."""
    ranks = [rank_facts(0, identity=identity(0), pid=41, uid=0, directory="team-a/1")]
    own, forged = log(uid=0, directory="team-a/1"), log(uid=0, directory="team-b/2", written=200.0)

    assert linked(ranks, [own, forged], trusted=(0,)) == Linked({RankKey("r", 0): own}, {"stranger": 1})


def test_a_log_beside_the_ring_of_another_user_says_nothing() -> None:
    """Where users share a ring directory, lying beside a ring does not make a log its owner's, not even root's."""
    ranks = [rank_facts(0, identity=identity(0), pid=41, uid=OWNER, directory=".")]

    assert linked(ranks, [log(uid=STRANGER, directory="."), log(uid=0, directory=".")], trusted=(0,)) == Linked(
        {}, {"stranger": 2}
    )


def test_the_freshest_log_speaks() -> None:
    """An earlier attempt under the same number, or the same lines in a second file."""
    old, new = log(path="/l/old", written=50.0), log(path="/l/new", version="2.21.5")

    assert linked([rank()], [new, old]) == Linked({RankKey("r", 0): new}, {"superseded": 1})


def test_of_several_ranks_in_a_process_its_own_is_taken() -> None:
    """What cannot be placed in a communicator stands beside the one that is named."""
    named, stray = log(), log(rank=1, nranks=None)

    assert one([rank()], stray, named) is named
    assert one([rank()], log(rank=1, nranks=2), log(rank=0, nranks=2)) == log(rank=0, nranks=2)
    assert one([rank(5)], log(rank=1, nranks=2), log(rank=0, nranks=2)) == "ambiguous"
