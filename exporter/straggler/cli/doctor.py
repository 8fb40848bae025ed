"""``straggler doctor``: what is missing on this node, and what would add it."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from straggler.cli.access import access_of, add_access_arguments, server_url
from straggler.sidecar.doctor.examine import examine
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sidecar.setting import settings
from straggler.sidecar.settings import CONFIG_VARIABLE, load

_FLAGS = ("listen", "ring_dir", "dcgm_url", "nvml_use", "nccl_logs", "web_config_file", "push_tokens_file")
"""The settings that one may want to try out here; the others come from the file and the environment."""

_MOST_BYTES = 1 << 26
"""Of an answer about all targets of a large Prometheus, or all of its rules."""

_EPILOG = """\
Run it as the user of the sidecar and with its settings. It changes nothing.
Exit code 0: nothing is broken; 1: something is; 2: the settings cannot be used.
What is absent is no fault: a node may have no GPU. --json prints
  {"ok": true|false, "findings": [{"check", "health": ok|absent|broken, "text", "fix"}]}
with the checks ring_directory, one for each source (rings, push, dcgm, nvml, host, infiniband, nccl), pid_namespace,
cgroup, clock, port, web and, with --prometheus, prometheus, samples and rules. fix: a command, a setting or a line for
a file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"the sidecar's YAML file (or {CONFIG_VARIABLE})")
    for setting in settings():
        if setting.flat in _FLAGS:
            text = (setting.field.description or "").replace("%", "%%").replace("`", "")
            parser.add_argument(setting.flag, dest=setting.flat, metavar="X", help=text)
    parser.add_argument("--prometheus", metavar="URL", help="also ask this Prometheus whether it scrapes and judges us")
    add_access_arguments(parser, "that Prometheus", "prometheus-")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found.

    Raises:
        ConfigError: the settings, or the flags about Prometheus, cannot be used.
    """
    flags = {name: getattr(arguments, name) for name in _FLAGS}
    config = load(flags, os.environ, arguments.config)
    prometheus = arguments.prometheus
    if prometheus:
        prometheus = server_url(prometheus, "prometheus", "http://127.0.0.1:9090", "prometheus-")
    access = access_of(arguments, "prometheus-", max_body_bytes=_MOST_BYTES)
    findings = []
    for finding in examine(config, prometheus, access):
        findings.append(finding)
        if not arguments.json:
            print(_lines(finding), flush=True)
    is_ok = all(finding.health is not Health.BROKEN for finding in findings)
    if arguments.json:
        document = {
            "ok": is_ok,
            "findings": [{**finding._asdict(), "health": finding.health.value} for finding in findings],
        }
        print(json.dumps(document, indent=2))
    return 0 if is_ok else 1


def _lines(finding: Finding) -> str:
    line = f"{finding.health.value:<7} {finding.check}: {finding.text}"
    return f"{line}\n        -> {finding.fix}" if finding.fix else line
