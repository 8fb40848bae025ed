"""Pushing over HTTP, to a real receiver on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hook_process import Trained
from hook_process import train as train_with_ring
from straggler import StepTimer
from straggler.hook.push import Pusher
from straggler.wire import layout
from straggler.wire.push import CONTENT_TYPE, PushBatch, decode_push

PRELUDE = """
import os, sys, time
from straggler import StepTimer
from straggler.hook.push import Pusher
timer = StepTimer(run="r", rank=3, world_size=8, push=os.environ["URL"], push_token="secret")
def steps(count):
    for _ in range(count):
        with timer.step(tokens=10), timer.phase("wait"): pass
"""


PATIENT = """
import straggler.hook.push
straggler.hook.push._TIMEOUT_SECONDS = straggler.hook.push.EXIT_SECONDS = 50.0
"""
"""A rank waits five seconds for an answer and two for its goodbye, which a busy machine may need for other things."""


def train(body: str, url: str, *, prelude: str = PATIENT + PRELUDE, **environment: str) -> Trained:
    """Train with nothing but a push; what other processes of this machine have to say is none of it."""
    chosen = {"URL": url, "STRAGGLER_DIR": ""} | environment
    return train_with_ring(body, Path("/nowhere"), prelude=prelude, environment=chosen, flags=())


class Receiver:
    """Keeps what it is sent; answers as it is told."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        """Statuses of the next answers; then 204."""
        self.batches: list[PushBatch] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers.append(dict(self.headers.items()))
                receiver.paths.append(self.path)
                status = receiver.answers.pop(0) if receiver.answers else 204
                if status == 204:
                    receiver.batches.append(decode_push(body))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://{self.headers['Host']}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - the base class's name

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/api/v1/push"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def serials(self) -> list[int]:
        """Of all records, as they came."""
        return [record.serial for batch in self.batches for record in batch.records]

    def close(self) -> None:
        """Be gone."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    made = Receiver()
    yield made
    made.close()


def test_all_records_arrive_with_the_goodbye(receiver: Receiver) -> None:
    """What the loop did, who it is, the token, and how it ended; and no ring, since none was asked for."""
    done = train("steps(3000)", receiver.url)

    assert (done.code, done.err) == (0, "")
    assert receiver.serials == list(range(1, 3001))
    last = receiver.batches[-1]
    assert (last.identity.run, last.identity.rank, last.identity.world_size) == ("r", 3, 8)
    assert (last.live.status, last.live.arrivals, last.live.records) == (layout.STATUS_FINISHED, 3000, 3000)
    assert last.records[-1].total_tokens == 30_000
    assert len({batch.created_realtime_ns for batch in receiver.batches}) == 1
    assert receiver.headers[0]["Authorization"] == "Bearer secret"
    assert receiver.headers[0]["Content-Type"] == CONTENT_TYPE


def test_proxies_are_not_used(receiver: Receiver) -> None:
    """A proxy in the environment is for the web, and would see the token."""
    proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": ""}
    done = train("steps(5)", receiver.url, **proxy)

    assert (done.err, receiver.serials) == ("", [1, 2, 3, 4, 5])


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    """The token goes to the given host and path alone."""
    receiver.answers = [302]
    done = train("steps(5)", receiver.url)

    assert receiver.paths == ["/api/v1/push"]
    assert "answer 302" in done.err


def test_a_dead_receiver_holds_up_nothing() -> None:
    """Nobody there: the loop goes on, one line says so, and the end comes soon."""
    timed = "begun = time.monotonic()\nsteps(10_000)\ntimer.close()\nprint(time.monotonic() - begun < 30)"
    done = train(timed, "http://127.0.0.1:9/api/v1/push")

    assert (done.code, done.out, len(done.reports)) == (0, "True\n", 1)


def test_a_silent_receiver_holds_up_the_end_for_a_bounded_moment() -> None:
    """Somebody who takes connections and never answers."""
    body = """
import socket
silent = socket.create_server(("127.0.0.1", 0))
timer = StepTimer(run="r", rank=3, push=f"http://127.0.0.1:{silent.getsockname()[1]}/x")
steps(5)
"""
    done = train(body, "http://127.0.0.1:9/", prelude=PRELUDE)

    assert done.code == 0


@pytest.mark.parametrize("url", ["http://", "http://host:port/", "https://:443/x", "http://h:0/"])
def test_a_url_that_is_none(url: str) -> None:
    """It is reported, and the loop goes on."""
    done = train("steps(5)\nprint('trained')", url)

    assert (done.code, done.out) == (0, "trained\n")
    assert any("push URL" in line for line in done.reports)


class PatientPusher(Pusher):
    """Waits longer for an answer than a rank would: the machine may be busy."""

    def _connect(self) -> HTTPConnection:
        connection = super()._connect()
        connection.timeout = 50.0
        return connection


class Pushed:
    """A timer in this process, and a pusher without its thread: what is sent is sent by the test."""

    def __init__(self, url: str, directory: Path, token_file: str) -> None:
        self.timer = StepTimer(run="r", rank=0, world_size=2, directory=directory, allow_any_filesystem=True)
        session = self.timer._session
        session.options = session.options._replace(push_url=url, push_token_file=token_file)
        self.pusher = PatientPusher(session)
        self.step(1)

    def step(self, count: int) -> None:
        """Train."""
        for _ in range(count):
            with self.timer.step():
                pass

    def close(self) -> None:
        """Leave nothing open."""
        self.pusher._forget_connection()
        self.timer.close()


@pytest.fixture
def pushed(receiver: Receiver, tmp_path: Path) -> Iterator[Callable[..., Pushed]]:
    """Make timers that push."""
    made: list[Pushed] = []

    def make(token_file: str = "") -> Pushed:
        made.append(Pushed(receiver.url, tmp_path, token_file))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_what_was_not_taken_is_sent_again(receiver: Receiver, pushed: Callable[..., Pushed], status: int) -> None:
    """After a refusal that may pass, the records come with the next batch, in order and once."""
    one = pushed()
    receiver.answers = [status, status]
    one.step(4)
    outcomes = [one.pusher._push() for _ in range(3)]
    one.step(1)
    one.pusher._push()

    assert outcomes == [False, False, True]
    assert receiver.serials == [1, 2, 3, 4, 5, 6]


def test_what_can_never_be_taken_is_dropped(receiver: Receiver, pushed: Callable[..., Pushed]) -> None:
    """A batch that is refused for what it is does not stand in the way of the next."""
    one = pushed()
    receiver.answers = [400]
    one.pusher._push()
    one.step(2)
    one.pusher._push()

    assert receiver.serials == [2, 3]


def test_a_receiver_that_comes_back(receiver: Receiver, pushed: Callable[..., Pushed]) -> None:
    """An idle connection that was closed meanwhile is made anew, and nothing is lost."""
    one = pushed()
    one.pusher._push()
    connection = one.pusher._connection
    assert connection is not None
    assert connection.sock is not None
    connection.sock.shutdown(2)
    one.step(1)

    assert one.pusher._push()
    assert receiver.serials == [1, 2]


def test_the_queue_is_bounded(receiver: Receiver, pushed: Callable[..., Pushed]) -> None:
    """Nobody takes anything for long: memory stays bounded, the oldest goes, and the totals tell of all steps."""
    one = pushed()
    one.step(10_000)
    for _ in range(3):
        one.pusher._push()

    records = [record for batch in receiver.batches for record in batch.records]
    assert receiver.serials == list(range(10_001 - 4096 + 1, 10_002))
    assert records[-1].total_steps == 10_001
    assert max(len(batch.records) for batch in receiver.batches) == 1024


def test_a_sign_of_life_without_steps(receiver: Receiver, pushed: Callable[..., Pushed]) -> None:
    """A rank that hangs still says that it is there, and how often it arrived."""
    one = pushed()
    one.pusher._push()
    one.timer.arrive()
    one.pusher._push()

    assert [len(batch.records) for batch in receiver.batches] == [1, 0]
    assert [batch.live.arrivals for batch in receiver.batches] == [0, 1]


def test_a_token_is_read_anew(receiver: Receiver, pushed: Callable[..., Pushed], tmp_path: Path) -> None:
    """A token file that is replaced is used without a restart; until it is there, records wait."""
    file = tmp_path / "token"
    one = pushed(token_file=str(file))
    missing = one.pusher._push()
    file.write_text("one\n")
    one.pusher._push()
    file.write_text("two\n")
    one.pusher._push()

    assert missing is False
    assert [headers["Authorization"] for headers in receiver.headers] == ["Bearer one", "Bearer two"]
    assert receiver.serials == [1]


def test_forked_children_do_not_push(receiver: Receiver) -> None:
    """A forked worker sends nothing and waits for nothing."""
    done = train(
        """
steps(5)
if not (child := os.fork()):
    steps(5)
    timer.close()
    os._exit(0)
os.waitpid(child, 0)
""",
        receiver.url,
    )

    assert done.code == 0
    assert receiver.serials == [1, 2, 3, 4, 5]
    assert [batch.live.status for batch in receiver.batches][-1] == layout.STATUS_FINISHED
