"""Who says what: NCCL's lines in a file that others write into as well. Pure.

A line of NCCL begins ``host:pid:tid [cudaDev] NCCL INFO``; a warning has the place in its source before ``NCCL WARN``.
Around that stands what launchers and collectors add, lines of processes that share a pipe run into one another, and
NCCL's own buffer cuts them at 1,024 bytes. So the words ``NCCL INFO`` are looked for anywhere in the line, and who says
it is read backwards from there. Nothing here is quadratic in what a stranger may write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

INFO: Final = "INFO"
WARN: Final = "WARN"

MAX_TEXT: Final = 2048
"""NCCL's buffer holds 1,024."""
MAX_SPEAKERS: Final = 32
"""In one line."""
_MAX_PREFIX: Final = 400
_MAX_HOSTS: Final = 256

# node-a:26799:27025 [0] NCCL INFO Using network IB        (all versions: alone in its line, as nearly all of them are)
_PLAIN = re.compile(r"([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[(-?\d{1,4})\] NCCL INFO (.*)", re.ASCII)
# \x1b[36m … \x1b[0m \x1b[K; [36m where something ate the escape
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\[[0-9;]{0,16}m")
_TOKEN = re.compile(r"NCCL (INFO|WARN) ?")
# transport/net_ib.cc:2245            (before NCCL WARN; ib_plugin.c:1615 where a plugin speaks)
# /longer_pathname_so_that_rpms_can_support_packaging_the_debug_info_for_all_os_profiles/src/…/init.cc:140       (RCCL)
_PLACE = re.compile(r"[\w./-]{1,300}\.(?:cc|cpp|c|h|cu):\d{1,6}")
_DEVICE = re.compile(r"\[(-?\d{1,4})\]")
_HOST_BACKWARDS = re.compile(r"[\w.-]{1,255}", re.ASCII)

# What launchers and collectors put before a line. Each ends where the host begins.
_WRAPPERS = re.compile(
    r"(?:"
    r"\[\d+,\d+\]<std(?:out|err)>:"  # [1,26]<stdout>:                        mpirun --tag-output
    r"|\[\d+,mpirank:\d+,[\w-]+\]<std(?:out|err)>:"  # [1,mpirank:0,algo-1]<stdout>:   SageMaker
    r"|\[(?:default|rank)\d+\]:"  # [default0]: [rank0]:                       torchrun, PyTorch
    r"|\d+: "  # 3:                                              srun --label
    r"|\[\d+\] "  # [80746]                                      a viewer's line numbers
    r"|\(\w+(?: pid=\d+)?(?:, ip=[\d.:a-f]+)?\) "  # (RayWorkerWrapper pid=9, ip=192.0.2.1)    Ray
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]? "  # CloudWatch, containers, NCCL >= 2.26
    r"|std(?:out|err) [FP] "  # stdout F                                 containerd, CRI-O
    r'|\{"log":"'  # Docker's json-file
    r"|\s"
    r")*",
    re.ASCII,
)

# NCCL version 2.18.6+cuda12.1        (all versions: no prefix, printed by the first rank of a process group)
# RCCL version 2.18.3+hip5.7          (AMD's)
_BARE_VERSION = re.compile(r"[NR]CCL version (?:: )?\d")
# NET/IBP:Got completion from peer …  (a plugin that prints by itself)
_BARE_COMPLETION = re.compile(r"NET/\w{1,32} ?: ?Got completion")
# INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'      (a collector that cut the prefix off)
_BARE_INFO = re.compile(r"INFO (?=NET/)")


class Line(NamedTuple):
    """One thing that NCCL said."""

    level: str
    """``INFO`` or ``WARN``."""
    text: str
    """Without any prefix; may be cut short, and may have strangers' text at its end."""
    host: str = ""
    """``""`` where the line has none, or none that can be told from what it has run into."""
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    """CUDA's ordinal in the process: 0 for every rank where each sees one GPU."""
    is_overrun: bool = False
    """Whether another line runs into this one: its end may be missing."""


class _Who(NamedTuple):
    host: str
    pid: int | None
    tid: int | None
    device: int | None
    start: int
    """Where the prefix begins."""


class LineReader:
    """Takes a file's lines one by one. It remembers hosts, to find them again where lines ran together."""

    def __init__(self) -> None:
        self.crowded = 0
        """Lines that were refused, since more speak in them than can have run together."""
        self._hosts: set[str] = set()

    def read(self, line: str) -> Iterator[Line]:
        """Give what NCCL says in one line of the file: nothing, one thing, or several that ran together."""
        if "CCL" not in line and "NET/" not in line:
            return
        if line.startswith("{"):
            for inner in _unwrapped(line):
                yield from self._read(inner)
        else:
            yield from self._read(line)

    def _read(self, line: str) -> Iterator[Line]:
        plain = _PLAIN.match(line)
        if plain is not None and line.find("NCCL ", plain.start(5)) < 0:
            host, pid, tid, device, text = plain.groups()
            self._know(host)
            yield Line(INFO, text[:MAX_TEXT].strip(), host, int(pid), int(tid), int(device))
            return
        if "\x1b" in line or "[0m" in line:
            line = _ANSI.sub("", line)
        tokens = list(islice(_TOKEN.finditer(line), MAX_SPEAKERS + 1))
        if not tokens:
            yield from _bare(line)
            return
        if len(tokens) > MAX_SPEAKERS:
            self.crowded += 1
            return
        speakers = [self._who(line, token.start(), after) for token, after in zip(tokens, _ends(tokens), strict=True)]
        for index, (token, who) in enumerate(zip(tokens, speakers, strict=True)):
            is_last = index + 1 == len(tokens)
            end = len(line) if is_last else speakers[index + 1].start
            text = line[token.end() : min(end, token.end() + MAX_TEXT)].strip()
            yield Line(token[1], text, who.host, who.pid, who.tid, who.device, not is_last)

    def _who(self, line: str, end: int, after: int) -> _Who:
        """Read backwards who speaks.

        Args:
            line: the whole line.
            end: where ``NCCL INFO`` begins.
            after: where what was said before that ends, at the earliest.
        """
        start = max(after, end - _MAX_PREFIX)
        left = line[start:end].rstrip()
        left, place = _cut_word(left)
        if not _PLACE.fullmatch(place):
            left = f"{left} {place}".rstrip() if left else place
        rest, word = _cut_word(left)
        found = _DEVICE.fullmatch(word)
        device = int(found[1]) if found else None
        if found:
            left = rest
        before, _, tid = left.rpartition(":")
        before, _, pid = before.rpartition(":")
        if not (_is_number(pid) and _is_number(tid)):
            return _Who("", None, None, device, start + len(left))
        host = match[0][::-1] if (match := _HOST_BACKWARDS.match(before[::-1])) else ""
        before = before[: len(before) - len(host)]
        is_clean = start == 0 and _WRAPPERS.fullmatch(before) is not None
        sure, glued = self._sure(host, before, is_clean=is_clean)
        return _Who(sure, int(pid), int(tid), device, start + len(before) + glued)

    def _know(self, host: str) -> None:
        if len(self._hosts) < _MAX_HOSTS:
            self._hosts.add(host)

    def _sure(self, host: str, before: str, *, is_clean: bool) -> tuple[str, int]:
        """The host as far as it is sure, and how many characters of another line are glued to it."""
        if is_clean or host in self._hosts:
            self._know(host)
            return host, 0
        known = [name for name in self._hosts if name and host.endswith(name)]
        if known:
            longest = max(known, key=len)
            return longest, len(host) - len(longest)
        return (host, 0) if before[-1:].isspace() or before[-1:] in ':>])"|' else ("", 0)


def _unwrapped(line: str) -> list[str]:
    """What a collector packed into JSON, whatever it calls the key; the line as it is where that is none.

    The same text under two keys is one: some collectors add ``message`` and keep ``log``.
    """
    # {"log":"node-a:26:27 [0] NCCL INFO Channel 00/0 : 0[0] -\u003e 1[1] via P2P/IPC\n","stream":"stderr","time":"…"}
    try:
        waiting: list[Any] = [json.loads(line)]
    except (ValueError, RecursionError):
        return [line]
    texts: dict[str, None] = {}
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and ("CCL" in value or "NET/" in value):
            texts[value] = None
    return [inner for text in texts for inner in text.split("\n")]


def _ends(tokens: list[re.Match[str]]) -> list[int]:
    """For each token, the end of the one before it."""
    return [0, *(token.end() for token in tokens[:-1])]


def _cut_word(text: str) -> tuple[str, str]:
    """Text without its last word, and that word."""
    head, _, word = text.rpartition(" ")
    return head.rstrip(), word


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _bare(line: str) -> Iterator[Line]:
    """What has no prefix at all."""
    if match := _BARE_VERSION.search(line):
        yield Line(INFO, line[match.start() :][:MAX_TEXT].strip())
    elif match := _BARE_COMPLETION.search(line):
        yield Line(WARN, line[match.start() :][:MAX_TEXT].strip())
    elif match := _BARE_INFO.search(line):
        yield Line(INFO, line[match.end() :][:MAX_TEXT].strip())
