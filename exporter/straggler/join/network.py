"""Whose ports these are, and which of them are alike. Pure.

A port has no run: whoever trains on the node sends through it. It is joined with ranks by the node's name, so it must
carry the name that the ranks give their node, which is rarely what this process would call it (in a pod it sees the
pod's).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Final, NamedTuple

from straggler.join.view import RankView
from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankFacts
from straggler.model.reading import Problem

LEAST_PEERS: Final = 2
"""Of two ports that differ nobody knows which one is wrong."""


class NodeName(NamedTuple):
    """What this node is called."""

    name: str
    others: tuple[str, ...] = ()
    """What each living rank of this node calls it that has another name: it is not joined with the node's ports."""

    def problems(self) -> tuple[Problem, ...]:
        """What cannot be seen because of that: a condition with the reason ``node_names_differ``."""
        if not self.others:
            return ()
        detail = (
            f"{len(self.others)} ranks here call their node {self.others[0]!r} or the like, others {self.name!r}: give "
            "all of them one name (NODE_NAME or STRAGGLER_NODE)"
        )
        return (Problem(reason="node_names_differ", detail=detail, count=len(self.others)),)


def name_node(ranks: Iterable[RankFacts], before: str, otherwise: str) -> NodeName:
    """Find the name that the ranks of this node use.

    Args:
        ranks: all that are known; those that were pushed may be on another node, and do not count.
        before: the last result's name, kept while none is more common and while there are no ranks; ``""`` at first.
        otherwise: what this process calls the node: its name if any rank agrees, however many say something else, and
            where no rank has ever said one.
    """
    said = [name for rank in ranks if rank.alive and rank.source == "rings" and (name := rank.identity.node)]
    if not said:
        return NodeName(before or otherwise)
    names = Counter(said)
    name = min(names, key=lambda each: (each != otherwise, -names[each], each != before, each))
    return NodeName(name, tuple(sorted(each for each in said if each != name)))


def with_ports(view: RankView, ports: tuple[PortFacts, ...], node: str) -> RankView:
    """A rank with the ports of this node, if it is on this node by its own word too."""
    here = ports and view.rank.source == "rings" and view.rank.identity.node == node
    return replace(view, ports=ports) if here else view


def expected_rates(ports: Sequence[PortFacts]) -> dict[PortKey, float]:
    """What speed each link should have, in bytes per second: its peers', or its own best so far if that is more.

    Peers are the ports of the same board and kind of link that are up, at least ``LEAST_PEERS`` others; the middle one
    of them counts, the lower of two.

    Returns:
        Ports that are up.
    """
    alike: dict[tuple[str, str], list[PortFacts]] = {}
    for port in ports:
        if port.rate_bytes_per_second is not None:
            alike.setdefault((port.board, port.link_layer), []).append(port)
    return {port.key: _expected_rate(port, group) for group in alike.values() for port in group}


def _expected_rate(port: PortFacts, group: Sequence[PortFacts]) -> float:
    own = max(port.rate_bytes_per_second or 0.0, port.best_rate_bytes_per_second or 0.0)
    peers = [peer.rate_bytes_per_second or 0.0 for peer in group if peer is not port]
    return max(own, median_low(peers)) if len(peers) >= LEAST_PEERS else own
