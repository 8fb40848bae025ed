"""The command line: which sub-command, and what becomes of its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from sidecars import straggler
from straggler import __version__
from straggler.cli.main import COMMANDS, main

HEAVY = ("prometheus_client", "pydantic", "requests", "rich", "yaml", "torch")


def _loaded(*arguments: str) -> set[str]:
    """Names of the heavy modules that a command line loads."""
    code = (
        "import sys; from straggler.cli.main import main; main(sys.argv[1:]); "
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(result.stdout.rpartition("loaded:")[2].split())


def test_help_names_all_commands_and_exit_codes() -> None:
    """``straggler --help`` lists each command with a line, and what the exit codes mean."""
    result = straggler("--help")

    assert result.returncode == 0
    for name, command in COMMANDS.items():
        assert name in result.stdout
        assert command.help in result.stdout
    assert "2    wrong use or configuration" in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["inspect", "--help"]])
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    """Help, and the commands that read files, answer at once and without the sidecar's packages."""
    assert _loaded(*arguments) == set()


def test_version() -> None:
    """``--version`` is one line for scripts."""
    assert straggler("--version").stdout == f"straggler {__version__}\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help(name: str) -> None:
    """Every command of the table exists and describes its flags."""
    assert hasattr(import_module(COMMANDS[name].module), "run")
    result = straggler(name, "--help")

    assert result.returncode == 0
    assert f"usage: straggler {name}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "COMMAND"),
        (["serv"], "no command 'serv'; did you mean serve?"),
        (["xyzzy"], "no command 'xyzzy'; --help has them all"),
        (["--bogus"], "usage"),
        (["simulate", "--bogus"], "usage: straggler simulate"),
        (["serve", "--bogus"], "straggler serve: error: unrecognized arguments: --bogus"),
    ],
)
def test_wrong_use(arguments: list[str], text: str) -> None:
    """Wrong use is told on standard error and ends with code 2."""
    result = straggler(*arguments)

    assert result.returncode == 2
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_packages_are_named() -> None:
    """Where only the hook is installed, a command that needs more says what to install."""
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pydantic':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from straggler.cli.main import main\n"
        "sys.exit(main(['serve']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert "needs pydantic" in result.stderr
    assert "pip install 'straggler-exporter[sidecar]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate"],
        ["inspect", "absent"],
        ["replay", "absent"],
        ["run", "--dry-run", "--", "true"],
        ["profile", "absent", "--rank", "0"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_of_the_training_environment(arguments: list[str]) -> None:
    """What one wants where the training runs works where only the hook is installed."""
    code = (
        "import sys\n"
        "from straggler.cli.main import _EXTRA_MODULES, main\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in _EXTRA_MODULES:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)

    assert "Traceback" not in result.stderr
    assert "pip install" not in result.stderr


def test_broken_pipe_is_quiet() -> None:
    """Whoever reads only the beginning of the output ends the command without a complaint."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "straggler", "serve", "--print-config"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert (done.returncode, done.stderr) == (141, b"")


def test_errors_of_ours_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An error that we raise on purpose is a sentence on standard error, and 1 unless the use was wrong."""
    code = main(["top", "127.0.0.1:1"])

    assert code == 1
    assert capsys.readouterr().err.startswith("straggler: refused: no sidecar answers at ")


def test_module_is_the_command() -> None:
    """``python -m straggler`` and the console script are the same."""
    assert straggler("--version").stdout.startswith("straggler ")
