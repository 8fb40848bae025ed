"""Facts to series: one function for each kind of fact.

A rank that is gone keeps its counters and its state for a while; its gauges go at once, since a last value that stays
on the page looks like a living one. Its info stays with the state: an alert on a crash has to say which GPU and pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from straggler.join.network import expected_rates
from straggler.join.view import RankView
from straggler.metrics.book import MetricBook
from straggler.metrics.catalogue import RANK_METRICS, Kind
from straggler.model.gpu import GpuFacts
from straggler.model.host import NodeHost, RankHost
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts
from straggler.model.rank import RankState, Totals
from straggler.wire import layout
from straggler.wire.recent import Recent

_JOINED_GAUGES = tuple(
    (metric.name, metric.name.removeprefix("training_gpu_"))
    for metric in RANK_METRICS
    if metric.name.startswith("training_gpu_") and metric.kind is Kind.GAUGE
)
"""Series name, and its name in ``GpuFacts.values``."""

_EXCLUDED_PHASES = tuple(layout.PHASES[index] for index in layout.EXCLUDED)


def add_ranks(book: MetricBook, views: Iterable[RankView]) -> None:
    """Add all series of the ranks, joined with their GPUs."""
    for view in views:
        _add_rank(book, view)


def _add_rank(book: MetricBook, view: RankView) -> None:
    rank = view.rank
    labels = _rank_labels(view)
    for state in RankState:
        book.add("training_rank_state", float(rank.state is state), (*labels, state.value))
    book.add("training_rank_info", 1, _info_labels(view))
    if rank.totals is not None:
        _add_totals(book, rank.totals, labels)
    if not rank.alive:
        return
    if rank.recent is not None:
        _add_recent(book, rank.recent, labels)
    book.add("training_step", rank.step, labels)
    book.add("training_last_step_timestamp_seconds", rank.last_step_timestamp_seconds, labels)
    book.add("training_world_size", rank.identity.world_size, labels)
    for phase in _EXCLUDED_PHASES:
        book.add("training_rank_phase", float(rank.excluded_phase == phase), (*labels, phase))
    if view.host is not None:
        _add_host(book, view.host, labels)
    if view.nccl is not None:
        _add_nccl(book, view.nccl, labels)
    if view.gpu is not None:
        _add_joined_gpu(book, view.gpu, labels)


def _add_joined_gpu(book: MetricBook, gpu: GpuFacts, labels: tuple[str, ...]) -> None:
    for name, key in _JOINED_GAUGES:
        book.add(name, gpu.values.get(key), labels)
    for reason, seconds in gpu.clocks_event_seconds.items():
        book.add("training_gpu_clocks_event_seconds_total", seconds, (*labels, reason))


def _add_host(book: MetricBook, host: RankHost, labels: tuple[str, ...]) -> None:
    for name, value in host.values.items():
        book.add(f"training_rank_host_{name}", value, labels)
    for what, seconds in host.pressure.items():
        book.add("training_rank_host_pressure_seconds_total", seconds, (*labels, *what))
    for event, count in host.memory_events.items():
        book.add("training_rank_host_memory_events_total", count, (*labels, event))


def _add_nccl(book: MetricBook, nccl: NcclFacts, labels: tuple[str, ...]) -> None:
    nvls = {None: "", True: "yes", False: "no"}[nccl.nvls]
    book.add("training_nccl_info", 1, (*labels, nccl.version, nccl.cuda_version, nccl.network, nvls))
    for transport, count in nccl.channels.items():
        book.add("training_nccl_channels", count, (*labels, transport))
    book.add("training_nccl_gdr_ratio", nccl.gdr_ratio, labels)
    for kind, count in nccl.warnings.items():
        book.add("training_nccl_warnings_total", count, (*labels, kind))


def add_node(book: MetricBook, node: NodeHost) -> None:
    """Add the series of the node itself."""
    for what, seconds in node.pressure.items():
        book.add("host_pressure_seconds_total", seconds, what)


def _add_totals(book: MetricBook, totals: Totals, labels: tuple[str, ...]) -> None:
    book.add_summary("training_step_seconds", total=totals.step_seconds, count=totals.steps, labels=labels)
    book.add("training_own_seconds_total", totals.own_seconds, labels)
    book.add("training_wait_seconds_total", totals.wait_seconds, labels)
    for phase, seconds in totals.phase_seconds.items():
        book.add("training_phase_seconds_total", seconds, (*labels, phase))
    book.add("training_host_data_seconds_total", totals.host_data_seconds, labels)
    book.add("training_rank_arrivals_total", totals.arrivals, labels)
    book.add("training_tokens_total", totals.tokens, labels)
    book.add("training_samples_total", totals.samples, labels)
    book.add("training_flops_total", totals.flops, labels)
    book.add("training_allreduce_bytes_total", totals.allreduce_bytes, labels)


def _add_recent(book: MetricBook, recent: Recent, labels: tuple[str, ...]) -> None:
    book.add("training_recent_own_seconds", recent.own_mean_seconds, labels)
    book.add("training_recent_own_median_seconds", recent.own_median_seconds, labels)
    book.add("training_recent_step_seconds", recent.step_mean_seconds, labels)
    book.add("training_recent_wait_seconds", recent.wait_mean_seconds, labels)
    book.add("training_recent_min_wait_seconds", recent.wait_min_seconds, labels)
    book.add("training_recent_steps", recent.steps, labels)


def _rank_labels(view: RankView) -> tuple[str, ...]:
    identity = view.rank.identity
    return identity.run, str(identity.rank), identity.peer_group, identity.node


def _info_labels(view: RankView) -> tuple[str, ...]:
    """In the order of ``catalogue.INFO_LABELS``. The GPU describes itself; the pod is what the process says first."""
    identity = view.rank.identity
    gpu = view.gpu
    return (
        *_rank_labels(view),
        _text(identity.attempt),
        _text(identity.local_rank),
        _text(identity.world_size),
        gpu.key.uuid if gpu else identity.gpu_uuid,
        _text(identity.gpu if gpu is None or gpu.gpu is None else gpu.gpu),
        (gpu.pci_bus_id if gpu else "") or identity.pci_bus_id,
        _text(gpu.key.gpu_instance if gpu else identity.gpu_instance),
        gpu.model if gpu else "",
        identity.pod or (gpu.pod if gpu else ""),
        identity.namespace or (gpu.namespace if gpu else ""),
        identity.container or (gpu.container if gpu else ""),
        identity.slurm_job,
        identity.user,
        identity.framework,
        identity.clock,
        "measured" if view.rank.own_reason == "measured" else "none",
        view.rank.own_reason,
        view.evidence,
        gpu.source if gpu else "",
        identity.hook_version,
    )


def add_gpus(book: MetricBook, gpus: Iterable[GpuFacts]) -> None:
    """Add all series of the GPUs, whether or not a rank is on them."""
    for gpu in gpus:
        labels = (gpu.key.uuid, _text(gpu.key.gpu_instance))
        for name, value in gpu.values.items():
            book.add(f"gpu_{name}", value, labels)
        for reason, active in gpu.clocks_event_reasons.items():
            book.add("gpu_clocks_event_reason", active, (*labels, reason))
        for reason, seconds in gpu.clocks_event_seconds.items():
            book.add("gpu_clocks_event_seconds_total", seconds, (*labels, reason))
        for number, count in gpu.xid_events.items():
            book.add("gpu_xid_events_by_number_total", count, (*labels, str(number)))
        details = (_text(gpu.gpu), gpu.pci_bus_id, gpu.model, gpu.mig_profile)
        book.add("gpu_info", 1, (*labels, *details))


def add_network(book: MetricBook, ports: Sequence[PortFacts], node: str) -> None:
    """Add all series of the node's RDMA ports.

    Args:
        book: takes them.
        ports: all of them.
        node: what the ranks of this node call it.
    """
    expected = expected_rates(ports)
    for port in ports:
        labels = (node, port.key.device, str(port.key.port))
        book.add("network_port_up", None if port.up is None else float(port.up), labels)
        book.add("network_port_lost", None if port.lost is None else float(port.lost), labels)
        book.add("network_rate_bytes_per_second", port.rate_bytes_per_second, labels)
        book.add("network_expected_rate_bytes_per_second", expected.get(port.key), labels)
        book.add("network_saturated_counters", len(port.saturated) if port.counters else None, labels)
        details = (port.link_layer, port.rate_text, port.state, port.physical_state, port.board, port.firmware)
        book.add("network_port_info", 1, (*labels, *details))
        for name, value in port.counters.items():
            book.add(f"network_{name}", value, labels)


def _text(number: int | None) -> str:
    """An unknown number is an empty label value, which Prometheus treats as no label."""
    return "" if number is None else str(number)
