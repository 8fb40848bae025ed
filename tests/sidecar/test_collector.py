"""One collection at a time, shared by all who ask meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from facts import rank_facts
from scripted import MakeBench, ScriptedSource
from straggler.model.reading import Problem
from straggler.sidecar.state import Snapshot


def _held(inside: threading.Event, go: threading.Event) -> Callable[[], object]:
    def before() -> None:
        inside.set()
        go.wait(30)

    return before


def test_concurrent_scrapes_share_one_collection(make_bench: MakeBench) -> None:
    """Four scrapes at the same time cost one look at each source and get the same answer."""
    inside, go = threading.Event(), threading.Event()
    rings = ScriptedSource("rings", [rank_facts(0)], before=_held(inside, go))
    bench = make_bench(rings)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(bench.collector.collect, 30)
        inside.wait(30)
        others = [pool.submit(bench.collector.collect, 30) for _ in range(3)]
        go.set()

        assert {id(future.result(30)) for future in [first, *others]} == {id(bench.collector.last)}
    assert len(rings.requests) == 1


def test_hasty_scrape_gets_the_snapshot_before(make_bench: MakeBench) -> None:
    """Who has less time than the collection under way is given what was known before it."""
    inside, go = threading.Event(), threading.Event()
    rings = ScriptedSource("rings", [rank_facts(0)])
    bench = make_bench(rings)
    before = bench.collector.collect(30)
    rings.before = _held(inside, go)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(bench.collector.collect, 30)
        inside.wait(30)

        assert bench.collector.collect(0.05) is before
        go.set()
        assert slow.result(30) is not before


def test_hasty_first_scrape_gets_an_empty_snapshot(make_bench: MakeBench) -> None:
    """Before anything is known the answer is empty, and not an error."""
    inside, go = threading.Event(), threading.Event()
    bench = make_bench(ScriptedSource("rings", before=_held(inside, go)))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(bench.collector.collect, 30)
        inside.wait(30)

        assert bench.collector.collect(0.05).views == ()
        go.set()
        slow.result(30)


def test_recent_is_reused_while_it_is_young(make_bench: MakeBench) -> None:
    """A reload within a second costs no look at the sources; a later one does."""
    rings = ScriptedSource("rings")
    bench = make_bench(rings)
    first = bench.collector.recent(1.0, 30)
    bench.clock.advance(0.9)
    assert bench.collector.recent(1.0, 30) is first
    bench.clock.advance(0.2)

    assert bench.collector.recent(1.0, 30) is not first
    assert len(rings.requests) == 2


def test_poll_asks_only_who_cannot_wait(make_bench: MakeBench) -> None:
    """Between scrapes the rings are read and the GPU page is left alone; what they refuse is counted."""
    rings = ScriptedSource("rings", polled=True, problems=[Problem(reason="torn")])
    dcgm = ScriptedSource("dcgm")
    bench = make_bench(rings, dcgm)
    bench.collector.poll(30)
    bench.collector.poll(30)

    assert (len(rings.requests), len(dcgm.requests)) == (2, 0)
    assert bench.collector.last is None
    assert bench.collector.collect(30).status.refused == {("rings", "torn"): 3}


def test_slow_poll_is_no_failure(make_bench: MakeBench) -> None:
    """A look that a poll does not wait for is not counted as a failure, and the next scrape has its ranks."""
    inside, go = threading.Event(), threading.Event()
    bench = make_bench(ScriptedSource("rings", [rank_facts(0)], polled=True, before=_held(inside, go)))
    bench.collector.poll(0.05)
    inside.wait(30)
    go.set()
    snapshot = bench.collector.collect(30)

    assert len(snapshot.views) == 1
    assert snapshot.status.refused == {}


def test_observers_see_each_full_collection(make_bench: MakeBench) -> None:
    """Observers are called with the snapshot after each collection, and not after a poll."""
    seen: list[Snapshot] = []
    bench = make_bench(ScriptedSource("rings", polled=True), observers=[seen.append])
    snapshot = bench.collector.collect(30)
    bench.collector.poll(30)

    assert seen == [snapshot]


def test_broken_observer_harms_nobody(make_bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """An observer that raises is logged; the scrape and the other observers go on."""
    seen: list[Snapshot] = []

    def broken(snapshot: Snapshot) -> None:
        raise ZeroDivisionError(snapshot.taken)

    bench = make_bench(ScriptedSource("rings"), observers=[broken, seen.append])

    assert bench.collector.collect(30) is seen[0]
    assert "ZeroDivisionError" in caplog.text
