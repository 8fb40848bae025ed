"""``straggler top``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from facts import gpu_facts, identity, recent, view
from straggler.cli.main import main
from straggler.cli.ranks_table import MOST_IN_ORDER, ranks_table
from straggler.cli.top import ranks_url, render
from straggler.detect.policy import DEFAULT
from straggler.errors import ConfigError
from straggler.join.view import RankView
from straggler.metrics.self_metrics import ExporterStatus, SourceStatus
from straggler.model.rank import RankState
from straggler.model.reading import SourceState
from straggler.sidecar.api import ranks_document
from straggler.sidecar.state import Snapshot
from straggler.simulate.local_http import LocalHandler, LocalServer


def _document(*views: RankView, **status: Any) -> dict[str, Any]:
    snapshot = Snapshot(taken=1.0, taken_monotonic=1.0, views=views, status=ExporterStatus(**status))
    return ranks_document(snapshot, DEFAULT)


def _text(renderable: Any, width: int = 200) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(renderable)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


EIGHT = tuple(view(rank, gpu=gpu_facts(rank), recent=recent(0.047 if rank == 2 else 0.034, 0.057)) for rank in range(8))


class Site(LocalHandler):
    """A sidecar with eight ranks, and what is none."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer the ranks' address below ``/good``; other texts elsewhere."""
        answers = {
            "/good/api/v1/ranks": json.dumps(_document(*EIGHT)),
            "/text/api/v1/ranks": "hello",
            "/other/api/v1/ranks": '{"ranks": []}',
        }
        if self.path in answers:
            self.answer(200, answers[self.path])
        else:
            self.answer(HTTPStatus.NOT_FOUND, "no")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Its address."""
    server = LocalServer(Site)
    yield server.url
    server.close()


def test_table_shows_who_is_slow() -> None:
    """Eight ranks, one slow: its row is marked, and the title says which."""
    lines = _text(ranks_table(_document(*EIGHT))).splitlines()

    assert lines[0].strip() == "run r on n1, 8 ranks, slow: 2"
    assert lines[1].split() == [
        *("rank", "state", "step", "step", "time", "own", "wait", "slowdown", "GPU", "SM", "active"),
    ]
    assert [line.split()[0] for line in lines if "slow" in line and "running" in line] == ["2"]
    assert "1.38 x slow" in lines[4]
    assert "57.0 ms" in lines[4]


def test_columns_that_say_nothing_are_left_out() -> None:
    """Run, node and group have a column only where they differ; GPU only where there is one."""
    same = _text(ranks_table(_document(view(0), view(1)))).splitlines()[1]
    different = _text(
        ranks_table(_document(view(0), view(1, identity=identity(1, run="other", node="n2", peer_group="1"))))
    ).splitlines()[1]

    assert "node" not in same
    assert "SM active" not in same
    assert {"run", "node", "group"} <= set(different.split())


def test_narrow_terminal_cuts_names_and_no_numbers() -> None:
    """On 80 columns long names are cut; ranks and times, once cut away before them, are whole."""
    views = [
        view(rank, identity=identity(rank, run=f"llama-3-70b-pretraining-{rank}"), recent=recent(0.034, 0.057))
        for rank in range(101, 103)
    ]
    lines = _text(ranks_table(_document(*views)), width=80).splitlines()

    assert all(len(line) <= 80 for line in lines)
    assert "101" in lines[2]
    assert "57.0 ms" in lines[2]
    assert "llama" in lines[2]


@pytest.mark.parametrize(("cause", "shown"), [("thermal", ["SM", "active", "%"]), ("clocks_set_low", [])])
def test_no_column_is_emptied_by_a_narrow_terminal(cause: str, shown: list[str]) -> None:
    """On 80 columns the GPU's activity is shown or has no column: once its column was there, empty, as if unknown."""
    document = _document(*EIGHT)
    document["ranks"][2]["cause"] = cause

    lines = _text(ranks_table(document), width=80).splitlines()

    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert cause in lines[4]
    assert [word for word in ("SM", "active", "%") if word in lines[1] + lines[4]] == shown


def test_names_are_no_markup() -> None:
    """A run that is called like a style of the terminal is shown as it is called."""
    views = [view(rank, identity=identity(rank, run=f"[bold]{rank}[/bold]")) for rank in range(2)]

    assert "[bold]0[/bold]" in _text(ranks_table(_document(*views)))


def test_slow_ranks_come_first_where_there_are_many() -> None:
    """With more ranks than fit on the screen the slow one is on top."""
    count = MOST_IN_ORDER + 1
    views = [view(rank, recent=recent(0.047 if rank == count - 1 else 0.034, 0.057)) for rank in range(count)]

    assert _text(ranks_table(_document(*views))).splitlines()[2].split()[0] == str(count - 1)


def test_rank_that_is_gone_is_on_no_gpu() -> None:
    """That a rank has ended is said once, by its state: under GPU stand GPUs, and why a living rank has none."""
    text = _text(ranks_table(_document(view(0, state=RankState.FINISHED))))

    assert text.splitlines()[0].strip() == "run r on n1, 1 rank"
    assert "finished" in text
    assert "GPU" not in text
    assert "no_evidence" in _text(ranks_table(_document(view(0))))


def test_no_ranks() -> None:
    """An empty node is said to be empty."""
    assert "no ranks" in _text(ranks_table(_document()))


def test_trouble_is_below_the_table() -> None:
    """Sources that fail or cannot see something, and a sidecar that has gone, are said below."""
    sources = (
        SourceStatus(source="rings", state=SourceState.OK),
        SourceStatus(source="dcgm", state=SourceState.OK, blind={"sm_active_absent": 8}),
        SourceStatus(source="push", state=SourceState.ABSENT),
    )
    text = _text(render(_document(view(0), sources=sources), "no sidecar answers"))

    assert "source dcgm: ok, sm_active_absent" in text
    assert "no sidecar answers; the table is " in text
    assert "source rings" not in text
    assert "source push" not in text


def test_hung_rank_is_seen() -> None:
    """A hung rank says so in its state."""
    assert "hung" in _text(ranks_table(_document(view(0, state=RankState.HUNG))))


def test_once(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--once`` prints the table and ends."""
    assert main(["top", f"{site}/good", "--once"]) == 0
    assert "slow: 2" in capsys.readouterr().out


def test_live_until_interrupted(site: str) -> None:
    """In a terminal the table stays and is renewed until Ctrl-C, which is exit code 130 and no traceback."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "straggler", "top", f"{site}/good", "--interval", "0.1"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
    )
    os.close(slave)
    shown = b""
    try:
        while shown.count(b"slow: 2") < 3:
            shown += os.read(master, 65_536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            shown += _read_rest(master)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait(30)
        os.close(master)

    assert b"Traceback" not in shown


def _read_rest(terminal: int) -> bytes:
    """What a process says at its end; a terminal whose other side is closed is an error to read."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def test_json(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` prints what the sidecar says."""
    assert main(["top", f"{site}/good", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(_document(*EIGHT)))


@pytest.mark.parametrize(
    ("path", "text"),
    [("text", "is no Straggler sidecar"), ("other", "is no Straggler sidecar"), ("nowhere", "HTTP 404")],
)
def test_what_is_no_sidecar(site: str, capsys: pytest.CaptureFixture[str], path: str, text: str) -> None:
    """Another server at the address is told apart from none, and is exit code 1."""
    assert main(["top", f"{site}/{path}"]) == 1
    assert text in capsys.readouterr().err


def test_wrong_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """An interval that nobody can mean is wrong use."""
    assert main(["top", "--interval", "0"]) == 2
    assert "interval" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host:1", "http://host:1/api/v1/ranks"),
        ("http://host:1/", "http://host:1/api/v1/ranks"),
        ("https://host/behind/proxy", "https://host/behind/proxy/api/v1/ranks"),
        ("[::1]:1", "http://[::1]:1/api/v1/ranks"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    """An address may be short."""
    assert ranks_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://host", "host:port", "http://", "http://[::1"])
def test_no_address(text: str) -> None:
    """What is no address is wrong use, with an example."""
    with pytest.raises(ConfigError, match="write a URL like"):
        ranks_url(text)


def test_password_in_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    """A password belongs into a file, and is not repeated on the terminal."""
    assert main(["top", "https://me:secret@host"]) == 2
    said = capsys.readouterr().err
    assert "--password-file" in said
    assert "secret" not in said
