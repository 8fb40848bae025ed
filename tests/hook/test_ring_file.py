"""The file itself, as others see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hook_process import PACKAGE_ROOT, PRELUDE, train
from straggler.errors import WireError
from straggler.sources.rings.snapshot import read_snapshot
from straggler.wire import layout
from straggler.wire.decode import decode_preamble, file_bytes

MULTIPROCESSING = """
import multiprocessing, sys
from straggler import StepTimer
def rank(number):
    timer = StepTimer(run="r", rank=number, world_size=2, allow_any_filesystem=True)
    for _ in range(3):
        with timer.step(), timer.phase("wait"): pass
    if number: raise ValueError("rank 1")
"""


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    """A directory for rings."""
    path = tmp_path / "rings"
    path.mkdir()
    return path


def start(body: str, directory: Path) -> subprocess.Popen[str]:
    """A training script that runs until it is told to go on by a line."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("STRAGGLER")}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + body],
        env={**keep, "PYTHONPATH": str(PACKAGE_ROOT), "STRAGGLER_DIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str], line: str) -> None:
    """Wait until the script says so."""
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


def the_ring(directory: Path) -> Path:
    """The only file."""
    (path,) = directory.glob("*.ring")
    return path


def test_the_file(rings: Path) -> None:
    """It has its full size from the start, one link, mode 0640, and one descriptor of 512 or more that exec closes."""
    done = train(
        """
steps(1)
ours = lambda n: os.path.realpath("/proc/self/fd/" + n) == os.path.realpath(timer.ring_path)
fds = [int(n) for n in os.listdir("/proc/self/fd") if ours(n)]
print(len(fds), min(fds) >= 512, os.get_inheritable(fds[0]), oct(os.stat(fds[0]).st_mode), os.stat(fds[0]).st_nlink)
""",
        rings,
    )
    data = the_ring(rings).read_bytes()

    assert done.out == "1 True False 0o100640 1\n"
    preamble = decode_preamble(data)
    assert len(data) == file_bytes(preamble) == layout.RECORDS_OFFSET + 4096 * layout.RECORD_BYTES
    assert the_ring(rings).stat().st_blocks * 512 >= len(data), "space is allocated"


def test_the_lock_lives_and_dies_with_the_process(rings: Path) -> None:
    """Held while the rank lives, though forked workers come and go; gone after SIGKILL, though a worker lives on."""
    trainer = start(
        """
steps(3)
for _ in range(2):
    if not os.fork():
        os._exit(0)
    os.wait()
if not (child := os.fork()):
    os.close(0), os.close(1)
    time.sleep(60)
print(child, flush=True)
input()
""",
        rings,
    )
    assert trainer.stdout is not None
    child = int(trainer.stdout.readline())
    alive = read_snapshot(the_ring(rings)).locked
    trainer.kill()
    trainer.communicate()
    dead = read_snapshot(the_ring(rings))
    os.kill(child, signal.SIGKILL)

    assert (alive, dead.locked) == (True, False)
    assert dead.live is not None
    assert dead.live.status == layout.STATUS_RUNNING


def test_exec_ends_it(rings: Path) -> None:
    """After exec the descriptor and the lock are gone."""
    trainer = start(
        "steps(3)\nos.execv(sys.executable, [sys.executable, '-c', 'print(1, flush=True); input()'])", rings
    )
    said(trainer, "1")
    locked = read_snapshot(the_ring(rings)).locked
    trainer.communicate("\n")

    assert locked is False


WRITES_UNTIL_TOLD = """
import select
print("begins", flush=True)
written = 0
while not select.select([0], [], [], 0)[0]:
    steps(500)
    written += 500
print(written)
"""


def test_a_reader_at_any_moment(rings: Path) -> None:
    """Polled while it is written at full speed, the ring never shows a torn record as a whole one, nor goes back."""
    newest, looks, unready = 0, 0, set[str]()
    with start(WRITES_UNTIL_TOLD, rings) as trainer:
        said(trainer, "begins")
        while looks < 10 or newest < 2 * layout.DEFAULT_CAPACITY:
            assert trainer.poll() is None
            for path in rings.glob("*.ring"):
                try:
                    ring = read_snapshot(path)
                except WireError as error:
                    unready.add(error.reason)
                    continue
                serials = [record.serial for record in ring.records]
                assert serials == sorted(set(serials))
                for record in ring.records:
                    assert record.total_tokens == record.total_steps * 10 == record.serial * 10
                if serials:
                    assert serials[-1] >= newest
                    looks += serials[-1] > newest
                    newest = serials[-1]
        written, _ = trainer.communicate("\n")

    assert unready <= {"bad_magic", "too_short"}, "a file that is not ready yet"
    assert read_snapshot(the_ring(rings)).records[-1].serial == int(written)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_started_by_multiprocessing(rings: Path, tmp_path: Path, method: str) -> None:
    """A rank that is a child of multiprocessing says goodbye too, and says if it ended by an exception."""
    script = tmp_path / "launch.py"
    script.write_text(
        MULTIPROCESSING
        + f"""
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    ranks = [context.Process(target=rank, args=(n,)) for n in range(2)]
    [r.start() for r in ranks]; [r.join() for r in ranks]
    print([r.exitcode for r in ranks])
"""
    )
    done = train(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", rings, prelude="", flags=())
    ends = {ring.identity.rank: ring.live.status for ring in done.rings if ring.identity and ring.live}

    assert done.out == "[0, 1]\n", done.err
    assert ends == {0: layout.STATUS_FINISHED, 1: layout.STATUS_EXCEPTION}


def test_nothing_is_left_of_a_ring_that_could_not_be_made(rings: Path) -> None:
    """Where there is no space for the whole file, there is no file, and the loop goes on."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    done = train(limit + "steps(3)\nprint(timer.enabled)", rings)

    assert done.out == "False\n"
    assert list(rings.iterdir()) == []


def test_full_tmpfs(tmp_path: Path) -> None:
    """A tmpfs with less space than a ring takes: one line, no file, no signal."""
    small = tmp_path / "small"
    small.mkdir()
    body = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(
    b"tmpfs", {str(small).encode()!r}, b"tmpfs", 0, b"size=256k"
):
    print("no namespace")
    raise SystemExit
"""
    done = train("steps(50)\nprint('trained', os.listdir(os.environ['STRAGGLER_DIR']))", small, prelude=body + PRELUDE)
    if done.out == "no namespace\n":
        pytest.skip("needs a mount namespace: root")

    assert (done.code, done.out) == (0, "trained []\n"), done.err
    assert len(done.reports) == 1
    assert "No space left" in done.reports[0]


@pytest.mark.parametrize(
    ("prepare", "reports", "place"),
    [
        ("", 0, "/dev/shm/straggler-65534"),
        ("os.mkdir('/run/straggler', 0o500)", 1, "/dev/shm/straggler-65534"),
        ("os.mkdir('/run/straggler'); os.chmod('/run/straggler', 0o3733)", 0, "/run/straggler"),
    ],
    ids=["not there", "not for us", "there"],
)
def test_default_places(tmp_path: Path, prepare: str, reports: int, place: str) -> None:
    """The shared directory if it is there; else the user's own, with a line if the shared one may not be used."""
    body = f"""
import ctypes, logging, os
from straggler import StepTimer
libc = ctypes.CDLL(None)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):
    print("no namespace")
    raise SystemExit
for point in (b"/run", b"/dev/shm"):
    if libc.mount(b"tmpfs", point, b"tmpfs", 0, b"mode=1777"):
        print("no namespace")
        raise SystemExit
{prepare}
os.setgid(65534), os.setuid(65534)
"""
    finish = "steps(3)\nprint(os.path.dirname(timer.ring_path))"
    done = train(finish, tmp_path, prelude=body + PRELUDE, environment={"STRAGGLER_DIR": ""})
    if done.out == "no namespace\n":
        pytest.skip("needs a mount namespace: root")

    assert (done.code, done.out, len(done.reports)) == (0, place + "\n", reports), done.err
    if reports:
        assert "/run/straggler: Permission denied" in done.err


def test_copies_measure_nothing(rings: Path) -> None:
    """A model that holds the timer can be pickled, copied and sent to a worker; the copies are silent."""
    done = train(
        """
import copy, pickle
steps(1)
held = {"timer": timer, "phase": timer.phase("forward"), "data": timer.data([1, 2])}
for other in (copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
    assert not other["timer"].enabled
    with other["timer"].step(), other["phase"], other["timer"].phase("eval"): pass
    assert list(other["data"]) == [1, 2]
    del other
steps(1)
""",
        rings,
    )

    assert (done.code, done.err, [len(ring.records) for ring in done.rings]) == (0, "", [2])


CELL = "timer = StepTimer(run='r', rank=0, allow_any_filesystem=True)\nwith timer.step(): pass\n"


@pytest.mark.parametrize(("between", "reports"), [("", 0), ("kept = timer\n", 1)], ids=["dropped", "kept"])
def test_a_timer_is_made_again(rings: Path, between: str, reports: int) -> None:
    """A notebook cell that is run twice leaves one ring that lives; only where both are kept is there a line."""
    done = train(CELL + between + CELL, rings, prelude="from straggler import StepTimer\n")

    assert [ring.live.status for ring in done.rings if ring.live] == [layout.STATUS_FINISHED] * 2
    assert len(done.reports) == reports


def test_asyncio(rings: Path) -> None:
    """Coroutines that interleave their phases and steps do no harm."""
    done = train(
        """
import asyncio
async def work(name):
    for _ in range(5):
        with timer.phase(name):
            await asyncio.sleep(0)
async def main():
    for _ in range(3):
        with timer.step():
            await asyncio.gather(work("forward"), work("data"), work("h2d"))
asyncio.run(main())
""",
        rings,
    )

    (ring,) = done.rings
    assert (done.code, len(ring.records)) == (0, 3)
    assert all(sum(record.phase_ns) == record.wall_ns for record in ring.records)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_other_pythons(rings: Path, version: str) -> None:
    """The hook works the same on the other Pythons that are here."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3"))
    if not found:
        pytest.skip(f"no Python {version} here")
    done = train("steps(1000)\nwith timer.phase('eval'): pass\nprint('trained')", rings, python=str(found[-1]))

    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    assert len(done.rings[0].records) == 1000
