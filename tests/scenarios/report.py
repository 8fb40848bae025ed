"""docs/verdicts.md: the figures, as they come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from scenarios.hours import Hours
from scenarios.score import Score, Tally, score, share_of
from straggler.detect.verdict import VERDICTS

if TYPE_CHECKING:
    from scenarios.suite import Outcome

_INTRODUCTION = """\
# How often the verdicts are right

Made by `make verdicts`; do not edit. What is simulated, how, and what it cannot show: `docs/decisions/0110-*.md`.

Every scenario is a run of a quarter of an hour to two hours, simulated step by step with an exact barrier, watched by
the real liveness code, and turned into series by the real metric families. The shipped rules are evaluated by
Prometheus' own engine (`promtool test rules`: its `for`, `keep_firing_for`, staleness and order of groups) every 15 s,
groups with a longer interval too: live, these add up to that interval. The embedded policy looks at the same pages at
the same moments. The scenarios were written down before any of them had run, and thresholds were tuned on other seeds
than those of the figures below.
"""


def render(outcomes: Sequence[Outcome], curve: Sequence[Outcome], hours: Hours) -> str:
    """The whole page."""
    result = score(outcomes)
    names = sorted({outcome.scenario.name for outcome in outcomes})
    parts = [
        _INTRODUCTION,
        f"{len(names)} scenarios x {result.runs // len(names)} held-out seeds = {result.runs} runs.\n",
        "## Precision, recall, delay\n\n" + "\n".join(_verdicts(result)) + "\n",
        "## Confusion matrix of the rules\n\n" + "\n".join(_matrix(result)) + "\n",
        "## Pages\n\n" + "\n".join(_pages(result)) + "\n",
        "## How slow is slow enough\n\n" + "\n".join(_curve(curve)) + "\n",
        "## Healthy hours\n\n" + "\n".join(_hours(hours)) + "\n",
        "## Rules against embedded policy\n\n" + "\n".join(_agreement(result)) + "\n",
        "## Every scenario\n\n" + "\n".join(_scenarios(outcomes)) + "\n",
        "## Every mistake\n\n" + ("\n".join(f"- `{line}`" for line in result.mistakes) or "None.") + "\n",
    ]
    return "\n".join(parts)


def _verdicts(result: Score) -> Iterator[str]:
    yield "Delay: from the first bad moment to the first alert, median, the rules' beside the embedded policy's."
    yield "*Least*: what the policy itself demands, if every step and every look came just in time: half a window of"
    yield "steps where steps are compared, then the patience (`for`)."
    yield ""
    yield "| verdict | deserved | precision | recall | embedded: precision | recall | delay | embedded | least |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for verdict in VERDICTS:
        rules = result.tallies["rules"].get(verdict, Tally())
        policy = result.tallies["policy"].get(verdict, Tally())
        yield (
            f"| `{verdict}` | {rules.right + rules.missed} | {rules.precision:.3f} | {rules.recall:.3f} "
            f"| {policy.precision:.3f} | {policy.recall:.3f} | {_seconds(rules.delays)} | {_seconds(policy.delays)} "
            f"| {_seconds(rules.minima)} |"
        )


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.0f} s" if values else "-"


def _matrix(result: Score) -> Iterator[str]:
    columns = [verdict for verdict in (*VERDICTS, "nothing") if any(key[1] == verdict for key in result.matrix)]
    rows = [verdict for verdict in (*VERDICTS, "nothing") if any(key[0] == verdict for key in result.matrix)]
    yield "Rows: what the run deserves. Columns: what was told. A run that deserves two verdicts stands in two rows."
    yield ""
    yield "| | " + " | ".join(column.replace("_", " ") for column in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for row in rows:
        yield (
            f"| {row.replace('_', ' ')} | "
            + " | ".join(str(result.matrix[row, column] or "·") for column in columns)
            + " |"
        )


def _pages(result: Score) -> Iterator[str]:
    yield "Critical alerts: those that should wake somebody."
    yield ""
    yield "| | right | missed | wrong |"
    yield "|---|---|---|---|"
    for judge, title in (("rules", "rules"), ("policy", "embedded policy")):
        pages = result.pages[judge]
        yield f"| {title} | {pages['right']} | {pages['missed']} | {pages['wrong']} |"


def _curve(curve: Sequence[Outcome]) -> Iterator[str]:
    yield "One rank of eight is slow by so much from minute 6 to 16, with 3 % jitter from step to step and 1 % between"
    yield "GPUs of one kind, which may add to it or hide some of it; the share of runs in which it is told."
    yield ""
    yield "| slower by | warning (rules) | page (rules) | warning (embedded) | page (embedded) | runs |"
    yield "|---|---|---|---|---|---|"
    for name in dict.fromkeys(outcome.scenario.name for outcome in sorted(curve, key=_factor)):
        runs = [outcome for outcome in curve if outcome.scenario.name == name]
        shares = [
            share_of(runs, told, severity)
            for told in (lambda outcome: outcome.rules, lambda outcome: outcome.policy)
            for severity in ("warning", "critical")
        ]
        yield (
            f"| {name.removeprefix('curve, ')} | "
            + " | ".join(f"{share:.0%}" for share in shares)
            + f" | {len(runs)} |"
        )


def _factor(outcome: Outcome) -> float:
    return float(getattr(outcome.scenario.troubles[0], "factor", 0.0))


def _hours(hours: Hours) -> Iterator[str]:
    critical = sum(count for (_, severity), count in hours.alerts.items() if severity == "critical")
    others = [f"{count} `{name}`" for (name, severity), count in sorted(hours.alerts.items()) if severity != "critical"]
    yield f"{hours.run_hours} run-hours of healthy training ({hours.rank_steps:,} steps of single ranks), every run"
    yield "drawn anew: 2 to 32 ranks, steps of 1 to 19 s, up to 8 % jitter, compilation, checkpoints, evaluation,"
    yield "garbage collection, uneven batches; simulated step by step and judged by the embedded policy, which agrees"
    yield "with the rules as shown below."
    yield ""
    yield f"Critical alerts: **{critical}**. Others, by run: {', '.join(others) or 'none'}."


def _agreement(result: Score) -> Iterator[str]:
    same = result.runs - len(result.disagreements)
    yield f"{same} of {result.runs} runs have the same verdicts, severities and subjects from both. Left out: blindness"
    yield "of a GPU source (DCGM stale, profiling stuck), which the embedded policy leaves to the sidecar's page."
    for line in result.disagreements:
        yield f"- `{line}`"


def _scenarios(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "What each run deserves, and in how many of its runs rules and embedded policy told that and nothing else."
    yield ""
    yield "| scenario | ranks | minutes | deserves | right |"
    yield "|---|---|---|---|---|"
    for name in sorted({outcome.scenario.name for outcome in outcomes}):
        runs = [outcome for outcome in outcomes if outcome.scenario.name == name]
        scenario = runs[0].scenario
        deserved = dict.fromkeys(
            f"{expect.verdict.replace('_', ' ')} {expect.about}".strip() for expect in scenario.expect
        )
        right = sum(not score([outcome]).mistakes for outcome in runs)
        yield (
            f"| {name} | {scenario.ranks} | {scenario.minutes:.0f} | {', '.join(deserved) or 'nothing'} "
            f"| {right} of {len(runs)} |"
        )
