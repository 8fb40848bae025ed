"""The metric names are a contract: a change of them is seen in review, and their form is checked."""

from __future__ import annotations

import re

import pytest

from conftest import Expected
from straggler.metrics.catalogue import METRICS, RANK_LABELS, RANK_METRICS, Kind, Metric
from straggler.metrics.reference import render_reference

UNITS = ("_seconds", "_bytes", "_ratio", "_celsius", "_watts", "_joules", "_hertz", "_bytes_per_second")

COUNTED = frozenset(
    {
        # things that are counted or numbered, and states: they have no unit
        "gpu_clocks_event_reason",
        "gpu_ecc_double_bit_errors_total",
        "gpu_ecc_single_bit_errors_total",
        "gpu_nvlink_data_crc_errors_total",
        "gpu_nvlink_flit_crc_errors_total",
        "gpu_nvlink_recoveries_total",
        "gpu_nvlink_replays_total",
        "gpu_pcie_correctable_errors_total",
        "gpu_pcie_fatal_errors_total",
        "gpu_pcie_link_generation",
        "gpu_pcie_link_generation_max",
        "gpu_pcie_link_width",
        "gpu_pcie_link_width_max",
        "gpu_pcie_non_fatal_errors_total",
        "gpu_pcie_replays_total",
        "gpu_performance_state",
        "gpu_remapped_rows_correctable",
        "gpu_remapped_rows_uncorrectable",
        "gpu_row_remap_failed",
        "gpu_row_remap_pending",
        "gpu_xid_events_by_number_total",
        "gpu_xid_events_total",
        "gpu_xid_last",
        "network_acknowledge_timeouts_total",
        "network_buffer_overruns_total",
        "network_cnp_handled_total",
        "network_cnp_ignored_total",
        "network_cnp_sent_total",
        "network_duplicate_requests_total",
        "network_ecn_marked_total",
        "network_implied_sequence_errors_total",
        "network_link_downs_total",
        "network_link_integrity_errors_total",
        "network_link_recoveries_total",
        "network_management_drops_total",
        "network_out_of_buffer_total",
        "network_out_of_sequence_total",
        "network_port_lost",
        "network_port_up",
        "network_receive_constraint_errors_total",
        "network_receive_discards_total",
        "network_receive_errors_total",
        "network_receive_packets_total",
        "network_receive_remote_errors_total",
        "network_receiver_not_ready_total",
        "network_request_errors_total",
        "network_response_errors_total",
        "network_retransmissions_total",
        "network_retries_exceeded_total",
        "network_saturated_counters",
        "network_sequence_errors_total",
        "network_slow_restarts_total",
        "network_symbol_errors_total",
        "network_transmit_constraint_errors_total",
        "network_transmit_discards_total",
        "network_transmit_packets_total",
        "network_transmit_waits_total",
        "straggler_exporter_blind",
        "straggler_exporter_nccl_logs",
        "straggler_exporter_nccl_unlinked",
        "straggler_exporter_ranks",
        "straggler_exporter_ranks_refused",
        "straggler_exporter_ranks_without_gpu",
        "straggler_exporter_ranks_without_own_time",
        "straggler_exporter_records_missed_total",
        "straggler_exporter_records_read_total",
        "straggler_exporter_refused_total",
        "straggler_exporter_rings_removed_total",
        "straggler_exporter_source_state",
        "training_flops_total",
        "training_nccl_channels",
        "training_nccl_warnings_total",
        "training_rank_arrivals_total",
        "training_rank_host_cpu_periods_total",
        "training_rank_host_cpu_throttled_periods_total",
        "training_rank_host_major_faults_total",
        "training_rank_host_memory_events_total",
        "training_rank_phase",
        "training_rank_state",
        "training_recent_steps",
        "training_samples_total",
        "training_step",
        "training_tokens_total",
        "training_world_size",
    }
)

TARGET_LABELS = frozenset({"job", "instance", "pod", "node", "cluster", "namespace", "container", "type"})
NEVER_LABELS = TARGET_LABELS | {"step", "pid", "attempt"}

each = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_names_are_these(expected: Expected) -> None:
    """Rules, dashboards and other people's queries hold these names: a rename must be seen."""
    lines = [f"{metric.name}{{{','.join(metric.labels)}}} {metric.kind.value}\n" for metric in METRICS]

    expected.check("metric_names.txt", "".join(lines))


def test_names_are_unique() -> None:
    """Two families of one name make a page that Prometheus refuses whole."""
    names = [metric.name for metric in METRICS]

    assert len(names) == len(set(names))


@each
def test_unit_ends_the_name(metric: Metric) -> None:
    """A value in milliseconds or percent was once read as seconds or a ratio; a name without its unit invites that."""
    if metric.kind is Kind.INFO:
        assert metric.name.endswith("_info")
        return
    base = metric.name.removesuffix("_total")
    assert base.endswith(UNITS) or metric.name in COUNTED


@each
def test_form(metric: Metric) -> None:
    """Counters, and only they, end in ``_total``; the prefix says whose fact it is; the help is one line."""
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert re.fullmatch(r"(training|gpu|network|host|straggler_exporter)_[a-z0-9_]+", metric.name)
    assert metric.help
    assert not metric.help[0].islower()
    assert not metric.help.endswith(".")
    assert "\n" not in metric.help


@each
def test_labels_leave_the_target_alone(metric: Metric) -> None:
    """A label named like one of the scrape target's is renamed to ``exported_…`` and every query misses it."""
    assert not (TARGET_LABELS if metric.kind is Kind.INFO else NEVER_LABELS).intersection(metric.labels)
    assert len(metric.labels) == len(set(metric.labels))


@pytest.mark.parametrize("metric", RANK_METRICS, ids=lambda metric: metric.name)
def test_rank_labels_come_first(metric: Metric) -> None:
    """Every per-rank series has the four labels by which the rules group, in one order."""
    assert metric.labels[: len(RANK_LABELS)] == RANK_LABELS


def test_reference_is_current(expected: Expected) -> None:
    """``docs/metrics.md`` says what the catalogue says; it was out of date once a metric was renamed by hand."""
    expected.check("../../docs/metrics.md", render_reference())
