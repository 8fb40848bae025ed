"""Whole jobs under ``straggler run``: real torchrun, two ranks, a script that knows nothing of us."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from launched import clean_environment, finished, on_path, straggler_run
from sidecars import served
from straggler.cli.run import ON_PATH
from straggler.sources.rings.snapshot import Snapshot, read_snapshot
from straggler.wire import layout
from torch_jobs import ring_directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

JOB = Path(__file__).parent / "launched_job.py"
DELAY = 0.100
_OWN = re.compile(r'^training_own_seconds_total\{[^}]*rank="(\d)"[^}]*\} (\S+)$', re.MULTILINE)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ALONE = """
import torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Where rings go."""
    with ring_directory() as path:
        yield path


def run(place: Path, *command: str | Path) -> CompletedProcess[str]:
    """A program under ``straggler run``, with its rings in ``place``."""
    environment = clean_environment(STRAGGLER_ALLOW_ANY_FILESYSTEM="1", OMP_NUM_THREADS="1")
    return straggler_run("--ring-dir", place, "--", *command, environment=environment, timeout=900)


def rings(place: Path) -> list[Snapshot]:
    """By rank."""
    found = [read_snapshot(path) for path in place.glob("*.ring")]
    return sorted(found, key=lambda ring: -1 if ring.identity is None else ring.identity.rank)


def own(ring: Snapshot) -> float:
    """The lower quartile of own time in seconds, after two steps: other people's load on the machine only ever adds."""
    return statistics.quantiles([record.own_ns or 0 for record in ring.records[2:]], n=4)[0] / 1e9


@pytest.mark.parametrize("case", ["in_a_thread", "trials"])
def test_both_ranks_are_measured_and_nobody_else(place: Path, case: str) -> None:
    """torchrun, loader workers and savers leave no ring; the slow rank's own time is larger by its delay."""
    done = run(place, *TORCHRUN, JOB, case)

    assert done.returncode == 0, done.stderr[-4000:]
    found = rings(place)
    assert [(ring.identity.rank, ring.identity.world_size) for ring in found if ring.identity] == [(0, 2), (1, 2)]
    assert [ring.live.status for ring in found if ring.live] == [layout.STATUS_FINISHED] * 2
    assert own(found[1]) - own(found[0]) == pytest.approx(DELAY, rel=0.4)
    assert {layout.OWN_REASONS[record.own_reason] for ring in found for record in ring.records[1:]} == {"measured"}
    with served("--ring-dir", str(place)) as sidecar:
        totals = dict(_OWN.findall(sidecar.metrics()))
    assert sorted(totals) == ["0", "1"]
    assert float(totals["1"]) - float(totals["0"]) > len(found[0].records) * DELAY * 0.6
    assert done.stdout.count("survived the user's hook") == (6 if case == "trials" else 0)
    assert "not measured" not in done.stderr


def test_ranks_that_are_started_by_spawn(place: Path) -> None:
    """No variable names them: their process group does, also where lone processes are no ranks."""
    environment = on_path(STRAGGLER_TORCH="1", STRAGGLER_DIR=str(place), STRAGGLER_ALLOW_ANY_FILESYSTEM="1")
    done = finished([sys.executable, str(JOB), "spawn"], environment, 900)

    assert done.returncode == 0, done.stderr[-4000:]
    assert [ring.identity.rank for ring in rings(place) if ring.identity] == [0, 1]


@pytest.mark.parametrize(
    ("case", "code", "status"),
    [
        ("exits", "3", layout.STATUS_FINISHED),
        ("os_exit", "4", layout.STATUS_RUNNING),
        ("raises", "1", layout.STATUS_EXCEPTION),
        ("killed", "-9", layout.STATUS_RUNNING),
        ("terminated", "-15", layout.STATUS_RUNNING),
    ],
)
def test_a_rank_ends_its_job_as_ever(place: Path, case: str, code: str, status: int) -> None:
    """Torchrun sees the rank's own exit code or signal, ends the others and fails; nothing of ours is in the log."""
    done = run(place, *TORCHRUN, JOB, case)

    assert done.returncode == 1
    assert f"exitcode  : {code}" in done.stderr
    assert str(ON_PATH.parents[2]) not in done.stderr
    assert rings(place)[1].live.status == status  # type: ignore[union-attr]  # a ring without one is a failure too


def test_an_error_looks_as_ever(place: Path) -> None:
    """Output, traceback and exit code of a script that raises are the same to the byte."""
    script = ALONE + "print('trained'); 1 / 0\n"
    plain = finished([sys.executable, "-c", script])
    with_us = run(place, sys.executable, "-c", script)

    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert len(rings(place)) == 1


@pytest.mark.parametrize(("variable", "count"), [("1", 0), ("all", 1)])
def test_the_entry_point_alone_is_enough(place: Path, variable: str, count: int) -> None:
    """Where our package is installed torch calls it, nothing is on the path, and a lone process has to be meant."""
    from importlib.metadata import entry_points

    import torch

    if not hasattr(torch, "_import_device_backends"):
        pytest.skip("this torch knows no entry points")
    assert "straggler_autoload:autoload" in [point.value for point in entry_points(group="torch.backends")]
    environment = clean_environment(
        STRAGGLER_TORCH=variable, STRAGGLER_DIR=str(place), STRAGGLER_ALLOW_ANY_FILESYSTEM="1"
    )
    done = finished([sys.executable, "-c", ALONE], environment)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(rings(place)) == count


@pytest.mark.parametrize(
    "settings", [{}, {"STRAGGLER_TORCH": "0"}, {"STRAGGLER_TORCH": "all", "STRAGGLER_DISABLED": "1"}]
)
def test_unasked_nothing_is_patched(place: Path, settings: dict[str, str]) -> None:
    """With the package installed and the path in place, torch stays as it is until a variable asks for us."""
    script = "import sys, torch; print([name for name in sys.modules if name.startswith('straggler.hook.torch')])"
    environment = {**on_path(STRAGGLER_DIR=str(place)), "STRAGGLER_TORCH": "", **settings}
    done = finished([sys.executable, "-c", script], environment)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_loop_with_its_own_timer_has_one_ring(place: Path) -> None:
    """A script that uses ``StepTimer`` is measured by it alone, also where everything is instrumented."""
    script = "from straggler import StepTimer\ntimer = StepTimer()\n" + ALONE.replace(
        "    optimizer", "    timer.tick()\n    optimizer"
    )
    done = run(place, sys.executable, "-c", script)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(rings(place)) == 1
    assert len(rings(place)[0].records) == 4


def test_a_script_that_instruments_itself_is_meant(place: Path) -> None:
    """``instrument()`` in the code makes a lone process a rank, whatever the cluster's variable says."""
    environment = on_path(STRAGGLER_TORCH="1", STRAGGLER_DIR=str(place), STRAGGLER_ALLOW_ANY_FILESYSTEM="1")
    script = "import straggler.torch\nstraggler.torch.instrument()\n" + ALONE
    assert finished([sys.executable, "-c", script], environment).returncode == 0

    assert len(rings(place)) == 1


def test_a_broken_hook_leaves_torch_whole(place: Path, tmp_path: Path) -> None:
    """An entry point whose package is broken: ``import torch`` succeeds and the loop trains, with one line about it.

    torch before 2.5 calls no entry points, so there nobody has anything to say.
    """
    import torch

    (tmp_path / "straggler").mkdir()
    (tmp_path / "straggler" / "__init__.py").write_text("raise OSError('half installed')\n")
    environment = clean_environment(PYTHONPATH=str(tmp_path), STRAGGLER_TORCH="all", STRAGGLER_DIR=str(place))
    done = finished([sys.executable, "-c", ALONE + "print('trained')\n"], environment)

    assert (done.returncode, done.stdout) == (0, "trained\n")
    told = "this process is not measured: OSError('half installed'). Training goes on\n"
    assert done.stderr == (told if hasattr(torch, "_import_device_backends") else "")
