"""Finding rings among whatever else lies in a directory that others may write to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ring_files import RingFile
from straggler.errors import SourceAbsentError, SourceFailedError
from straggler.sources.rings import discover
from straggler.sources.rings.discover import RingKey, Scan, open_ring, scan


def found(root: Path) -> Scan:
    """Everything, with status."""
    return scan(root, lambda _: True)


def only(root: Path) -> tuple[RingKey, os.stat_result]:
    """The one file that is there."""
    ((key, status),) = found(root).statuses.items()
    assert status is not None
    return key, status


def refusal(root: Path) -> str:
    """Why the one file that is there cannot be opened."""
    key, status = only(root)
    with pytest.raises(SourceFailedError) as caught:
        open_ring(root, key, status)
    return caught.value.reason


def test_finds_rings_in_bounded_depth(tmp_path: Path) -> None:
    """Rings in the directory and two levels below it are found; deeper ones, and other files, are not."""
    (tmp_path / "ns" / "uid" / "deep").mkdir(parents=True)
    for name in ("a.ring", "ns/b.ring", "ns/uid/c.ring", "ns/uid/deep/d.ring", "a.txt", "ring"):
        (tmp_path / name).touch()

    assert {key.path for key in found(tmp_path).statuses} == {"a.ring", "ns/b.ring", "ns/uid/c.ring"}


def test_opens_read_only(tmp_path: Path) -> None:
    """What is found can be opened, and only for reading."""
    (tmp_path / "ns").mkdir()
    RingFile(tmp_path / "ns" / "a.ring").close()
    key, status = only(tmp_path)
    descriptor = open_ring(tmp_path, key, status)

    assert os.pread(descriptor, 8, 0) == b"STRGRING"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(descriptor, b"x", 0)
    os.close(descriptor)


def test_missing_directory_is_absent(tmp_path: Path) -> None:
    """No directory: the source is not on this machine."""
    with pytest.raises(SourceAbsentError):
        found(tmp_path / "nowhere")


def test_unreadable_directory_has_failed() -> None:
    """A directory that may not be listed is a failure with a reason, not an empty one."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o300)
        code = (
            "import os, pathlib, sys; os.getuid() or os.setresuid(65534, 65534, 65534)\n"
            "from straggler.errors import SourceFailedError\n"
            "from straggler.sources.rings.discover import scan\n"
            "try: scan(pathlib.Path(sys.argv[1]), lambda key: True)\n"
            "except SourceFailedError as error: print(error.reason)"
        )
        warm = "import straggler.sources.rings.discover\n"  # loaded before the rights are given up
        done = subprocess.run([sys.executable, "-c", warm + code, name], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("unreadable\n", "")


def test_symlink_is_refused(tmp_path: Path) -> None:
    """A link is not followed, wherever it leads."""
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "a.ring").symlink_to("target")

    assert refusal(tmp_path) == "symlink"


def test_linked_directory_is_not_entered(tmp_path: Path) -> None:
    """Directories behind links are not searched."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.ring").touch()
    (tmp_path / "rings").mkdir()
    (tmp_path / "rings" / "link").symlink_to("../elsewhere")

    assert not found(tmp_path / "rings").statuses


def test_directory_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    """Between finding and opening, a directory on the way may become a link: it is refused then."""
    (tmp_path / "ns").mkdir()
    RingFile(tmp_path / "ns" / "a.ring").close()
    key, status = only(tmp_path)
    (tmp_path / "ns").rename(tmp_path / "moved")
    (tmp_path / "ns").symlink_to("moved")

    with pytest.raises(SourceFailedError) as caught:
        open_ring(tmp_path, key, status)

    assert caught.value.reason == "unreadable"


def test_file_swapped_for_another_is_not_opened(tmp_path: Path) -> None:
    """Between finding and opening, the name may be given to another file: that one is found on the next look."""
    RingFile(tmp_path / "a.ring").close()
    key, status = only(tmp_path)
    RingFile(tmp_path / "b").close()
    (tmp_path / "b").rename(tmp_path / "a.ring")

    with pytest.raises(FileNotFoundError):
        open_ring(tmp_path, key, status)


def test_pipe_is_refused_unopened(tmp_path: Path) -> None:
    """A pipe is refused without waiting for its other end."""
    os.mkfifo(tmp_path / "a.ring")

    assert refusal(tmp_path) == "not_regular"


def test_directory_with_the_name_of_a_ring_is_refused(tmp_path: Path) -> None:
    """A directory is no ring."""
    (tmp_path / "a.ring").mkdir()

    assert refusal(tmp_path) == "not_regular"


def test_hard_link_is_refused(tmp_path: Path) -> None:
    """A file with a second name may be somebody else's."""
    (tmp_path / "other").touch()
    (tmp_path / "a.ring").hardlink_to(tmp_path / "other")

    assert refusal(tmp_path) == "hard_linked"


def test_huge_file_is_refused(tmp_path: Path) -> None:
    """The reader's memory is not the writer's to choose."""
    with (tmp_path / "a.ring").open("wb") as file:
        file.truncate(discover.MAX_FILE_BYTES + 1)

    assert refusal(tmp_path) == "too_large"


def test_declined_status_costs_no_call(tmp_path: Path) -> None:
    """Files that the caller knows are listed without a status."""
    (tmp_path / "a.ring").touch()

    assert list(scan(tmp_path, lambda _: False).statuses.values()) == [None]


def test_name_that_is_not_text(tmp_path: Path) -> None:
    """A name of any bytes can be found and opened."""
    raw = os.fsencode(tmp_path) + b"/\xff\n\x1b[31m.ring"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    key, status = only(tmp_path)

    os.close(open_ring(tmp_path, key, status))


def test_too_many_directories_are_said(tmp_path: Path) -> None:
    """A walk that stops at its bound says so."""
    for number in range(5):
        (tmp_path / str(number)).mkdir()

    result = scan(tmp_path, lambda _: True, max_directories=3)

    assert [problem.reason for problem in result.problems] == ["too_many_directories"]


def test_too_many_files_are_said(tmp_path: Path) -> None:
    """A walk that stops at its bound says so, and keeps what it has."""
    for number in range(5):
        (tmp_path / f"{number}.ring").touch()

    result = scan(tmp_path, lambda _: True, max_files=3)

    assert len(result.statuses) == 3
    assert [problem.reason for problem in result.problems] == ["too_many_files"]
