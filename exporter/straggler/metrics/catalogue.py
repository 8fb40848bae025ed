"""Every metric once: name, type, labels, meaning. The public contract.

``families.py`` builds series from it, ``docs/metrics.md`` is generated from it, rules and dashboards are checked
against it. A rename here is a breaking change. Base units, ratios 0-1, no timestamps, no NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """Prometheus types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    """``_sum`` and ``_count`` only."""
    INFO = "info"
    """A gauge that is 1; its labels are the facts."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One family."""

    name: str
    """As scraped: counters with ``_total``, infos with ``_info``."""
    kind: Kind
    help: str
    labels: tuple[str, ...]


RANK_LABELS = ("run", "rank", "peer_group", "rank_node")
"""On every per-rank series, and no others."""

INFO_LABELS = (
    *RANK_LABELS,
    "attempt",
    "local_rank",
    "world_size",
    "UUID",
    "gpu",
    "pci_bus_id",
    "GPU_I_ID",
    "gpu_model",
    "rank_pod",
    "rank_namespace",
    "rank_container",
    "slurm_job",
    "rank_user",
    "framework",
    "clock",
    "own",
    "own_reason",
    "evidence",
    "gpu_source",
    "hook_version",
)
"""``own``: ``measured`` or ``none``. ``evidence``: how the GPU was found (``join.evidence``), empty if it was not."""

GPU_LABELS = ("UUID", "GPU_I_ID")

PORT_LABELS = ("rank_node", "device", "port")
"""``rank_node`` as the ranks of the node have it."""


def _rank(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(name, kind, text, (*RANK_LABELS, *labels))


def _host(name: str, text: str, *labels: str) -> Metric:
    return _rank(f"training_rank_host_{name}", Kind.COUNTER, text, *labels)


def _gpu(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(name, kind, text, (*GPU_LABELS, *labels))


def _port(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(f"network_{name}", kind, text, (*PORT_LABELS, *labels))


def _counted(name: str, text: str, origin: str) -> Metric:
    return _port(name, Kind.COUNTER, f"{text} ({origin})")


def _own(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(name, kind, text, labels)


_RECENT = "over the last 32 steps or 10 s, whichever is more"

RANK_METRICS: tuple[Metric, ...] = (
    _rank("training_step_seconds", Kind.SUMMARY, "Wall time of a step; the same on all ranks of a synchronous run"),
    _rank("training_own_seconds_total", Kind.COUNTER, "Time not blocked on peers, without checkpoint and eval"),
    _rank("training_wait_seconds_total", Kind.COUNTER, "Time blocked on peers, in collectives and send/recv"),
    _rank("training_recent_own_seconds", Kind.GAUGE, f"Mean own time of a step {_RECENT}"),
    _rank("training_recent_own_median_seconds", Kind.GAUGE, f"Median own time of a step {_RECENT}"),
    _rank("training_recent_step_seconds", Kind.GAUGE, f"Mean wall time of a step {_RECENT}"),
    _rank("training_recent_wait_seconds", Kind.GAUGE, f"Mean time blocked on peers in a step {_RECENT}"),
    _rank("training_recent_min_wait_seconds", Kind.GAUGE, f"Least time blocked on peers in a step {_RECENT}"),
    _rank("training_recent_steps", Kind.GAUGE, "Number of steps that the training_recent_ values are over"),
    _rank("training_phase_seconds_total", Kind.COUNTER, "Time in each phase; the phases add up to the step", "phase"),
    _rank("training_host_data_seconds_total", Kind.COUNTER, "Host time waiting for a batch where phases are GPU time"),
    _rank("training_step", Kind.GAUGE, "Number of the last finished step, as the training loop counts"),
    _rank("training_last_step_timestamp_seconds", Kind.GAUGE, "When the last finished step ended"),
    _rank("training_rank_arrivals_total", Kind.COUNTER, "How often the rank reached a blocking point"),
    _rank("training_rank_phase", Kind.GAUGE, "1 while the rank is in checkpoint or eval", "phase"),
    _rank("training_tokens_total", Kind.COUNTER, "Tokens trained on, where the loop says so"),
    _rank("training_samples_total", Kind.COUNTER, "Samples trained on, where the loop says so"),
    _rank("training_flops_total", Kind.COUNTER, "Model floating point operations, where known"),
    _rank("training_allreduce_bytes_total", Kind.COUNTER, "Bytes given to all-reduce, where known"),
    _rank("training_rank_state", Kind.GAUGE, "1 for the state the rank is in", "state"),
    _rank("training_world_size", Kind.GAUGE, "Ranks that the run was started with"),
    Metric("training_rank_info", Kind.INFO, "Identity of the rank and of its GPU; value 1", INFO_LABELS),
    _rank(
        "training_gpu_utilization_ratio",
        Kind.GAUGE,
        "Share of time in which any kernel ran on the rank's GPU, waiting included (DCGM_FI_DEV_GPU_UTIL)",
    ),
    _rank(
        "training_gpu_sm_active_ratio",
        Kind.GAUGE,
        "Share of cycles with a warp resident, averaged over the rank's SMs (DCGM_FI_PROF_SM_ACTIVE)",
    ),
    _rank(
        "training_gpu_sm_occupancy_ratio",
        Kind.GAUGE,
        "Resident warps as a share of the most possible on the rank's GPU (DCGM_FI_PROF_SM_OCCUPANCY)",
    ),
    _rank(
        "training_gpu_tensor_active_ratio",
        Kind.GAUGE,
        "Share of cycles with the tensor pipe busy on the rank's GPU (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)",
    ),
    _rank("training_gpu_sm_clock_hertz", Kind.GAUGE, "SM clock of the rank's GPU (DCGM_FI_DEV_SM_CLOCK)"),
    _rank(
        "training_gpu_clocks_event_seconds_total",
        Kind.COUNTER,
        "Time in which a reason held the clock of the rank's GPU down (DCGM_FI_DEV_*_VIOLATION, NVML counters)",
        "reason",
    ),
    _host("cpu_user_seconds_total", "CPU time of the rank's process in user mode (/proc/PID/stat)"),
    _host("cpu_system_seconds_total", "CPU time of the rank's process in the kernel (/proc/PID/stat)"),
    _host("run_delay_seconds_total", "Time its main thread was ready and no CPU was free (/proc/PID/schedstat)"),
    _host("io_wait_seconds_total", "Time its main thread waited for a disk (/proc/PID/stat, kernel.task_delayacct=1)"),
    _host("major_faults_total", "Page faults that had to read from a disk (/proc/PID/stat)"),
    _host("cpu_periods_total", "Periods of the CPU limit nearest above the process (cpu.stat nr_periods)"),
    _host("cpu_throttled_periods_total", "Those periods in which the limit stopped it (cpu.stat nr_throttled)"),
    _host("cpu_throttled_seconds_total", "Time stopped by the limit, summed over CPUs (cpu.stat throttled_usec)"),
    _host(
        "pressure_seconds_total",
        "Time in which some or all tasks of its control group stood still for want of a resource (PSI)",
        "resource",
        "share",
    ),
    _host("memory_events_total", "How often its control group came to a limit (memory.events)", "event"),
    _rank(
        "training_nccl_info",
        Kind.INFO,
        "What the rank's NCCL says of itself: version, network, NVLink SHARP (NCCL_DEBUG=INFO); value 1",
        "version",
        "cuda_version",
        "network",
        "nvls",
    ),
    _rank(
        "training_nccl_channels",
        Kind.GAUGE,
        "NCCL channels of the rank that use a transport: p2p, shm, ib, libfabric, socket, collnet, other",
        "transport",
    ),
    _rank(
        "training_nccl_gdr_ratio",
        Kind.GAUGE,
        "Share of the rank's NCCL channels between nodes that receive straight into GPU memory (GPUDirect RDMA)",
    ),
    _rank("training_nccl_warnings_total", Kind.COUNTER, "Lines that NCCL marked as warnings, by kind", "kind"),
)

GPU_METRICS: tuple[Metric, ...] = (
    _gpu("gpu_utilization_ratio", Kind.GAUGE, "Share of time in which any kernel ran (DCGM_FI_DEV_GPU_UTIL)"),
    _gpu("gpu_sm_active_ratio", Kind.GAUGE, "Share of cycles with a warp resident (DCGM_FI_PROF_SM_ACTIVE)"),
    _gpu("gpu_sm_occupancy_ratio", Kind.GAUGE, "Resident warps, share of the most (DCGM_FI_PROF_SM_OCCUPANCY)"),
    _gpu("gpu_tensor_active_ratio", Kind.GAUGE, "Share of cycles, tensor pipe busy (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)"),
    _gpu("gpu_dram_active_ratio", Kind.GAUGE, "Share of cycles, memory interface busy (DCGM_FI_PROF_DRAM_ACTIVE)"),
    _gpu("gpu_graphics_engine_active_ratio", Kind.GAUGE, "Share of time, engine busy (DCGM_FI_PROF_GR_ENGINE_ACTIVE)"),
    _gpu("gpu_memory_copy_utilization_ratio", Kind.GAUGE, "Share of time, memory busy (DCGM_FI_DEV_MEM_COPY_UTIL)"),
    _gpu("gpu_sm_clock_hertz", Kind.GAUGE, "SM clock (DCGM_FI_DEV_SM_CLOCK)"),
    _gpu("gpu_sm_clock_max_hertz", Kind.GAUGE, "SM clock possible (DCGM_FI_DEV_MAX_SM_CLOCK)"),
    _gpu("gpu_memory_clock_hertz", Kind.GAUGE, "Memory clock (DCGM_FI_DEV_MEM_CLOCK)"),
    _gpu("gpu_performance_state", Kind.GAUGE, "P-state; 0 is the fastest, 15 the slowest (DCGM_FI_DEV_PSTATE)"),
    _gpu("gpu_temperature_celsius", Kind.GAUGE, "Core temperature (DCGM_FI_DEV_GPU_TEMP)"),
    _gpu("gpu_memory_temperature_celsius", Kind.GAUGE, "Memory temperature (DCGM_FI_DEV_MEMORY_TEMP)"),
    _gpu("gpu_power_watts", Kind.GAUGE, "Power draw (DCGM_FI_DEV_POWER_USAGE)"),
    _gpu("gpu_power_limit_watts", Kind.GAUGE, "Enforced power limit (DCGM_FI_DEV_POWER_MGMT_LIMIT, NVML)"),
    _gpu("gpu_energy_joules_total", Kind.COUNTER, "Energy since driver load (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION)"),
    _gpu("gpu_memory_used_bytes", Kind.GAUGE, "Frame buffer in use (DCGM_FI_DEV_FB_USED)"),
    _gpu("gpu_memory_free_bytes", Kind.GAUGE, "Frame buffer free (DCGM_FI_DEV_FB_FREE)"),
    _gpu("gpu_memory_reserved_bytes", Kind.GAUGE, "Frame buffer reserved (DCGM_FI_DEV_FB_RESERVED)"),
    _gpu("gpu_memory_total_bytes", Kind.GAUGE, "Frame buffer size (DCGM_FI_DEV_FB_TOTAL)"),
    _gpu("gpu_xid_last", Kind.GAUGE, "Number of the last XID; sticks until restart (DCGM_FI_DEV_XID_ERRORS)"),
    _gpu("gpu_ecc_single_bit_errors_total", Kind.COUNTER, "Corrected (DCGM_FI_DEV_ECC_SBE_AGG_TOTAL)"),
    _gpu("gpu_ecc_double_bit_errors_total", Kind.COUNTER, "Uncorrected (DCGM_FI_DEV_ECC_DBE_AGG_TOTAL)"),
    _gpu("gpu_remapped_rows_correctable", Kind.GAUGE, "Rows remapped (DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS)"),
    _gpu("gpu_remapped_rows_uncorrectable", Kind.GAUGE, "Rows remapped (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS)"),
    _gpu("gpu_row_remap_failed", Kind.GAUGE, "1 after a row could not be remapped (DCGM_FI_DEV_ROW_REMAP_FAILURE)"),
    _gpu("gpu_row_remap_pending", Kind.GAUGE, "1 while a remapped row waits for a reset of the GPU (NVML field 144)"),
    _gpu("gpu_xid_events_total", Kind.COUNTER, "XID events seen, repeats included; from 0 where watched (NVML)"),
    _gpu("gpu_xid_events_by_number_total", Kind.COUNTER, "XID events seen, by number (NVML)", "xid"),
    _gpu("gpu_pcie_correctable_errors_total", Kind.COUNTER, "Link errors that were corrected (NVML field 173)"),
    _gpu("gpu_pcie_non_fatal_errors_total", Kind.COUNTER, "Transactions lost (NVML field 179)"),
    _gpu("gpu_pcie_fatal_errors_total", Kind.COUNTER, "The link became unreliable (NVML field 180)"),
    _gpu("gpu_pcie_replays_total", Kind.COUNTER, "PCIe replays (DCGM_FI_DEV_PCIE_REPLAY_COUNTER)"),
    _gpu("gpu_pcie_transmit_bytes_per_second", Kind.GAUGE, "Rate, not a counter (DCGM_FI_PROF_PCIE_TX_BYTES)"),
    _gpu("gpu_pcie_receive_bytes_per_second", Kind.GAUGE, "Rate, not a counter (DCGM_FI_PROF_PCIE_RX_BYTES)"),
    _gpu("gpu_pcie_link_generation", Kind.GAUGE, "PCIe generation now (DCGM_FI_DEV_PCIE_LINK_GEN, NVML)"),
    _gpu("gpu_pcie_link_width", Kind.GAUGE, "PCIe lanes now (DCGM_FI_DEV_PCIE_LINK_WIDTH, NVML)"),
    _gpu("gpu_pcie_link_generation_max", Kind.GAUGE, "PCIe generation possible (DCGM_FI_DEV_PCIE_MAX_LINK_GEN)"),
    _gpu("gpu_pcie_link_width_max", Kind.GAUGE, "PCIe lanes possible (DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH)"),
    _gpu("gpu_nvlink_transmit_bytes_per_second", Kind.GAUGE, "Rate, not a counter (DCGM_FI_PROF_NVLINK_TX_BYTES)"),
    _gpu("gpu_nvlink_receive_bytes_per_second", Kind.GAUGE, "Rate, not a counter (DCGM_FI_PROF_NVLINK_RX_BYTES)"),
    _gpu("gpu_nvlink_bytes_per_second", Kind.GAUGE, "All links, rate (DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL)"),
    _gpu("gpu_nvlink_flit_crc_errors_total", Kind.COUNTER, "All links (DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL)"),
    _gpu("gpu_nvlink_data_crc_errors_total", Kind.COUNTER, "All links (DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL)"),
    _gpu("gpu_nvlink_replays_total", Kind.COUNTER, "All links (DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL)"),
    _gpu("gpu_nvlink_recoveries_total", Kind.COUNTER, "All links (DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL)"),
    _gpu("gpu_clocks_event_reason", Kind.GAUGE, "1 while the reason holds the clock down", "reason"),
    _gpu("gpu_clocks_event_seconds_total", Kind.COUNTER, "Time a reason held the clock down", "reason"),
    Metric("gpu_info", Kind.INFO, "The GPU; value 1", (*GPU_LABELS, "gpu", "pci_bus_id", "gpu_model", "mig_profile")),
)

HOST_METRICS: tuple[Metric, ...] = (
    _own(
        "host_pressure_seconds_total",
        Kind.COUNTER,
        "Time in which some or all tasks of the node stood still for want of a resource (/proc/pressure)",
        "resource",
        "share",
    ),
)

NETWORK_METRICS: tuple[Metric, ...] = (
    _port("port_up", Kind.GAUGE, "1 while the port is ACTIVE, 0 in any other state (state)"),
    _port("port_lost", Kind.GAUGE, "1 if the port has been up since the exporter began, and is not now"),
    _port("rate_bytes_per_second", Kind.GAUGE, "Speed of the link as negotiated, while it is up (rate)"),
    _port(
        "expected_rate_bytes_per_second",
        Kind.GAUGE,
        "Usual speed of the other ports of the same board and kind of link here; its own best so far if that is more",
    ),
    _port("saturated_counters", Kind.GAUGE, "Counters that stand at their maximum and count no more until a reset"),
    _port(
        "port_info",
        Kind.INFO,
        "The port; value 1",
        "link_layer",
        "rate",
        "state",
        "physical_state",
        "board",
        "firmware",
    ),
    _counted("transmit_bytes_total", "RDMA data sent", "4 x port_xmit_data, or tx_bytes"),
    _counted("receive_bytes_total", "RDMA data received", "4 x port_rcv_data, or rx_bytes"),
    _counted("transmit_packets_total", "Packets sent", "port_xmit_packets"),
    _counted("receive_packets_total", "Packets received", "port_rcv_packets"),
    _counted("transmit_waits_total", "Ticks of the adapter with data to send and no credit", "port_xmit_wait"),
    _counted("symbol_errors_total", "Errors on the wire that were not corrected", "symbol_error"),
    _counted("link_recoveries_total", "Times that the link had to be trained anew", "link_error_recovery"),
    _counted("link_downs_total", "Times that the link was lost", "link_downed, carrier_down_count"),
    _counted("link_integrity_errors_total", "Local physical errors over the limit", "local_link_integrity_errors"),
    _counted("receive_errors_total", "Packets with errors", "port_rcv_errors"),
    _counted("receive_remote_errors_total", "Packets that the sender spoilt", "port_rcv_remote_physical_errors"),
    _counted("receive_constraint_errors_total", "Packets not allowed in", "port_rcv_constraint_errors"),
    _counted("receive_discards_total", "Packets dropped on arrival", "rx_roce_discards, rx_drops"),
    _counted("transmit_discards_total", "Packets dropped before sending", "port_xmit_discards"),
    _counted("transmit_constraint_errors_total", "Packets not allowed out", "port_xmit_constraint_errors"),
    _counted("buffer_overruns_total", "Buffer overrun for long", "excessive_buffer_overrun_errors"),
    _counted("management_drops_total", "Management packets dropped for want of buffers", "VL15_dropped"),
    _counted("out_of_sequence_total", "Packets that came out of order", "out_of_sequence"),
    _counted("out_of_buffer_total", "Packets dropped for want of a receive request", "out_of_buffer"),
    _counted("sequence_errors_total", "Told by a peer that packets are missing", "packet_seq_err"),
    _counted("implied_sequence_errors_total", "Answers out of order", "implied_nak_seq_err"),
    _counted("acknowledge_timeouts_total", "No acknowledgement in time", "local_ack_timeout_err"),
    _counted("receiver_not_ready_total", "Told by a peer to come again later", "rnr_nak_retry_err"),
    _counted("retries_exceeded_total", "Connections given up", "req_transport_retries_exceeded"),
    _counted("retransmissions_total", "Sent again, as far as the driver tells", "roce_adp_retrans, retrans_pkts"),
    _counted("duplicate_requests_total", "Requests that came again", "duplicate_request"),
    _counted("request_errors_total", "Requests that ended in an error", "req_cqe_error"),
    _counted("response_errors_total", "Responses that ended in an error", "resp_cqe_error"),
    _counted("slow_restarts_total", "Restarts at a low speed", "roce_slow_restart"),
    _counted("cnp_sent_total", "Congestion notifications sent to whoever sends too fast", "np_cnp_sent"),
    _counted("cnp_handled_total", "Congestion notifications obeyed", "rp_cnp_handled"),
    _counted("cnp_ignored_total", "Congestion notifications ignored", "rp_cnp_ignored"),
    _counted("ecn_marked_total", "Packets that a switch marked as congested", "np_ecn_marked_roce_packets"),
)

EXPORTER_METRICS: tuple[Metric, ...] = (
    _own("straggler_exporter_build_info", Kind.INFO, "Version; value 1", "version", "python_version"),
    _own("straggler_exporter_source_state", Kind.GAUGE, "1 for the state a source is in", "source", "state"),
    _own("straggler_exporter_source_duration_seconds", Kind.GAUGE, "How long the last look took", "source"),
    _own("straggler_exporter_source_age_seconds", Kind.GAUGE, "Since the last look that gave facts", "source"),
    _own("straggler_exporter_blind", Kind.GAUGE, "Things that cannot be seen at present", "source", "reason"),
    _own("straggler_exporter_records_read_total", Kind.COUNTER, "Step records read", "source"),
    _own("straggler_exporter_records_missed_total", Kind.COUNTER, "Records overwritten before being read", "source"),
    _own("straggler_exporter_refused_total", Kind.COUNTER, "Inputs refused", "source", "reason"),
    _own("straggler_exporter_ranks", Kind.GAUGE, "Ranks seen on this node", "run"),
    _own("straggler_exporter_ranks_without_gpu", Kind.GAUGE, "Living ranks not joined with a GPU", "run", "reason"),
    _own("straggler_exporter_ranks_without_own_time", Kind.GAUGE, "Living ranks, own time absent", "run", "reason"),
    _own("straggler_exporter_ranks_refused", Kind.GAUGE, "Rings not published at present", "reason"),
    _own("straggler_exporter_scrape_seconds", Kind.GAUGE, "How long the last scrape took to collect"),
    _own("straggler_exporter_rings_removed_total", Kind.COUNTER, "Ring files removed after their grace period"),
    _own("straggler_exporter_nccl_logs", Kind.GAUGE, "NCCL logs that are followed"),
    _own(
        "straggler_exporter_nccl_unlinked",
        Kind.GAUGE,
        "Ranks in NCCL logs that are not told for any rank of this node",
        "reason",
    ),
    _own("straggler_exporter_hang_after_seconds", Kind.GAUGE, "Shortest silence that this sidecar calls a hang"),
)

METRICS: tuple[Metric, ...] = (*RANK_METRICS, *GPU_METRICS, *HOST_METRICS, *NETWORK_METRICS, *EXPORTER_METRICS)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
