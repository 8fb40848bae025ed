"""Whose ports these are, and what speed they should have."""

from __future__ import annotations

import pytest

from facts import identity, rank_facts, view
from straggler.join.network import NodeName, expected_rates, name_node, with_ports
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankFacts, RankState


def on(*nodes: str, **changes: object) -> list[RankFacts]:
    """Ranks on nodes of these names."""
    return [rank_facts(rank, identity=identity(rank, node=node), **changes) for rank, node in enumerate(nodes)]


def port(device: str, rate: float | None, **changes: object) -> PortFacts:
    """One port that is up, or down where it has no rate."""
    values: dict[str, object] = {"key": PortKey(device, 1), "up": rate is not None, "rate_bytes_per_second": rate}
    return PortFacts(**(values | changes))  # type: ignore[arg-type]  # the fields of PortFacts


def test_the_ranks_name_the_node() -> None:
    """In a pod this process would call the node by the pod's name, and no run would find its ports."""
    assert name_node(on("n1", "n1"), "", "pod-7") == NodeName("n1")


def test_the_host_names_it_where_no_rank_does() -> None:
    """Before the first rank, and where ranks do not know their node."""
    assert name_node([], "", "host") == NodeName("host")
    assert name_node(on("", ""), "", "host") == NodeName("host")


def test_the_most_common_name_wins_and_the_others_are_told() -> None:
    """Pods that were not told their node's name call it by their own: their ranks are counted, not guessed."""
    named = name_node(on("n1", "pod-b", "n1", "pod-a"), "", "host")

    assert named == NodeName("n1", ("pod-a", "pod-b"))
    (problem,) = named.problems()
    assert (problem.reason, problem.count) == ("node_names_differ", 2)


def test_a_crowd_cannot_rename_a_node() -> None:
    """Whoever starts many ranks under another name would take the ports away from the runs of others."""
    named = name_node(on("n1", "x", "x", "x"), "n1", "n1")

    assert named == NodeName("n1", ("x", "x", "x"))


def test_a_tie_is_the_same_each_time() -> None:
    """Whoever comes first in the alphabet, whatever the order of the ranks."""
    assert name_node(on("b", "a"), "", "host").name == name_node(on("a", "b"), "", "host").name == "a"


def test_the_name_stays_while_no_other_is_more_common() -> None:
    """Series that were renamed with each rank that comes and goes would break every counter."""
    assert name_node(on("n1", "a", "b"), "n1", "host").name == "n1"
    assert name_node(on("n1", "a", "a"), "n1", "host").name == "a"
    assert name_node([], "n1", "host") == NodeName("n1")
    assert name_node(on("n2"), "n1", "host") == NodeName("n2")


@pytest.mark.parametrize("changes", [{"source": "push"}, {"state": RankState.CRASHED}])
def test_ranks_elsewhere_and_dead_ones_do_not_count(changes: dict[str, object]) -> None:
    """A pushed rank may be on any node."""
    assert name_node(on("n9", **changes), "", "host") == NodeName("host")


def test_ports_are_those_of_the_ranks_node() -> None:
    """A rank that names another node, or was pushed, does not send through this node's ports."""
    ports = (port("mlx5_0", 50e9),)

    assert with_ports(view(0), ports, "n1").ports == ports
    assert with_ports(view(0), ports, "n2").ports == ()
    assert with_ports(view(0, source="push"), ports, "n1").ports == ()


def test_a_link_should_be_as_fast_as_its_peers() -> None:
    """The usual speed of the others of the same board; one slow port changes nobody else's."""
    rates = [400.0, 400.0, 100.0, 400.0]
    expected = expected_rates([port(f"mlx5_{index}", rate, board="psid") for index, rate in enumerate(rates)])

    assert set(expected.values()) == {400.0}
    assert len(expected) == 4


def test_one_faster_link_makes_no_other_slow() -> None:
    """What most have is what a link should have, not what the best has."""
    rates = [200.0, 200.0, 200.0, 400.0]
    expected = expected_rates([port(f"mlx5_{index}", rate, board="psid") for index, rate in enumerate(rates)])

    assert [expected[PortKey(f"mlx5_{index}", 1)] for index in range(4)] == rates


def test_ports_of_other_boards_and_links_are_no_peers() -> None:
    """A slow adapter for storage beside fast ones for training is no fault."""
    ports = [port(f"mlx5_{index}", 400.0, board="fast") for index in range(4)]
    ports += [port("mlx5_8", 25.0, board="slow"), port("mlx5_9", 100.0, board="fast", link_layer="Ethernet")]
    expected = expected_rates(ports)

    assert expected[PortKey("mlx5_8", 1)] == 25.0
    assert expected[PortKey("mlx5_9", 1)] == 100.0


def test_of_two_ports_nobody_knows_which_is_wrong() -> None:
    """And a port without a link is nobody's peer."""
    expected = expected_rates([port("mlx5_0", 400.0), port("mlx5_1", 100.0), port("mlx5_2", None)])

    assert expected == {PortKey("mlx5_0", 1): 400.0, PortKey("mlx5_1", 1): 100.0}


def test_a_link_should_be_as_fast_as_it_was() -> None:
    """An adapter alone has its own past to be compared with."""
    alone = port("mlx5_0", 100.0, best_rate_bytes_per_second=400.0)

    assert expected_rates([alone]) == {PortKey("mlx5_0", 1): 400.0}
