"""PyTorch's watchdog: which collective did not end, and who is furthest behind."""

from __future__ import annotations

import pytest

from straggler.sources.nccl.watchdog import (
    Laggard,
    Progress,
    Timeout,
    laggards,
    parse_progress,
    parse_timeout,
    unwrapped,
)

WORK = "WorkNCCL({}OpType={}, {}Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
CAUGHT = "Watchdog caught collective operation timeout: "
PROGRESS = "last enqueued NCCL work: 1582, last completed NCCL work: 1579."


@pytest.mark.parametrize(
    ("line", "rank", "operation", "sequence"),
    [
        ("[E ProcessGroupNCCL.cpp:587] [Rank 4] " + CAUGHT + WORK.format("", "ALLREDUCE", ""), 4, "ALLREDUCE", None),
        (
            "[rank2]:[E424 01:11:21.1 ProcessGroupNCCL.cpp:629] [Rank 2] "
            + CAUGHT
            + WORK.format("SeqNum=4, ", "BROADCAST", "NumelIn=112, NumelOut=112, "),
            2,
            "BROADCAST",
            4,
        ),
        (
            "  what():  [PG 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] "
            + CAUGHT
            + WORK.format("SeqNum=9141, ", "_ALLGATHER_BASE", "NumelIn=19008, NumelOut=152064, "),
            5,
            "_ALLGATHER_BASE",
            9141,
        ),
        ("[80746] [rank0]:[E321 x] [Rank 0] " + CAUGHT + WORK.format("SeqNum=1580, ", "SEND", ""), 0, "SEND", 1580),
        (" 45%|####5   | 12/27 [PG 1 Rank 0] " + CAUGHT + WORK.format("SeqNum=7, ", "ALLTOALL", ""), 0, "ALLTOALL", 7),
    ],
)  # fmt: skip
def test_the_collective_that_did_not_end(line: str, rank: int, operation: str, sequence: int | None) -> None:
    """In the words of each version, behind whatever else stands in the line."""
    assert parse_timeout(line) == Timeout(rank, operation, sequence, 600.0, 600.06)


@pytest.mark.parametrize(
    ("speaker", "group", "rank"),
    [
        ("[PG 1 Rank 0]", 1, 0),
        ("[PG 0 (default_pg) Rank 3]", 0, 3),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 1]", 0, 1),
        ("[PG ID 2 PG GUID 3 Rank 7]", 2, 7),
        ("[Rank 6]", 0, 6),
    ],
)
@pytest.mark.parametrize("words", ["last enqueued", "Last enqueued"])
def test_how_far_a_rank_came(speaker: str, group: int, rank: int, words: str) -> None:
    """Process group, rank in it, and the numbers of its last collectives."""
    line = f"[rank9]:[E1 x.cpp:1664] {speaker} Exception detected by watchdog at work: 1580, {PROGRESS}"

    assert parse_progress(line.replace("last enqueued", words)) == Progress(group, rank, 1582, 1579)


@pytest.mark.parametrize(
    "line", ["", PROGRESS, "[Rank 3] " + CAUGHT, "[PG 1 Rank 0] last enqueued NCCL work: 15", "[Rank x] " + PROGRESS]
)
def test_other_and_cut_lines_say_nothing(line: str) -> None:
    """Numbers without a speaker, and a speaker without numbers."""
    assert parse_progress(line) is None
    assert parse_timeout(line) is None


def test_a_line_that_was_wrapped_is_joined() -> None:
    """A viewer that breaks lines in the middle of a word."""
    whole = "[Rank 2] " + CAUGHT + WORK.format("SeqNum=4, ", "BROADCAST", "NumelIn=112, ")
    lines = ["before", whole[:80], whole[80:], "after"]

    assert list(unwrapped(lines)) == ["before", whole, "after"]
    assert list(unwrapped([whole[:80]])) == [whole[:80]]


def test_the_laggard_has_the_lowest_numbers() -> None:
    """The one that has given NCCL the fewest collectives; the others wait for it in the one after."""
    told = [Progress(0, rank, 77 if rank == 4 else 79, 77) for rank in range(8)]

    assert laggards(told) == (Laggard(0, (4,), 77, 77, 79, 8),)


def test_among_equals_there_is_no_laggard() -> None:
    """All have given the same: nobody is named."""
    assert laggards(Progress(0, rank, 79, 77) for rank in range(8)) == ()


def test_groups_are_apart_and_the_last_word_counts() -> None:
    """Numbers of two process groups are not comparable; a rank that tells twice is as far as it said last."""
    told = [Progress(0, 0, 5, 4), Progress(0, 1, 5, 4), Progress(1, 0, 900, 899), Progress(1, 1, 890, 889)]

    assert laggards(told) == (Laggard(1, (1,), 890, 889, 900, 2),)
    assert laggards([*told, Progress(1, 1, 900, 899)]) == ()


def test_a_rank_that_gave_nothing_is_behind() -> None:
    """PyTorch writes -1 for a rank that has never given a collective."""
    assert laggards([Progress(0, 0, 1, -1), Progress(0, 1, -1, -1)]) == (Laggard(0, (1,), -1, -1, 1, 2),)
