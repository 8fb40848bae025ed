"""Charts that stand on more than one dashboard."""

from __future__ import annotations

from dashboards.src.grafana import Json
from dashboards.src.kinds import stat, timeseries
from dashboards.src.panel import CAUSES, CRITICAL, GOOD, WAIT, WARNING, colours, fixed, override, query, words_for
from dashboards.src.queries import phases_per_step, why

_OF_A_RANK = {"none": ("not slow", GOOD), "hung": ("it hangs", CRITICAL)}
_OF_A_RUN = {
    **_OF_A_RANK,
    "none": ("no slow rank", GOOD),
    "link": ("a bad link", WARNING),
    "transport": ("poor transport", WARNING),
}


def cause(number: int, selector: str, *, size: tuple[int, int], run: bool) -> Json:
    """Why one rank is slow, in a word.

    Args:
        number: panel id.
        selector: of that rank.
        size: width and height.
        run: whether this is about a run, and not about one rank whoever it is.
    """
    return stat(
        number,
        "Why",
        "What explains most of the slow rank's gap, as its alert says. heat, power brake, power cap, clocks set low: "
        "the clock is below the peers'. no free CPU, host memory, data loading: the host. PCIe link, GPU errors: the "
        "machine. more work: the batch or the model, no fault at all. unknown: nothing that is measured explains "
        "it. Where no rank is slow, a bad link or a poor transport may still slow all of them.",
        [query(why(selector, links=run), "{{cause}}", instant=True)],
        unit="none",
        words=True,
        size=size,
        overrides=words_for({**CAUSES, **(_OF_A_RUN if run else _OF_A_RANK)}),
    )


PHASES = {
    "data": "yellow",
    "h2d": "light-orange",
    "forward": "light-blue",
    "backward": "blue",
    "optimizer": "purple",
    "other": "super-light-purple",
    "checkpoint": "dark-green",
    "eval": "light-green",
    "wait": WAIT,
}
"""Each phase in the same colour wherever it is drawn."""


def phase_stack(number: int, title: str, description: str, selector: str) -> Json:
    """Where one rank spends a step. ``selector``: of that rank."""
    return timeseries(
        number,
        title,
        description,
        [query(phases_per_step(selector), "{{phase}}")],
        stacked=True,
        unit="s",
        low=0,
        overrides=colours(PHASES),
    )


def utilization(number: int, reported: str, useful: str, *, size: tuple[int, int]) -> Json:
    """The gap between what is reported and what is useful: two queries for ratios."""
    return timeseries(
        number,
        "Reported against useful utilization",
        "Reported (GPU_UTIL) counts a GPU that waits in a collective as busy; useful (SM_ACTIVE) counts cycles in "
        "which work was resident. The red area is paid for and not used; it widens when a straggler appears. Both are "
        "means over all GPUs: this is about the waste of the whole, not about one GPU.",
        [query(reported, "reported"), query(useful, "useful")],
        unit="percentunit",
        low=0,
        high=1,
        size=size,
        overrides=[
            override("reported", color=fixed("red"), custom__fillBelowTo="useful", custom__fillOpacity=20),
            override("useful", color=fixed("green")),
        ],
    )
