"""The chain of real servers that the demonstration uses."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from servers import monitoring
from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.simulate.local_http import LocalHandler, LocalServer
from straggler.simulate.processes import Crew
from straggler.simulate.servers import find_program, wait_until_ready

RULE = """
groups:
  - name: test
    rules:
      - alert: TooHot
        expr: celsius > 80
        annotations: {summary: "{{ $labels.gpu }} has {{ $value }} C"}
"""


class Page(LocalHandler):
    """One metric."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer."""
        self.answer(200, 'celsius{gpu="0"} 70\ncelsius{gpu="1"} 90\n')


@pytest.mark.servers
def test_from_a_page_to_the_webhook(tmp_path: Path) -> None:
    """What a page says reaches the webhook through Prometheus and Alertmanager, as an alert of the rule, once."""
    (tmp_path / "rule.yaml").write_text(RULE, encoding="utf-8")
    page = LocalServer(Page)
    try:
        with monitoring(tmp_path, {"page": urlsplit(page.url).netloc}, [tmp_path / "rule.yaml"]) as servers:
            notice = servers.webhook.wait_for(lambda notice: notice.name == "TooHot", 60)
            assert notice is not None
            assert notice.status == "firing"
            assert (notice.labels["gpu"], notice.labels["cluster"]) == ("1", "demo")
            assert notice.annotations["summary"] == "1 has 90 C"
            assert len(servers.webhook.notices()) == 1
            assert {sample["metric"]["gpu"] for sample in servers.prometheus.query("celsius")} == {"0", "1"}
            assert [alert["state"] for alert in servers.prometheus.alerts()] == ["firing"]
    finally:
        page.close()


def test_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a program is not installed, the error names the package."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SourceAbsentError, match="apt-get install prometheus"):
        find_program("alertmanager")


def test_server_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    """A server that ends instead of answering is reported at once, with what it said."""
    crew = Crew(tmp_path)
    server = crew.start("server", ["sh", "-c", "echo no such flag; exit 2"])

    with pytest.raises(SourceFailedError, match="no such flag"):
        wait_until_ready("http://127.0.0.1:9/", server)
