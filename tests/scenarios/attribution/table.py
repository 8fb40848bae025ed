"""How often the named cause is right: ``make causes`` plays all cases and writes ``docs/causes.md``.

python -m scenarios.attribution.table --tuning      other seeds, and nothing is written
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path

from scenarios.attribution.faults import FAULTS, HELD_OUT_SEEDS, JITTERS, NETWORK_FAULTS, TUNING_SEEDS
from scenarios.attribution.judged import Judged, judged
from scenarios.attribution.machine import Case

PAGE = Path(__file__).parents[3] / "docs" / "causes.md"
_PARCEL = 40
"""Cases that one promtool takes at a time."""
OUTCOMES = ("right", "unknown", "wrong")

_MARK = "From here on written by `make causes`."
_HOW = """ What is simulated stands in `tests/scenarios/attribution/faults.py`,
each number with its source, written down before anything was tuned on it. One rank of eight has the faults; it is
judged two and a half minutes after they began, when the means of five minutes are half full of health. *Right* is what
makes most of the true gap; within ten points of half of it either of the two, or not to know. Cases in which the rank
is not slow enough to be told are left out: nobody asks. Seeds on which nothing was tuned.
"""


def whole(seeds: Sequence[int]) -> list[Case]:
    """All sources seen: each fault alone, and every two together."""
    alone = [
        Case(faults=(name,), jitter=jitter, seed=seed)
        for name in (*FAULTS, *NETWORK_FAULTS)
        for jitter in JITTERS
        for seed in seeds
    ]
    mixed = [
        Case(faults=pair, jitter=jitter, seed=seed)
        for pair in combinations(FAULTS, 2)
        for jitter in JITTERS
        for seed in seeds[: max(1, len(seeds) // 5)]
    ]
    return alone + mixed


def hidden(seeds: Sequence[int]) -> list[Case]:
    """Each fault alone where one source is missing everywhere."""
    return [
        Case(faults=(name,), jitter=jitter, seed=seed, hidden=source)
        for source in ("gpu", "prof", "host")
        for name in FAULTS
        for jitter in JITTERS[::2]
        for seed in seeds[: max(1, len(seeds) // 4)]
    ]


def play(cases: Sequence[Case], *, rules_of_each: int = 0) -> list[Judged]:
    """Play cases, on all processors.

    Args:
        cases: any number.
        rules_of_each: ask the rules too of every so many-th case; 0 for none.
    """
    with ProcessPoolExecutor() as pool:
        found = [one for parcel in pool.map(judged, _parcels(cases)) for one in parcel]
        if rules_of_each:
            by_rules = pool.map(_with_rules, _parcels(cases[::rules_of_each]))
            answers = {one.case: one for parcel in by_rules for one in parcel}
            found = [answers.get(one.case, one) for one in found]
    return found


def _parcels(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    return (cases[start : start + _PARCEL] for start in range(0, len(cases), _PARCEL))


def _with_rules(cases: Sequence[Case]) -> list[Judged]:
    with tempfile.TemporaryDirectory() as directory:
        return judged(cases, Path(directory))


def shares(found: Iterable[Judged]) -> dict[str, float]:
    """Of the cases in which somebody asks why: how many are right, unknown, wrong."""
    counts = Counter(one.outcome for one in found)
    asked = sum(counts[outcome] for outcome in OUTCOMES)
    return {outcome: counts[outcome] / asked for outcome in OUTCOMES} if asked else dict.fromkeys(OUTCOMES, 0.0)


def render(found: Sequence[Judged], blind: Sequence[Judged]) -> str:
    """The part of the page after its mark."""
    alone = [one for one in found if len(one.case.faults) == 1]
    mixed = [one for one in found if len(one.case.faults) == 2]
    compared = [one for one in found if one.rules]
    same = sum(one.rules == (one.policy,) for one in compared)
    wrong = [one for one in (*found, *blind) if one.outcome == "wrong"]
    return "\n".join(
        [
            _HOW,
            "| | cases | right | unknown | wrong |",
            "|---|---|---|---|---|",
            _row("one fault", alone),
            _row("two faults on the same rank", mixed),
            _row("**all**", found),
            "",
            "### By fault and jitter\n",
            "One fault: right / wrong in per cent.\n",
            "| fault | " + " | ".join(f"{jitter:.0%}" for jitter in JITTERS) + " |",
            "|---" * (len(JITTERS) + 1) + "|",
            *(
                _by_jitter(name, [one for one in alone if one.case.faults == (name,)])
                for name in (*FAULTS, *NETWORK_FAULTS)
            ),
            "",
            "Two faults, one of them this one: right / wrong in per cent.\n",
            "| fault | " + " | ".join(f"{jitter:.0%}" for jitter in JITTERS) + " |",
            "|---" * (len(JITTERS) + 1) + "|",
            *(_by_jitter(name, [one for one in mixed if name in one.case.faults]) for name in FAULTS),
            "",
            "### With a source missing\n",
            "One fault. What cannot be seen must become unknown, and nothing else be named instead.\n",
            "| missing | cases | right | unknown | wrong |",
            "|---|---|---|---|---|",
            _row("GPU: no DCGM, no NVML", [one for one in blind if one.case.hidden == "gpu"]),
            _row("PROF metrics: tensor activity, bytes", [one for one in blind if one.case.hidden == "prof"]),
            _row("the process: `/proc`, PSI", [one for one in blind if one.case.hidden == "host"]),
            "",
            "### Rules against embedded policy\n",
            f"The rules, in Prometheus' own evaluator, name the same one cause in {same} of {len(compared)} cases.\n",
            *(
                f"- `{one.case.run}`: rules {', '.join(one.rules)}, policy {one.policy}"
                for one in compared
                if one.rules != (one.policy,)
            ),
            "",
            "### Every wrong cause\n",
            "\n".join(f"- `{one.case.run}`, right: {', '.join(sorted(one.right))}. Told: {one.text}" for one in wrong)
            or "None.",
            "",
        ]
    )


def _row(title: str, found: Sequence[Judged]) -> str:
    asked = sum(one.outcome in OUTCOMES for one in found)
    return f"| {title} | {asked} | " + " | ".join(f"{share:.1%}" for share in shares(found).values()) + " |"


def _by_jitter(name: str, found: Sequence[Judged]) -> str:
    cells = [shares(one for one in found if one.case.jitter == jitter) for jitter in JITTERS]
    return (
        f"| `{name}` | " + " | ".join(f"{100 * cell['right']:.0f} / {100 * cell['wrong']:.0f}" for cell in cells) + " |"
    )


def main() -> None:
    """Play everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true", help="the seeds that formulas may be tuned on")
    options = parser.parse_args()
    seeds = TUNING_SEEDS if options.tuning else HELD_OUT_SEEDS
    found = play(whole(seeds), rules_of_each=9)
    page = render(found, play(hidden(seeds)))
    if options.tuning:
        print(page)
    else:
        head, mark, _ = PAGE.read_text(encoding="utf-8").partition(_MARK)
        PAGE.write_text(f"{head}{mark}{page}", encoding="utf-8")
        print(PAGE, *(f"{outcome} {share:.1%}" for outcome, share in shares(found).items()))


if __name__ == "__main__":
    main()
