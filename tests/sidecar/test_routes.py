"""What is answered before and after the sidecar has looked at its sources."""

from __future__ import annotations

from email.message import Message
from http import HTTPStatus

from scripted import MakeBench, ScriptedSource
from straggler.detect.policy import DEFAULT
from straggler.sidecar.config import ScrapeConfig
from straggler.sidecar.exchange import Request, Response
from straggler.sidecar.routes import Routes


def test_ready_is_who_has_looked_once(make_bench: MakeBench) -> None:
    """Until the first look at the sources has ended the sidecar is healthy and not ready."""
    collector = make_bench(ScriptedSource("rings", [])).collector
    routes = Routes(
        collector,
        scrape=ScrapeConfig(),
        policy=DEFAULT,
        count=lambda _source, _problems: None,
        push=lambda _request: Response(HTTPStatus.NOT_FOUND, b""),
        hint="",
    )

    def status(path: str) -> int:
        return routes.respond(Request("GET", path, Message(), "127.0.0.1", lambda _most: b"")).status

    assert (status("/-/healthy"), status("/-/ready")) == (200, 503)
    collector.collect(30)
    assert (status("/-/healthy"), status("/-/ready")) == (200, 200)
