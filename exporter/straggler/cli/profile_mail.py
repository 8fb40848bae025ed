"""Sends a request for a profile to a rank, reads its answer, and fetches its trace.

What lies in a shared directory was made by anybody: an answer counts only if the owner of the ring owns it, and no link
is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from straggler.errors import SourceFailedError, WireError
from straggler.sources.rings.living import LivingRing
from straggler.wire import profile
from straggler.wire.profile import Answer, Request

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Mail:
    """Request and answer beside one ring."""

    def __init__(self, ring: LivingRing) -> None:
        self._ring = ring
        self._path = ring.path.with_suffix(profile.REQUEST_SUFFIX)
        self._sent = False

    def send(self, request: Request) -> None:
        """Put the request there, whole at once.

        Raises:
            SourceFailedError: this user may not write there.
        """
        part = self._path.with_suffix(f".{os.urandom(6).hex()}")
        try:
            descriptor = os.open(part, _CREATE, 0o644)
            try:
                os.fchmod(descriptor, 0o644)  # the rank must read it, whoever it runs as
                os.write(descriptor, profile.encode(request))
                part.replace(self._path)
            except BaseException:
                part.unlink()
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SourceFailedError(
                "cannot_ask",
                f"{self._path}: {error.strerror}; ask as the rank's user, as root, or as the directory's owner",
            ) from error
        self._sent = True

    def take_back(self) -> None:
        """Remove the request, which the rank may not be allowed to remove."""
        if self._sent:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def answer(self, request_id: str) -> Answer | None:
        """The answer to this request, if it is there and the rank wrote it."""
        try:
            descriptor = open_of_rank(self._ring, self._ring.path.with_suffix(profile.ANSWER_SUFFIX))
        except (OSError, SourceFailedError):
            return None
        try:
            answer = profile.decode_answer(os.read(descriptor, profile.MAX_BYTES + 1))
        except (OSError, WireError):
            return None
        finally:
            os.close(descriptor)
        return answer if answer.id == request_id else None


def open_of_rank(ring: LivingRing, path: Path) -> int:
    """Open a file that this rank wrote.

    Raises:
        OSError: it cannot be opened.
        SourceFailedError: it is no file of the rank's user.
    """
    descriptor = os.open(path, _READ)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != ring.user:
        os.close(descriptor)
        raise SourceFailedError("not_the_ranks", f"{path} is no file of user {ring.user}")
    return descriptor


def collect(ring: LivingRing, answer: Answer, output: Path | None) -> Path:
    """Where the trace is; copied, if so wished.

    A rank with a directory of its own for traces gives a path as it sees it: from a container that may be another file,
    or none, here.

    Raises:
        SourceFailedError: it is not where the rank says, or cannot be copied.
    """
    beside = ring.path.with_suffix(profile.TRACE_SUFFIX)
    path = beside if answer.trace == beside.name else Path(answer.trace)
    if output is None:
        return path
    try:
        descriptor = open_of_rank(ring, path)
    except OSError as error:
        raise SourceFailedError("cannot_read", f"{path}: {error.strerror}; the rank wrote it") from error
    with os.fdopen(descriptor, "rb") as source:
        copy = output / f"rank{ring.identity.rank}-step{answer.first_step}{profile.TRACE_SUFFIX}"
        try:
            with copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except OSError as error:
            raise SourceFailedError("cannot_read", f"{copy}: {error.strerror}") from error
    return copy
