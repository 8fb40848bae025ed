"""The rank's own page, over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from straggler.hook.options import find_options
from straggler.hook.page import HANG_MIN_SECONDS

Make = Callable[..., Any]


def get(port: int | None, path: str = "/metrics") -> tuple[int, str | None, str]:
    """Status, content type and text."""
    assert port is not None
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def values(text: str) -> dict[str, float]:
    """Samples by name; of those with one more label, by that label's value."""
    return {
        sample.name
        + "".join(sample.labels.get(key, "") and f"/{sample.labels[key]}" for key in ("phase", "state")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_page(rank: Make) -> None:
    """The page has the right type, and says what the loop did up to now."""
    one = rank(serve="127.0.0.1:0", directory=None)
    for _ in range(40):
        one.step(own=34, wait=10)
    status, content_type, text = get(one.timer.page_port)
    first = values(text)
    one.step(own=34, wait=10)
    second = values(get(one.timer.page_port)[2])

    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert first["training_step_seconds_count"] == 40
    assert first["training_step_seconds_sum"] == pytest.approx(40 * 0.044)
    assert first["training_recent_own_median_seconds"] == pytest.approx(0.034)
    assert first["training_phase_seconds_total/wait"] == pytest.approx(0.4)
    assert (first["training_rank_state/running"], first["training_rank_arrivals_total"]) == (1, 40)
    assert second["training_step_seconds_count"] == 41
    assert one.timer.ring_path is None, "no ring, unless a directory is given"


def test_other_paths(rank: Make) -> None:
    """Only /metrics is there."""
    one = rank(serve="127.0.0.1:0")
    one.step()

    assert get(one.timer.page_port, "/metrics?x=1")[0] == 200
    assert get(one.timer.page_port, "/")[0] == 404


def test_a_hang_is_seen(rank: Make) -> None:
    """Where nothing moves for longer than a living rank may be silent, the state is hung; in checkpoint it is not."""
    one = rank(serve="127.0.0.1:0")
    one.step()
    get(one.timer.page_port)
    one.clock.ms(1000 * HANG_MIN_SECONDS + 1)
    hung = values(get(one.timer.page_port)[2])
    with one.timer.phase("checkpoint"):
        saving = values(get(one.timer.page_port)[2])
        one.clock.ms(1000 * HANG_MIN_SECONDS + 1)
        still_saving = values(get(one.timer.page_port)[2])

    assert (hung["training_rank_state/hung"], hung["training_rank_state/running"]) == (1, 0)
    assert (saving["training_rank_state/hung"], still_saving["training_rank_state/hung"]) == (0, 0)
    assert saving["training_rank_phase/checkpoint"] == 1


def test_a_port_in_use(rank: Make, caplog: pytest.LogCaptureFixture) -> None:
    """One line says so; the loop goes on, with its ring if there is one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with_ring = rank(serve=f"127.0.0.1:{port}")
        with_ring.step()
        without = rank(serve=f"127.0.0.1:{port}", directory=None)
        without.step()

    assert len(with_ring.records) == 1
    assert not without.timer.enabled
    assert len([record for record in caplog.records if "cannot be served" in record.message]) == 2


def test_closing_frees_the_port(rank: Make) -> None:
    """After ``close()`` another process may have the port."""
    one = rank(serve="127.0.0.1:0")
    one.step()
    port = one.timer.page_port
    one.timer.close()

    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_client_that_says_nothing(rank: Make) -> None:
    """It keeps nobody else waiting."""
    one = rank(serve="127.0.0.1:0")
    one.step()
    with socket.create_connection(("127.0.0.1", one.timer.page_port)):
        assert get(one.timer.page_port)[0] == 200


def test_scrapes_beside_training(rank: Make) -> None:
    """Scraped while it trains at full speed, each page is whole and its totals fit together."""
    one = rank(serve="127.0.0.1:0", directory=None)
    one.step()
    pages: list[str] = []

    def scrape() -> None:
        while len(pages) < 5:
            pages.append(get(one.timer.page_port)[2])

    thread = threading.Thread(target=scrape)
    thread.start()
    while thread.is_alive():
        one.step()

    assert len(pages) == 5
    for page in map(values, pages):
        assert page["training_step_seconds_sum"] == pytest.approx(page["training_step_seconds_count"] * 0.015)


@pytest.mark.parametrize(
    ("argument", "variable", "local_rank", "expected"),
    [
        (None, None, 0, None),
        (9100, None, 3, ("", 9100)),
        ("127.0.0.1:9100", None, 3, ("127.0.0.1", 9100)),
        ("[::1]:9100", "9200", None, ("::1", 9100)),
        (None, "9100", None, ("", 9100)),
        (None, "9100", 3, ("", 9103)),
        (None, "0.0.0.0:9100", 3, ("0.0.0.0", 9103)),
        (None, "0", 3, ("", 0)),
        ("http", None, 0, None),
        (-1, None, 0, None),
        (None, "65535", 1, None),
    ],
)
def test_address(
    argument: int | str | None, variable: str | None, local_rank: int | None, expected: tuple[str, int] | None
) -> None:
    """A port in the environment is that of local rank 0, since ranks share it; an argument is taken as it is."""
    reports: list[str] = []
    options = find_options(
        {} if variable is None else {"STRAGGLER_SERVE": variable},
        warn=lambda _about, text: reports.append(text),
        local_rank=local_rank,
        directory=None,
        push=None,
        push_token=None,
        serve=argument,
        allow_any_filesystem=None,
        own_time=None,
        gpu_synchronized=None,
    )

    assert options.serve == expected
    assert len(reports) == (expected is None and (argument, variable) != (None, None))
