"""The systemd files, judged by systemd's own tools."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from deploy_tools import DEPLOY, run, tool

SYSTEMD = DEPLOY / "systemd"
UNITS = ("straggler-exporter.service", "run-straggler.mount")
MOST_EXPOSED = 1.5


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with a program that exists on this machine: systemd wants to see it."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/straggler-exporter/bin/straggler", "/bin/true"), "utf-8")
    return tmp_path


def exposure(units: Path) -> float:
    """What systemd thinks of the service: 0 is no exposure, 10 is all."""
    code, said = run(
        tool("systemd-analyze"), "security", "--offline=true", units / "straggler-exporter.service", cwd=units
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert code == 0, said
    assert found, said
    return float(found[1])


def test_systemd_has_nothing_to_say_about_the_units(units: Path) -> None:
    """Unknown keys and values that cannot be used are lines with exit code 0: there must be no line."""
    code, said = run(tool("systemd-analyze"), "verify", *(units / name for name in UNITS))

    assert (code, said) == (0, "")


def test_little_is_exposed(units: Path) -> None:
    """The sandbox is as tight as promised."""
    assert exposure(units) <= MOST_EXPOSED


def test_the_hole_for_nvml_is_as_large_as_it_says(units: Path) -> None:
    """The drop-in opens the GPUs' devices, and states what that costs."""
    before = exposure(units)
    dropins = units / "straggler-exporter.service.d"
    dropins.mkdir()
    shutil.copy(SYSTEMD / "optional" / "nvml.conf", dropins)
    text = (SYSTEMD / "optional" / "nvml.conf").read_text(encoding="utf-8")

    assert f"from {before} to {exposure(units)}." in text


def test_the_allow_list_is_understood(units: Path) -> None:
    """The drop-in for the network is taken as what it is: a list of who may talk to the service."""
    dropins = units / "straggler-exporter.service.d"
    dropins.mkdir()
    shutil.copy(SYSTEMD / "optional" / "scrape-allowlist.conf", dropins)

    _, said = run(
        tool("systemd-analyze"), "security", "--offline=true", units / "straggler-exporter.service", cwd=units
    )

    assert "Service defines IP address allow list with" in said


def test_the_user_and_the_directory_come_out_as_designed(tmp_path: Path) -> None:
    """The user is made by sysusers, by tmpfiles the directory with the modes that keep rings apart."""
    for folder, name in (("sysusers.d", "sysusers.d-straggler.conf"), ("tmpfiles.d", "tmpfiles.d-straggler.conf")):
        target = tmp_path / "usr/lib" / folder / "straggler.conf"
        target.parent.mkdir(parents=True)
        shutil.copy(SYSTEMD / name, target)
    (tmp_path / "etc").mkdir()
    needs_root()

    made = run(tool("systemd-sysusers"), f"--root={tmp_path}")
    set_up = run(tool("systemd-tmpfiles"), f"--root={tmp_path}", "--create", "straggler.conf")

    passwd = (tmp_path / "etc/passwd").read_text(encoding="utf-8")
    user = next(line.split(":") for line in passwd.splitlines() if line.startswith("straggler:"))
    status = (tmp_path / "run/straggler").stat()
    assert (made[0], set_up) == (0, (0, ""))
    assert user[6] == "/usr/sbin/nologin"
    assert oct(status.st_mode) == "0o43733"
    assert (status.st_uid, status.st_gid) == (int(user[2]), int(user[3]))


def test_the_environment_file_is_understood() -> None:
    """Each variable of the shipped file is one of the sidecar's, and the sidecar takes all of them."""
    text = (SYSTEMD / "straggler-exporter.default").read_text(encoding="utf-8")
    variables = dict(re.findall(r"^#?(STRAGGLER_\w+)=(.*)$", text, re.MULTILINE))

    code, said = run(sys.executable, "-m", "straggler", "serve", "--check-config", env={**os.environ, **variables})

    assert variables
    assert (code, said) == (0, "the settings can be used\n")


def needs_root() -> None:
    """Skip where users cannot be changed."""
    if run("id", "-u")[1].strip() != "0":
        pytest.skip("needs root")
