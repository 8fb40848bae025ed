"""Inputs spoilt at random, from real ones, for a while: no crash, no number that is none, no memory that grows.

Seeded, so that a failure comes again. The property tests of each parser look for the same with Hypothesis; these start
from what a real hook and exporter wrote and repair the checksums, and so get deeper in. ``guided.py`` is the same
guided by coverage.
"""

from __future__ import annotations

import gzip
import math
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

from prometheus_client.parser import text_string_to_metric_families

from fakes import FakeClock
from faults.bench import Figure, memory_mb, sidecar
from straggler.join.view import RankView
from straggler.metrics.exposition import render
from straggler.model.gpu import GpuFacts
from straggler.model.rank import RankFacts
from straggler.sidecar.page import build_page
from straggler.sidecar.state import Snapshot
from straggler.sources.dcgm.parse import GpuPageParser
from straggler.sources.dcgm.reasons import DCGM_REASONS
from straggler.sources.push.reasons import PUSH_REASONS
from straggler.sources.push.store import PushStore
from straggler.sources.rings.read import RingSource
from straggler.sources.rings.reasons import RING_REASONS
from straggler.wire import layout
from straggler.wire.decode import decode_preamble
from straggler.wire.encode import encode_preamble
from straggler.wire.push import HEAD

CAPTURED = Path(__file__).resolve().parents[1] / "captured"
MOST_GROWTH_MB = 30.0
_SLOTS = 4


def small_ring() -> bytes:
    """The ring of the real hook, with four slots instead of 4,096."""
    whole = gzip.decompress((CAPTURED / "wire-v1" / "hook.ring.gz").read_bytes())
    preamble = encode_preamble(decode_preamble(whole)._replace(capacity=_SLOTS))
    return preamble + whole[len(preamble) : layout.RECORDS_OFFSET + _SLOTS * layout.RECORD_BYTES]


def push_body() -> bytes:
    """The push of the real hook."""
    return (CAPTURED / "wire-v1" / "hook.push").read_bytes()


def dcgm_pages() -> list[bytes]:
    """All captured forms."""
    return [path.read_bytes() for path in sorted((CAPTURED / "dcgm").glob("*/metrics.prom"))]


def spoil(data: bytes, dice: random.Random, text: bool = False) -> bytes:  # noqa: FBT001, FBT002 - what kind of data
    """Change a few bytes, cut, repeat or move a piece."""
    spoilt = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(spoilt) + 1)
        kind = dice.randrange(6)
        if kind == 0 and spoilt:
            spoilt[at % len(spoilt)] ^= 1 << dice.randrange(8)
        elif kind == 1:
            spoilt[at : at + 8] = dice.choice((b"\xff" * 8, bytes(8), dice.randbytes(8), b"\xff" * 7 + b"\x7f"))
        elif kind == 2:
            del spoilt[at : at + dice.choice((1, 8, 64, 400))]
        elif kind == 3:
            piece = bytes(spoilt[at : at + dice.choice((1, 8, 320, 1000))])
            spoilt[at:at] = piece * dice.choice((1, 1, 3))
        elif kind == 4 and text:
            spoilt[at:at] = dice.choice((b'"', b"{", b"}", b",", b"\\", b"\n", b" NaN ", b"1e999", b"\xc3", b"# HELP "))
        elif kind == 5 and not dice.randrange(4):
            del spoilt[at:]
    return bytes(spoilt)


def repair_ring(data: bytes) -> bytes:
    """Put right sums on preamble, live block, identity and records, so that what is wrong lies deeper."""
    fixed = bytearray(data.ljust(layout.RECORDS_OFFSET, b"\0"))
    for start, end in (
        (0, layout.PREAMBLE_BYTES),
        (layout.LIVE_OFFSET, layout.IDENTITY_OFFSET),
        *(
            (at, at + layout.RECORD_BYTES)
            for at in range(layout.RECORDS_OFFSET, len(fixed) - layout.RECORD_BYTES + 1, layout.RECORD_BYTES)
        ),
    ):
        fixed[end - 4 : end] = crc32(fixed[start : end - 4]).to_bytes(4, "little")
    _repair_identity(fixed, layout.IDENTITY_OFFSET)
    return bytes(fixed)


def repair_push(data: bytes) -> bytes:
    """The same for a push."""
    fixed = bytearray(data)
    live = HEAD.size + layout.LIVE_BYTES
    if len(fixed) < live + layout.IDENTITY_HEAD.size:
        return data
    fixed[HEAD.size - 4 : HEAD.size] = crc32(fixed[: HEAD.size - 4]).to_bytes(4, "little")
    fixed[live - 4 : live] = crc32(fixed[HEAD.size : live - 4]).to_bytes(4, "little")
    records = live + _repair_identity(fixed, live)
    for at in range(records, len(fixed) - layout.RECORD_BYTES + 1, layout.RECORD_BYTES):
        end = at + layout.RECORD_BYTES
        fixed[end - 4 : end] = crc32(fixed[at : end - 4]).to_bytes(4, "little")
    return bytes(fixed)


def _repair_identity(data: bytearray, at: int) -> int:
    """Put a right sum on an identity block; gives its length."""
    length = min(int.from_bytes(data[at : at + 4], "little"), layout.IDENTITY_BYTES - 8)
    text = bytes(data[at + 8 : at + 8 + length])
    layout.IDENTITY_HEAD.pack_into(data, at, len(text), crc32(text))
    return layout.IDENTITY_HEAD.size + len(text)


def check_page(ranks: Iterable[RankFacts], gpus: Iterable[GpuFacts] = ()) -> None:
    """Make the page and read it back: every value is a number, and every counter is at least zero."""
    check_views((RankView(rank=rank, gpu=None, evidence="", unmatched_reason="no_evidence") for rank in ranks), gpus)


def check_views(views: Iterable[RankView], gpus: Iterable[GpuFacts] = ()) -> None:
    """The same, of ranks that were joined with something."""
    book = build_page(Snapshot(taken=0.0, taken_monotonic=0.0, views=tuple(views), gpus=tuple(gpus)))
    assert not set(book.refused) - {"duplicate_series"}, book.refused
    for family in text_string_to_metric_families(render(book.collect(), "text/plain")[0].decode()):
        for sample in family.samples:
            assert math.isfinite(sample.value), sample
            assert family.type != "counter" or sample.value >= 0, sample


class RingEater:
    """Takes ring files one after the other, as the sidecar does."""

    def __init__(self, place: Path) -> None:
        self._path = place / "a.ring"
        self._place = place
        self.reasons: Counter[str] = Counter()
        self.taken = 0

    def eat(self, data: bytes) -> None:
        """Read one file, and once more under its hands."""
        self._path.write_bytes(data)
        self._path.chmod(0o640)
        source = RingSource(
            self._place,
            clock=FakeClock(now=self._path.stat().st_mtime),
            hang_steps=10,
            hang_min_seconds=120,
            hang_excluded_seconds=3600,
            gone_seconds=300,
        )
        for _ in range(2):
            reading = source.collect()
            for problem in reading.problems:
                self.reasons[problem.reason] += 1
            check_page(reading.facts)
            self.taken += bool(reading.facts)
        source.close()
        unknown = set(self.reasons) - set(RING_REASONS)
        assert not unknown, unknown


class PushEater:
    """Takes pushes one after the other into one store."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self._store = PushStore(
            self._clock,
            hang_steps=10,
            hang_min_seconds=120,
            hang_excluded_seconds=3600,
            gone_seconds=300,
            max_ranks=64,
        )
        self.reasons: Counter[str] = Counter()
        self.taken = 0

    def eat(self, data: bytes) -> None:
        """Take one."""
        outcome = self._store.accept(data, allowed_namespace=None)
        self._clock.advance(1)
        assert outcome.ok or outcome.reason in PUSH_REASONS, outcome
        self.taken += outcome.ok
        self.reasons[outcome.reason or "taken"] += 1
        if outcome.ok:
            check_page(self._store.collect().facts)


class PageEater:
    """Reads DCGM pages one after the other with one parser."""

    def __init__(self) -> None:
        self._parser = GpuPageParser()
        self.reasons: Counter[str] = Counter()
        self.taken = 0

    def eat(self, data: bytes) -> None:
        """Read one."""
        page = self._parser.parse(data.decode("utf-8", "replace"))
        for problem in (*page.problems, *page.blind):
            self.reasons[problem.reason] += 1
        assert not set(self.reasons) - set(DCGM_REASONS), self.reasons
        self.taken += bool(page.facts)
        check_page((), page.facts)
        for gpu in page.facts:
            wild = {
                name: value for name, value in gpu.values.items() if name.endswith("_ratio") and not 0 <= value <= 1
            }
            assert not wild, wild


def run(eat: Callable[[bytes], None], make: Callable[[random.Random], bytes], seconds: float) -> tuple[int, float]:
    """Feed until the time is over; gives how many, and how much memory grew, in MB."""
    dice = random.Random(20_26)
    count, warm = 0, 0.0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        eat(make(dice))
        count += 1
        if count == 200:
            warm = memory_mb(os.getpid())
    return count, memory_mb(os.getpid()) - warm if warm else 0.0


def figure(count: int, taken: int, reasons: Counter[str], grown: float) -> Figure:
    """What to say of it."""
    text = f"{count} inputs, {taken} readable, {len(reasons)} kinds of refusal, no crash, {grown:+.1f} MB"
    return Figure(grown < MOST_GROWTH_MB and count > 0, text)


def rings(place: Path, seconds: float) -> Figure:
    """Ring files: everything but the page's own promises is wrong about them."""
    (place / "rings").mkdir()
    eater, real = RingEater(place / "rings"), small_ring()

    def make(dice: random.Random) -> bytes:
        spoilt = spoil(real, dice)
        return repair_ring(spoilt) if dice.random() < 0.8 else spoilt

    count, grown = run(eater.eat, make, seconds)
    return figure(count, eater.taken, eater.reasons, grown)


def pushes(_: Path, seconds: float) -> Figure:
    """Bodies of pushes, all into one store."""
    eater, real = PushEater(), push_body()

    def make(dice: random.Random) -> bytes:
        spoilt = spoil(real, dice)
        return repair_push(spoilt) if dice.random() < 0.8 else spoilt

    count, grown = run(eater.eat, make, seconds)
    return figure(count, eater.taken, eater.reasons, grown)


def pages(_: Path, seconds: float) -> Figure:
    """Pages of every generation of dcgm-exporter."""
    eater, real = PageEater(), dcgm_pages()
    count, grown = run(eater.eat, lambda dice: spoil(dice.choice(real), dice, text=True), seconds)
    return figure(count, eater.taken, eater.reasons, grown)


_REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;q=0.5\r\nAccept-Encoding: gzip\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /-/ready HTTP/1.0\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 0.2\r\n\r\n",
)


def requests(place: Path, seconds: float) -> Figure:
    """Requests to a real server; in between a real scrape, which must come."""
    (place / "rings").mkdir()
    answers: Counter[str] = Counter()
    with sidecar(place / "rings") as server:
        before = 0.0

        def eat(data: bytes) -> None:
            nonlocal before
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    first = connection.recv(65_536)
                answers[first[9:12].decode("ascii", "replace") or "closed"] += 1
            except ConnectionError:
                answers["closed"] += 1
            if sum(answers.values()) % 200 == 1:
                assert "straggler_exporter_build_info" in server.metrics()
                before = before or memory_mb(server.pid)

        count, _ = run(eat, lambda dice: spoil(dice.choice(_REQUESTS), dice, text=True), seconds)
        assert "straggler_exporter_build_info" in server.metrics()
        grown = memory_mb(server.pid) - before
        broken = server.log.count("Traceback")
    said = ", ".join(f"{status} {times}x" for status, times in sorted(answers.items()))
    held = grown < MOST_GROWTH_MB and not broken and not answers["500"]
    return Figure(held, f"{count} requests ({said}), every scrape in between came, {grown:+.1f} MB")
