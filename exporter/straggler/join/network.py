"""Whose ports these are, and which of them are alike. Pure.

A port has no run: whoever trains on the node sends through it. It is joined with ranks by the node's name, so it must
carry the name that the ranks give their node, which is rarely what this process would call it (in a pod it sees the
pod's).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final, NamedTuple

from straggler.model.network import PortFacts, PortKey
from straggler.model.rank import RankFacts

LEAST_PEERS: Final = 2
"""Of two ports that differ nobody knows which one is wrong."""


class NodeName(NamedTuple):
    """What this node is called."""

    name: str
    differing: int
    """Living ranks of this node that call it something else: their runs are not joined with its ports."""


def name_node(ranks: Iterable[RankFacts], before: str, otherwise: str) -> NodeName:
    """Find the name that the ranks of this node use.

    Args:
        ranks: all that are known; those that were pushed may be on another node, and do not count.
        before: the last result's name, kept while any rank uses it and while there are none; ``""`` at first.
        otherwise: the name where no rank has ever said one.
    """
    names = Counter(
        rank.identity.node for rank in ranks if rank.alive and rank.source == "rings" and rank.identity.node
    )
    if not names:
        return NodeName(before or otherwise, 0)
    name = before if before in names else min(names, key=lambda each: (-names[each], each))
    return NodeName(name, names.total() - names[name])


def peer_rates(ports: Sequence[PortFacts]) -> dict[PortKey, float]:
    """The usual rate, in bytes per second, of each port's peers: those of the same board and kind of link that are up.

    Returns:
        Ports that are up and have at least ``LEAST_PEERS`` peers. The middle one's rate counts, the lower of two.
    """
    alike: dict[tuple[str, str], list[PortFacts]] = {}
    for port in ports:
        if port.rate_bytes_per_second is not None:
            alike.setdefault((port.board, port.link_layer), []).append(port)
    return {
        port.key: median_low(peer.rate_bytes_per_second or 0.0 for peer in group if peer is not port)
        for group in alike.values()
        if len(group) > LEAST_PEERS
        for port in group
    }
