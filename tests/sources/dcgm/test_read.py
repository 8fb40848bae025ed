"""The whole source against real servers on loopback: states, several pages, what a look tells."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fakes import FakeClock
from straggler.model.gpu import GpuFacts
from straggler.model.reading import Reading, SourceState
from straggler.sources.dcgm.fetch import Access
from straggler.sources.dcgm.read import DcgmSource
from straggler.sources.dcgm.reasons import DCGM_REASONS

UUIDS = [f"GPU-{index:08x}-1111-2222-3333-000000000000" for index in range(4)]


def gpu(index: int, energy: int = 1000, util: int = 90, sm_active: float = 0.8) -> str:
    """The rows of one GPU."""
    labels = f'{{gpu="{index}",UUID="{UUIDS[index]}",Hostname="n"}}'
    return (
        f"DCGM_FI_DEV_GPU_UTIL{labels} {util}\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {energy}\n"
        f"DCGM_FI_PROF_SM_ACTIVE{labels} {sm_active:f}\n"
    )


class Exporter:
    """Serves ``pages`` by path; a test changes them between looks."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.cut_at: int | None = None
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.pages.get(self.path)
                self.send_response(200 if body is not None else 500)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write((body or b"")[: exporter.cut_at])

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def serve(self, text: str, path: str = "/metrics") -> str:
        """Show a page, and give its URL."""
        self.pages[path] = text.encode()
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def close(self) -> None:
        """End it; the port is closed then."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """A running exporter."""
    running = Exporter()
    yield running
    running.close()


@pytest.fixture
def clock() -> FakeClock:
    """Both clocks."""
    return FakeClock()


def closed_url() -> str:
    """A URL where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/metrics"


def problems(reading: Reading[GpuFacts]) -> dict[str, int]:
    """What was refused."""
    assert {problem.reason for problem in (*reading.problems, *reading.blind)} <= set(DCGM_REASONS)
    return {problem.reason: problem.count for problem in reading.problems}


def blind(reading: Reading[GpuFacts]) -> dict[str, int]:
    """What cannot be seen."""
    return {problem.reason: problem.count for problem in reading.blind}


def uuids(reading: Reading[GpuFacts]) -> list[str]:
    """The GPUs."""
    return [gpu.key.uuid for gpu in reading.facts]


def test_ok(exporter: Exporter, clock: FakeClock) -> None:
    """A good page gives its GPUs, and the time that the look took."""
    source = DcgmSource([exporter.serve(gpu(0) + gpu(1))], clock=clock)
    reading = source.collect(10, stepping=True)

    assert (reading.source, reading.state, problems(reading), blind(reading)) == ("dcgm", SourceState.OK, {}, {})
    assert uuids(reading) == UUIDS[:2]
    assert reading.facts[0].values == {"utilization_ratio": 0.9, "energy_joules_total": 1, "sm_active_ratio": 0.8}
    assert reading.duration_seconds == 0.0  # the fake clock stood still


def test_no_url(clock: FakeClock) -> None:
    """Without a URL the source is absent, which is no fault."""
    reading = DcgmSource([], clock=clock).collect(10, stepping=True)

    assert (reading.state, problems(reading), reading.facts) == (SourceState.ABSENT, {}, ())


def test_nobody_there(clock: FakeClock) -> None:
    """Where nobody listens, a URL that somebody wrote has failed; a guessed one is just not there."""
    asked = DcgmSource([closed_url()], clock=clock).collect(10, stepping=True)
    guessed = DcgmSource([closed_url()], clock=clock, required=False).collect(10, stepping=True)

    assert (asked.state, problems(asked)) == (SourceState.FAILED, {"refused": 1})
    assert (guessed.state, problems(guessed)) == (SourceState.ABSENT, {})


def test_guess_with_something_else_behind(exporter: Exporter, clock: FakeClock) -> None:
    """If a guessed URL leads to another exporter, that is said: the port is taken."""
    source = DcgmSource([exporter.serve("node_load1 0.5\n")], clock=clock, required=False)
    reading = source.collect(10, stepping=True)

    assert (reading.state, problems(reading)) == (SourceState.FAILED, {"no_gpu_samples": 1})


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "empty_body"), ("<html></html>", "not_metrics"), ("node_load1 0.5\n", "no_gpu_samples")],
)
def test_useless_page(exporter: Exporter, clock: FakeClock, text: str, reason: str) -> None:
    """200 with a page that says nothing of GPUs is a failure, not a node without GPUs."""
    reading = DcgmSource([exporter.serve(text)], clock=clock).collect(10, stepping=True)

    assert (reading.state, problems(reading), reading.facts) == (SourceState.FAILED, {reason: 1}, ())


def test_error_and_recovery(exporter: Exporter, clock: FakeClock) -> None:
    """A failed look gives no old values, and the next good one gives new ones."""
    source = DcgmSource([exporter.serve(gpu(0))], clock=clock)
    source.collect(10, stepping=True)
    good = exporter.pages.pop("/metrics")
    failed = source.collect(10, stepping=True)
    exporter.pages["/metrics"] = good
    recovered = source.collect(10, stepping=True)

    assert (failed.state, problems(failed), failed.facts) == (SourceState.FAILED, {"http_status": 1}, ())
    assert (recovered.state, uuids(recovered)) == (SourceState.OK, UUIDS[:1])


def test_bad_lines_are_counted_with_good_ones_shown(exporter: Exporter, clock: FakeClock) -> None:
    """Facts and problems come together."""
    text = gpu(0) + 'DCGM_FI_DEV_BRAND{UUID="GPU-x"} NVIDIA\n' + gpu(1).replace(" 90\n", " 2619\n")
    reading = DcgmSource([exporter.serve(text)], clock=clock).collect(10, stepping=True)

    assert (reading.state, problems(reading)) == (SourceState.OK, {"not_a_number": 1, "impossible_value": 1})
    assert uuids(reading) == UUIDS[:2]


def test_cut_page(exporter: Exporter, clock: FakeClock) -> None:
    """A cut page gives what it has, says so, and is no proof that the rest is gone."""
    source = DcgmSource([exporter.serve(gpu(0) + gpu(1))], clock=clock)
    source.collect(10, stepping=True)
    exporter.cut_at = len(gpu(0)) + 30
    reading = source.collect(10, stepping=True)

    assert (reading.state, uuids(reading)) == (SourceState.OK, UUIDS[:1])
    assert problems(reading) == {"truncated_line": 1, "truncated": 1}
    assert blind(reading) == {"page_incomplete": 1}


def test_several_pages(exporter: Exporter, clock: FakeClock) -> None:
    """Pages of several exporters are one set of GPUs; of a GPU on two, the first page counts, and it is said."""
    urls = [exporter.serve(gpu(0) + gpu(1), "/a"), exporter.serve(gpu(1, util=10) + gpu(2), "/b")]
    reading = DcgmSource(urls, clock=clock).collect(10, stepping=True)

    assert (reading.state, uuids(reading)) == (SourceState.OK, UUIDS[:3])
    assert reading.facts[1].values["utilization_ratio"] == 0.9
    assert problems(reading) == {"gpu_on_two_pages": 1}


def test_one_of_several_pages_fails(exporter: Exporter, clock: FakeClock) -> None:
    """What one page has is shown when the other fails; its GPUs are not called missing, the page is."""
    urls = [exporter.serve(gpu(0), "/a"), exporter.serve(gpu(1), "/b")]
    source = DcgmSource(urls, clock=clock)
    source.collect(10, stepping=True)
    del exporter.pages["/b"]
    reading = source.collect(10, stepping=True)

    assert (reading.state, uuids(reading)) == (SourceState.OK, UUIDS[:1])
    assert (problems(reading), blind(reading)) == ({"http_status": 1}, {"page_incomplete": 1})


def test_all_of_several_pages_fail(clock: FakeClock) -> None:
    """The source has failed when no page came, with a problem for each."""
    reading = DcgmSource([closed_url(), closed_url()], clock=clock).collect(10, stepping=True)

    assert (reading.state, problems(reading)) == (SourceState.FAILED, {"refused": 2})


def test_stale(exporter: Exporter, clock: FakeClock) -> None:
    """A page that repeats itself while ranks step becomes stale, without values and with its GPUs."""
    source = DcgmSource([exporter.serve(gpu(0))], clock=clock)
    for _ in range(8):
        reading = source.collect(10, stepping=True)
        clock.advance(15)
    reading = source.collect(10, stepping=True)

    assert (reading.state, uuids(reading), blind(reading)) == (SourceState.STALE, UUIDS[:1], {"values_frozen": 1})
    assert reading.facts[0].values == {}


def test_stuck_profiling(exporter: Exporter, clock: FakeClock) -> None:
    """SM activity stuck at zero on a busy GPU becomes a blind spot, and is never shown as idleness."""
    source = DcgmSource([exporter.serve("")], clock=clock)
    shown = []
    for look in range(8):
        exporter.serve(gpu(0, energy=1000 + look, util=99, sm_active=0.0))
        reading = source.collect(10, stepping=True)
        shown += [facts.values.get("sm_active_ratio") for facts in reading.facts]
        clock.advance(15)

    assert shown == [None] * 8
    reading = source.collect(10, stepping=True)
    assert (reading.state, blind(reading)) == (SourceState.OK, {"prof_stuck_zero": 1})


def test_default_csv_file(exporter: Exporter, clock: FakeClock) -> None:
    """A page from a shipped csv file is good, and blind for SM activity, with the line that would help."""
    text = "".join(line for line in gpu(0).splitlines(keepends=True) if "PROF" not in line)
    reading = DcgmSource([exporter.serve(text)], clock=clock).collect(10, stepping=True)

    assert (reading.state, blind(reading)) == (SourceState.OK, {"sm_active_absent": 1})
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge" in reading.blind[0].detail


def test_size_limit(exporter: Exporter, clock: FakeClock) -> None:
    """A page over the limit fails with its reason."""
    source = DcgmSource([exporter.serve(gpu(0))], clock=clock, access=Access(max_body_bytes=50))

    assert problems(source.collect(10, stepping=True)) == {"too_large": 1}


def test_gone_exporter(exporter: Exporter, clock: FakeClock) -> None:
    """An exporter that ends between two looks fails, and does not raise."""
    source = DcgmSource([exporter.serve(gpu(0))], clock=clock)
    assert source.collect(10, stepping=True).state is SourceState.OK
    exporter._server.shutdown()
    exporter._server.server_close()

    assert problems(source.collect(10, stepping=True)) == {"refused": 1}
