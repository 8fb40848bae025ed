"""``straggler demo`` without Prometheus: it runs anywhere. And how it ends, in whatever way it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo_command import COMMAND, PATIENT, descendants, is_gone, judged_demo, run_demo, workspace_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@contextmanager
def running_demo(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """A demonstration whose ranks train; killed at the end if it still runs."""
    demo = subprocess.Popen(
        [*COMMAND, "--no-prometheus", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if "ranks train" in line:
                break
        assert demo.poll() is None
        yield demo
    finally:
        demo.kill()
        demo.communicate()


def until(true: Callable[[], bool], what: str) -> None:
    """Wait; fail if it does not become true."""
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.05)


def test_sidecar_alone_names_the_rank(record_property: Callable[[str, object], None]) -> None:
    """With the embedded policy the same alert comes, for the same rank and with the same cause."""
    done = judged_demo("--no-prometheus", "--slow-rank", "5", *PATIENT)

    assert done.code == 0, str(done)
    record_property("embedded_seconds_to_alert", done.result["seconds_to_alert"])
    assert done.result["engine"] == "embedded"
    assert done.result["alert"]["name"] == "TrainingStraggler"
    assert done.result["alert"]["rank"] == 5
    assert done.result["cause"] == "thermal"
    assert set(done.result["fired"]) == {"TrainingStraggler"}


def test_text_shows_the_alert_and_the_figures() -> None:
    """Without a terminal the run is told in lines, the alert as on call would see it, and the figures at the end."""
    done = run_demo("--no-prometheus", "--ranks", "4", "--slow-after", "6", *PATIENT)

    assert done.code == 0, str(done)
    assert done.errors == ""
    for text in ("becomes slow", "TrainingStraggler · warning", "GPUs wait for it", "efficiency left", "rank 2 named"):
        assert text in done.output, str(done)


def test_falls_back_where_nothing_is_installed(tmp_path: Path) -> None:
    """Where Prometheus is not installed it says so, and what to install, and goes on without."""
    done = run_demo("--json", "--ranks", "4", "--slow-after", "6", *PATIENT, path=str(tmp_path))

    assert done.code == 0, str(done)
    assert done.result["engine"] == "embedded"
    assert "prometheus is not installed" in done.errors
    assert "apt-get install" in done.errors


def test_too_little_patience_is_a_failure() -> None:
    """An alert that cannot come in time makes the exit code 1, with the reason in the result."""
    done = run_demo("--json", "--no-prometheus", "--ranks", "4", "--slow-after", "4", "--timeout", "1")

    assert done.code == 1, str(done)
    assert done.result["ok"] is False
    assert done.result["problem"] == "no TrainingStraggler within 1 s after the onset"
    assert done.result["seconds_to_alert"] is None


def test_healthy_run_is_quiet() -> None:
    """A short run in which nobody is slow ends well, with nothing fired."""
    done = judged_demo("--no-prometheus", "--fault", "none", "--duration", "15")

    assert done.code == 0, str(done)
    assert done.result["fired"] == []
    assert done.result["step_seconds"]["slow"] is None


def test_ctrl_c_ends_everything() -> None:
    """Ctrl-C ends all processes, removes all files, and gives exit code 130."""
    with running_demo() as demo:
        processes = descendants(demo.pid)
        directory = workspace_of(processes)
        assert (directory / "rings").is_dir()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(120) == 130

    assert len(processes) >= 9  # eight ranks and the sidecar
    assert all(is_gone(pid) for pid in processes)
    assert not directory.exists()


def test_sigkill_leaves_no_process() -> None:
    """Even if the demonstration is killed, no process stays; its files are removed by the next one."""
    with running_demo() as demo:
        processes = descendants(demo.pid)
        directory = workspace_of(processes)
        demo.kill()

    until(lambda: all(is_gone(pid) for pid in processes), "all processes are gone")
    assert directory.exists()
    with running_demo("--ranks", "2"):
        assert not directory.exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--ranks", "0"), "ranks"),
        (("--ranks", "4", "--slow-rank", "4"), "slow_rank"),
        (("--slow-factor", "0"), "slow_factor"),
        (("--slow-factor", "fast"), "--slow-factor"),
        (("--fault", "gremlins"), "gremlins"),
        (("--timeout", "-1"), "timeout"),
        (("--duration", "nan"), "duration"),
        (("--rules", "/does/not/exist"), "--rules DIR"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
def test_wrong_use(flags: tuple[str, ...], words: str) -> None:
    """Wrong use ends with exit code 2 and names the flag, before anything is started."""
    done = run_demo(*flags)

    assert done.code == 2, str(done)
    assert words in done.errors
    assert "Traceback" not in done.errors
