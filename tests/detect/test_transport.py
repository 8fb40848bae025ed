"""Nodes that talk more slowly than they could, by NCCL's own word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from facts import view
from straggler.detect.policy import DEFAULT
from straggler.detect.regression import Level
from straggler.detect.sample import RankSample, sample
from straggler.detect.transport import NO_GDR, SOCKETS, blame_sockets, poor_transport, tell_node
from straggler.detect.verdict import Verdict
from straggler.model.nccl import NcclFacts
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankState

UP = ("mlx5_0 port 1",)
WAITING = Level(step=1.0, own={"0": 0.6}, least_wait=0.4)


def log(**changes: Any) -> NcclFacts:
    """What NCCL said of some rank."""
    values: dict[str, Any] = {"host": "n", "pid": 1}
    return NcclFacts(**(values | changes))


def rank(number: int, node: str, ports: tuple[str, ...] = (), **said: Any) -> RankSample:
    """One rank with its log."""
    return RankSample(run="r", rank=number, node=node, nccl=log(**said), rdma_ports_up=ports)


def sockets(number: int, node: str, ports: tuple[str, ...] = ()) -> RankSample:
    """A rank on sockets."""
    return rank(number, node, ports, channels={"socket": 2}, no_rdma_device=True)


def found(*ranks: RankSample, now: Level | None = WAITING) -> list[Verdict]:
    """What is told of a run."""
    return poor_transport("r", ranks, now, DEFAULT)


def test_sockets_beside_a_port_that_is_up() -> None:
    """One verdict for the run, which says which node has what, and what NCCL said of it."""
    (verdict,) = found(sockets(0, "n0", UP), sockets(1, "n0", UP), sockets(2, "n1"))

    assert (verdict.verdict, verdict.reason, verdict.rank, verdict.node) == ("slow_transport", SOCKETS, None, None)
    assert verdict.evidence == (
        "n0 sends over sockets although mlx5_0 port 1 is up: NCCL found no adapter; libibverbs or /dev/infiniband may "
        "be missing in the image, or locked memory"
    )


def test_sockets_beside_ranks_that_use_infiniband() -> None:
    """Where others of the run do better it is no matter of the cluster."""
    (verdict,) = found(sockets(0, "n0"), rank(1, "n1", channels={"ib": 4}))

    assert verdict.evidence.startswith("n0 sends over sockets: ")


@pytest.mark.parametrize(
    "ranks",
    [
        [sockets(0, "n0"), sockets(1, "n1")],
        [rank(0, "n0", UP, channels={"ib": 2}), rank(1, "n1", UP, channels={"ib": 2})],
        [rank(0, "n0", UP, channels={"p2p": 8})],
        [rank(0, "n0", UP)],
        [RankSample(run="r", rank=0, node="n0", rdma_ports_up=UP)],
        [],
    ],
)
def test_what_is_as_good_as_it_gets_is_not_told(ranks: list[RankSample]) -> None:
    """Sockets where there is nothing else, InfiniBand, one node alone, and ranks without a log."""
    assert found(*ranks) == []


def test_a_dead_rank_is_not_judged() -> None:
    """What it used is over."""
    dead = RankSample(run="r", rank=0, node="n0", state=RankState.CRASHED, nccl=log(channels={"socket": 1}))

    assert found(dead, rank(1, "n1", channels={"ib": 1})) == []


def test_a_run_that_hardly_waits_is_left_alone() -> None:
    """Sockets that nobody waits for are nobody's trouble; unknown waiting is not none."""
    little = Level(step=1.0, own={"0": 1.0}, least_wait=0.049)

    assert found(sockets(0, "n0", UP), now=little) == []
    assert len(found(sockets(0, "n0", UP), now=None)) == 1


def test_a_node_without_gdr_beside_one_with() -> None:
    """All of its ranks go through the host's memory, others' do not; else it is how the nodes are built."""
    good, bad = rank(0, "n0", gdr_ratio=1.0, channels={"ib": 1}), rank(1, "n1", gdr_ratio=0.0, channels={"ib": 1})
    half = rank(2, "n1", gdr_ratio=1.0, channels={"ib": 1})
    (verdict,) = found(good, bad)

    assert (verdict.reason, verdict.evidence.split(" ")[0]) == (NO_GDR, "n1")
    assert found(good, bad, half) == []
    assert found(bad) == []


def test_a_slow_network_is_blamed_on_sockets() -> None:
    """The alert that measures it says why, as far as a log does; GPUDirect RDMA alone does not explain it."""
    slow = Verdict(verdict="slow_transport", severity="warning", run="r")
    (blamed,) = blame_sockets([slow], found(sockets(0, "n0", UP)))
    without_gdr = found(rank(0, "n0", gdr_ratio=1.0, channels={"ib": 1}), rank(1, "n1", gdr_ratio=0.0))

    assert blamed.cause == "transport"
    assert blamed.cause_text.startswith("NCCL uses sockets: n0 sends over sockets although mlx5_0 port 1 is up")
    assert blame_sockets([slow], without_gdr) == [slow]


def test_many_nodes_are_counted() -> None:
    """Four sentences are enough for one alert."""
    (verdict,) = found(*(sockets(number, f"n{number}", UP) for number in range(7)))

    assert verdict.evidence.count("sends over sockets") == 4
    assert verdict.evidence.endswith("so do 3 more nodes")


@pytest.mark.parametrize(
    ("said", "ports", "sentence"),
    [
        (
            {"channels": {"socket": 1}, "rdma_devices": ("mlx5_0:1",)},
            ("mlx5_0 port 1", "mlx5_1 port 1"),
            (
                "n sends over sockets although mlx5_0 port 1, mlx5_1 port 1 are up: NCCL found mlx5_0:1 and did not "
                "take it; see NCCL_NET and NCCL_IB_DISABLE"
            ),
        ),
        ({"channels": {"socket": 1}}, (), "n sends over sockets: NCCL's log does not say why"),
        (
            {"channels": {"ib": 1, "p2p": 1}, "gdr_ratio": 1.0},
            (),
            "n sends over InfiniBand or RoCE, straight into GPU memory",
        ),
        (
            {"channels": {"ib": 1}, "gdr_ratio": 0.0, "gdr_disabled": ("mlx5_0",)},
            (),
            (
                "n sends over InfiniBand or RoCE, through the host's memory: GPUDirect RDMA is off for mlx5_0, see "
                "whether nvidia_peermem is loaded"
            ),
        ),
        ({"channels": {"libfabric": 1}}, (), "n sends over libfabric"),
        ({"channels": {"shm": 1}}, (), "the GPUs of n reach each other through the host's memory only"),
        (
            {"channels": {"p2p": 1, "shm": 1}},
            (),
            "the GPUs of n reach each other directly, and no other node is in these logs",
        ),
        ({"network": "Socket"}, UP, "NCCL on n has not said what it uses"),
    ],
)
def test_one_sentence_for_a_node(said: dict[str, Any], ports: tuple[str, ...], sentence: str) -> None:
    """What is used, beside what is there, and why, as far as the log tells; nothing where it does not."""
    assert tell_node("n", [log(**said)], ports) == sentence


def test_a_joined_rank_brings_its_log_and_ports() -> None:
    """The sample that verdicts are made from has both."""
    ports = (PortFacts(key=PortKey("mlx5_0", 1), up=True), PortFacts(key=PortKey("mlx5_1", 1), up=False))
    made = sample(replace(view(), nccl=log(), ports=ports))

    assert (made.nccl, made.rdma_ports_up) == (log(), UP)
