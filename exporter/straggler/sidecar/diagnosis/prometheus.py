"""Questions to a Prometheus, or to who speaks its API: VictoriaMetrics, Thanos, Mimir."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from straggler.errors import SourceFailedError
from straggler.sources.dcgm.fetch import Access, read_page

_TIMEOUT_SECONDS = 20.0


class Sample(NamedTuple):
    """One series at one moment."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """One server.

    Args:
        url: its address, without ``/api``.
        access: how it is asked.
    """

    def __init__(self, url: str, access: Access) -> None:
        self._base = f"{url.rstrip('/')}/api/v1/query?query="
        self._access = access

    def query(self, expression: str) -> list[Sample]:
        """Evaluate an expression now.

        Raises:
            SourceFailedError: a reason of ``fetch``, or ``not_prometheus``.
        """
        text = read_page(self._base + quote(expression, safe="", errors="replace"), self._access, _TIMEOUT_SECONDS).text
        try:
            data: Any = json.loads(text)["data"]
            return [
                Sample({str(key): str(value) for key, value in one["metric"].items()}, float(one["value"][1]))
                for one in data["result"]
            ]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise SourceFailedError("not_prometheus", "it does not answer as Prometheus does") from None

    def number(self, expression: str) -> float | None:
        """The first value of an expression; ``None`` if it has none."""
        found = self.query(expression)
        return found[0].value if found else None


def selector(**labels: str) -> str:
    """``{run="llama",rank="2"}``, with whatever text in the values."""
    return "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"
