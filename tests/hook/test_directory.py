"""Where a ring may go, found out without touching what might hang."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from straggler.errors import RingError
from straggler.hook.directory import (
    Mount,
    candidates,
    memory_path,
    mount_of,
    own_directory,
    parse_mounts,
    read_mounts,
    resolve,
)
from straggler.hook.sweep import OLD_SECONDS, remove_old_rings

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
25 24 0:23 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw,size=24684096k
60 27 0:50 / /run rw,nosuid shared:12 master:1 - tmpfs tmpfs rw,mode=755
61 27 0:51 / /home rw,relatime - nfs4 filer:/home rw,vers=4.2,hard
62 27 0:52 / /mnt/two\\040words rw - tmpfs tmpfs rw
63 25 0:53 / /dev/shm rw,relatime - tmpfs tmpfs rw
nonsense
"""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory on tmpfs."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("path", "point", "filesystem"),
    [
        ("/dev/shm", "/dev/shm", "tmpfs"),
        ("/dev/shm/straggler-0", "/dev/shm", "tmpfs"),
        ("/dev/shmoo", "/", "ext4"),
        ("/run/straggler", "/run", "tmpfs"),
        ("/home/ada/rings", "/home", "nfs4"),
        ("/mnt/two words/x", "/mnt/two words", "tmpfs"),
        ("/", "/", "ext4"),
    ],
)
def test_mount_of_a_path(path: str, point: str, filesystem: str) -> None:
    """The longest mount point counts, by whole names, with blanks as the kernel spells them."""
    assert mount_of(path, parse_mounts(TABLE)) == Mount(point, filesystem)


def test_this_machines_own_table() -> None:
    """The real table has a root and /proc."""
    points = {mount.point for mount in read_mounts()}

    assert {"/", "/proc"} <= points


def test_without_a_table() -> None:
    """Where there is none, no file system is believed to be tmpfs."""
    with pytest.raises(RingError, match="cannot tell"):
        read_mounts("/nowhere/mountinfo")


@given(st.text())
def test_any_table_is_read(text: str) -> None:
    """Lines that are no mounts are left out."""
    assert all(mount.filesystem is not None for mount in parse_mounts(text))


def test_links_are_followed(tmp_path: Path, memory: Path) -> None:
    """A link on a disk to a directory on tmpfs leads to tmpfs, and one back leads to the disk."""
    mounts = read_mounts()
    (tmp_path / "rings").symlink_to(memory)
    (tmp_path / "up").symlink_to("../" + tmp_path.name + "/rings/.")
    (memory / "disk").symlink_to(tmp_path)

    assert memory_path(str(tmp_path / "up"), mounts) == str(memory)
    assert resolve(str(memory / "disk" / "x"), mounts) == str(tmp_path / "x")


def test_a_circle_of_links(memory: Path) -> None:
    """It is refused, not followed for ever."""
    (memory / "a").symlink_to(memory / "b")
    (memory / "b").symlink_to(memory / "a")

    with pytest.raises(RingError, match="too many"):
        resolve(str(memory / "a"), read_mounts())


def test_what_may_hang_is_not_touched(tmp_path: Path, memory: Path) -> None:
    """On a path over NFS not even a link is read: the answer comes from the table alone."""
    (memory / "inside").symlink_to(tmp_path)
    mounts = [*read_mounts(), Mount(str(memory), "nfs4")]

    with pytest.raises(RingError, match="nfs4"):
        memory_path(str(memory / "inside" / "x"), mounts)
    with pytest.raises(RingError, match="nfs4"):
        memory_path(str(memory), mounts)


def test_the_users_choice_is_the_only_one(memory: Path) -> None:
    """With a directory given there is no second place that nobody looks into."""
    assert candidates(str(memory), allow_any_filesystem=False) == [str(memory)]
    assert candidates("/home/x", allow_any_filesystem=True) == ["/home/x"]


def test_own_directory_is_for_its_user(memory: Path) -> None:
    """It is made with mode 0700 and taken again; a name that others could have prepared is refused."""
    path = own_directory(str(memory))
    assert own_directory(str(memory)) == path
    assert Path(path).stat().st_mode & 0o777 == 0o700

    Path(path).chmod(0o777)
    with pytest.raises(RingError, match="alone"):
        own_directory(str(memory))
    Path(path).rmdir()
    Path(path).symlink_to(memory)
    with pytest.raises(RingError, match="alone"):
        own_directory(str(memory))


def test_old_rings_are_swept(memory: Path) -> None:
    """What is a day old and held by nobody goes; what is young, held, kept or no ring stays."""
    for name in ("old.ring", "young.ring", "held.ring", "kept.ring", "notes.txt"):
        (memory / name).write_bytes(b"x" * 100)
        if name != "young.ring":
            os.utime(memory / name, (0, 0))
    (memory / "link.ring").symlink_to(memory / "notes.txt")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, 2); print(1, flush=True); input()",
            str(memory / "held.ring"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()

    now = (memory / "young.ring").stat().st_mtime
    removed = remove_old_rings(str(memory), now, {str(memory / "kept.ring")})
    holder.communicate(b"\n")

    assert removed == 1
    assert {path.name for path in memory.iterdir()} == {
        "young.ring",
        "held.ring",
        "kept.ring",
        "notes.txt",
        "link.ring",
    }
    assert remove_old_rings(str(memory), now + 2 * OLD_SECONDS) == 3


def test_what_a_profile_left_goes_with_an_old_ring(tmp_path: Path) -> None:
    """Traces beside removed rings are removed as well, and nothing else."""
    for name in ("a.ring", "a.profiled", "a.trace.json.gz", "notes.trace.json.gz"):
        (tmp_path / name).write_text("x")
    now = (tmp_path / "a.ring").stat().st_mtime + 2 * OLD_SECONDS

    assert remove_old_rings(str(tmp_path), now) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes.trace.json.gz"]


def test_sweeping_takes_no_lock_along(memory: Path) -> None:
    """A ring of this very process that is said to be kept does not lose its lock by the sweep."""
    with (memory / "mine.ring").open("wb+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        remove_old_rings(str(memory), 1e12, {str(memory / "mine.ring")})
        probe = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        held = subprocess.run(
            [sys.executable, "-c", probe, str(memory / "mine.ring")], capture_output=True, check=False
        )

    assert b"BlockingIOError" in held.stderr
