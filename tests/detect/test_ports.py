"""What is wrong with the ports of a node, by one look and by many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from facts import identity, view
from samples import run_of, with_recent
from straggler.detect.history import History
from straggler.detect.policy import DEFAULT
from straggler.detect.ports import PortMemory
from straggler.detect.verdicts import judge
from straggler.model.network import PortFacts, PortFault, PortKey

HOUR = 3600.0


def port(index: int = 0, **changes: object) -> PortFacts:
    """A healthy port of a node."""
    values: dict[str, object] = {
        "key": PortKey(f"mlx5_{index}", 1),
        "up": True,
        "lost": False,
        "rate_bytes_per_second": 50e9,
        "board": "psid",
        "counters": {"symbol_errors_total": 3.0, "link_downs_total": 4.0, "link_recoveries_total": 5.0},
    }
    return PortFacts(**(values | changes))  # type: ignore[arg-type]  # the fields of PortFacts


def lost(index: int = 0) -> PortFacts:
    """A port that was up."""
    return port(
        index, up=False, lost=True, rate_bytes_per_second=None, state="DOWN", physical_state="Polling", counters={}
    )


def told(memory: PortMemory, now: float, *ports: PortFacts) -> list[tuple[str, str]]:
    """Device and fault."""
    return [(fault.device, fault.fault) for fault in memory.look(now, ports)]


def counted(**counters: float) -> PortFacts:
    """A port with these counters besides the healthy ones."""
    return port(counters={**port().counters, **counters})


def test_healthy_ports_are_silent() -> None:
    """However long one looks."""
    memory = PortMemory(DEFAULT)

    assert [told(memory, 60.0 * minute, port(0), port(1)) for minute in range(90)] == [[]] * 90


def test_a_lost_port_is_told_while_others_are_up() -> None:
    """With the state that the cable's end shows; where all are lost the fabric is, or the node is taken out."""
    (fault,) = PortMemory(DEFAULT).look(0, [lost(0), port(1)])

    assert (fault.device, fault.port, fault.fault) == ("mlx5_0", 1, "down")
    assert fault.text == "mlx5_0 port 1 is DOWN (Polling), and was up"
    assert told(PortMemory(DEFAULT), 0, lost(0), lost(1)) == []


@pytest.mark.parametrize(("rate", "slow"), [(50e9, False), (45e9, False), (44.9e9, True), (25e9, True), (None, False)])
def test_a_slow_link_is_told(rate: float | None, *, slow: bool) -> None:
    """From nine tenths of its peers' speed down; an unknown one is not slow."""
    ports = [port(0, rate_bytes_per_second=rate), port(1), port(2)]

    assert told(PortMemory(DEFAULT), 0, *ports) == ([("mlx5_0", "rate")] if slow else [])


def test_the_text_has_the_numbers() -> None:
    """On-call reads speeds as they stand on the box."""
    (fault,) = PortMemory(DEFAULT).look(0, [port(0, rate_bytes_per_second=12.5e9), port(1), port(2)])

    assert fault.text == "mlx5_0 port 1 has 100 Gb/s, where its peers have, or it had, 400 Gb/s"


@pytest.mark.parametrize(
    ("name", "growth", "bad"),
    [
        ("link_downs_total", 1, False),
        ("link_downs_total", 2, True),
        ("link_recoveries_total", 1, False),
        ("link_recoveries_total", 2, True),
        ("symbol_errors_total", 120, False),
        ("symbol_errors_total", 121, True),
        ("receive_errors_total", 9999, False),
    ],
)
@pytest.mark.parametrize("seconds", [600.0, HOUR])
def test_growing_counters_are_told(name: str, growth: float, seconds: float, *, bad: bool) -> None:
    """By how much they grew in ten minutes or in an hour, from the same number on."""
    memory = PortMemory(DEFAULT)
    told(memory, 0, counted(**{name: 10.0}))

    assert told(memory, seconds, counted(**{name: 10.0 + growth})) == ([("mlx5_0", "errors")] if bad else [])


def test_growth_that_is_slower_than_an_hour_is_no_fault() -> None:
    """What was counted two hours ago is over, and forgotten."""
    memory = PortMemory(DEFAULT)
    found = [told(memory, 60.0 * minute, counted(symbol_errors_total=2.0 * minute)) for minute in range(200)]
    late = PortMemory(DEFAULT)
    faster = [told(late, 60.0 * minute, counted(symbol_errors_total=2.1 * minute)) for minute in range(200)]

    assert found == [[]] * 200
    assert faster[59] == []
    assert faster[60] == [("mlx5_0", "errors")]
    assert len(late._marks[PortKey("mlx5_0", 1)]) <= 62


def test_an_hours_growth_stays_told_between_two_marks() -> None:
    """Counters are kept once a minute and looked at more often: the mark of an hour ago is there at each look."""
    memory = PortMemory(DEFAULT)
    seconds = [15.0 * look for look in range(4 * 75)]
    faults = [told(memory, now, counted(symbol_errors_total=3.0 + now / 24)) for now in seconds]

    assert faults == [[] if now < HOUR else [("mlx5_0", "errors")] for now in seconds]


def test_a_reset_and_a_missing_counter_are_no_growth() -> None:
    """Who resets counters sees them fall; a counter that comes late has no past."""
    memory = PortMemory(DEFAULT)
    told(memory, 0, counted(symbol_errors_total=60_000.0, link_downs_total=200.0))

    assert told(memory, 600, counted(symbol_errors_total=0.0, link_downs_total=0.0)) == []
    assert told(memory, 1200, port(counters={})) == []
    assert told(memory, 1800, counted(symbol_errors_total=60_000.0)) == []


def test_a_port_that_is_gone_is_forgotten() -> None:
    """Another adapter of that name begins anew."""
    memory = PortMemory(DEFAULT)
    told(memory, 0, counted(symbol_errors_total=0.0))
    told(memory, 300)

    assert told(memory, 600, counted(symbol_errors_total=5000.0)) == []


def test_ranks_learn_of_the_ports_of_their_node() -> None:
    """All that have them, and only those."""
    ports = (lost(0), port(1))
    here, elsewhere = replace(view(0), ports=ports), view(1)
    first, second = History(DEFAULT).observe(0, [here, elsewhere])

    assert [fault.fault for fault in first.network_faults] == ["down"]
    assert second.network_faults == ()


def test_one_verdict_for_a_node() -> None:
    """It is about no rank: all of the node send through its ports, and all of the run wait."""
    faults = (
        PortFault("mlx5_0", 1, "down", "mlx5_0 port 1 is DOWN"),
        PortFault("mlx5_1", 1, "rate", "mlx5_1 port 1 is slow"),
    )
    ranks = run_of([1.0] * 16)
    ranks = [replace(rank, network_faults=faults if rank.node == "n1" else ()) for rank in ranks]
    found = [verdict for verdict in judge(ranks) if verdict.verdict == "degraded_link"]

    assert [(verdict.node, verdict.rank, verdict.severity) for verdict in found] == [("n1", None, "warning")]
    assert found[0].evidence == "mlx5_0 port 1 is DOWN; mlx5_1 port 1 is slow"


def test_a_slow_network_is_blamed_on_bad_ports() -> None:
    """All wait long and none is slow: where a port is bad that is why, and without one nothing is said."""
    fault = PortFault("mlx5_0", 1, "rate", "mlx5_0 port 1 has 100 Gb/s")
    waiting = [with_recent(rank, step_mean_seconds=3.0, wait_min_seconds=2.0) for rank in run_of([1.0] * 8)]

    def causes(faults: tuple[PortFault, ...]) -> set[tuple[str, str]]:
        ranks = [replace(rank, network_faults=faults) for rank in waiting]
        return {(one.cause, one.cause_text) for one in judge(ranks) if one.verdict == "slow_transport"}

    assert causes((fault,)) == {("link", "Bad RDMA ports: mlx5_0 port 1 has 100 Gb/s")}
    assert causes(()) == {("", "")}


def test_each_node_answers_for_its_own_ports() -> None:
    """Seen together, a lost port of one node is no fault of the ranks on another."""
    views = [
        replace(view(rank, identity=identity(rank, node=node)), ports=ports)
        for rank, node, ports in ((0, "a", (port(0), port(1))), (1, "b", (port(0), lost(1))))
    ]
    on_a, on_b = History(DEFAULT).observe(0.0, views)

    assert on_a.network_faults == ()
    assert [(fault.device, fault.fault) for fault in on_b.network_faults] == [("mlx5_1", "down")]
