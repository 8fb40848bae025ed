"""The ring directory of a Kubernetes node: prepared by the chart's own script, used as the kubelet and pods use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy_tools import DEPLOY, run, tool

FILES = DEPLOY / "kubernetes" / "chart" / "files"

NODE = r"""
set -eu
files=$1 node=$2
mount -t tmpfs -o mode=755 node "$node"
prepare() { DIRECTORY=$node/straggler HOW=tmpfs SIZE=8m INODES=512 OWNER=10110 GROUP=10110 CONTEXT="${1-}" \
    sh "$files/prepare.sh"; }
as() { who=$1; shift; setpriv --reuid="${who%:*}" --regid="${who#*:}" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"; }
kubelet() {  # the first part with the mode that mkdir and the umask leave, the last with that of the volume
    umask 022
    [ -d "$node/straggler/$1" ] || mkdir -m 0751 "$node/straggler/$1"
    mkdir "$node/straggler/$1/$2"
    chmod "$(stat -c %a "$node/straggler")" "$node/straggler/$1/$2"
}
can() { if "$@" >/dev/null 2>&1; then echo yes; else echo no; fi; }
"""


def on_a_node(script: str) -> list[str]:
    """Run a script on a node of its own; gives the lines that it printed with ``say``."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become several users")
    node = Path(f"/tmp/straggler-node-{os.getpid()}")  # pytest's own directories are root's alone
    node.mkdir()
    try:
        code, said = run(
            tool("unshare"),
            *("--mount", "--propagation=private", "sh", "-c", f'{NODE}say() {{ echo "= $*"; }}\n{script}'),
            *("sh", FILES, node),
        )
    finally:
        node.rmdir()
    assert code == 0, said
    return [line[2:] for line in said.splitlines() if line.startswith("= ")]


def test_it_becomes_a_small_tmpfs_and_stays_it() -> None:
    """Preparing twice mounts once, and brings owner, mode and limits to what is wanted."""
    said = on_a_node(r"""
        prepare; touch "$node/straggler/kept"; chmod 700 "$node/straggler"; prepare
        say "$(stat -c '%a %u:%g' "$node/straggler") $(grep -c "$node/straggler" /proc/self/mounts)"
        say "$(grep "$node/straggler" /proc/self/mounts | grep -o 'size=[^,]*,nr_inodes=[0-9]*')"
        say "$(ls "$node/straggler")"
    """)

    assert said == ["2773 10110:10110 1", "size=8192k,nr_inodes=512", "kept"]


def test_a_link_is_not_followed() -> None:
    """Somebody who can write to the parent must not choose which directory is given away."""
    said = on_a_node(r"""
        mkdir "$node/etc"; ln -s etc "$node/straggler"
        say "$(can prepare)" "$(stat -c '%a %u' "$node/etc")"
    """)

    assert said == ["no 755 0"]


def test_pods_write_the_sidecar_reads_and_removes_and_nobody_else_does() -> None:
    """In the directory that the kubelet makes a pod creates and lists nothing; the sidecar finds and removes."""
    said = on_a_node(r"""
        prepare; kubelet training uid-1; pod=$node/straggler/training/uid-1
        as 12345:12345 sh -c "umask 077; echo ring >$pod/a.ring; chmod 640 $pod/a.ring"
        say "$(stat -c '%a %u:%g' "$pod/a.ring")"
        say other $(can as 12346:12346 ls "$pod") $(can as 12346:12346 cat "$pod/a.ring")
        say other $(can as 12346:12346 ls "$node/straggler") $(can as 12346:12346 mkdir "$node/straggler/training/x")
        say sidecar $(as 10110:10110 find "$node/straggler" -name '*.ring' | wc -l) $(as 10110:10110 cat "$pod/a.ring")
        say sidecar $(can as 10110:10110 rm -f "$pod/a.ring") $(ls "$pod" | wc -l)
    """)

    assert said == ["640 12345:10110", "other no no", "other no no", "sidecar 1 ring", "sidecar yes 0"]


def test_the_sweeper_removes_what_gone_pods_left_and_nothing_else() -> None:
    """Old and empty directories and old junk go; rings, young directories and those in use stay."""
    said = on_a_node(r"""
        prepare
        for pod in gone young used junk; do kubelet training $pod; done; kubelet past gone
        cd "$node/straggler"
        for file in training/used/a.ring training/junk/core; do touch -d '9 days ago' $file; done
        for pod in training/gone training/used past/gone past; do touch -d '9 days ago' $pod; done
        DIRECTORY=$node/straggler DAYS=7 ONCE=1 as 0:10110 sh "$files/sweep.sh"
        say $(find . -mindepth 1 | sort)
        touch -d '9 days ago' past training/junk
        DIRECTORY=$node/straggler DAYS=7 ONCE=1 as 0:10110 sh "$files/sweep.sh"
        say $(find . -mindepth 1 | sort)
        cd /
    """)

    assert said == [
        "./past ./training ./training/junk ./training/used ./training/used/a.ring ./training/young",
        "./training ./training/used ./training/used/a.ring ./training/young",
    ]
