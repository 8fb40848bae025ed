"""The service's sandbox as far as it can be had without systemd: the same tmpfs, /proc, privileges and memory rules."""

from __future__ import annotations

import os
import re
import site
import sys
from pathlib import Path

import pytest

from deploy_tools import DEPLOY, ROOT, run, tool

PYTHON = "/usr/bin/python3"
JOB, OTHER_JOB, SIDECAR = 12345, 12346, 10110

SCRIPT = r"""
set -eu
rings=$1 options=$2
mount -t tmpfs -o "$options" straggler "$rings"
mount -t proc proc /proc
as() { uid=$1; shift; setpriv --reuid="$uid" --regid="$uid" --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all "$@"; }

job='
import sys, time
from straggler import StepTimer
timer = StepTimer(run=sys.argv[1], rank=0, world_size=2)
while True:
    with timer.step(), timer.phase("forward"):
        time.sleep(0.01)
'
STRAGGLER_DIR=$rings as 12345 /usr/bin/python3 -c "$job" first &
STRAGGLER_DIR=$rings as 12346 /usr/bin/python3 -c "$job" second &

# 65: PR_SET_MDWE, the kernel's form of MemoryDenyWriteExecute=; an older kernel refuses the call and nothing changes.
guarded='import ctypes,os,sys; ctypes.CDLL(None).prctl(65,1,0,0,0); os.execv(sys.argv[1], sys.argv[1:])'
as 10110 /usr/bin/python3 -c "$guarded" /usr/bin/python3 -m straggler serve --listen 127.0.0.1:0 --ring-dir "$rings" \
    --dcgm-url none 2>"$rings.log" &
for _ in $(seq 600); do
    port=$(sed -n 's/.*serves on .*, port \([0-9]*\).*/\1/p' "$rings.log")
    [ -n "$port" ] && [ "$(find "$rings" -name '*.ring' | wc -l)" = 2 ] && break
    sleep 0.1
done
for _ in $(seq 100); do
    page=$(/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \
        "http://127.0.0.1:$port/metrics")
    seen=$(printf '%s\n' "$page" | grep -c '^training_rank_host_run_delay_seconds_total{') || true
    [ "$seen" = 2 ] && break
    sleep 0.3
done
printf '%s\n' "$page"
ring=$(find "$rings" -user 12345)
echo "MODE $(stat -c '%a %u %g' "$ring")"
as 12346 ls "$rings" >/dev/null 2>&1 || echo "CANNOT list"
as 12346 cat "$ring" >/dev/null 2>&1 || echo "CANNOT read"
as 12346 rm -f "$ring" 2>/dev/null || echo "CANNOT remove"
as 12346 mv "$ring" "$rings/mine.ring" 2>/dev/null || echo "CANNOT rename"
as 10110 rm -f "$ring" && echo "SIDECAR removes"
"""


def python_path() -> str:
    """Our packages for a Python that other users may run; skips where there is none of this version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")[1].strip() != version:
        pytest.skip(f"{PYTHON} is not Python {version}")
    return os.pathsep.join([str(ROOT / "exporter"), *site.getsitepackages()])


@pytest.mark.slow
def test_rings_are_read_from_inside_the_sandbox_and_nobody_touches_anothers() -> None:
    """A sidecar without privileges sees two users' jobs run; no user can harm the other's ring."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become several users")
    unit = (DEPLOY / "systemd" / "run-straggler.mount").read_text(encoding="utf-8")
    found = re.search(r"^Options=(.*)$", unit, re.MULTILINE)
    assert found
    options = found[1].replace("uid=straggler", f"uid={SIDECAR}").replace("gid=straggler", f"gid={SIDECAR}")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}
    rings = Path(f"/tmp/straggler-sandbox-{os.getpid()}")  # pytest's own directories are root's alone
    rings.mkdir()
    try:
        code, said = run(
            tool("unshare"),
            *("--mount", "--propagation=private", "--pid", "--fork", "--kill-child"),  # all end with the shell
            *("sh", "-c", SCRIPT, "sh", rings, options),
            env=env,
        )
        log = Path(f"{rings}.log").read_text(encoding="utf-8")
    finally:
        rings.rmdir()
        Path(f"{rings}.log").unlink(missing_ok=True)

    assert code == 0, said + log
    running = set(re.findall(r'^training_rank_state\{.*run="(\w+)".*state="running"\} 1\.0$', said, re.MULTILINE))
    assert running == {"first", "second"}, said + log
    assert re.search(r'^training_rank_host_run_delay_seconds_total\{.*run="first"\} ', said, re.MULTILINE), said
    # NVML's library is not here; that the binding found it absent, and did not fail, shows that ctypes works in there.
    assert re.search(r'^straggler_exporter_source_state\{.*source="nvml",state="absent"\} 1\.0$', said, re.MULTILINE)
    assert f"MODE 640 {JOB} {SIDECAR}" in said
    assert [line for line in said.splitlines() if line.startswith(("CANNOT", "SIDECAR"))] == [
        "CANNOT list",
        "CANNOT read",
        "CANNOT remove",
        "CANNOT rename",
        "SIDECAR removes",
    ]
