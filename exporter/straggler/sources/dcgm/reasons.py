"""Why something of dcgm-exporter is refused, and what cannot be seen. All values of the label ``reason``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from straggler.model.reading import Problem

LINE_REASONS: Final = (
    "bad_line",  # no sample, no comment
    "bad_labels",  # a name, but its labels cannot be read
    "missing_value",
    "not_a_number",  # e.g. ERROR - FAILED TO CONVERT TO STRING
    "nan_or_inf",
    "truncated_line",  # the page ends in the middle of it
    "line_too_long",
    "too_many_lines",  # the rest of the page is not read
    "duplicate_label",  # the sample stays, with the first value of the label
    "bad_encoding",  # the page is not UTF-8: the bytes are replaced, the samples stay
)
"""One line is lost, or a part of it; the page is not."""

PAGE_REASONS: Final = (
    "empty_body",
    "not_metrics",  # HTML, JSON or plain text
    "no_gpu_samples",  # metrics, but none of a GPU: another exporter's page
)
"""The whole page is useless."""

SAMPLE_REASONS: Final = (
    "no_uuid",
    "bad_gpu_instance",
    "sentinel",  # DCGM's blank, not found, not supported, not permitted
    "impossible_value",
    "conflicting_duplicates",  # two values for one field of one GPU: neither is believed
    "meaningless_under_mig",  # utilization of a GPU instance: NVML has none, exporters print 0
    "gpu_on_two_pages",
)
"""One sample is not believed."""

FETCH_REASONS: Final = (
    "refused",  # nobody listens there
    "unreachable",  # no route, no such name
    "timeout",
    "tls",
    "auth",  # 401 or 403
    "http_status",
    "redirect",  # never followed: the page must be what was configured
    "too_large",
    "truncated",  # the connection ended before the body did; what came is used
    "protocol",  # what answers does not speak HTTP
    "password_unreadable",
    "bad_url",
)
"""The page did not come."""

BLIND_REASONS: Final = (
    "sm_active_absent",
    "prof_stuck_zero",
    "gpu_missing",
    "gpu_frozen",
    "values_frozen",
    "metric_missing",
    "gpu_util_unit_unknown",
    "page_incomplete",
)
"""Conditions, as long as they last."""

DCGM_REASONS: Final = (*LINE_REASONS, *PAGE_REASONS, *SAMPLE_REASONS, *FETCH_REASONS, *BLIND_REASONS)

MAX_DETAIL_CHARACTERS: Final = 400


class Tally:
    """Problems by reason, with the first detail of each: a page with ten thousand bad lines is one entry."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, reason: str, detail: str = "", count: int = 1) -> None:
        """Count once more. The detail is cut, and made one printable line."""
        known = self._found.get(reason)
        self._found[reason] = (shown(detail), count) if known is None else (known[0], known[1] + count)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Count what somebody else found."""
        for problem in problems:
            self.add(problem.reason, problem.detail, problem.count)

    def problems(self) -> tuple[Problem, ...]:
        """In the order in which the reasons came up."""
        return tuple(
            Problem(reason=reason, detail=detail, count=count) for reason, (detail, count) in self._found.items()
        )

    def __contains__(self, reason: str) -> bool:
        return reason in self._found


def shown(text: str) -> str:
    """Foreign text as one printable line of bounded length."""
    cut = text if len(text) <= MAX_DETAIL_CHARACTERS else text[: MAX_DETAIL_CHARACTERS - 1] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)
