"""Runs whose own shape costs: nobody is to blame, and nobody must be woken."""

from __future__ import annotations

from scenarios.vocabulary import Everywhere, Expect, Gpus, Hot, Loading, Scenario, Slow, Stalls, Uneven

HEAVY, ROTATING = "heavy_stage", "rotating_imbalance"

SHAPE: tuple[Scenario, ...] = (
    Scenario(
        name="heavy last stage, known",
        ranks=16,
        per_node=4,
        stages=(1.0, 1.0, 1.0, 1.4),
        expect=(Expect(HEAVY, "info", "3"),),
        paged=False,
    ),
    Scenario(
        name="heavy last stage, unknown",
        ranks=32,
        per_node=4,
        stages=(1.0, 1.0, 1.0, 1.4),
        known_stages=False,
        expect=(Expect(HEAVY, "warning", "0"),),
        paged=False,
    ),
    Scenario(
        name="light stages, known",
        ranks=16,
        per_node=4,
        stages=(1.0, 1.02, 1.0, 1.04),
        paged=False,
    ),
    Scenario(
        name="many slow ranks on many nodes",
        ranks=32,
        troubles=(Slow(ranks=(1, 6, 9, 14, 17, 22, 25, 30), factor=1.25),),
        expect=(Expect(HEAVY, "warning", "0"),),
        paged=False,
    ),
    Scenario(
        name="majority slow",
        ranks=32,
        troubles=(Slow(ranks=tuple(range(8, 28)), factor=1.30),),
        expect=(Expect(HEAVY, "warning", "0"),),
        paged=False,
    ),
    Scenario(
        name="uneven sequence lengths",
        ranks=32,
        troubles=(Uneven(sigma=0.18),),
        expect=(Expect(ROTATING),),
        paged=False,
    ),
    Scenario(
        name="hot experts",
        ranks=16,
        troubles=(Hot(factor=1.6, steps=3),),
        expect=(Expect(ROTATING),),
        paged=False,
    ),
    Scenario(
        name="rotating loader stalls",
        troubles=(Stalls(seconds=2.0, chance=0.03, phase="data"),),
        expect=(Expect(ROTATING),),
        paged=False,
    ),
    Scenario(
        name="loader too slow for all",
        troubles=(Loading(share=0.35),),
        expect=(Expect("input_stall"),),
        paged=False,
    ),
    Scenario(
        name="loader becomes too slow",
        troubles=(Loading(share=0.40, begins=6.0),),
        expect=(Expect("input_stall"),),
        paged=False,
    ),
    Scenario(
        name="all slower than before",
        troubles=(Everywhere(own=1.35, begins=50.0),),
        minutes=75.0,
        expect=(Expect("slow_everywhere"),),
        paged=False,
    ),
    Scenario(
        name="all slower than before, one rank slow all along",
        ranks=16,
        troubles=(Everywhere(own=1.35, begins=50.0), Slow(ranks=(11,), factor=1.30, begins=0.0)),
        minutes=75.0,
        expect=(
            Expect("slow_everywhere"),
            Expect("straggling_rank", "warning", "11"),
            Expect("straggling_rank", "critical", "11"),
        ),
    ),
    Scenario(
        name="all a tenth slower than before",
        troubles=(Everywhere(own=1.10, begins=50.0),),
        minutes=75.0,
        paged=False,
    ),
    Scenario(
        name="network slower than before",
        troubles=(Everywhere(exchange=3.5, begins=50.0),),
        minutes=75.0,
        expect=(Expect("slow_transport"),),
        paged=False,
    ),
    Scenario(
        name="network slow from the first step",
        exchange_share=0.65,
        expect=(Expect("slow_transport", "info"),),
        paged=False,
    ),
    Scenario(
        name="busy, not useful",
        troubles=(Gpus(utilization=0.98, sm_active=0.28),),
        minutes=32.0,
        expect=(Expect("utilization_divergence"),),
        paged=False,
    ),
    Scenario(
        name="busy, not useful, since all wait for one",
        troubles=(Gpus(utilization=0.97, sm_active=0.22), Slow(ranks=(2,), factor=2.8, begins=0.0)),
        minutes=32.0,
        expect=(
            Expect("utilization_divergence"),
            Expect("straggling_rank", "warning", "2"),
            Expect("straggling_rank", "critical", "2"),
        ),
    ),
)
