r"""The exposition text, read line by line: one bad line loses that line and no more.

Why not prometheus_client's parser: it raises on the first bad line, so that one string field configured as a gauge
takes all GPUs with it; it renames the samples of everything that calls itself a counter; and it takes 150 ms for a
page of 3,000 samples. Pages in the field have all of this: label values that nobody escaped (dcgm-exporter up to 4.8.2
writes them with a text template), a label twice, text where a number belongs, a cut end, ``\r\n``, HELP and TYPE twice
or wrong (they are not read at all).

How a line is cut: the labels end at the **last** ``}`` of the line, the value follows. All before the value (the
*head*) is the same in each scrape, so what it means is kept from one page to the next, and a known line costs one
dictionary look-up and one ``float``. Heads that a page no longer has are forgotten with it.

Every step over the text moves forward and is never repeated, so the time is linear in the size of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Generic, NamedTuple, TypeVar

from straggler.model.reading import Problem
from straggler.sources.dcgm.reasons import Tally

Meaning = TypeVar("Meaning")

MAX_LINE_CHARACTERS = 65_536
MAX_LINES = 250_000

# DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-…"} 48
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

# {"DCGM_FI_DEV_GPU_TEMP",gpu="0"} 48                               (UTF-8 names, as Prometheus 3 negotiates them)
_QUOTED_NAME = re.compile(r'\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(?:,|\Z)', re.DOTALL)

# gpu="0", UUID="GPU-…", "app.kubernetes.io/name"="llm"             (2.0 puts a blank after the comma)
_LABEL = re.compile(
    r'[\s,]*([^\s="{},]+|"[^"\\]*(?:\\.[^"\\]*)*")\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(,|\Z)', re.DOTALL
)

# hpc_job="train "7b"",…                                            (up to 4.8.2: quotes in the value as they are)
_LABEL_START = re.compile(r'[\s,]*([^\s="{},]+)\s*=\s*"')
_AFTER_VALUE = re.compile(r'\s*(?:\Z|,[\s,]*(?:\Z|[^\s="{},]+\s*=\s*"))')

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n"}
_BETWEEN = " \t,"
_EXEMPLAR = " # {"


@dataclass(frozen=True, slots=True)
class Page(Generic[Meaning]):
    """What a text says."""

    samples: list[tuple[Meaning, float]]
    """In the order of the page: what the head means, and the value. Finite values only."""
    problems: tuple[Problem, ...]
    """By reason, one of ``reasons.LINE_REASONS``."""
    looks_like_metrics: bool
    """Whether at least one line has the form of a sample, whatever its value."""


class _Refused(NamedTuple):
    reason: str
    metric_like: bool = False
    """The line has the form of a sample; only its value is bad."""


class TextParser(Generic[Meaning]):
    """Reads pages of one origin, and remembers from one to the next what the heads of the lines mean.

    Args:
        interpret: name and labels of a sample → what it means; called once for each new head. Empty label values are
            kept; of a label that stands twice, the first.
        max_line_characters: longer lines are refused unread.
        max_lines: what follows is not read.
    """

    def __init__(
        self,
        interpret: Callable[[str, Mapping[str, str]], Meaning],
        *,
        max_line_characters: int = MAX_LINE_CHARACTERS,
        max_lines: int = MAX_LINES,
    ) -> None:
        self._interpret = interpret
        self._max_line_characters = max_line_characters
        self._max_lines = max_lines
        self._heads: dict[str, tuple[Meaning, bool]] = {}
        """Text up to the last brace → what it means, and whether a label stands twice in it."""

    def parse(self, text: str, *, complete: bool = True) -> Page[Meaning]:
        """Read one page. Never raises, whatever the text.

        Args:
            text: the whole body.
            complete: ``False`` if the body is known to be cut: a last line without its newline is then not believed,
                since ``19`` may have been ``1980``.
        """
        known, heads = self._heads, dict[str, tuple[Meaning, bool]]()
        samples: list[tuple[Meaning, float]] = []
        tally = Tally()
        metric_like = False
        lines = self._lines(text, tally, complete=complete)
        for line in lines:
            if not line or line[0] == "#":
                continue
            end = line.rfind("}") + 1
            before_value = line[:end]
            head = heads.get(before_value) or known.get(before_value)
            value = None if head is None else _number(line[end:])
            if head is None or value is None:
                found = self._read(line, end)
                if found is None:
                    continue
                if isinstance(found, _Refused):
                    tally.add(found.reason, line)
                    metric_like = metric_like or found.metric_like
                    continue
                before_value, head, value = found
            if before_value:
                heads[before_value] = head
            if head[1]:
                tally.add("duplicate_label", line)
            samples.append((head[0], value))
        self._heads = heads
        return Page(samples, tally.problems(), metric_like or bool(samples))

    def _lines(self, text: str, tally: Tally, *, complete: bool) -> list[str]:
        lines = text.removeprefix("\N{BYTE ORDER MARK}").split("\n")
        last = lines[-1]
        if last.strip() and (not complete or isinstance(self._read(last, last.rfind("}") + 1), _Refused)):
            tally.add("truncated_line", lines.pop())
        if len(lines) > self._max_lines:
            tally.add("too_many_lines", f"more than {self._max_lines} lines")
            del lines[self._max_lines :]
        return lines

    def _read(self, line: str, end: int) -> tuple[str, tuple[Meaning, bool], float] | _Refused | None:
        """Read a line that is new, or not of the common form.

        Returns:
            The text up to the value, if it may be remembered; what it means; the value. ``None``: nothing to read here.
        """
        stripped = line.strip()
        if not stripped or stripped[0] == "#":
            return None
        if len(line) > self._max_line_characters:
            return _Refused("line_too_long")
        if not end:
            return self._read_unlabelled(stripped)
        name, brace, inner = line[: end - 1].partition("{")
        name = name.strip()
        if brace and not name and (quoted := _QUOTED_NAME.match(inner)):
            name, inner = _unescape(quoted[1]), inner[quoted.end() :]
            is_named = True
        else:
            is_named = bool(brace) and _NAME.fullmatch(name) is not None
        labels = _strict_labels(inner) if is_named else None
        if labels is None and _EXEMPLAR in line:
            # An exemplar has braces of its own: foo_total{a="b"} 5 # {trace_id="KOO5"} 0.67
            shorter = line[: line.find(_EXEMPLAR)]
            found = self._read(shorter, shorter.rfind("}") + 1)
            if not isinstance(found, _Refused):
                return found and ("", *found[1:])
        if not is_named:
            return _Refused("bad_line")
        labels = labels if labels is not None else _unescaped_labels(inner)
        if labels is None:
            return _Refused("bad_labels")
        value = _value(line[end:])
        if isinstance(value, str):
            return _Refused(value, metric_like=True)
        by_name = dict(reversed(labels))
        return line[:end], (self._interpret(name, by_name), len(by_name) < len(labels)), value

    def _read_unlabelled(self, stripped: str) -> tuple[str, tuple[Meaning, bool], float] | _Refused:
        if "{" in stripped:
            return _Refused("bad_labels")
        name, *rest = stripped.split(None, 1)
        value = _value(rest[0]) if rest else ""
        if _NAME.fullmatch(name) is None or isinstance(value, str):
            return _Refused("bad_line")  # a sentence has this form too: no sample that lacks its number
        return "", (self._interpret(name, {}), False), value


def _number(text: str) -> float | None:
    """The common case, quickly: one finite number and nothing else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and "_" not in text and text.isascii() else None


def _value(text: str) -> float | str:
    """The value, which a timestamp may follow; or the reason why there is none."""
    if " # " in text:  # an exemplar
        text = text[: text.find(" # ")]
    words = text.split()
    if not words:
        return "missing_value"
    if len(words) > 2 or (len(words) == 2 and _number(words[1]) is None):
        return "not_a_number"
    value = _number(words[0])
    if value is not None:
        return value
    return "nan_or_inf" if words[0].lstrip("+-").lower() in ("nan", "inf", "infinity") else "not_a_number"


def _strict_labels(inner: str) -> list[tuple[str, str]] | None:
    """Labels as the format wants them; ``None`` if they are not."""
    labels: list[tuple[str, str]] = []
    position = 0
    while match := _LABEL.match(inner, position):
        name, value, _ = match.groups()
        if name[0] == '"':
            name = _unescape(name[1:-1])
        labels.append((name, _unescape(value) if "\\" in value else value))
        position = match.end()
    return None if inner[position:].strip(_BETWEEN) else labels


def _unescaped_labels(inner: str) -> list[tuple[str, str]] | None:
    """Labels whose values may hold quotes: a value ends at the first quote that another label, or nothing, follows.

    The same text can then mean two things; the format leaves no better choice.
    """
    labels: list[tuple[str, str]] = []
    position = 0
    while match := _LABEL_START.match(inner, position):
        quote = inner.find('"', match.end())
        while quote >= 0 and not _AFTER_VALUE.match(inner, quote + 1):
            quote = inner.find('"', quote + 1)
        if quote < 0:
            return None
        labels.append((match[1], inner[match.end() : quote]))
        comma = inner.find(",", quote + 1)
        position = comma + 1 if comma >= 0 else len(inner)
    return None if not labels or inner[position:].strip(_BETWEEN) else labels


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), value)
