"""What is answered at which address."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from straggler.detect.policy import Policy
from straggler.metrics.exposition import accepts_gzip, compress, render
from straggler.model.reading import Problem
from straggler.sidecar.api import ranks_document
from straggler.sidecar.collector import Collector
from straggler.sidecar.config import ScrapeConfig
from straggler.sidecar.exchange import Request, Response
from straggler.sidecar.landing import CONTENT_TYPE, POLICY, render_landing
from straggler.sidecar.page import build_page
from straggler.sidecar.scrape import time_for_scrape

JSON = "application/json; charset=utf-8"
SCRAPE_TIMEOUT_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"

_LEAST_GZIP_BYTES = 1024
_FRESH_SECONDS = 1.0
"""For people and ``top``: a snapshot this old is new enough."""
_PATIENCE_SECONDS = 3.0
"""How long these wait for slow sources."""


class Endpoint(NamedTuple):
    """One address."""

    methods: tuple[str, ...]
    answer: Callable[[Request], Response]


class CountProblems(Protocol):
    """Where refusals outside a look are counted."""

    def __call__(self, source: str, problems: tuple[Problem, ...]) -> None:
        """Count them under their reasons."""


_READ = ("GET", "HEAD")


class Routes:
    """All addresses of the sidecar.

    Args:
        collector: where the facts come from.
        scrape: how long a scrape may take.
        policy: what slow means, for the ranks' list.
        count: for samples that would have spoilt the page.
        push: answers ``POST /api/v1/push``.
        hint: for the landing page without ranks.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        scrape: ScrapeConfig,
        policy: Policy,
        count: CountProblems,
        push: Callable[[Request], Response],
        hint: str,
    ) -> None:
        self._collector = collector
        self._scrape = scrape
        self._policy = policy
        self._count = count
        self._hint = hint
        self._endpoints = {
            "/metrics": Endpoint(_READ, self._metrics),
            "/-/healthy": Endpoint(_READ, self._healthy),
            "/-/ready": Endpoint(_READ, self._ready),
            "/": Endpoint(_READ, self._landing),
            "/api/v1/ranks": Endpoint(_READ, self._ranks),
            "/api/v1/push": Endpoint(("POST",), push),
        }

    def respond(self, request: Request) -> Response:
        """Answer one request. Any thread may call it."""
        endpoint = self._endpoints.get(request.path)
        if endpoint is None:
            known = ", ".join(self._endpoints)
            return Response(HTTPStatus.NOT_FOUND, f"nothing here; there are: {known}\n".encode())
        if request.method not in endpoint.methods:
            allowed = ", ".join(endpoint.methods)
            text = f"{request.path} takes {allowed}, not {request.method}\n"
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, text.encode(), headers=(("Allow", allowed),))
        return endpoint.answer(request)

    def _metrics(self, request: Request) -> Response:
        announced = request.headers.get(SCRAPE_TIMEOUT_HEADER)
        timeout = time_for_scrape(announced, self._scrape.timeout_seconds, self._scrape.timeout_offset_seconds)
        book = build_page(self._collector.collect(timeout))
        self._count("metrics", tuple(Problem(reason=reason, count=count) for reason, count in book.refused.items()))
        body, content_type = render(book.collect(), request.headers.get("Accept", ""))
        headers: tuple[tuple[str, str], ...] = (("Vary", "Accept, Accept-Encoding"),)
        if len(body) >= _LEAST_GZIP_BYTES and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            body = compress(body)
            headers = (*headers, ("Content-Encoding", "gzip"))
        return Response(HTTPStatus.OK, body, content_type, headers)

    def _healthy(self, _: Request) -> Response:
        return Response(HTTPStatus.OK, b"healthy\n")

    def _ready(self, _: Request) -> Response:
        if self._collector.last is None:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready: the first look at the sources has not ended\n")
        return Response(HTTPStatus.OK, b"ready\n")

    def _landing(self, _: Request) -> Response:
        document = ranks_document(self._collector.recent(_FRESH_SECONDS, _PATIENCE_SECONDS), self._policy)
        page = render_landing(document, self._hint).encode("utf-8", "replace")
        return Response(HTTPStatus.OK, page, CONTENT_TYPE, (POLICY,))

    def _ranks(self, _: Request) -> Response:
        document = ranks_document(self._collector.recent(_FRESH_SECONDS, _PATIENCE_SECONDS), self._policy)
        return Response(HTTPStatus.OK, json.dumps(document, allow_nan=False).encode() + b"\n", JSON)
