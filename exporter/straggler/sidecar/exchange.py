"""A question over HTTP and its answer, as the endpoints see them: no sockets here."""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from http import HTTPStatus
from typing import NamedTuple

TEXT = "text/plain; charset=utf-8"


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error of ours
    """What was sent cannot be taken; becomes the answer."""

    def __init__(self, status: HTTPStatus, reason: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        """For the count of refused inputs."""
        self.text = text
        self.headers = headers

    def response(self) -> Response:
        """The answer."""
        return Response(self.status, self.text.encode("utf-8", "replace"), headers=self.headers)


class Response(NamedTuple):
    """An answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Request(NamedTuple):
    """A question whose head has been read."""

    method: str
    path: str
    """Without the query."""
    headers: Message
    client: str
    """Its address."""
    read_body: Callable[[int], bytes]
    """Takes the most bytes allowed. Raises ``Refusal`` if the body is longer, its length unknown, or it is too slow."""
