"""Rules and embedded policy are one policy, written twice: once in PromQL, once in ``detect/policy.py``.

A threshold that is tuned in one place alone makes a node and its Prometheus disagree about who is slow.
"""

from __future__ import annotations

import pytest

from rulebook import Rule, alerts, numbers, peak_flops, ranges, rules, seconds
from straggler.detect.lately import PCIE_BYTES_PER_LANE
from straggler.detect.policy import DEFAULT as P
from straggler.detect.slowdown import LOWER_QUARTILE, MEDIAN, UPPER_QUARTILE

PAIR = 2.0
"""A group of two, a node of two ranks, two steps, a stage with somebody to compare: no threshold, but plural."""
TREND = 300.0
"""Window of the rates, as in ``detect/history.py``."""
EVERY, LIFE = 120.0, 30 * 86_400.0
"""How often and how far back the cost is added up: no threshold, but fineness and reach."""
NOW = P.cause_now_seconds
HANG = P.hang_min_seconds
MISSING = P.missing_seconds
PEAK_FLOPS = [peak for _, peak in peak_flops()]
"""Facts about GPUs, not thresholds: ``test_peak_flops`` holds them to their sources."""

# Rule: its numbers, then its windows and offsets.
EXPECTED: dict[str, tuple[list[float], set[float]]] = {
    "run:training_recent_own_seconds:count": ([], set()),
    "run:training_recent_own_seconds:median": ([MEDIAN], set()),
    "run:training_recent_own_seconds:max": ([], set()),
    "run:training_recent_own_seconds:min": ([], set()),
    "run:training_recent_own_seconds:lower_quartile": ([LOWER_QUARTILE, PAIR, PAIR], set()),
    "run:training_recent_own_median_seconds:lower_quartile": ([LOWER_QUARTILE, PAIR, PAIR], set()),
    "run:training_recent_step_seconds:mean": ([], set()),
    "run:training_recent_own_seconds:max_minus_median": ([], set()),
    "run:training_recent_own_seconds:max_minus_median_share": ([0], set()),
    "run_rank:training_recent_own_seconds:slowdown_ratio": ([1, 1, P.min_excess_share, P.explained_share], set()),
    "run_rank:training_recent_own_median_seconds:slowdown_ratio": ([], set()),
    "run_rank:training_recent_own_seconds:excess_share": ([1], set()),
    "run_rank:training_recent_own_seconds:candidate_ratio": ([0, P.warning_ratio, P.min_steps], set()),
    "run_rank:training_recent_own_median_seconds:candidate_ratio": ([0, P.warning_ratio], set()),
    "run_rank:training_crashed:steps": ([], set()),
    "run_rank:training_rank_state:not_running": ([1], set()),
    "run_rank:training_rank_arrivals:stopped": ([], set()),
    "run_rank:training_crashed:survivors_steps": ([], set()),
    "run_rank:training_crashed:arrivals_behind": ([0, 0], set()),
    "run:training_gpu_utilization_ratio:mean": ([], set()),
    "run:training_step_seconds:per_second": ([], {TREND}),
    "run:training_step_seconds:mean": ([0], {TREND}),
    "run:training_data_seconds:median_share": ([0, MEDIAN], {TREND}),
    "run:training_slow_ranks:count": ([], set()),
    "run:training_many_slow_ranks:count": (
        [P.many_slow_share, P.many_slow_min_nodes, P.many_slow_min_ranks],
        set(),
    ),
    "run_node:training_slow_ranks:count": ([PAIR], set()),
    "run:training_rank_state:count": ([1], set()),
    "run:training_ranks_alive:count": ([], set()),
    "run:training_ranks_seen:count": ([], set()),
    "run:training_world_size:min": ([], set()),
    "run:training_step:max": ([], set()),
    "run:training_ranks_unseen:count": ([0, 0, PAIR, PAIR], {MISSING, 5 * MISSING}),
    "run:training_hung_ranks:count": ([1, PAIR], {HANG, P.hang_excluded_seconds}),
    "run_rank:training_rank_arrivals:behind": ([0], set()),
    "run:training_recent_own_seconds:usual_median": (
        [LOWER_QUARTILE],
        {P.regression_window_seconds, P.regression_offset_seconds, P.regression_min_history_seconds},
    ),
    "run:training_recent_min_wait_seconds:usual_min": (
        [LOWER_QUARTILE],
        {P.regression_window_seconds, P.regression_offset_seconds, P.regression_min_history_seconds},
    ),
    "run:training_recent_step_seconds:usual_mean": (
        [LOWER_QUARTILE],
        {P.regression_window_seconds, P.regression_offset_seconds, P.regression_min_history_seconds},
    ),
    "run:training_recent_wait_seconds:mean": ([], set()),
    "run:training_recent_min_wait_seconds:min": ([], set()),
    "run:training_recent_wait_seconds:mean_minus_least": ([], set()),
    "run:training_recent_wait_seconds:mean_minus_least_share": ([0], set()),
    "run:training_lost_gpu_seconds:per_second": ([0], set()),
    "run:training_lost_gpu_seconds:share": ([], set()),
    "run:training_lost_gpu_seconds:since_start": ([EVERY], {LIFE}),
    "run:training_tokens:scaling_efficiency": ([0, 0], set()),
    "run:training_gpu_sm_active_ratio:mean": ([], set()),
    "run:training_gpu_utilization_ratio:mean_minus_sm_active": ([], set()),
    "run:training_tokens:per_second": ([], {TREND}),
    "run:training_flops:per_second": ([], {TREND}),
    "run:training_flops:mfu_ratio": ([], set()),
    "run:training_gpus:count": ([], set()),
    "run:training_gpu_peak_flops:per_model": (PEAK_FLOPS, set()),
    "run:training_gpu_peak_flops:sum": ([], set()),
    "run_node:training_rank_state:sole": ([1, 1, 1], set()),
    "run_port:network_rate_bytes_per_second:usable": ([0], set()),
    "run_port:network_rate_bytes_per_second:share_of_peers": ([0, MEDIAN, P.network_peer_nodes], set()),
    "port:network_port:degraded": ([0, 0, 1, 1, 1, P.network_rate_ratio, P.network_rate_ratio], set()),
    "port:network_port:errors": (
        [P.network_flaps] * 8 + [P.network_symbol_errors] * 4,
        {P.network_errors_seconds, P.network_errors_fast_seconds},
    ),
    "node:network_port:bad_count": ([], set()),
    "run_rank:training_steps:per_second": ([0], {TREND}),
    "run_rank:training_own_seconds:per_step": ([], {TREND}),
    "run_rank:training_phase_seconds:per_step": ([], {TREND}),
    "run_rank:training_tokens:per_step": ([], {TREND}),
    "run_rank:training_run_delay_seconds:per_step": ([], {TREND}),
    "run_rank:training_memory_stall_seconds:per_step": ([], {TREND}),
    "run_rank:training_gpu_sm_clock_hertz:mean": ([], {NOW}),
    "run_rank:training_gpu_tensor_hertz:mean": ([], {NOW}),
    "run_rank:training_rank_info:gpu": ([], set()),
    "run_rank:training_gpu_sm_clock:held_share": ([], {NOW}),
    "run_rank:training_gpu_pcie_bytes_per_second:possible": ([PAIR, PCIE_BYTES_PER_LANE], set()),
    "run_rank:training_gpu_pcie_bytes_per_second:received": ([], {NOW}),
    "run_rank:training_gpu_errors:last_hour": ([0, 0, 0], {P.gpu_errors_seconds}),
    "run:training_own_seconds:lower_quartile": ([LOWER_QUARTILE], set()),
    "run:training_phase_seconds:lower_quartile": ([LOWER_QUARTILE], set()),
    "run:training_compute_seconds:lower_quartile": ([], set()),
    "run:training_run_delay_seconds:lower_quartile": ([LOWER_QUARTILE], set()),
    "run:training_memory_stall_seconds:lower_quartile": ([LOWER_QUARTILE], set()),
    "run:training_tokens:median": ([MEDIAN], set()),
    "run:training_gpu_sm_clock_hertz:upper_quartile": ([UPPER_QUARTILE], set()),
    "run:training_gpu_tensor_hertz:median": ([MEDIAN], set()),
    "run:training_gpu_pcie_bytes_per_second:upper_quartile": ([UPPER_QUARTILE], set()),
    "run_rank:training_own_seconds:excess": ([0], set()),
    "run_rank:training_recent_own_seconds:excess": ([0, 1], set()),
    "run_rank:training_phase_seconds:excess": ([], set()),
    "run_rank:training_compute_seconds:excess": ([], set()),
    "run_rank:training_run_delay_seconds:excess": ([], set()),
    "run_rank:training_memory_stall_seconds:excess": ([], set()),
    "run_rank:training_tokens:ratio": ([0], set()),
    "run_rank:training_gpu_tensor_hertz:ratio": ([0], set()),
    "run_rank:training_gpu_sm_clock_hertz:peers_ratio": ([0], set()),
    "run_rank:training_gpu_sm_clock:held_enough": ([0, P.throttled_share], set()),
    "run_rank:training_gpu_sm_clock:heat_longer_than_brake": ([], set()),
    "run_rank:training_gpu_sm_clock:cause": ([], set()),
    "run_rank:training_gpu_sm_clock:stretch_share": ([1], set()),
    "run_rank:training_gpu_pcie_bytes_per_second:degraded": ([P.degraded_pcie_ratio], set()),
    "run_rank:training_gpu_pcie_copies:explained_share": ([1, 1], set()),
    "run_rank:training_work:explained_share": ([1, 1], set()),
    "run_rank:training_cause:counted_share": ([], set()),
    "run_rank:training_compute_seconds:rest_share": ([0, 0], set()),
    "run_rank:training_gpu_sm_clock:explained_share": ([], set()),
    "run_rank:training_cause:explained_share": ([0, 0], set()),
    "run_rank:training_cause:named_share": ([P.cause_share], set()),
    "run_rank:straggler_cause": ([], set()),
    "TrainingStraggler-warning": ([P.warning_ratio], set()),
    "TrainingStraggler-critical": ([P.critical_ratio, P.critical_ratio, P.min_peers_for_critical], set()),
    "TrainingNodeStraggling-warning": ([P.warning_ratio], set()),
    "TrainingNodeStraggling-critical": ([P.critical_ratio, P.critical_ratio, P.min_peers_for_critical], set()),
    "TrainingManyRanksSlow-warning": ([0], set()),
    "TrainingHeavyStage-info": ([0, P.min_excess_share, LOWER_QUARTILE, LOWER_QUARTILE, P.warning_ratio], set()),
    "TrainingRotatingImbalance-warning": ([P.imbalance_share, P.imbalance_explained_share, PAIR], {TREND}),
    "TrainingInputStall-warning": ([P.input_stall_share], set()),
    "TrainingSlowEverywhere-warning": ([0, P.regression_ratio], set()),
    "TrainingSlowNetwork-warning": ([P.regression_ratio - 1], set()),
    "TrainingSlowNetwork-info": ([0, P.network_share], set()),
    "TrainingUtilizationDivergence-warning": ([P.divergence_gap, P.divergence_utilization], {TREND}),
    "TrainingGpuThrottled-warning": ([P.throttled_share], {TREND}),
    "TrainingGpuDegraded-warning": ([0], set()),
    "TrainingLinkDegraded-warning": ([0, 1], set()),
    "run_node:training_nccl_channels:over_sockets": ([0, 0, 0, 1], set()),
    "run_node:training_nccl_gdr_ratio:lacking": ([0, 0, P.gdr_peer_ratio], set()),
    "TrainingSlowTransport-warning": ([0, 0, P.min_excess_share], set()),
    "TrainingHung-critical": ([0], set()),
    "TrainingRankCrashed-critical": ([0], set()),
    "TrainingRankMissing-warning": ([0], set()),
    "StragglerExporterBlind-warning": ([0, 0, P.blind_unseen_share, 1], set()),
    "StragglerExporterDown-warning": ([0, 0], set()),
}

# Alert: how long it must hold. Every alert keeps firing for the policy's time.
HOLDS: dict[str, float] = {
    "TrainingStraggler-warning": P.warning_for_seconds,
    "TrainingStraggler-critical": P.critical_for_seconds,
    "TrainingNodeStraggling-warning": P.warning_for_seconds,
    "TrainingNodeStraggling-critical": P.critical_for_seconds,
    "TrainingManyRanksSlow-warning": P.job_for_seconds,
    "TrainingHeavyStage-info": P.job_for_seconds,
    "TrainingRotatingImbalance-warning": P.job_for_seconds,
    "TrainingInputStall-warning": P.job_for_seconds,
    "TrainingSlowEverywhere-warning": P.job_for_seconds,
    "TrainingSlowNetwork-warning": P.job_for_seconds,
    "TrainingSlowNetwork-info": P.job_for_seconds,
    "TrainingUtilizationDivergence-warning": P.divergence_seconds,
    "TrainingGpuThrottled-warning": P.job_for_seconds,
    "TrainingGpuDegraded-warning": P.warning_for_seconds,
    "TrainingLinkDegraded-warning": P.job_for_seconds,
    "TrainingSlowTransport-warning": P.job_for_seconds,
    "TrainingHung-critical": 0.0,  # the state has waited already
    "TrainingRankCrashed-critical": P.crash_for_seconds,
    "TrainingRankMissing-warning": 0.0,  # the expression looks back
    "StragglerExporterBlind-warning": P.blind_seconds,
    "StragglerExporterDown-warning": P.blind_seconds,
}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_each_number_in_a_rule_is_the_policys(rule: Rule) -> None:
    """No rule has a number or a window that does not come from the policy."""
    wanted, windows = EXPECTED[rule.id]

    assert numbers(rule.tree) == pytest.approx(sorted(float(value) for value in wanted))
    assert ranges(rule.tree) == windows


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.id)
def test_each_alert_waits_as_long_as_the_policy_says(rule: Rule) -> None:
    """``for`` and ``keep_firing_for`` are the policy's."""
    assert seconds(rule.raw.get("for")) == HOLDS[rule.id]
    assert seconds(rule.raw["keep_firing_for"]) == P.keep_firing_seconds


def test_the_tables_name_no_rule_that_is_gone() -> None:
    """A rule that is removed or renamed takes its line with it."""
    assert set(EXPECTED) == {rule.id for rule in rules()}
    assert set(HOLDS) == {rule.id for rule in alerts()}
