"""Every error that this project raises on purpose.

The first three are the three states of a source: not here, here but broken, readable but
not understood. They stay apart up to the metric ``straggler_exporter_source_state``.
"""

from __future__ import annotations


class StragglerError(Exception):
    """Base of all errors below. Its text names the thing and says what to do."""


class SourceAbsentError(StragglerError):
    """The source is not on this machine. Normal: a debug line, never a warning."""


class SourceFailedError(StragglerError):
    """The source is here but broken, and the text says how.

    Args:
        reason: one of the source's listed reasons; it becomes a label.
        detail: one line for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ParseError(StragglerError):
    """A text is not in the form that it should have.

    Args:
        what: what was being parsed, e.g. ``"rate of mlx5_0 port 1"``.
        text: the text, shortened to 120 characters in the message.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"{what}: cannot read {text[:120]!r}")
        self.what = what
        self.text = text


class WireError(StragglerError):
    """Bytes that are no valid part of a ring file or of a push.

    Args:
        reason: one of ``wire.layout.WIRE_REASONS``; it becomes a label.
        detail: what was found, for the log.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class ConfigError(StragglerError):
    """A setting that cannot be used.

    Args:
        key: the setting, spelt as in the YAML file.
        problem: what is wrong and what to write instead.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class RingError(StragglerError):
    """The hook cannot write its ring file, or must not. The text says what was found and what to do."""
