"""Whatever a log holds, reading it ends, is bounded, and raises nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from straggler.model.identity import MAX_LABEL_CHARACTERS
from straggler.model.nccl import TRANSPORTS, WARNING_KINDS
from straggler.sources.nccl.book import LogBook
from straggler.sources.nccl.watchdog import parse_progress, parse_timeout, unwrapped

PIECES = (
    "NCCL INFO ", "NCCL WARN ", "node-a:1:2 [0] ", "n" * 300, ":9", " [3] ", "Channel 00/0 : 0[0] -> 1[1] ", "[send] ",
    "via ", "NET/IB/0", "/GDRDMA", "P2P/", "comm 0xa rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 ", "- Init START",
    "Trees [0] 1/-1/-1->0->7 ", "16 coll channels, 8 nvls channels, ", "99999999999", "WorkNCCL(", "\x1b[36m", "\0",
    "é", "[PG 1 Rank 0] ", "Watchdog caught collective operation timeout: ", "last enqueued NCCL work: 1, ", "\u202e",
)  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=80), max_size=12)


@given(LINES)
def test_any_lines_give_facts_in_bounds(lines: list[str]) -> None:
    """Transports and kinds are listed ones, names are printable and short, counts are counts."""
    book = LogBook()
    book.hear(lines)
    for facts in book.facts():
        assert set(facts.channels) <= set(TRANSPORTS)
        assert set(facts.warnings) <= set(WARNING_KINDS)
        assert len(facts.host) <= MAX_LABEL_CHARACTERS
        assert facts.host.isprintable()
        assert facts.gdr_ratio is None or 0 <= facts.gdr_ratio <= 1
        assert facts.rank is None or facts.nranks is None or facts.rank >= 0
    assert all(count > 0 for count in book.take_refused().values())


@given(LINES)
def test_any_lines_can_be_asked_for_the_watchdog(lines: list[str]) -> None:
    """Nothing raises; joined lines lose nothing."""
    for line in unwrapped(lines):
        parse_timeout(line)
        parse_progress(line)
    assert "".join(unwrapped(lines)) == "".join(lines)


def work(line: str) -> int:
    """How many things a line says; that this returns at all is the point."""
    book = LogBook()
    book.hear([line])
    return sum(1 for _ in book.facts())


def test_lines_made_to_be_slow_are_not() -> None:
    """A quadratic pattern would take minutes for these 64 KB; each is one of the shapes that patterns loop on."""
    shapes = (
        "a",
        "a:1",
        "a.",
        "[1]",
        " ",
        "NET/",
        "0 ",
        "-",
        "NCCL INFO ",
        "[rank1]:",
        "1: ",
        "(a) ",
        "Rank 1 ",
        "->1",
    )
    for shape in shapes:
        body = shape * (60_000 // len(shape))
        for line in (f"{body}:1:2 [0] NCCL INFO x", f"n:1:2 [0] NCCL INFO {body}", f"n:1:2 [0] NCCL INFO Trees {body}"):
            work(line)
        parse_progress(body)
        parse_timeout(body)
