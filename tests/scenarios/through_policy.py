"""A course, judged by the embedded policy: history, verdicts and persistence, look by look."""

from __future__ import annotations

from fakes import FakeClock
from scenarios.course import Look
from scenarios.told import Told
from straggler.detect.history import History
from straggler.detect.persistence import Persistence, Stage
from straggler.detect.policy import DEFAULT
from straggler.detect.verdict import Verdict
from straggler.detect.verdicts import judge


class PolicyJudge:
    """Judges one run."""

    def __init__(self) -> None:
        self._clock = FakeClock(now=0.0, ticks=0.0)
        self._history = History(DEFAULT)
        self._persistence = Persistence(DEFAULT, self._clock)
        self._told: dict[tuple[str, str, str], Told] = {}

    def look(self, look: Look) -> None:
        """Take in all pages of one moment."""
        self._clock.advance(look.at - self._clock.monotonic())
        now = self._clock.monotonic()
        views = [view for page in look.pages for view in page.views]
        samples = self._history.observe(now, views)
        for standing in self._persistence.update(judge(samples, DEFAULT, self._history.past(now, samples))):
            if standing.stage is Stage.FIRING:
                what = (standing.verdict.verdict, standing.verdict.severity, _about(standing.verdict))
                before = self._told.get(what)
                self._told[what] = Told(*what, before.first if before else now, now)

    @property
    def told(self) -> list[Told]:
        """All that has fired so far."""
        return list(self._told.values())


def _about(verdict: Verdict) -> str:
    if verdict.verdict == "blind":
        return verdict.reason
    subject = {
        "straggling_rank": verdict.rank,
        "straggling_node": verdict.node,
        "heavy_stage": verdict.peer_group,
        "throttled_gpu": verdict.rank,
        "degraded_gpu": verdict.rank,
    }.get(verdict.verdict)
    return "" if subject is None else str(subject)
