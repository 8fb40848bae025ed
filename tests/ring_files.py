"""Ring files for tests, written byte by byte as the wire says; and a real process that holds one with its lock.

The sidecar's tests read in the process in which they run. A lock of the same process would be invisible there and
dropped by the first close, so whatever is about locks, ends and forks is done by a child: this file, run as a program.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from straggler.wire import layout
from straggler.wire.decode import file_bytes, slot_offset
from straggler.wire.encode import encode_identity, encode_live, encode_preamble, encode_record
from straggler.wire.records import Identity, Live, Preamble, StepRecord

STEP_NS = 50_000_000
WAIT_NS = 10_000_000


def record(serial: int, *, step_ns: int = STEP_NS, wait_ns: int = WAIT_NS, **changes: Any) -> StepRecord:
    """A step like all the others of its ring: totals are multiples of one step."""
    phases = [0] * layout.PHASE_COUNT
    phases[layout.WAIT] = wait_ns
    phases[layout.PHASE_INDEX["forward"]] = step_ns - wait_ns
    return StepRecord(
        serial=serial,
        step=serial,
        end_monotonic_ns=serial * step_ns,
        end_realtime_ns=1_700_000_000_000_000_000 + serial * step_ns,
        flags=layout.FLAG_OWN,
        own_reason=0,
        wall_ns=step_ns,
        phase_ns=tuple(phases),
        host_data_ns=0,
        total_steps=serial,
        total_wall_ns=serial * step_ns,
        total_own_ns=serial * (step_ns - wait_ns),
        total_wait_ns=serial * wait_ns,
        total_unmeasured_steps=0,
        arrivals=serial,
        total_phase_ns=tuple(serial * phase for phase in phases),
        total_tokens=0,
        total_allreduce_bytes=0,
        total_flops=0.0,
        total_samples=0,
        total_profiled_steps=0,
    )._replace(**changes)


class RingFile:
    """One ring and its writer, without a lock."""

    def __init__(
        self,
        path: Path,
        *,
        run: str = "r",
        rank: int = 0,
        capacity: int = 256,
        created: int = 1_700_000_000_000_000_000,
        lock: bool = False,
        **identity: Any,
    ) -> None:
        self.path = path
        self.preamble = Preamble(layout.VERSION, layout.RECORD_BYTES, capacity, os.getpid(), created, created)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        os.posix_fallocate(self.descriptor, 0, file_bytes(self.preamble))
        if lock:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.serial = 0
        self.state = Live(0, 0, 0, 0, layout.STATUS_RUNNING, None)
        self.live()
        self.identity(Identity(run=run, rank=rank, node="n1", world_size=8)._replace(**identity))
        self.write(layout.PREAMBLE_OFFSET, encode_preamble(self.preamble))

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes anywhere."""
        os.pwrite(self.descriptor, data, offset)

    def identity(self, identity: Identity) -> None:
        """Write the identity block."""
        self.write(layout.IDENTITY_OFFSET, encode_identity(identity))

    def live(self, **changes: Any) -> None:
        """Write the live block, changed."""
        self.state = self.state._replace(**changes)
        self.write(layout.LIVE_OFFSET, encode_live(self.state))

    def offset(self, serial: int) -> int:
        """Where the record of this serial stands."""
        return slot_offset(serial, self.preamble)

    def put(self, written: StepRecord) -> None:
        """Write one record into its slot."""
        self.write(self.offset(written.serial), encode_record(written))
        self.serial = written.serial

    def step(self, count: int = 1, **changes: Any) -> None:
        """Write the next records, and count an arrival for each."""
        for _ in range(count):
            self.put(record(self.serial + 1, **changes))
        self.live(arrivals=self.state.arrivals + count, records=self.serial)

    def goodbye(self, status: int = layout.STATUS_FINISHED) -> None:
        """Write the end into the live block."""
        self.live(status=status)

    def age(self, seconds: float, now: float) -> None:
        """Make the file look as if it was last written to so long ago."""
        os.utime(self.path, (now - seconds, now - seconds))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


class Trainer:
    """A real process that does what it is told, one command a line. Commands return when they are done there."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if environment is None else {**os.environ, **environment},
        )
        self._read_answer()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def do(self, command: str, argument: int = 0) -> str:
        """Have it do something: one of the names that its program knows."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {argument}\n".encode())
        self._process.stdin.flush()
        return self._read_answer()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal and wait for its end."""
        self._process.send_signal(number)
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait(60)

    def close(self) -> None:
        """Clean up, whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(60)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _read_answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()


@contextlib.contextmanager
def started(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Trainer]:
    """A process that is gone afterwards."""
    process = Trainer(argv, environment)
    try:
        yield process
    finally:
        process.close()


def trainer(path: Path, **arguments: Any) -> contextlib.AbstractContextManager[Trainer]:
    """A process with a ring of its own and the lock on it; the arguments are those of ``RingFile``."""
    return started([sys.executable, __file__, str(path), json.dumps(arguments)])


def _fork_worker() -> int:
    """A child that outlives its parent, as data loader workers do; it keeps the descriptor of the ring."""
    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    return pid


def _exec(path: str) -> None:
    """Become another program, in the same process."""
    del path
    os.execv(sys.executable, [sys.executable, "-c", "print('ok', flush=True); import time; time.sleep(60)"])


def _say(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def _main(path: str, arguments: str) -> None:
    ring = RingFile(Path(path), lock=True, **json.loads(arguments))
    commands = {
        "step": ring.step,
        "arrive": lambda count: ring.live(arrivals=ring.state.arrivals + count),
        "checkpoint": lambda _: ring.live(excluded_phase=layout.PHASE_INDEX["checkpoint"]),
        "goodbye": ring.goodbye,
        "fork": lambda _: _fork_worker(),
        "open_and_close": lambda _: os.close(os.open(path, os.O_RDONLY)),
        "exec": lambda _: _exec(path),
        "exit": os._exit,
    }
    _say("ready")
    for line in sys.stdin:
        name, argument = line.split()
        answer = commands[name](int(argument))
        _say("ok" if answer is None else answer)


if __name__ == "__main__":
    _main(*sys.argv[1:])
