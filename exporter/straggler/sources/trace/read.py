"""Reads a trace event by event: files have gigabytes, and what is kept of them is little.

A trace is one JSON object whose key ``traceEvents`` has millions of small objects. They are decoded one at a time from
a window of the text. What the file is, its first bytes say, not its name: gzip or plain.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from straggler.errors import SourceFailedError

EVENTS_KEY: Final = "traceEvents"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_CHUNK_BYTES: Final = 1 << 18
_MAX_VALUE_CHARACTERS: Final = 1 << 24
"""Of one event or one piece of metadata. The longest met in the field is a list of process groups: 25 kB."""
_LONGEST_WORD: Final = 8
"""``false`` and ``\\u0000``, cut anywhere."""
_BLANKS: Final = re.compile(r"[\s,]*")
# "name": "C:\Users\me\train.py(12): step"         (names that were written as they are; a valid escape stays)
_ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(?=.{5}))', re.DOTALL)


class Entry(NamedTuple):
    """One piece of the file."""

    key: str
    """``traceEvents`` for an event, else the key beside it, e.g. ``distributedInfo``."""
    value: Any


def is_trace(path: Path) -> bool:
    """Whether the file's first bytes are those of a JSON text or of a gzip file; no error where they cannot be read."""
    try:
        head = _first_bytes(path)
    except OSError:
        return False
    return head.startswith((_GZIP_MAGIC, b"{", b"[", _UTF8_MARK)) or head.lstrip()[:1] in (b"{", b"[")


def _first_bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 64, 0) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def read_entries(path: Path) -> Iterator[Entry]:
    """All events and all metadata of a file, in its order.

    Args:
        path: a trace, plain or gzipped; links are followed, since a person named it.

    Raises:
        SourceFailedError: ``unreadable``, ``corrupt`` (gzip), ``bad_json``, ``truncated``, ``too_large`` (one value) or
            ``not_a_trace``.
    """
    try:
        with path.open("rb") as stream:
            yield from _entries(stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceFailedError("corrupt", f"the gzip file is damaged or cut off: {error}") from error
    except OSError as error:
        raise SourceFailedError("unreadable", str(error.strerror or error)) from error


def _entries(stream: IO[bytes]) -> Iterator[Entry]:
    buffered = io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream
    head = buffered.peek(2)[:2] if isinstance(buffered, io.BufferedReader) else b""
    if head == _GZIP_MAGIC:
        with gzip.open(buffered, "rb") as unpacked:
            yield from _Scanner(unpacked).entries()
    else:
        yield from _Scanner(buffered).entries()


class _Scanner:
    """A window that moves over the text of one file."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # Names of users' own ranges may be cut in the middle of a character.
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text = ""
        self._at = 0
        self._ended = False
        # Not strict: names of ranges may hold line ends and other control characters.
        self._raw_decode = json.JSONDecoder(strict=False).raw_decode

    def entries(self) -> Iterator[Entry]:
        first = self._peek()
        if first == "[":  # the events alone, as other tools write them; the ] at their end may be left out
            self._at += 1
            yield from self._events(at_end="]")
            return
        if first != "{":
            raise SourceFailedError("not_a_trace", "it does not begin like a JSON object")
        self._at += 1
        found = False
        while (next_one := self._peek()) != "}":
            if next_one != '"':
                raise self._broken()
            key = self._value()
            if self._peek() != ":":
                raise self._broken()
            self._at += 1
            if key == EVENTS_KEY:
                if self._peek() != "[":
                    raise SourceFailedError("not_a_trace", f"{EVENTS_KEY} is no list")
                self._at += 1
                found = True
                yield from self._events()
            else:
                self._peek()
                yield Entry(str(key), self._value())
        if not found:
            raise SourceFailedError("not_a_trace", f"it has no {EVENTS_KEY}")

    def _events(self, at_end: str = "") -> Iterator[Entry]:
        while self._peek(at_end) != "]":
            yield Entry(EVENTS_KEY, self._value())
        self._at += 1

    def _peek(self, at_end: str = "") -> str:
        """The next character that is no blank and no comma; at the end of the file ``at_end``, if that may be there."""
        while True:
            self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]  # nothing is a match too
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended and at_end:
                return at_end
            self._more()

    def _value(self) -> Any:
        """Decode the value that begins here."""
        while True:
            try:
                value, end = self._raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if "escape" in error.msg and self._mend():
                    continue
                # What the window cuts off looks like an error at its end.
                if self._ended or len(self._text) - self._at > _MAX_VALUE_CHARACTERS:
                    raise self._broken(error) from error
            except (RecursionError, ValueError) as error:
                raise SourceFailedError("bad_json", f"a value that cannot be: {error}") from error
            else:
                if end < len(self._text) or self._ended:  # a number may go on behind the window
                    self._at = end
                    return value
            self._more()

    def _more(self) -> None:
        if self._ended:
            raise SourceFailedError(
                "truncated", "the file ends in the middle: the profiler was interrupted, or the copy is incomplete"
            )
        if len(self._text) - self._at > _MAX_VALUE_CHARACTERS:
            raise SourceFailedError("too_large", f"one value is longer than {_MAX_VALUE_CHARACTERS} characters")
        self._fill()

    def _fill(self) -> None:
        # A value that spans many chunks is joined in ever longer pieces, so that it is not scanned too often.
        size = max(_CHUNK_BYTES, len(self._text) - self._at)
        block = self._stream.read(size)
        self._ended = not block
        self._text = self._text[self._at :] + self._decode(block, final=self._ended)
        self._at = 0

    def _mend(self) -> bool:
        """Make a backslash that escapes nothing a plain one, in all of the window; whether there was any."""
        rest = self._text[self._at :]
        self._text, self._at = _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", rest), 0
        return len(self._text) > len(rest)

    def _broken(self, error: json.JSONDecodeError | None = None) -> SourceFailedError:
        cut_off = error is not None and (len(self._text) - error.pos < _LONGEST_WORD or "Unterminated" in error.msg)
        if cut_off and self._ended:
            return SourceFailedError("truncated", "the file ends in the middle of a value")
        near = self._text[self._at : self._at + 40]
        return SourceFailedError("bad_json", f"not JSON near {near!r}")
