"""The installation of the service, for real, below a directory."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from deploy_tools import DEPLOY, ROOT, TOOLS, run

INSTALL = DEPLOY / "systemd" / "install"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root directory into which the sidecar was installed; downloads packages, so only where tools were too."""
    if not TOOLS.is_dir():
        pytest.skip("installs packages: `make deploy-test` does")
    root = tmp_path_factory.mktemp("root")
    checkout = root / "checkout"
    for name in ("exporter", "rules"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    code, said = install(root, "--source", str(checkout), "--prefix", "/srv/straggler", "--python", sys.executable)
    assert code == 0, said
    return root


def install(root: Path, *arguments: str) -> tuple[int, str]:
    """Run the script with another root."""
    return run(INSTALL, *arguments, env={**os.environ, "DESTDIR": str(root)}, seconds=280)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_the_unit_starts_is_there_and_runs(installed: Path) -> None:
    """The unit's own program runs from the new environment alone."""
    unit = (installed / "usr/lib/systemd/system/straggler-exporter.service").read_text(encoding="utf-8")
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    program, *arguments = start.removeprefix("ExecStart=").split()

    code, said = run(
        f"{installed}{program}", *arguments, "--check-config", env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "/nowhere"}
    )

    assert program == "/srv/straggler/bin/straggler"
    assert (code, said) == (0, "the settings can be used\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_upgrade_keeps_the_settings_and_a_removal_leaves_only_them(installed: Path) -> None:
    """Both find the place where it was; what the administrator wrote survives, and only what was ours goes."""
    settings = installed / "etc/default/straggler-exporter"
    settings.write_text("STRAGGLER_LISTEN=:1\n", encoding="utf-8")
    neighbour = installed / "usr/lib/systemd/system/other.service"
    neighbour.touch()

    upgraded = install(installed, "--source", str(installed / "checkout"))
    kept = settings.read_text(encoding="utf-8")
    removed = install(installed, "--remove")

    assert (upgraded[0], removed[0], kept) == (0, 0, "STRAGGLER_LISTEN=:1\n"), upgraded[1] + removed[1]
    left = {str(path.relative_to(installed)) for folder in ("usr", "srv") for path in (installed / folder).rglob("*.*")}
    assert left == {"usr/lib/systemd/system/other.service", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d"}
    assert settings.exists()


def test_wrong_use_is_refused() -> None:
    """An argument that does not exist, or a prefix that would be the machine itself, ends with exit code 2."""
    assert install(Path("/nowhere"), "--prefixx", "/x")[0] == 2
    assert install(Path("/nowhere"), "--prefix", "/")[0] == 2
