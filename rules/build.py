"""Makes the variants of the rules: without ``keep_firing_for`` for an old vmalert, and as Kubernetes objects.

The plain files in ``recording/`` and ``alerts/`` are the only source. The variants are committed, and a test makes them
again and compares.

    python rules/build.py                       rewrite rules/vmalert/ and rules/kubernetes/
    python rules/build.py --output DIR --grafana-url https://grafana.corp --runbook-url https://wiki/runbooks
                                                the plain files and all variants with your addresses, into DIR
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

HERE = Path(__file__).resolve().parent
GRAFANA_URL = "https://grafana.example"
RUNBOOK_URL = "https://runbooks.example/straggler"

_KEEP = re.compile(r"^ *keep_firing_for: .*\n", re.MULTILINE)
_MADE = "# Made by rules/build.py from {source}: do not edit.\n"

_OBJECT = """\
---
apiVersion: {api}
kind: {kind}
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: straggler-exporter
    app.kubernetes.io/component: rules
spec:
"""
KINDS = {
    "prometheusrule.yaml": ("monitoring.coreos.com/v1", "PrometheusRule"),
    "vmrule.yaml": ("operator.victoriametrics.com/v1beta1", "VMRule"),
}


def sources() -> list[Path]:
    """The plain rule files, recording rules first."""
    return [*sorted(HERE.glob("recording/*.yaml")), *sorted(HERE.glob("alerts/*.yaml"))]


def variants(grafana_url: str = GRAFANA_URL, runbook_url: str = RUNBOOK_URL) -> Iterator[tuple[str, str]]:
    """Path below ``rules/`` and text of each made file.

    Texts are edited, not parsed and dumped: comments, folding and the order of keys stay as they were written.
    """
    objects = {file: _MADE.format(source="recording/ and alerts/") for file in KINDS}
    for source in sources():
        text = addressed(source.read_text(encoding="utf-8"), grafana_url, runbook_url)
        path = f"{source.parent.name}/{source.name}"
        yield f"vmalert/{source.parent.name}-{source.name}", _MADE.format(source=path) + _KEEP.sub("", text)
        for file, (api, kind) in KINDS.items():
            name = f"straggler-{source.parent.name}-{source.stem}"
            objects[file] += _OBJECT.format(api=api, kind=kind, name=name) + indent(text, "  ")
    for file, text in objects.items():
        yield f"kubernetes/{file}", text


def addressed(text: str, grafana_url: str, runbook_url: str) -> str:
    """The rules with the places of dashboards and runbooks filled in."""
    return text.replace(GRAFANA_URL, grafana_url.rstrip("/")).replace(RUNBOOK_URL, runbook_url.rstrip("/"))


def main(arguments: list[str]) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE, help="directory to write to (default: %(default)s)")
    parser.add_argument("--grafana-url", default=GRAFANA_URL, help="replaces %(default)s in dashboard_url")
    parser.add_argument("--runbook-url", default=RUNBOOK_URL, help="replaces %(default)s in runbook_url")
    given = parser.parse_args(arguments)
    made = dict(variants(given.grafana_url, given.runbook_url))
    if given.output.resolve() != HERE:
        for source in sources():
            text = addressed(source.read_text(encoding="utf-8"), given.grafana_url, given.runbook_url)
            made[f"{source.parent.name}/{source.name}"] = text
    elif (given.grafana_url, given.runbook_url) != (GRAFANA_URL, RUNBOOK_URL):
        parser.error("with addresses of your own choose --output: the shipped variants keep the placeholders")
    for path, text in made.items():
        target = given.output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
