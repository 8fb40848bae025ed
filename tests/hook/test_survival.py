"""Every way in which the hook could harm a training loop, tried in a real process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hook_process import PRELUDE, train
from straggler.wire import layout

LAST_LINE = "\nprint('trained')\n"
"""The loop's own last act: it must always be reached."""


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    """A directory for rings."""
    path = tmp_path / "rings"
    path.mkdir()
    return path


def test_ordinary_training(rings: Path) -> None:
    """Steps, tokens and phases arrive whole, and the end is a goodbye."""
    done = train("steps(100)" + LAST_LINE, rings)

    (ring,) = done.rings
    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    assert ring.live is not None
    assert (ring.live.status, ring.live.arrivals, len(ring.records)) == (layout.STATUS_FINISHED, 100, 100)
    last = ring.records[-1]
    assert (last.step, last.total_steps, last.total_tokens) == (100, 100, 1000)
    assert all(sum(record.phase_ns) == record.wall_ns for record in ring.records)


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        ("", 0, layout.STATUS_FINISHED),
        ("sys.exit(3)", 3, layout.STATUS_FINISHED),
        ("raise ValueError('the loop')", 1, layout.STATUS_EXCEPTION),
        ("os._exit(4)", 4, layout.STATUS_RUNNING),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, layout.STATUS_RUNNING),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, layout.STATUS_RUNNING),
        ("os.abort()", -signal.SIGABRT, layout.STATUS_RUNNING),
        ("timer.close(); timer.close(); steps(3)", 0, layout.STATUS_FINISHED),
        ("del timer; import gc; gc.collect()", 0, layout.STATUS_FINISHED),
    ],
)
def test_the_end_is_the_programs_own(rings: Path, end: str, code: int, status: int) -> None:
    """The exit code is the program's, and the ring says how it ended; without a goodbye it still says running."""
    done = train(f"steps(5)\n{end}\n", rings)

    assert done.code == code
    (ring,) = done.rings
    assert ring.live is not None
    assert (ring.live.status, len(ring.records)) == (status, 5)


def test_exception_in_a_step(rings: Path) -> None:
    """An exception passes through step and phase untouched; the step is marked as failed, and training goes on."""
    done = train(
        """
steps(2)
error = KeyError("mine")
try:
    with timer.step():
        with timer.phase("forward"):
            raise error
except KeyError as caught:
    assert caught is error and caught.__context__ is None
steps(2)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    flags = [record.flags & layout.FLAG_FAILED for record in done.rings[0].records]
    assert [bool(flag) for flag in flags] == [False, False, True, False, False]


def test_interrupt_passes(rings: Path) -> None:
    """Ctrl-C reaches the loop, and the timer works on."""
    done = train(
        """
import signal, _thread
steps(2)
try:
    with timer.step():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
steps(2)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out) == (0, "interrupted\ntrained\n")
    assert len(done.rings[0].records) == 5


@pytest.mark.parametrize(
    "misuse",
    [
        "timer.step().__enter__(); steps(2)",
        "timer.phase('forward').__enter__(); steps(2)",
        "a, b = map(timer.phase, ('forward', 'wait')); a.__enter__(); b.__enter__(); a.__exit__(*n); b.__exit__(*n)",
        "timer.phase('wait').__exit__(*n); steps(2)",
        "timer.step().__exit__(*n); steps(2)",
        "timer.phase('forwrad').__enter__(); steps(2)",
        "timer.phase(None).__enter__(); steps(2)",
        "timer.phase([]).__enter__(); steps(2)",
        "s = timer.step(); s.__enter__(); timer.step().__enter__(); steps(1); s.__exit__(*n); steps(1)",
        "timer.step(tokens='many').__enter__(); steps(2)",
        "timer.step('x', tokens=float('nan'), flops=-1).__enter__(); steps(2)",
        "timer.tick(tokens=object()); timer.tick(); steps(2)",
        "timer.publish_step('x', None); steps(2)",
        "timer.publish_step(-5, [1]); steps(2)",
        "timer.set_identity(rank='x', nonsense=1); steps(2)",
        "timer.add_tokens(None); steps(2)",
        "StepTimer(run=object(), rank='x', world_size=-1, directory=7, serve='no port', push='ftp://x'); steps(2)",
        "next(iter(timer.data([1]))); [0 for _ in timer.data(iter(()))]; steps(2)",
    ],
)
def test_misuse_is_reported_and_harmless(rings: Path, misuse: str) -> None:
    """Whatever the loop does with the timer, nothing is raised, and later steps do not break the ring."""
    done = train(f"steps(2)\nn = None, None, None\n{misuse}\n" + LAST_LINE, rings)

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert len(done.reports) <= 4, "one for each thing that was wrong, not one for each step"
    assert "Traceback" not in done.err
    for ring in done.rings:
        assert not ring.spoilt_slots
        assert all(sum(record.phase_ns) == record.wall_ns for record in ring.records)


def test_data_of_a_broken_loader(rings: Path) -> None:
    """The loader's own exception comes out of the loop as it is, and len() works."""
    done = train(
        """
class Loader:
    def __len__(self): return 7
    def __iter__(self):
        yield 1
        raise OSError("loader")
data = timer.data(Loader())
assert len(data) == 7
try:
    for batch in data:
        steps(1)
except OSError as error:
    print(error)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out, done.err) == (0, "loader\ntrained\n", "")


def test_closed_descriptors(rings: Path, tmp_path: Path) -> None:
    """A library closes all descriptors and the user's file takes the number: none of our bytes land in it."""
    done = train(
        f"""
steps(3)
import fcntl, resource
ours = [int(n) for n in os.listdir("/proc/self/fd") if os.path.realpath("/proc/self/fd/" + n).endswith(".ring")]
os.closerange(3, 4096)
fd = os.open({str(tmp_path / "checkpoint")!r}, os.O_RDWR | os.O_CREAT)
os.write(fd, b"weights" * 1000)
for number in ours:
    os.dup2(fd, number)
steps(5)
with timer.phase("wait"):
    pass
timer.set_identity(gpu=1)
timer.close()
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert (tmp_path / "checkpoint").read_bytes() == b"weights" * 1000
    assert len(done.reports) == 1


@pytest.mark.parametrize(
    ("damage", "kept", "told"),
    [
        ("for n in os.listdir(d): os.unlink(os.path.join(d, n))", 0, ["was deleted"]),
        ("for n in os.listdir(d): os.truncate(os.path.join(d, n), 0)", 0, ["was truncated"]),
        ("for n in os.listdir(d): os.truncate(os.path.join(d, n), 5000)", 1, ["was truncated"]),
        ("import shutil; shutil.rmtree(d)", 0, ["was deleted"]),
        ("os.chmod(d, 0o500)", 1, []),
    ],
    ids=["deleted", "truncated", "cut", "directory removed", "directory read-only"],
)
def test_file_is_damaged_while_running(rings: Path, damage: str, kept: int, told: list[str]) -> None:
    """The ring is deleted, truncated or its directory taken away: no signal, no exception, one report that says so."""
    done = train(
        f"steps(3)\nd = os.environ['STRAGGLER_DIR']\n{damage}\ntime.sleep(0.15)\nsteps(2000)\n" + LAST_LINE, rings
    )
    if rings.is_dir():
        rings.chmod(0o700)

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert len(done.reports) == len(told)
    assert all(text in report for text, report in zip(told, done.reports, strict=True))
    assert len(done.rings) == kept


@pytest.mark.parametrize("place", ["missing", "file", "read-only", "no name"])
def test_no_usable_directory(tmp_path: Path, place: str) -> None:
    """Without a usable directory training goes on, and one line says why the rank is not seen."""
    directory = tmp_path / "place"
    if place == "file":
        directory.write_text("")
    elif place == "read-only":
        directory.mkdir(mode=0o500)
    elif place == "no name":
        directory = tmp_path / ("x" * 300)
    drop = (
        "import logging, os, straggler.hook.ring_writer\n"  # another user may not be allowed to read our Python
        "os.geteuid() or (os.setgid(65534), os.setuid(65534))\n"
    )
    done = train("steps(50)" + LAST_LINE, directory, prelude=drop + PRELUDE)

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert len(done.reports) == 1
    assert "not seen" in done.reports[0]


def test_no_space(rings: Path) -> None:
    """Where the file cannot get its size (full disk, quota), one line says so; SIGXFSZ does not kill."""
    prelude = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + PRELUDE
    done = train("steps(50)" + LAST_LINE, rings, prelude=prelude)

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert len(done.reports) == 1
    assert list(rings.iterdir()) == []


def test_not_on_tmpfs(tmp_path: Path) -> None:
    """A directory on a disk is refused with one line that says how to allow it, unless it is tmpfs already."""
    if "tmpfs" in _filesystem(tmp_path):
        pytest.skip("the temporary directory is on tmpfs")
    done = train("steps(5)" + LAST_LINE, tmp_path, prelude=PRELUDE.replace(", allow_any_filesystem=True", ""))

    assert (done.code, done.out) == (0, "trained\n")
    assert len(done.reports) == 1
    assert "tmpfs" in done.reports[0]
    assert not done.rings


def _filesystem(path: Path) -> str:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    best = max((mount for mount in mounts if str(path).startswith(mount[4])), key=lambda mount: len(mount[4]))
    return best[best.index("-") + 1]


def test_umask(rings: Path) -> None:
    """Under umask 077 the sidecar's group can still read."""
    done = train(
        "steps(5)\nprint(oct(os.stat(timer.ring_path).st_mode & 0o777))",
        rings,
        prelude="import os\nos.umask(0o77)\n" + PRELUDE,
    )

    assert (done.code, done.out) == (0, "0o640\n"), done.err


def test_few_descriptors(rings: Path) -> None:
    """A low limit on open files is respected."""
    prelude = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + PRELUDE
    done = train("steps(5)" + LAST_LINE, rings, prelude=prelude)

    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    assert len(done.rings[0].records) == 5


def test_forked_workers(rings: Path) -> None:
    """Forked children that run the training code write nothing, say no goodbye, and do not take the lock along."""
    done = train(
        """
steps(3)
for _ in range(3):
    pid = os.fork()
    if not pid:
        steps(10)
        timer.close()
        sys.exit(0)
    os.waitpid(pid, 0)
steps(2)
os._exit(0)
""",
        rings,
    )

    (ring,) = done.rings
    assert ring.live is not None
    assert (done.code, done.err, ring.live.status) == (0, "", layout.STATUS_RUNNING)
    assert [record.serial for record in ring.records] == [1, 2, 3, 4, 5]


def test_a_timer_that_a_forked_child_drops_first(rings: Path) -> None:
    """A fork handler of the program's own that lets go of the timer before ours has run says no goodbye either."""
    drop = "lambda: [globals().pop(name) for name in ('timer', 'steps')]"
    prelude = f"import os\nos.register_at_fork(after_in_child={drop})\n{PRELUDE}"
    done = train(
        """
steps(3)
pid = os.fork()
if not pid:
    os._exit(0 if "timer" not in globals() else 1)
child = os.waitpid(pid, 0)[1]
os._exit(child)
""",
        rings,
        prelude=prelude,
    )

    (ring,) = done.rings
    assert ring.live is not None
    assert (done.code, done.err, ring.live.status) == (0, "", layout.STATUS_RUNNING)


@pytest.mark.parametrize("how", ["exit", "fork", "forkserver", "spawn"])
def test_last_words_come_before_the_goodbye(rings: Path, tmp_path: Path, how: str) -> None:
    """What is still to be written at the end of a rank is, also where multiprocessing started it."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing
from straggler import StepTimer
from straggler.hook import process

def rank():
    timer = StepTimer(run="r", rank=1, allow_any_filesystem=True)
    timer.tick()
    process.before_goodbye(timer.tick)
    timer.tick()
    globals()["kept"] = timer

if __name__ == "__main__":
    how = HOW
    if how == "exit":
        rank()
    else:
        child = multiprocessing.get_context(how).Process(target=rank)
        child.start()
        child.join()
""".replace("HOW", repr(how))
    )
    done = train(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", rings, prelude="", flags=())

    (ring,) = done.rings
    assert ring.live is not None
    assert (done.code, done.err, ring.live.status) == (0, "", layout.STATUS_FINISHED)
    assert len(ring.records) == 2


def test_spawned_workers(rings: Path, tmp_path: Path) -> None:
    """A spawned worker that imports the script again makes no second ring."""
    script = tmp_path / "script.py"
    script.write_text(
        PRELUDE
        + """
import multiprocessing
def work(x): return x + 1
if __name__ == "__main__":
    steps(3)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, range(4)) == [1, 2, 3, 4]
    steps(2)
    print("trained")
"""
    )
    done = train(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", rings, prelude="", flags=())

    assert (done.code, done.out) == (0, "trained\n"), done.err
    assert [len(ring.records) for ring in done.rings] == [5]


def test_second_thread(rings: Path) -> None:
    """What another thread calls is ignored and reported once."""
    done = train(
        """
import threading
steps(3)
threads = [threading.Thread(target=steps, args=(5,)) for _ in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
steps(2)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out) == (0, "trained\n")
    assert (len(done.reports), len(done.rings[0].records)) == (1, 5)


def test_wall_clock_jumps(rings: Path) -> None:
    """A jump of the wall clock changes no duration."""
    prelude = PRELUDE.replace("allow_any_filesystem=True", "allow_any_filesystem=True, wall_clock=lambda: now[0]")
    done = train("steps(3)\nnow[0] -= 10**15\nsteps(3)" + LAST_LINE, rings, prelude="now = [10**18]\n" + prelude)

    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    assert all(record.wall_ns < 10**9 for record in done.rings[0].records)


def test_clock_goes_back(rings: Path) -> None:
    """A clock that goes back, as some virtual machines have it, makes a failed step, never a negative time."""
    prelude = "tick = [10**12]\ndef clock():\n    tick[0] += 1000\n    return tick[0]\n" + PRELUDE.replace(
        "allow_any_filesystem=True", "allow_any_filesystem=True, clock=clock"
    )
    done = train("steps(3)\ntick[0] -= 10**9\nsteps(3)" + LAST_LINE, rings, prelude=prelude)

    assert (done.code, done.out) == (0, "trained\n"), done.err
    (ring,) = done.rings
    assert [bool(record.flags & layout.FLAG_FAILED) for record in ring.records] == [False] * 3 + [True] + [False] * 2


def test_disabled(rings: Path) -> None:
    """STRAGGLER_DISABLED=1 makes everything a no-op without a word."""
    done = train("steps(5)\ntimer.tick()\ntimer.arrive()\n" + LAST_LINE, rings, environment={"STRAGGLER_DISABLED": "1"})

    assert (done.code, done.out, done.err, done.rings) == (0, "trained\n", "", ())


def test_broken_logging(rings: Path) -> None:
    """A log handler that raises does not reach the loop."""
    done = train(
        """
class Broken(logging.Handler):
    def emit(self, record): raise RuntimeError("handler")
logging.getLogger().addHandler(Broken())
logging.raiseExceptions = True
timer.phase("nonsense").__enter__()
steps(3)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out) == (0, "trained\n"), done.err


def test_interpreter_end_with_threads(rings: Path) -> None:
    """Daemon threads that still call the timer while the interpreter ends do no harm."""
    done = train(
        """
import threading
def forever():
    while True:
        steps(1)
threading.Thread(target=forever, daemon=True).start()
steps(100)
"""
        + LAST_LINE,
        rings,
    )

    assert (done.code, done.out) == (0, "trained\n"), done.err


def test_signal_handlers_stay(rings: Path) -> None:
    """The hook installs no signal handler."""
    done = train(
        """
import signal
before = [signal.getsignal(n) for n in range(1, 65) if n not in (32, 33)]
steps(3)
assert before == [signal.getsignal(n) for n in range(1, 65) if n not in (32, 33)]
"""
        + LAST_LINE,
        rings,
        prelude="import signal\nfirst = [signal.getsignal(n) for n in range(1, 65) if n not in (32, 33)]\n"
        + PRELUDE
        + "assert first == [signal.getsignal(n) for n in range(1, 65) if n not in (32, 33)]\n",
    )

    assert (done.code, done.out, done.err) == (0, "trained\n", "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_steps(rings: Path) -> None:
    """After 10^6 steps the ring is whole, the totals exact and the memory what it was."""
    done = train(
        """
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4
steps(5000)
before = resident()
steps(995_000)
print(resident() - before)
""",
        rings,
        timeout=500,
    )

    (ring,) = done.rings
    assert (done.code, done.err, ring.spoilt_slots) == (0, "", 0)
    assert int(done.out) < 512, "kB"
    assert len(ring.records) == layout.DEFAULT_CAPACITY
    assert ring.records[-1].total_tokens == 10_000_000


@pytest.mark.parametrize("flags", [("-O",), ("-I",), ("-X", "dev")])
def test_interpreter_flags(rings: Path, flags: tuple[str, ...]) -> None:
    """Optimized, isolated and development mode work alike."""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2] / 'exporter')!r})\n" + PRELUDE
    done = train("steps(5)" + LAST_LINE, rings, prelude=prelude, flags=flags)

    assert (done.code, done.out, done.err) == (0, "trained\n", "")
    assert len(done.rings[0].records) == 5
