"""The three streams of the command: closed, full, cut off, or of an encoding that lacks a character."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recordings import job, slow_rank, write_csv
from sidecars import straggler


def shell(line: str, *, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    """Run the command as a line of a shell has it, with ``straggler`` for its name."""
    command = f'straggler() {{ {shlex.quote(sys.executable)} -m straggler "$@"; }}; {line}'
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, timeout=100, check=False
    )


@pytest.mark.parametrize("line", ["straggler simulate >&-", "straggler --help >&-", "straggler simulate >&- 2>&-"])
def test_closed_output_is_no_error(line: str) -> None:
    """Whoever closes standard output wants none."""
    result = shell(line)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_closed_input_is_an_empty_file() -> None:
    """A recording from a standard input that is closed is a file that cannot be used."""
    result = shell("straggler replay - <&-")

    assert result.returncode == 2
    assert "an empty file" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("buffering", ["", "PYTHONUNBUFFERED=1; export PYTHONUNBUFFERED;"])
def test_full_disk_is_told(buffering: str) -> None:
    """Output that finds no room is one sentence and code 1, wherever it is noticed."""
    result = shell(f"{buffering} straggler simulate >/dev/full")

    assert result.returncode == 1
    assert result.stderr == "straggler: cannot write: No space left on device\n"


def test_characters_that_the_terminal_lacks(tmp_path: Path) -> None:
    """A run may be called whatever its file is: on a terminal without such characters they are escaped."""
    path = write_csv(tmp_path / "modèle-東京.csv", job(2, 40, slow_rank(1, 1.5)))
    result = shell(f"straggler replay {shlex.quote(str(path))}", encoding="ascii")

    assert result.returncode == 0
    assert result.stdout.startswith("mod\\xe8le-\\u6771\\u4eac: 2 ranks")
    assert shell("straggler replay --help", encoding="latin-1").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["replay", "/nonexistent/a.csv", "--json"], 2, "there is no file /nonexistent/a.csv"),
        (["top", "http://127.0.0.1:1", "--json"], 1, "no sidecar answers at"),
        (["diagnose", "--prometheus", "http://[::1", "--json"], 2, "is no address"),
        (["demo", "--ranks", "0", "--json"], 2, "0 is not in 1"),
        (["simulate", "--hours", "1e308", "--json"], 2, "a number of 0 to 1e+15 is meant"),
        (["profile", "r", "--rank", "0", "--ring-dir", "/nonexistent", "--json"], 1, "/nonexistent"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_json_of_what_could_not_be_done(arguments: list[str], code: int, problem: str) -> None:
    """With ``--json`` a program that reads standard output finds an object there too when a command fails."""
    result = straggler(*arguments)
    document = json.loads(result.stdout)

    assert result.returncode == code
    assert document["ok"] is False
    assert problem in document["problem"]
    assert result.stderr == f"straggler: {document['problem']}\n"
