"""Runs whose network is at fault, or only looks so."""

from __future__ import annotations

from scenarios.vocabulary import Adapters, BadPort, Expect, Scenario

LINK = Expect("degraded_link")

LINKS: tuple[Scenario, ...] = (
    Scenario(
        name="a cable out on one of two nodes",
        ranks=16,
        troubles=(Adapters(), BadPort(node=1, fault="out")),
        expect=(LINK,),
        paged=False,
    ),
    Scenario(
        name="a port at half speed on one of four nodes",
        ranks=32,
        troubles=(Adapters(), BadPort(node=2, fault="half")),
        expect=(LINK,),
        paged=False,
    ),
    Scenario(
        name="a link that flaps",
        ranks=16,
        troubles=(Adapters(), BadPort(node=0, fault="flaps", every=2.0)),
        expect=(LINK,),
        paged=False,
    ),
    Scenario(
        name="a symbol error now and then",
        ranks=16,
        troubles=(Adapters(), BadPort(node=0, fault="errs", every=4.0)),
        paged=False,
    ),
    Scenario(
        name="sockets beside RDMA ports",
        ranks=16,
        exchange_share=0.40,
        troubles=(Adapters(transport="socket"),),
        expect=(Expect("slow_transport"),),
        paged=False,
    ),
    Scenario(
        name="sockets where there is nothing else",
        ranks=16,
        exchange_share=0.40,
        troubles=(Adapters(ports=False, transport="socket"),),
        paged=False,
    ),
)
