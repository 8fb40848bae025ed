"""``docs/api.md``, from the tables in ``api.py``."""

from __future__ import annotations

from collections.abc import Sequence

from straggler.sidecar.api import GPU_FIELDS, NCCL_FIELDS, RANK_FIELDS, GpuField, NcclField, RankField

_HEAD = """\
# HTTP interface of the sidecar

Generated from `exporter/straggler/sidecar/api.py` by `make golden`; do not edit.

| address | answers |
|---|---|
| `GET /metrics` | the page for Prometheus: text format, or OpenMetrics if asked for; compressed if asked for |
| `GET /-/healthy` | 200 while the process can answer |
| `GET /-/ready` | 200 after the first look at all sources, 503 before |
| `GET /` | the ranks, for people |
| `GET /api/v1/ranks` | the ranks, for programs |
| `POST /api/v1/push` | takes step records of ranks that share no directory with the sidecar; off by default |

`HEAD` works wherever `GET` does. Anything else is answered with 404 or 405 and a line that says why.

A scrape takes no longer than Prometheus announces in `X-Prometheus-Scrape-Timeout-Seconds`, less
`scrape.timeout_offset_seconds`. A source that is not back by then is `failed` with the reason `timeout`, and the page
has what the others gave.

## GET /api/v1/ranks

An object with `version`, `timestamp_seconds`, `ranks` and `sources`. At most one second old. A key whose value is not
known is absent: it is never zero, null or empty instead.

Each of `sources` has `source`, `state` (`ok`, `absent`, `failed`, `stale`), `age_seconds` since it last gave facts, and
`blind`: what it cannot see, with counts.

Each of `ranks`:
"""

_GPU_TEXT = """\
Its `gpu`:
"""

_NCCL_TEXT = """\
Its `nccl`, where a log is followed ([nccl.md](nccl.md)):
"""

_PUSH_TEXT = """\
## POST /api/v1/push

Switched on by `push.tokens_file`. The body is one push as `exporter/straggler/wire/push.py` describes it, the header is
`Authorization: Bearer TOKEN`. The file has one token a line, at least 16 characters long; after a blank may stand the
Kubernetes namespace whose runs the token may write. Empty lines and lines that begin with `#` are skipped. The file is
read again when it changes, so tokens can be replaced without a restart.

| status | means |
|---|---|
| 204 | taken |
| 400 | not a push; the text begins with the reason |
| 401 | no token, or an unknown one |
| 403 | the token is for runs of another namespace: those called `NAMESPACE/…` |
| 404 | push is off |
| 408 | the body came too slowly |
| 409 | another process that began later pushes as the same rank |
| 411, 413 | no `Content-Length`, or a longer body than any push has |
| 429 | more pushed ranks than `limits.ranks` |
"""


def render_reference() -> str:
    """The whole document, in Markdown."""
    parts = (_HEAD, _table(RANK_FIELDS), _GPU_TEXT, _table(GPU_FIELDS), _NCCL_TEXT, _table(NCCL_FIELDS), _PUSH_TEXT)
    return "\n".join(parts)


def _table(fields: Sequence[RankField] | Sequence[GpuField] | Sequence[NcclField]) -> str:
    rows = ["| key | meaning |", "|---|---|", *(f"| `{field.key}` | {field.meaning} |" for field in fields)]
    return "\n".join(rows) + "\n"
