"""``POST /api/v1/push``: who may, how much, and what is answered. What a push says is read by ``sources.push``."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from straggler.model.reading import Problem
from straggler.sidecar.exchange import Refusal, Request, Response
from straggler.sidecar.tokens import TokenFile
from straggler.sources.push.reasons import DUPLICATE_RANK, TOO_MANY_RANKS, WRONG_NAMESPACE
from straggler.sources.push.store import PushOutcome
from straggler.wire.push import MAX_BYTES

_OFF = b"push is switched off here; switch it on with --push-tokens-file FILE (docs/api.md)\n"
_ASK = "send `Authorization: Bearer TOKEN` with a token of push.tokens_file\n"

_STATUSES = {
    WRONG_NAMESPACE: HTTPStatus.FORBIDDEN,
    DUPLICATE_RANK: HTTPStatus.CONFLICT,
    TOO_MANY_RANKS: HTTPStatus.TOO_MANY_REQUESTS,
}
"""By reason; any other is a body that cannot be used."""


class PushTarget(NamedTuple):
    """Where pushes go."""

    tokens: TokenFile
    accept: Callable[[bytes, str | None], PushOutcome]
    """Takes a body and the only namespace allowed (``None``: any)."""


class PushEndpoint:
    """Answers pushes.

    Args:
        target: ``None`` where push is off.
        count: told the reason of each push that is refused for what it says.
        tell: given every refused push, for the log.
    """

    def __init__(
        self, target: PushTarget | None, *, count: Callable[[str], None], tell: Callable[[Problem], None]
    ) -> None:
        self._target = target
        self._count = count
        self._tell = tell

    def answer(self, request: Request) -> Response:
        """Take one push.

        Raises:
            Refusal: it may not push, or the body cannot be read; told before a body is read where possible.
        """
        if self._target is None:
            return Response(HTTPStatus.NOT_FOUND, _OFF)
        try:
            outcome = self._take(self._target, request)
        except Refusal as refusal:
            self._tell(Problem(reason=refusal.reason, detail=f"a push from {request.client}: {refusal.text.rstrip()}"))
            raise
        if outcome.ok:
            return Response(HTTPStatus.NO_CONTENT, b"")
        self._count(outcome.reason)
        self._tell(Problem(reason=outcome.reason, detail=f"a push from {request.client}: {outcome.detail}"))
        status = _STATUSES.get(outcome.reason, HTTPStatus.BAD_REQUEST)
        return Response(status, f"{outcome.reason}: {outcome.detail}\n".encode("utf-8", "replace"))

    @staticmethod
    def _take(target: PushTarget, request: Request) -> PushOutcome:
        grant = target.tokens.check(request.headers.get("Authorization", ""))
        if grant is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", _ASK, (("WWW-Authenticate", "Bearer"),))
        return target.accept(request.read_body(MAX_BYTES), grant.namespace)
