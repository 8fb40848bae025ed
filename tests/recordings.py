"""Recorded jobs for tests, made from what is known of three real ones; the seed says which noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from straggler.model.recorded import RecordedStep

Own = Callable[[int, int, random.Random], float]
"""Own time in seconds of a rank (second argument) in a step (first)."""


def job(
    ranks: int,
    steps: int,
    own: Own,
    *,
    groups: Sequence[str] | None = None,
    ranks_per_node: int | None = 8,
    rest: float = 0.2,
    seed: int = 0,
    first_step: int = 0,
    began: float | None = None,
) -> list[RecordedStep]:
    """A synchronous job: each step lasts as long as the slowest rank's own time and ``rest``.

    Args:
        ranks: how many.
        steps: how many.
        own: own time of a rank in a step.
        groups: peer group of each rank; one group by default.
        ranks_per_node: nodes in the order of ranks; ``None`` leaves them unknown.
        rest: seconds in which all are blocked: collectives, bubbles.
        seed: of the noise.
        first_step: number of the first step.
        began: when it began, epoch seconds; ``None`` leaves times unknown.
    """
    rng = random.Random(seed)
    rows: list[RecordedStep] = []
    now = began
    for step in range(steps):
        times = [own(step, rank, rng) for rank in range(ranks)]
        wall = max(times) + rest
        now = None if now is None else now + wall
        rows += [
            RecordedStep(
                step=first_step + step,
                rank=rank,
                wall_ns=round(wall * 1e9),
                own_ns=round(times[rank] * 1e9),
                wait_ns=round((wall - times[rank]) * 1e9),
                peer_group=groups[rank] if groups else "0",
                node=f"n{rank // ranks_per_node}" if ranks_per_node else "",
                end=now,
                phase_ns={},
            )
            for rank in range(ranks)
        ]
    return rows


def healthy(jitter: float = 0.03, base: float = 1.0) -> Own:
    """All ranks alike, with noise of this standard deviation."""
    return lambda _step, _rank, rng: base * max(0.1, rng.gauss(1.0, jitter))


def slow_rank(slow: int, factor: float, since: int = 0, until: int = 10**9, jitter: float = 0.03) -> Own:
    """One rank takes ``factor`` times as long from step ``since`` to before ``until``."""

    def own(step: int, rank: int, rng: random.Random) -> float:
        usual = max(0.1, rng.gauss(1.0, jitter))
        return usual * factor if rank == slow and since <= step < until else usual

    return own


def bad_worker(seed: int = 0) -> list[RecordedStep]:
    """One worker 2.35 times as slow: 4 stages of 4 ranks, 44 steps of 46 s, as in the recorded job with that cause."""

    def own(_step: int, rank: int, rng: random.Random) -> float:
        return 19.0 * (2.35 if rank == 0 else 1.0) * (1.05 if rank >= 12 else 1.0) * rng.gauss(1.0, 0.005)

    return job(16, 44, own, groups=[str(rank // 4) for rank in range(16)], rest=1.5, seed=seed, ranks_per_node=None)


def uneven_sequences(seed: int = 0) -> list[RecordedStep]:
    """Uneven sequences: 64 ranks in 2 stages, the second heavier, 43 steps; in each, others are up to 34 % slow."""

    def own(_step: int, rank: int, rng: random.Random) -> float:
        longer = rng.uniform(0.1, 0.34) if rng.random() < 0.15 else rng.uniform(0.0, 0.03)
        return 10.0 * (1.51 if rank >= 32 else 1.0) * (1 + longer)

    return job(64, 43, own, groups=[str(rank // 32) for rank in range(64)], rest=1.0, seed=seed)


def heavy_last_stage(seed: int = 0) -> list[RecordedStep]:
    """A last stage of 1.63 times the work: 8 ranks, 4 stages of 2, 32 steps."""

    def own(_step: int, rank: int, rng: random.Random) -> float:
        return 3.0 * (1.63 if rank >= 6 else 1.0) * rng.gauss(1.0, 0.002)

    return job(8, 32, own, groups=[str(rank // 2) for rank in range(8)], rest=0.5, seed=seed, ranks_per_node=None)


def write_csv(path: Path, rows: Sequence[RecordedStep]) -> Path:
    """As another tool would have written it: seconds, a column ``stage``."""
    lines = ["step,rank,wall,own,stage,host,time"]
    lines += [
        f"{row.step},{row.rank},{row.wall_ns / 1e9!r},{(row.own_ns or 0) / 1e9!r},{row.peer_group},{row.node},"
        f"{'' if row.end is None else repr(row.end)}"
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
