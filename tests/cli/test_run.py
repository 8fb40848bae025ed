"""``straggler run``: the program that replaces it, and what it finds in its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launched import clean_environment, finished, straggler_run
from straggler.cli.run import ON_PATH, additions

PID = "import os; print(os.getpid())"


def test_the_program_is_the_process_that_was_started() -> None:
    """No parent stays behind: whoever started ``straggler run`` has the program's process id, and signals reach it."""
    with subprocess.Popen(
        [sys.executable, "-m", "straggler", "run", "--", sys.executable, "-c", PID], stdout=subprocess.PIPE, text=True
    ) as process:
        output, _ = process.communicate()

    assert int(output) == process.pid


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_programs_own(code: int) -> None:
    """Whatever it is."""
    assert straggler_run("--", sys.executable, "-c", f"raise SystemExit({code})").returncode == code


def test_a_program_that_a_signal_ends_is_ended_by_that_signal() -> None:
    """Not by an exit code that stands for it."""
    assert straggler_run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_broken_pipe_ends_the_program_as_ever() -> None:
    """Python ignores SIGPIPE, and its children would: ``yes | head`` would end with a complaint."""
    ignored = straggler_run("--", "grep", "SigIgn", "/proc/self/status").stdout
    plain = finished(["grep", "SigIgn", "/proc/self/status"]).stdout

    assert ignored == plain


def test_arguments_pass_as_they_are() -> None:
    """Flags of the program that look like ours, a second ``--``, blanks and empty ones are the program's."""
    arguments = ["--dry-run", "--help", "--", "", "two words", "--run", "$HOME"]
    done = straggler_run("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *arguments)

    assert done.stdout == f"{arguments}\n"


def test_our_flags_come_before_the_program() -> None:
    """The name of the run and the place of the rings reach the hook as its variables."""
    shown = "import os; print(os.environ['STRAGGLER_RUN'], os.environ['STRAGGLER_DIR'])"
    done = straggler_run("--run", "llm 7", "--ring-dir", "rings", sys.executable, "-c", shown)

    assert done.stdout == f"llm 7 {Path.cwd() / 'rings'}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [str(ON_PATH)]),
        ("", [str(ON_PATH)]),
        ("/a:/b", [str(ON_PATH), "/a", "/b"]),
        ("/a::", [str(ON_PATH), "/a", "", ""]),
        (f"/a:{ON_PATH}", [str(ON_PATH), "/a"]),
    ],
)
def test_the_users_path_stays(before: str | None, after: list[str]) -> None:
    """Ours comes first and once. An empty entry, which means the working directory, is neither added nor taken away."""
    environment = {} if before is None else {"PYTHONPATH": before}

    assert additions(environment, run=None, ring_directory=None)["PYTHONPATH"].split(os.pathsep) == after


def test_the_command_means_this_process() -> None:
    """A cluster's ``STRAGGLER_TORCH=1`` measures ranks only; who says ``straggler run`` means a lone process too."""
    assert additions({"STRAGGLER_TORCH": "1"}, run=None, ring_directory=None)["STRAGGLER_TORCH"] == "all"


def test_a_dry_run_is_the_same_as_a_shell_script(tmp_path: Path) -> None:
    """What it prints, given to a shell, leaves the program with the environment that it would have got."""
    environment = clean_environment(PYTHONPATH="/with a blank")
    words = ["--run", "it's", "--ring-dir", str(tmp_path)]
    script = straggler_run("--dry-run", *words, "--", "env", environment=environment)

    def shown(text: str) -> list[str]:
        return sorted(line for line in text.splitlines() if line.startswith(("STRAGGLER_", "PYTHONPATH=")))

    by_shell = finished(["sh", "-c", script.stdout], environment).stdout
    by_us = straggler_run(*words, "--", "env", environment=environment).stdout
    assert script.returncode == 0
    assert shown(by_shell) == shown(by_us)
    assert len(shown(by_us)) == 4


def test_a_dry_run_needs_no_program() -> None:
    """Then it prints what belongs into a job's environment."""
    done = straggler_run("--dry-run")

    assert done.stdout.splitlines() == ["export STRAGGLER_TORCH=all", f"export PYTHONPATH={ON_PATH}"]


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["--", "no-such-program"], 127, "straggler run: no-such-program: not found"),
        (["--", "/"], 126, "straggler run: /: Permission denied"),
        ([], 2, "straggler: run: no program to run; write it after --"),
        (["--"], 2, "straggler: run: no program to run; write it after --"),
    ],
)
def test_what_cannot_be_run_is_told_as_shells_tell_it(command: list[str], code: int, text: str) -> None:
    """One line on standard error, and the exit code that ``env`` and ``nohup`` give too."""
    done = straggler_run(*command)

    assert done.returncode == code
    assert done.stderr.startswith(text)
    assert len(done.stderr.splitlines()) == 1
