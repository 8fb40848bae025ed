"""Trees met in the field: each gives the right facts, or a refusal with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.model.network import PortFacts
from straggler.sources.infiniband.read import InfinibandSource

WORDS = 4

# Tree: by port, its state, its speed in bytes per second, and some counters worked out by hand.
FACTS: dict[str, dict[str, tuple[bool, float | None, dict[str, float]]]] = {
    "procfs_fixture": {
        "hfi1_0 1": (True, 12.5e9, {"transmit_bytes_total": 273558326543 * WORDS, "link_downs_total": 0}),
        "mlx4_0 1": (True, 5e9, {"receive_bytes_total": 2221223609 * WORDS, "transmit_waits_total": 3599}),
        "mlx4_0 2": (True, 5e9, {"receive_bytes_total": 2460436784 * WORDS, "transmit_waits_total": 3846}),
        "mlx5_0 1": (True, 3.125e9, {"transmit_bytes_total": 2880761508848 * WORDS, "acknowledge_timeouts_total": 131}),
    },
    "variants/no_pma": {"i40iw0 1": (True, 5e9, {})},
    "variants/rates": {
        "mlx5_0 1": (True, 12.5e9, {"symbol_errors_total": 0}),
        "mlx5_1 1": (False, None, {"symbol_errors_total": 0}),
        "mlx5_2 1": (False, None, {"symbol_errors_total": 0}),
        "mlx5_3 1": (True, 100e9, {"symbol_errors_total": 0}),
        "mlx5_4 1": (False, None, {"symbol_errors_total": 0}),
    },
    "variants/roce_cx7": {
        "mlx5_bond_0 1": (
            True,
            50e9,
            {"transmit_bytes_total": 18126345378 * WORDS, "cnp_sent_total": 98123, "ecn_marked_total": 98123},
        )
    },
}


@pytest.mark.parametrize("tree", FACTS)
def test_facts_of_a_tree(tree: str, corpus: Path) -> None:
    """All ports are there, with these states, speeds and counters, and nothing is refused."""
    reading = InfinibandSource(corpus / "ib_sysfs" / tree).collect()
    ports: dict[str, PortFacts] = {f"{port.key.device} {port.key.port}": port for port in reading.facts}

    assert reading.problems == ()
    assert reading.blind == ()
    assert set(ports) == set(FACTS[tree])
    for name, (up, rate, counters) in FACTS[tree].items():
        assert (ports[name].up, ports[name].rate_bytes_per_second) == (up, rate)
        assert {key: ports[name].counters[key] for key in counters} == counters


def test_no_tree_of_the_corpus_is_left_out(corpus: Path) -> None:
    """A tree that is added is looked at."""
    trees = {str(path.parent.parent.relative_to(corpus / "ib_sysfs")) for path in corpus.glob("ib_sysfs/**/infiniband")}

    assert trees == set(FACTS)


def test_what_nobody_counts_is_absent(corpus: Path) -> None:
    """``N/A (no PMA)`` is not zero, and the port is still there."""
    (port,) = InfinibandSource(corpus / "ib_sysfs/variants/no_pma").collect().facts

    assert port.counters == {}
