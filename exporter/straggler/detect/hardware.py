"""What the hardware of a rank says: waste, a clock held down, a narrow or broken link.

It explains; it never names the straggler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from straggler.detect import wording
from straggler.detect.policy import Policy
from straggler.detect.sample import RankSample
from straggler.detect.verdict import WARNING, Verdict

HELD_BACK = ("sw_thermal", "hw_thermal", "thermal", "hw_power_brake", "hw_slowdown")
"""Clocks event reasons that mean trouble. Not among them: ``sw_power_cap`` (normal under load), idle, set clocks."""


def utilization_divergence(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Reported busy, hardly computing: one per run, since waiting in a collective shows on all of its GPUs."""
    both = [
        (rank.utilization_ratio, rank.sm_active_ratio)
        for rank in ranks
        if rank.alive and rank.utilization_ratio is not None and rank.sm_active_ratio is not None
    ]
    if not both:
        return []
    reported = fmean(utilization for utilization, _ in both)
    useful = fmean(active for _, active in both)
    if reported <= policy.divergence_utilization or reported - useful <= policy.divergence_gap:
        return []
    return [
        Verdict(
            verdict="utilization_divergence",
            severity=WARNING,
            run=run,
            evidence=f"{wording.count(len(both), 'GPU')} report {wording.percent(reported)} utilization, with SMs "
            f"active in {wording.percent(useful)} of the cycles",
            impact=f"{wording.percent(reported - useful)} of the reported use is waiting",
        )
    ]


def throttled_gpu(run: str, ranks: Sequence[RankSample], policy: Policy) -> list[Verdict]:
    """Heat or a power brake holds the clock of a rank's GPU down."""
    verdicts: list[Verdict] = []
    for rank in ranks:
        reasons = {name: rank.throttled_share[name] for name in HELD_BACK if name in rank.throttled_share}
        if not rank.alive or not reasons:
            continue
        reason = max(reasons, key=lambda name: reasons[name])
        if reasons[reason] > policy.throttled_share:
            verdicts.append(
                _of_gpu(
                    "throttled_gpu",
                    run,
                    rank,
                    evidence=f"{reason} held the clock down for {wording.percent(reasons[reason])} of the last minutes",
                    impact="the GPU runs below its clock; it slows the run if its own time exceeds the peers'",
                )
            )
    return verdicts


def degraded_gpu(run: str, ranks: Sequence[RankSample]) -> list[Verdict]:
    """The GPU of a living rank has reported errors in the last hour, or waits for a reset to remap memory."""
    return [
        _of_gpu(
            "degraded_gpu",
            run,
            rank,
            evidence=f"its GPU reported in the last hour: {', '.join(rank.lately.errors)}",
            impact="the rank may fail or compute more slowly at any time, and all others with it",
        )
        for rank in ranks
        if rank.alive and rank.lately is not None and rank.lately.errors
    ]


def degraded_link(run: str, ranks: Sequence[RankSample]) -> list[Verdict]:
    """The GPU's PCIe link has fewer lanes than it could. The generation is not judged: it drops when idle."""
    return [
        _of_gpu(
            "degraded_link",
            run,
            rank,
            evidence=f"PCIe link of {rank.pcie_link_width:.0f} lanes, {rank.pcie_link_width_max:.0f} are possible",
            impact="copies to and from the GPU are slower; reseat or replace before it fails",
        )
        for rank in ranks
        if rank.alive
        and rank.pcie_link_width is not None
        and rank.pcie_link_width_max is not None
        and 0 < rank.pcie_link_width < rank.pcie_link_width_max
    ]


def blame_ports(verdicts: Iterable[Verdict], ranks: Sequence[RankSample]) -> list[Verdict]:
    """Name the bad ports of the ranks' nodes as the cause of a slow network; without any nothing changes."""
    bad = dict.fromkeys(fault.text for rank in ranks if rank.alive for fault in rank.network_faults)
    text = f"Bad RDMA ports: {'; '.join(bad)}"
    return [replace(verdict, cause="link", cause_text=text) if bad else verdict for verdict in verdicts]


def degraded_ports(run: str, ranks: Sequence[RankSample]) -> list[Verdict]:
    """RDMA ports that are lost, slow or full of errors: one verdict per node, all of its ranks send through them."""
    faults = {rank.node: rank.network_faults for rank in ranks if rank.alive and rank.network_faults}
    return [
        Verdict(
            verdict="degraded_link",
            severity=WARNING,
            run=run,
            node=node,
            evidence="; ".join(fault.text for fault in found),
            impact="what the node sends and receives has less room, and every rank of the run waits for it",
        )
        for node, found in faults.items()
    ]


def _of_gpu(verdict: str, run: str, rank: RankSample, *, evidence: str, impact: str) -> Verdict:
    """A warning about the GPU that a rank is on."""
    return Verdict(
        verdict=verdict,
        severity=WARNING,
        run=run,
        peer_group=rank.peer_group,
        rank=rank.rank,
        node=rank.node,
        gpu_uuid=rank.gpu_uuid,
        evidence=evidence,
        impact=impact,
    )
