"""A node of its own, run as root inside new network, mount and PID namespaces: prints what happened there, as JSON.

A sidecar without privileges, three jobs of three users, and a fourth who tries what a malicious user would.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

SIDECAR, JOBS, MALLORY = 10110, {"first": 12345, "second": 12346, "third": 12347}, 12348

JOB = """
import sys, time
from straggler import StepTimer
timer = StepTimer(run=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
for _ in range(100_000):
    with timer.step(), timer.phase("forward"):
        time.sleep(float(sys.argv[3]))
"""

TRY = """
import json, os, sys
rings, ring, *wanted = sys.argv[1:]
attempts = {
    "list": lambda: os.listdir(rings),
    "read": lambda: open(ring, "rb").close(),
    "write": lambda: os.close(os.open(ring, os.O_WRONLY)),
    "truncate": lambda: os.truncate(ring, 0),
    "open up": lambda: os.chmod(ring, 0o666),
    "remove": lambda: os.unlink(ring),
    "rename": lambda: os.rename(ring, rings + "/mine.ring"),
}
done = []
for name in wanted or attempts:
    try:
        attempts[name]()
    except OSError:
        continue
    done.append(name)
print(json.dumps(done))
"""


class Node:
    """The directory and everybody's processes."""

    def __init__(self, rings: Path) -> None:
        self.rings = rings
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        options = f"mode=3733,uid={SIDECAR},gid={SIDECAR},size=64m,nr_inodes=1k"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "straggler", rings], check=True)
        subprocess.run(["mount", "-t", "proc", "-o", "subset=pid,hidepid=invisible", "proc", "/proc"], check=True)
        self.log = ""
        self.port = self._serve()

    def start(self, uid: int, *words: str, code: str = JOB) -> subprocess.Popen[str]:
        """Run a script as that user."""
        return subprocess.Popen(
            [sys.executable, "-c", code, *words],
            user=uid,
            group=uid,
            extra_groups=[],
            env={**os.environ, "STRAGGLER_DIR": str(self.rings)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def _serve(self) -> str:
        command = [sys.executable, "-m", "straggler", "serve", "--listen", "127.0.0.1:0", "--dcgm-url", "none"]
        log = (self.rings.parent / "sidecar.log").open("w+", encoding="utf-8")
        subprocess.Popen(
            [*command, "--ring-dir", str(self.rings)], user=SIDECAR, group=SIDECAR, extra_groups=[], stderr=log
        )

        def port() -> str | None:
            log.seek(0)
            self.log = log.read()
            found = re.search(r"serves on .*, port (\d+)", self.log)
            return found and found[1]

        return until(port)

    def page(self) -> str:
        """One scrape."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def steps(self) -> dict[str, int]:
        """By run and rank, of those that are running: the step."""
        page = self.page()
        steps = re.findall(r'^training_step\{.*rank="(\d+)".*run="(\w+)".*\} ([\d.e+]+)$', page, re.MULTILINE)
        return {f"{run}/{rank}": int(float(step)) for rank, run, step in steps}


def until(ask: Callable[[], str | None]) -> str:
    """Ask until there is an answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.1)
    raise TimeoutError(str(ask))


def main(rings: Path) -> None:
    """Play it."""
    node = Node(rings)
    jobs = {run: node.start(uid, run, "0", "0.01") for run, uid in JOBS.items()}
    until(lambda: "yes" if len(node.steps()) == len(JOBS) else None)
    began = time.monotonic()
    before = node.steps()
    ring = next(path for path in rings.iterdir() if path.stat().st_uid == JOBS["first"])

    outsider = node.start(MALLORY, str(rings), str(ring), code=TRY)
    reader = node.start(SIDECAR, str(rings), str(ring), "list", "read", "write", "truncate", "open up", code=TRY)
    forgers = [node.start(MALLORY, "first", rank, "0.001") for rank in ("0", "7")]
    (rings / "link.ring").symlink_to(ring)
    until(lambda: "yes" if node.page().count('reason="foreign_run"') else None)
    until(lambda: "yes" if all(node.steps().get(name, 0) > step + 100 for name, step in before.items()) else None)
    after = node.steps()
    seconds = time.monotonic() - began
    sys.stdout.write(
        json.dumps(
            {
                "interfaces": [name for _, name in socket.if_nameindex()],
                "runs": sorted(after),
                "advanced": [after.get(name, 0) > step for name, step in sorted(before.items())],
                "paces": {name: (after[name] - step) / seconds for name, step in before.items()},
                "mode": oct(ring.stat().st_mode & 0o7777),
                "outsider": json.loads(outsider.communicate()[0]),
                "reader": json.loads(reader.communicate()[0]),
                "training": [job.poll() for job in (*jobs.values(), *forgers)],
                "refused": sorted(set(re.findall(r'ranks_refused\{reason="(\w+)"\} [1-9]', node.page()))),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
