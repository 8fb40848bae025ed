"""Which file holds which counter, in which unit, and how far it can count. A driver's names appear here only.

Files under ``counters`` are the port's performance management attributes (PMA). Data stands there in words of four
bytes, on every driver: the kernel asks with the same management datagram whoever answers, and the InfiniBand
specification defines the attribute as octets divided by four. The width of the link has nothing to do with it. Small
attributes do not wrap but stop at their maximum (IBTA 1.3, 16.1.3.5).

Files under ``hw_counters`` are the driver's own, 64 bits wide. ``INTERFACE`` stands for the directory of the adapter's
network interface: on Ethernet it alone counts how often the link was lost.

Intel's irdma counts bytes apart for IPv4 and IPv6, and one of the two would be a wrong sum: it has none here.

Sources: Linux, drivers/infiniband/core/sysfs.c (``PORT_PMA_ATTR``: widths), hw/mlx5/counters.c, hw/mlx4/main.c,
hw/bnxt_re/hw_counters.c, hw/efa/efa_verbs.c, hw/mana/counters.c (Azure), hw/irdma/verbs.c, hw/erdma/erdma_verbs.c
(Alibaba), sw/rxe/rxe_hw_counters.c, hw/hfi1/chip.c (a name that ends in ``,32``), and
Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WORD_BYTES: Final = 4
INTERFACE: Final = "net"


class Origin(NamedTuple):
    """One file that may hold a counter."""

    directory: str
    file: str
    factor: int = 1
    most: int | None = None
    """Where it stops; ``None``: it wraps or never gets there."""
    everywhere: bool = True
    """Whether it means something on Ethernet, where the InfiniBand attributes stand at zero and count nothing."""


class Counter(NamedTuple):
    """One counter and the files where it may be: the first that is there is the one."""

    name: str
    """In the catalogue, without ``network_``."""
    origins: tuple[Origin, ...]


def _pma(file: str, bits: int, factor: int = 1) -> Origin:
    return Origin("counters", file, factor, most=(1 << bits) - 1, everywhere=False)


def _traffic(file: str, factor: int = 1) -> tuple[Origin, Origin]:
    """In kernels before 4.5 the 64 bits stand in a directory of their own, beside 32 bits that stop after 16 GB."""
    return (
        Origin("counters_ext", f"{file}_64", factor),
        Origin("counters", file, factor, most=(1 << 32) - 1),
    )


def _own(*files: str) -> tuple[Origin, ...]:
    return tuple(Origin("hw_counters", file) for file in files)


COUNTERS: Final = (
    Counter("transmit_bytes_total", (*_traffic("port_xmit_data", WORD_BYTES), *_own("tx_bytes", "hw_tx_bytes_cnt"))),
    Counter("receive_bytes_total", (*_traffic("port_rcv_data", WORD_BYTES), *_own("rx_bytes", "hw_rx_bytes_cnt"))),
    Counter(
        "transmit_packets_total",
        (*_traffic("port_xmit_packets"), *_own("tx_pkts", "tx_packets", "sent_pkts", "hw_tx_packets_cnt")),
    ),
    Counter(
        "receive_packets_total",
        (*_traffic("port_rcv_packets"), *_own("rx_pkts", "rx_packets", "rcvd_pkts", "hw_rx_packets_cnt")),
    ),
    Counter("transmit_waits_total", (_pma("port_xmit_wait", 32),)),
    Counter("symbol_errors_total", (_pma("symbol_error", 16),)),
    Counter("link_recoveries_total", (_pma("link_error_recovery", 8),)),
    Counter(
        "link_downs_total",
        (_pma("link_downed", 8), *_own("link_downed", "SwLinkDown,32"), Origin(INTERFACE, "carrier_down_count")),
    ),
    Counter("link_integrity_errors_total", (_pma("local_link_integrity_errors", 4),)),
    Counter("receive_errors_total", (_pma("port_rcv_errors", 16), *_own("rx_roce_errors"))),
    Counter("receive_remote_errors_total", (_pma("port_rcv_remote_physical_errors", 16),)),
    Counter("receive_constraint_errors_total", (_pma("port_rcv_constraint_errors", 8),)),
    Counter("receive_discards_total", _own("rx_roce_discards", "rx_drops")),
    Counter("transmit_discards_total", (_pma("port_xmit_discards", 16), *_own("tx_roce_discards"))),
    Counter("transmit_constraint_errors_total", (_pma("port_xmit_constraint_errors", 8),)),
    Counter("buffer_overruns_total", (_pma("excessive_buffer_overrun_errors", 4),)),
    Counter("management_drops_total", (_pma("VL15_dropped", 16),)),
    Counter(
        "out_of_sequence_total",
        _own("out_of_sequence", "rq_num_oos", "oos_drop_count", "out_of_seq_request", "responder_oos"),
    ),
    Counter("out_of_buffer_total", _own("out_of_buffer", "rx_out_of_buffer")),
    Counter(
        "sequence_errors_total",
        _own("packet_seq_err", "sq_num_oos", "seq_err_naks_rcvd", "rcvd_seq_err", "requester_oos_nak"),
    ),
    Counter("implied_sequence_errors_total", _own("implied_nak_seq_err", "requester_implicit_nak")),
    Counter(
        "acknowledge_timeouts_total",
        _own("local_ack_timeout_err", "sq_num_to", "retrans_timeout_events", "requester_timeout"),
    ),
    Counter(
        "receiver_not_ready_total",
        _own("rnr_nak_retry_err", "sq_num_rnr", "rnr_naks_rcvd", "rcvd_rnr_err", "requester_rnr_nak", "RNR received"),
    ),
    Counter(
        "retries_exceeded_total",
        _own(
            "req_transport_retries_exceeded",
            "sq_num_tree",
            "max_retry_exceeded",
            "retry_exceeded_err",
            "requester_retries_exceeded",
        ),
    ),
    Counter(
        "retransmissions_total",
        _own(
            "roce_adp_retrans", "to_retransmits", "retrans_pkts", "completer_retry_err", "tcpRetransSegs", "RetransSegs"
        ),
    ),
    Counter("duplicate_requests_total", _own("duplicate_request", "rq_num_dup", "dup_req", "responder_dup_request")),
    Counter("request_errors_total", _own("req_cqe_error")),
    Counter("response_errors_total", _own("resp_cqe_error")),
    Counter("slow_restarts_total", _own("roce_slow_restart")),
    Counter("cnp_sent_total", _own("np_cnp_sent", "np_cnp_pkts", "tx_cnp_pkts", "cnpSent")),
    Counter("cnp_handled_total", _own("rp_cnp_handled", "rx_cnp_pkts", "received_cnps", "cnpHandled")),
    Counter("cnp_ignored_total", _own("rp_cnp_ignored", "cnpIgnored")),
    Counter("ecn_marked_total", _own("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd")),
)

JUDGED: Final = frozenset({"symbol_errors_total", "link_recoveries_total", "link_downs_total"})
"""What verdicts count: of these it is told when one has stopped."""
