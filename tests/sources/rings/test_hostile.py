"""Files whose content is meant to break the reader."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FakeClock
from ring_files import RingFile, record
from straggler.errors import WireError
from straggler.model.reading import SourceState
from straggler.sources.rings.read import RingSource
from straggler.sources.rings.reasons import RING_REASONS
from straggler.sources.rings.snapshot import snapshot_of
from straggler.wire import layout
from straggler.wire.decode import file_bytes
from straggler.wire.encode import encode_identity, encode_live, encode_preamble, encode_record
from straggler.wire.records import Identity, Live, Preamble


def source_of(root: Path) -> RingSource:
    """A source that sees the directory for the first time."""
    return RingSource(
        root,
        clock=FakeClock(),
        hang_steps=10,
        hang_min_seconds=120,
        hang_excluded_seconds=3600,
        gone_seconds=300,
    )


def look_twice(data: bytes, later: bytes) -> None:
    """Show the source one content, then another under its hands; both must give facts or listed reasons."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        path = root / "a.ring"
        path.write_bytes(data)
        good = RingFile(root / "good.ring", run="good", capacity=4)
        good.step()
        source = source_of(root)
        for content in (data, later):
            with path.open("r+b") as file:
                file.write(content)
            reading = source.collect()
            assert reading.state is SourceState.OK
            assert {problem.reason for problem in reading.problems} <= set(RING_REASONS)
            assert "good" in {facts.identity.run for facts in reading.facts}, "the ring beside it is not harmed"
        source.close()
        good.close()


@given(data=st.binary(max_size=9000), later=st.binary(max_size=9000))
@settings(max_examples=60, deadline=None)
def test_any_bytes(data: bytes, later: bytes) -> None:
    """Any bytes in a ring file are facts or a listed reason, and never an error."""
    look_twice(data, later)


@st.composite
def rings(draw: st.DrawFn) -> bytes:
    """Whole rings with valid checksums and wild values, then spoilt here and there."""
    number = st.integers(0, (1 << 63) - 1)
    preamble = Preamble(layout.VERSION, draw(st.sampled_from([320, 321, 400])), draw(st.integers(1, 9)), 1, 1, 1)
    live = Live(draw(number), draw(number), 1, 1, draw(st.integers(0, 5)), draw(st.sampled_from([None, 6, 7])))
    data = bytearray(file_bytes(preamble))
    data[: layout.PREAMBLE_BYTES] = encode_preamble(preamble)
    data[layout.LIVE_OFFSET : layout.IDENTITY_OFFSET] = encode_live(live)
    identity = encode_identity(Identity(draw(st.text(max_size=20)) or "r", draw(st.integers(0, 9))))
    data[layout.IDENTITY_OFFSET : layout.IDENTITY_OFFSET + len(identity)] = identity
    for slot in range(preamble.capacity):
        serial = slot + 1 + preamble.capacity * draw(st.integers(0, 3)) + draw(st.sampled_from([0, 0, 0, 1]))
        body = bytearray(encode_record(record(serial)).ljust(preamble.record_bytes, b"\0"))
        for index, value in draw(st.dictionaries(st.integers(0, 38), number, max_size=2)).items():
            body[index * 8 : index * 8 + 8] = value.to_bytes(8, "little")
        body[-4:] = crc32(body[:-4]).to_bytes(4, "little")
        at = layout.RECORDS_OFFSET + slot * preamble.record_bytes
        data[at : at + preamble.record_bytes] = body
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(data=rings(), later=rings())
@settings(max_examples=60, deadline=None)
def test_wild_rings(data: bytes, later: bytes) -> None:
    """Rings with good checksums and impossible values are facts or a listed reason, and never an error."""
    look_twice(data, later)


@given(data=rings(), cut=st.integers(0, 9000))
@settings(max_examples=60, deadline=None)
def test_wild_snapshots(data: bytes, cut: int) -> None:
    """What is left of any ring can be looked into, or has a listed reason."""
    try:
        reasons = {problem.reason for problem in snapshot_of(data[:cut], locked=None).problems}
    except WireError as error:
        reasons = {error.reason}

    assert reasons <= set(RING_REASONS)


AS_NOBODY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fakes import FakeClock
from straggler.sources.rings.read import RingSource
os.getuid() or os.setresuid(65534, 65534, 65534)
clock = FakeClock(now=2e9)
source = RingSource(Path(sys.argv[1]), clock=clock, hang_steps=10, hang_min_seconds=120, hang_excluded_seconds=3600,
                    gone_seconds=300)
for _ in range(5):
    reading = source.collect()
    print(reading.state.value, *(problem.reason for problem in reading.problems))
    clock.advance(4000)
print(source.counters.removed, dict(source.counters.refused_now))
"""


def _as_nobody(directory: str) -> list[str]:
    """The lines that a sidecar without rights prints."""
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", AS_NOBODY, directory, tests]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_file_that_cannot_be_removed_is_counted_once() -> None:
    """In a directory that is read-only for the sidecar, a removal that fails is said once and not tried for ever."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ring = RingFile(root / "a.ring")
        ring.path.chmod(0o644)
        ring.goodbye()
        ring.close()
        root.chmod(0o555)
        try:
            lines = _as_nobody(name)
        finally:
            root.chmod(0o700)

    assert lines == ["ok", "ok remove_failed", "ok", "ok", "ok", "0 {'remove_failed': 1}"]


def test_directory_that_may_not_be_listed_has_failed() -> None:
    """Without the right to list, the source has failed under a reason, which is counted once."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o311)
        lines = _as_nobody(name)

    assert lines[:2] == ["failed unreadable", "failed"]


def test_file_that_may_not_be_read_is_refused() -> None:
    """A ring without the right to read it is refused; the others are not touched."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        RingFile(root / "a.ring").close()
        (root / "a.ring").chmod(0)
        root.chmod(0o755)
        lines = _as_nobody(name)

    assert lines == ["ok unreadable", "ok", "ok", "ok", "ok", "0 {'unreadable': 1}"]


def test_rank_survives_a_directory_that_goes_blind(tmp_path: Path) -> None:
    """If the directory goes away altogether, so do its ranks; when it is back, they are."""
    root = tmp_path / "rings"
    root.mkdir()
    ring = RingFile(root / "a.ring")
    ring.step()
    source = source_of(root)
    assert len(source.collect().facts) == 1
    root.rename(tmp_path / "away")
    assert source.collect().state is SourceState.ABSENT
    (tmp_path / "away").rename(root)

    assert len(source.collect().facts) == 1
    source.close()
