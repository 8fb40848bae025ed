"""All thresholds, once. The rules in ``rules/`` carry the same numbers, and a test holds the two together.

Where a number comes from stands beside it; nobody tunes here without the scenario suite.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is slow, hung, missing, wasteful. Times in seconds."""

    warning_ratio: float = 1.10
    """Mean and median own time over the lower quartile. 10 % is where three independent systems draw the line."""
    critical_ratio: float = 1.20
    min_steps: int = 32
    """Uneven batches: the worst mean over 5 steps is 1.28 x the peers, over 32 it is 1.08."""
    min_excess_share: float = 0.05
    """The excess must be this share of the step: 20 % of a tiny own time delays nobody."""
    min_peers_for_critical: int = 3
    """With two ranks each is compared with the other, and that is evidence for a warning only; alone, no verdict."""
    explained_share: float = 0.40
    """Of what the peers wait for each other: the slow rank's excess must explain so much, or the slowness is chance. In
    a job of very uneven batches some rank is 10 % above its peers over 32 steps now and then, but explains a quarter of
    the waiting; a straggler explains nearly all of it."""
    many_slow_share: float = 0.10
    """More slow ranks than this share of a group, on several nodes, are the job's shape and not bad hardware."""
    many_slow_min_ranks: int = 3
    many_slow_min_nodes: int = 2

    imbalance_share: float = 0.15
    """Waiting for peers of the same group above the least wait, as a share of the step. 8 % of independent jitter makes
    8 % of it on 8 ranks and 13 % on 64; sequences so uneven that the slowest of a stage exceeds its median by a third,
    as recorded, make 18 to 22 %."""
    imbalance_explained_share: float = 0.50
    """If one rank's mean explains half of the waiting, it is that rank, or one long stall of it, and not all."""
    input_stall_share: float = 0.20
    """Waiting for the next batch, on the median rank. The reference step loads without prefetching in 14 %."""
    regression_ratio: float = 1.20
    """Own time, or least wait, of the whole run against its own past, in shares of the past step."""
    regression_window_seconds: float = 21600.0
    regression_offset_seconds: float = 600.0
    """The newest part of the past is left out: a slow climb must not become its own baseline."""
    regression_min_history_seconds: float = 1800.0
    network_share: float = 0.50
    """The least wait of the run as a share of the step: a run that was slow from its first step has no better past. The
    reference step spends 23 % in its all-reduce."""
    gdr_peer_ratio: float = 0.50
    """Nodes without GPUDirect RDMA are told beside one that receives this share of its channels that way."""
    throttled_share: float = 0.10
    """Share of the time in which heat or a power brake held the clock down. A power cap is normal under load."""

    cause_share: float = 0.50
    """A cause is named if it explains more than this part of a slow rank's gap: most of it."""
    cause_seconds: float = 300.0
    """Seconds a step, which are compared with each other, are means over so long."""
    cause_now_seconds: float = 120.0
    """What a GPU says is taken over so long: a slow rank is told after a minute, and what was before is no reason."""
    gpu_errors_seconds: float = 3600.0
    """Errors of a GPU are news for an hour: a cause outlives the moment in which it was reported."""
    degraded_pcie_ratio: float = 0.75
    """A link is degraded below this part of its peers'. Lanes and generations are lost by halves."""

    network_rate_ratio: float = 0.90
    """Speed of a link against its peers'. Speeds come in steps of a half or a quarter, so anything less is a step."""
    network_flaps: float = 1.0
    """More losses, or recoveries, of a link than this in the time below: once may be a switch that was restarted."""
    network_symbol_errors: float = 120.0
    """More symbol errors than this. One wrong bit in 10^12, which the standard allows, is 144 an hour at 40 Gb/s; links
    of today correct theirs and show none for weeks."""
    network_errors_seconds: float = 3600.0
    network_errors_fast_seconds: float = 600.0
    """The same number in this time is told without waiting for the hour."""
    network_peer_nodes: int = 3
    """Nodes of a run that have a port of one name, before one of them is compared with the others."""

    hang_steps: float = 10.0
    """No step for this many mean steps, and for at least ``hang_min_seconds``."""
    hang_min_seconds: float = 120.0
    """NCCL's watchdog ends the job after 600 s: the alert must be there before."""
    hang_excluded_seconds: float = 3600.0
    """In checkpoint or eval, or before the first step (compilation), silence this long is a hang."""

    divergence_utilization: float = 0.8
    divergence_gap: float = 0.5
    """Reported utilization minus SM activity."""
    divergence_seconds: float = 900.0

    warning_for_seconds: float = 60.0
    """How long a rank must be slow before the warning; the window of at least 32 steps comes on top."""
    critical_for_seconds: float = 120.0
    keep_firing_seconds: float = 300.0
    job_for_seconds: float = 600.0
    """For warnings about the whole job: its shape is no emergency, and it changes with the data."""
    crash_for_seconds: float = 30.0
    """Ranks of a job that is stopped die one after the other within seconds: that is an end, not a crash."""
    missing_seconds: float = 120.0
    blind_seconds: float = 300.0
    blind_unseen_share: float = 0.50
    """From this share of unseen ranks on, the monitoring of the run is blind rather than short of a rank."""

    gone_counters_seconds: float = 300.0
    """When a rank is gone its gauges go at once; its counters and its state stay this long."""


DEFAULT = Policy()
