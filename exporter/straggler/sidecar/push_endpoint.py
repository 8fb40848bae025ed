"""``POST /api/v1/push``: who may, how much, and what is answered. What a push says is read by ``sources.push``."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from straggler.errors import WireError
from straggler.sidecar.exchange import Refusal, Request, Response
from straggler.sidecar.tokens import TokenFile
from straggler.wire.push import MAX_BYTES

_OFF = b"push is switched off here; switch it on with --push-tokens-file FILE (docs/api.md)\n"
_ASK = "send `Authorization: Bearer TOKEN` with a token of push.tokens_file\n"

_STATUSES = {"namespace_not_allowed": HTTPStatus.FORBIDDEN, "too_many_ranks": HTTPStatus.TOO_MANY_REQUESTS}
"""By reason; any other is a body that cannot be used."""


class PushTarget(NamedTuple):
    """Where pushes go."""

    tokens: TokenFile
    accept: Callable[[bytes, str | None], None]
    """Takes a body and the only namespace allowed (``None``: any). Raises ``WireError`` with the reason of a refusal,
    which it has counted."""


class PushEndpoint:
    """Answers pushes.

    Args:
        target: ``None`` where push is off.
    """

    def __init__(self, target: PushTarget | None) -> None:
        self._target = target

    def answer(self, request: Request) -> Response:
        """Take one push.

        Raises:
            Refusal: it may not push, or the body cannot be read; told before a body is read where possible.
        """
        if self._target is None:
            return Response(HTTPStatus.NOT_FOUND, _OFF)
        grant = self._target.tokens.check(request.headers.get("Authorization", ""))
        if grant is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", _ASK, (("WWW-Authenticate", "Bearer"),))
        body = request.read_body(MAX_BYTES)
        try:
            self._target.accept(body, grant.namespace)
        except WireError as error:
            status = _STATUSES.get(error.reason, HTTPStatus.BAD_REQUEST)
            return Response(status, f"{error}\n".encode("utf-8", "replace"))
        return Response(HTTPStatus.NO_CONTENT, b"")
