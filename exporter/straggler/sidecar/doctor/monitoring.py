"""Whether Prometheus scrapes this node's sidecar and has the rules."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from straggler.errors import SourceFailedError
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sources.dcgm.fetch import Access, read_page

_TIMEOUT_SECONDS = 10.0
_MOST_AGE_SECONDS = 120.0
_MOST_APART_SECONDS = 5.0
_SERIES = "straggler_exporter_build_info"
_NEEDED_ALERTS = ("TrainingStraggler", "StragglerExporterDown")
_SCRAPE = "scrape_configs: - {{job_name: straggler, static_configs: [{{targets: ['NODE:{port}']}}]}}"
_FIXES = {
    "auth": " (--prometheus-username, --prometheus-password-file)",
    "tls": " (--prometheus-ca-file, --prometheus-client-certificate-file or --prometheus-insecure)",
}
"""By the reasons of ``fetch``: which flags."""
_RULE_FILES = "rule_files: [rules/recording/*.yaml, rules/alerts/*.yaml]"

Ask = Callable[[str], Any]


class _NoAnswerError(Exception):
    """The server has no such address, or did not say what was expected. The text tells."""


def examine_monitoring(url: str, port: int, access: Access) -> Iterator[Finding]:
    """Ask a Prometheus, or who speaks its API.

    Args:
        url: its address, without ``/api``.
        port: the sidecar's.
        access: how it is asked.
    """
    base = url.rstrip("/")

    def ask(path: str) -> Any:
        try:
            document = json.loads(read_page(f"{base}/api/v1/{path}", access, _TIMEOUT_SECONDS).text)
        except SourceFailedError as error:
            raise _NoAnswerError(f"{error.reason}: {error.detail}{_FIXES.get(error.reason, '')}") from error
        except ValueError:
            raise _NoAnswerError("it does not answer as Prometheus does") from None
        if not isinstance(document, dict) or document.get("status") != "success":
            raise _NoAnswerError("it does not say success")
        return document["data"]

    scrapes = _examined("prometheus", _scrapes, ask, port, base)
    yield scrapes
    if scrapes.fix.startswith("curl -s"):
        return  # it cannot be asked
    for check, examine in (("samples", _samples), ("clock", _clock), ("rules", _rules)):
        yield _examined(check, examine, ask, port, base)


def _examined(check: str, examine: Callable[[Ask, int], Finding], ask: Ask, port: int, base: str) -> Finding:
    try:
        return examine(ask, port)
    except _NoAnswerError as error:
        if check == "rules":
            fix = "where vmalert or a ruler has the rules, give its URL with --prometheus"
            return Finding(check, Health.ABSENT, f"{base}: {error}", fix)
        return Finding(check, Health.BROKEN, f"{base}: {error}", f"curl -s {base}/api/v1/query?query=up")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return Finding(check, Health.BROKEN, f"{base} answers in a form of its own")


def _scrapes(ask: Ask, port: int) -> Finding:
    number = _value(ask(f"query?query=count({_SERIES})"))
    if not number:
        return Finding("prometheus", Health.BROKEN, "it scrapes no sidecar at all", _SCRAPE.format(port=port))
    everybody = f"it scrapes {number:.0f} sidecars"
    try:
        targets = ask("targets?state=active")["activeTargets"]
    except _NoAnswerError:
        return Finding("prometheus", Health.OK, f"{everybody}; which ones it does not say")
    ours = [target for target in targets if _is_here(target, port)]
    if not ours:
        names = ", ".join(sorted(_names()))
        text = f"{everybody}, none of them by a name of this node ({names}) and port {port}"
        return Finding("prometheus", Health.ABSENT, text, _SCRAPE.format(port=port))
    down = [target for target in ours if target["health"] != "up"]
    if down:
        text = f"{down[0]['scrapeUrl']}: {down[0].get('lastError') or down[0]['health']}"
        return Finding("prometheus", Health.BROKEN, text, f"curl -v {down[0]['scrapeUrl']}")
    return Finding("prometheus", Health.OK, f"{everybody}, this node's among them")


def _samples(ask: Ask, _: int) -> Finding:
    age = _value(ask(f"query?query=time()-max(timestamp({_SERIES}))"))
    if age is None:
        return Finding("samples", Health.BROKEN, "there is none of the last five minutes")
    health = Health.OK if age < _MOST_AGE_SECONDS else Health.BROKEN
    return Finding("samples", health, f"the newest is {age:.0f} s old")


def _clock(ask: Ask, _: int) -> Finding:
    before = time.time()
    theirs = float(ask("query?query=time()")["result"][1])
    apart = max(before - theirs, theirs - time.time(), 0.0)
    if apart > _MOST_APART_SECONDS:
        text = f"this node's and Prometheus' are {apart:.0f} s apart: ages of steps are wrong by that"
        return Finding("clock", Health.BROKEN, text, "systemctl enable --now chronyd")
    return Finding("clock", Health.OK, "this node's and Prometheus' agree")


def _rules(ask: Ask, _: int) -> Finding:
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    missing = [name for name in _NEEDED_ALERTS if name not in {rule["name"] for rule in rules}]
    if missing:
        return Finding("rules", Health.BROKEN, f"not loaded: {', '.join(missing)}", _RULE_FILES)
    failing = [rule for rule in rules if rule.get("health") == "err" and _is_ours(rule["name"])]
    if failing:
        which = f"{failing[0]['name']} " + (f"and {len(failing) - 1} more fail" if failing[1:] else "fails")
        text = f"{which}: {failing[0].get('lastError', '')[:200]}"
        return Finding("rules", Health.BROKEN, text, "promtool check rules rules/*/*.yaml")
    return Finding("rules", Health.OK, f"{sum(_is_ours(rule['name']) for rule in rules)} are loaded")


def _is_ours(name: str) -> bool:
    return name.startswith(("Training", "StragglerExporter", "run:", "run_rank:"))


def _value(data: Mapping[str, Any]) -> float | None:
    return float(data["result"][0]["value"][1]) if data["result"] else None


def _is_here(target: Mapping[str, Any], port: int) -> bool:
    parts = urlsplit(target["scrapeUrl"])
    return parts.port == port and (parts.hostname or "") in _names()


def _names() -> frozenset[str]:
    """What this node is called, as far as it knows itself."""
    name = socket.gethostname()
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        addresses = set()
    return frozenset({name, "localhost", "127.0.0.1", "::1", *addresses})
