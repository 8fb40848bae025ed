"""``straggler simulate``: what a straggler costs, worked out and not measured."""

from __future__ import annotations

import argparse
import json
from typing import Any

from straggler.detect import wording
from straggler.errors import ConfigError
from straggler.simulate.cost import (
    KERNEL_EFFICIENCY,
    ClusterCost,
    StragglerCost,
    cluster_cost,
    prefetch_saving,
    straggler_cost,
)
from straggler.simulate.diagram import REFERENCE, REFERENCE_RANKS, StepDiagram, lanes
from straggler.simulate.planning import ring_exchanges, training_seconds

_PARTS = ("data", "forward", "backward", "all_reduce", "optimizer")
_USUAL_FACTORS = (1.0, 1.5, 2.0)
_MOST_LANE = 100
_MOST = 1e15
"""Of any number: what is beyond it is a slip, and its products may be infinite."""
_MOST_RANKS = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags."""
    parser.epilog = (
        "One rank's forward and backward take --slow-factor times as long; all others wait for it. Useful utilization "
        "is the forward-and-backward share of the step, averaged over the GPUs, times the kernel efficiency."
    )
    parser.add_argument(
        "--slow-factor", type=float, action="append", metavar="F", help="may be given often (default 1, 1.5 and 2)"
    )
    parser.add_argument("--ranks", type=int, default=REFERENCE_RANKS, metavar="N", help="GPUs of the job (default 8)")
    for part in _PARTS:
        parser.add_argument(
            f"--{part.replace('_', '-')}-ms",
            type=float,
            default=getattr(REFERENCE, part) * 1000,
            metavar="MS",
            help=f"milliseconds of a step in {part.replace('_', '-')} (default %(default)g)",
        )
    parser.add_argument(
        "--kernel-efficiency",
        type=float,
        default=KERNEL_EFFICIENCY,
        metavar="E",
        help="part of the peak that kernels reach in forward and backward, 0 to 1 (default %(default)g)",
    )
    parser.add_argument(
        "--prefetch-exposed-ms",
        type=float,
        default=1.0,
        metavar="MS",
        help="loading that still shows with prefetching (default %(default)g)",
    )
    parser.add_argument("--hours", type=float, default=24.0, metavar="H", help="how long it stays (default 24)")
    parser.add_argument("--gpu-hour-price", type=float, metavar="P", help="of one GPU for one hour")
    parser.add_argument("--tokens", type=float, metavar="T", help="tokens of the whole run: also say how long it takes")
    parser.add_argument(
        "--tokens-per-second", type=float, metavar="R", help="throughput of one healthy GPU, for --tokens"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, seconds and shares of 0 to 1")


def run(arguments: argparse.Namespace) -> int:
    """Work the cases out and print them.

    Raises:
        ConfigError: a value that makes no sense.
    """
    _check(arguments)
    diagram = StepDiagram(**{part: getattr(arguments, f"{part}_ms") / 1000 for part in _PARTS})
    factors = arguments.slow_factor or list(_USUAL_FACTORS)
    try:
        costs = [straggler_cost(diagram, factor, arguments.ranks, arguments.kernel_efficiency) for factor in factors]
    except ValueError as error:
        raise ConfigError("simulate", str(error)) from error
    clusters = [cluster_cost(cost, arguments.hours, arguments.gpu_hour_price) for cost in costs]
    if arguments.json:
        print(json.dumps(_document(arguments, diagram, costs, clusters), indent=2, allow_nan=False))
    else:
        print(_text(arguments, diagram, costs, clusters))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    numbers = [(name, value) for name, value in vars(arguments).items() if isinstance(value, float)]
    numbers += [("slow_factor", factor) for factor in arguments.slow_factor or ()]
    for name, value in numbers:
        if not 0 <= value <= _MOST:
            raise ConfigError(name, f"{value} cannot be: a number of 0 to {_MOST:g} is meant")
    if arguments.ranks > _MOST_RANKS:
        raise ConfigError("ranks", f"{arguments.ranks} is not in 1 … {_MOST_RANKS}")
    if (arguments.tokens is None) != (arguments.tokens_per_second is None):
        raise ConfigError("tokens", "give --tokens and --tokens-per-second together")
    if arguments.tokens_per_second == 0:
        raise ConfigError("tokens_per_second", "0 tokens a second never end")


def _run_seconds(arguments: argparse.Namespace, cost: StragglerCost) -> float | None:
    if arguments.tokens is None:
        return None
    return training_seconds(arguments.tokens, arguments.tokens_per_second, cost.ranks, cost.efficiency)


def _document(
    arguments: argparse.Namespace, diagram: StepDiagram, costs: list[StragglerCost], clusters: list[ClusterCost]
) -> dict[str, Any]:
    return {
        "ranks": arguments.ranks,
        "phases_seconds": {part: getattr(diagram, part) for part in _PARTS},
        "healthy_step_seconds": _rounded(diagram.step),
        "kernel_efficiency": arguments.kernel_efficiency,
        "prefetch_saves_seconds": _rounded(prefetch_saving(diagram, arguments.prefetch_exposed_ms / 1000)),
        "ring_exchanges": ring_exchanges(arguments.ranks),
        "hours": arguments.hours,
        "gpu_hour_price": arguments.gpu_hour_price,
        "cases": [
            {
                "slow_factor": cost.slow_factor,
                "step_seconds": _rounded(cost.step),
                "efficiency": _rounded(cost.efficiency),
                "straggler_costs_seconds": _rounded(cost.step - diagram.step),
                "straggler_own_seconds": _rounded(cost.straggler_own),
                "peer_own_seconds": _rounded(cost.peer_own),
                "peer_wait_seconds": _rounded(cost.peer_wait),
                "lost_gpu_seconds_per_step": _rounded(cost.lost_gpu_seconds_per_step),
                "lost_share": _rounded(cost.lost_share),
                "reported_utilization": _rounded(cost.reported_utilization),
                "useful_utilization": _rounded(cost.useful_utilization),
                "gpu_hours": _rounded(cluster.gpu_hours),
                "lost_gpu_hours": _rounded(cluster.lost_gpu_hours),
                "lost_money": _rounded(cluster.lost_money),
                "run_seconds": _rounded(_run_seconds(arguments, cost)),
            }
            for cost, cluster in zip(costs, clusters, strict=True)
        ],
    }


def _text(
    arguments: argparse.Namespace, diagram: StepDiagram, costs: list[StragglerCost], clusters: list[ClusterCost]
) -> str:
    parts = ", ".join(f"{getattr(diagram, part) * 1000:g} {part.replace('_', '-')}" for part in _PARTS)
    ranks = arguments.ranks
    lines = [f"{wording.count(ranks, 'GPU')}; one step in ms: {parts} = {diagram.step * 1000:g}", ""]
    columns: list[tuple[str, list[str]]] = [
        ("one rank slow by", [f"{cost.slow_factor:g} x" for cost in costs]),
        ("step of every rank", [wording.seconds(cost.step) for cost in costs]),
        ("efficiency", [f"{cost.efficiency:.1%}" for cost in costs]),
        ("own time of it / of a peer", [_pair(cost.straggler_own, cost.peer_own) for cost in costs]),
        ("peers blocked", [wording.seconds(cost.peer_wait) for cost in costs]),
        ("reported utilization", [f"{cost.reported_utilization:.1%}" for cost in costs]),
        (f"useful (kernels at {arguments.kernel_efficiency:g})", [f"{cost.useful_utilization:.1%}" for cost in costs]),
        ("GPU time lost", [f"{cost.lost_share:.1%}" for cost in costs]),
        (f"GPU-hours lost in {arguments.hours:g} h", [f"{cluster.lost_gpu_hours:,.1f}" for cluster in clusters]),
    ]
    if arguments.gpu_hour_price is not None:
        columns.append(
            (f"at {arguments.gpu_hour_price:g} an hour", [f"{cluster.lost_money:,.2f}" for cluster in clusters])
        )
    if arguments.tokens is not None:
        times = [wording.seconds(_run_seconds(arguments, cost) or 0.0) for cost in costs]
        columns.append((f"{arguments.tokens:.3g} tokens take", times))
    width = max(len(name) for name, _ in columns)
    cell = max(len(text) for _, texts in columns for text in texts) + 2
    lines += [f"{name:<{width}}" + "".join(f"{text:>{cell}}" for text in texts) for name, texts in columns]
    worst = max(costs, key=lambda cost: cost.slow_factor)
    if worst.step * 1000 <= _MOST_LANE:
        drawn = lanes(diagram, worst.slow_factor)
        lines += ["", f"usual rank  {drawn['usual']}", f"slow rank   {drawn['slow']}   ({worst.slow_factor:g} x)"]
        lines += ["d data, f forward, b backward, . waiting for the slow rank, a all-reduce, o optimizer; 1 ms each"]
    saved = prefetch_saving(diagram, arguments.prefetch_exposed_ms / 1000)
    straggler = f"at {worst.slow_factor:g} x the straggler costs {wording.seconds(worst.step - diagram.step)}"
    exposed = f"{arguments.prefetch_exposed_ms:g} ms stay exposed"
    lines += ["", f"Prefetching would save {wording.seconds(saved)} a step ({exposed}); {straggler}."]
    if ranks > 1:
        lines.append(
            f"A ring all-reduce of {ranks} ranks is {ring_exchanges(ranks)} exchanges of 1/{ranks} of the bytes."
        )
    return "\n".join(lines)


def _rounded(value: float | None) -> float | None:
    """Nine digits: 0.026 and not 0.026000000000000002."""
    return None if value is None else float(f"{value:.9g}")


def _pair(first: float, second: float) -> str:
    return f"{first * 1000:g} / {second * 1000:g} ms"
