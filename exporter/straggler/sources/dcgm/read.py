"""dcgm-exporter as a source: its pages read, parsed and judged, as one Reading."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from straggler.errors import SourceFailedError
from straggler.model.clock import Clock
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.reading import Reading, SourceState
from straggler.sources.dcgm.eras import Era
from straggler.sources.dcgm.fetch import Access, read_page
from straggler.sources.dcgm.freshness import STALE_AFTER_SECONDS, Freshness
from straggler.sources.dcgm.parse import GpuPage, GpuPageParser
from straggler.sources.dcgm.reasons import Tally

SOURCE: Final = "dcgm"


@dataclass(frozen=True, slots=True)
class _Look:
    """One page, once."""

    page: GpuPage
    complete: bool
    failure: str = ""
    """Why there is no page: one of ``FETCH_REASONS`` or ``PAGE_REASONS``; its details are in the page's problems."""


class DcgmSource:
    """The pages of dcgm-exporter that are about this node's GPUs.

    Args:
        urls: of the pages; usually one. Several are read at the same time, and of a GPU on two the first counts.
        clock: its monotonic side times the look and the freshness of values.
        access: credentials, certificates, limits; the same for all pages.
        required: whether somebody asked for these URLs. If not, they are a guess, and nobody listening there is
            ``absent`` instead of ``failed``.
        stale_after_seconds: how long values may stand still while ranks step; more than DCGM's interval.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        clock: Clock,
        access: Access | None = None,
        required: bool = True,
        stale_after_seconds: float = STALE_AFTER_SECONDS,
    ) -> None:
        self._clock = clock
        self._access = access or Access()
        self._required = required
        self._pages = [(url, GpuPageParser()) for url in urls]
        self._freshness = Freshness(clock, stale_after_seconds=stale_after_seconds)

    def collect(self, timeout_seconds: float, *, stepping: bool) -> Reading[GpuFacts]:
        """Look once. Raises nothing that is to be expected; not to be called by two threads at a time.

        Args:
            timeout_seconds: for all pages together.
            stepping: whether ranks of this node step now: values that stand still meanwhile are frozen.
        """
        began = self._clock.monotonic()
        reading = self._collect(timeout_seconds, stepping=stepping)
        return replace(reading, duration_seconds=self._clock.monotonic() - began)

    def _collect(self, timeout_seconds: float, *, stepping: bool) -> Reading[GpuFacts]:
        looks = self._look(timeout_seconds)
        if not self._required and all(look.failure == "refused" for look in looks):
            return Reading(source=SOURCE, state=SourceState.ABSENT)
        problems, blind = Tally(), Tally()
        facts: dict[GpuKey, GpuFacts] = {}
        seen = Era.ANY
        for look in looks:
            problems.extend(look.page.problems)
            blind.extend(look.page.blind)
            seen |= look.page.seen
            for gpu in look.page.facts:
                if gpu.key in facts:
                    problems.add("gpu_on_two_pages", f"{gpu.key.uuid}: only the first page is used for it")
                facts.setdefault(gpu.key, gpu)
        if not facts:
            state = SourceState.FAILED if looks else SourceState.ABSENT
            return Reading(source=SOURCE, state=state, problems=problems.problems())
        missing = sum(not look.complete for look in looks)
        if missing:
            blind.add("page_incomplete", "a page is missing, or a part of one", missing)
        judged = self._freshness.judge(tuple(facts.values()), stepping=stepping, complete=not missing, seen=seen)
        blind.extend(judged.blind)
        return Reading(
            source=SOURCE,
            state=judged.state,
            facts=judged.facts,
            problems=problems.problems(),
            blind=blind.problems(),
        )

    def _look(self, timeout_seconds: float) -> list[_Look]:
        if len(self._pages) <= 1:
            return [self._look_at(url, parser, timeout_seconds) for url, parser in self._pages]
        urls, parsers = zip(*self._pages, strict=True)
        with ThreadPoolExecutor(len(self._pages), thread_name_prefix="dcgm") as threads:
            return list(threads.map(self._look_at, urls, parsers, repeat(timeout_seconds)))

    def _look_at(self, url: str, parser: GpuPageParser, timeout_seconds: float) -> _Look:
        tally = Tally()
        try:
            body = read_page(url, self._access, timeout_seconds)
        except SourceFailedError as error:
            tally.add(error.reason, error.detail)
            return _Look(GpuPage(problems=tally.problems()), complete=False, failure=error.reason)
        page = parser.parse(body.text, complete=body.complete)
        tally.extend(page.problems)
        if not body.complete:
            tally.add("truncated", "the connection ended before the page did")
        if not body.is_utf8:
            tally.add("bad_encoding", "the page is not UTF-8")
        complete = body.complete and not page.refused and "too_many_lines" not in tally
        return _Look(replace(page, problems=tally.problems()), complete=complete, failure=page.refused)
