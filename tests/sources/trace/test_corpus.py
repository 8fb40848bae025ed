"""Traces met in the field: each is read, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from straggler.sources.trace.parse import parse_trace
from straggler.sources.trace.read import is_trace, read_entries
from straggler.sources.trace.steps import step_times

# Rank, world size, events, numbers of the steps; then of the first step: which times it has, and its communication, ms.
FOUND: dict[str, tuple[int | None, int | None, int, list[int | None], str, float | None]] = {
    "distributedInfo_rank_only_no_gpu": (0, None, 2467, [1009], "load forward backward optimizer", None),
    "distributedInfo_without_rank": (None, None, 2467, [1009], "load forward backward optimizer", None),
    "gloo_rank34_ws300_cpu_only": (34, 300, 30, [551], "forward", 178.78),
    "legacy_cat_names_rank1": (1, None, 54, [None], "", 0.0),
    "nccl_rank0_ws128_old_us": (0, 128, 4855, [551, 552], "forward backward optimizer", 195.33),
    "nccl_rank0_ws1_ns_float_ts": (0, 1, 4076, [101, 102, 103, 104, 105], "", 0.0),
    "nccl_rank0_ws2_new_ns_base": (0, 2, 6095, [4, 5, 6], "", 11.99),
    "nccl_rank1_ws128_old_us": (1, 128, 4720, [551, 552], "forward backward optimizer", 168.03),
    "no_distributedInfo": (None, None, 2467, [1009], "load forward backward optimizer", None),
    "rocm_mi250_no_distributedInfo": (None, None, 220, [1, 2], "forward backward optimizer", 0.0),
}


def test_the_table_is_complete(corpus: Path) -> None:
    """A trace that is added gets its line."""
    assert {path.name.removesuffix(".json.gz") for path in (corpus / "pytorch_trace").iterdir()} == set(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_each_trace_loads(corpus: Path, name: str) -> None:
    """Old and new torch, three time bases, with and without GPU and distributedInfo: what it shows, and no more."""
    path = corpus / "pytorch_trace" / f"{name}.json.gz"
    trace = parse_trace(read_entries(path))
    steps = step_times(trace)
    rank, world_size, events, numbers, shown, communication = FOUND[name]
    first = steps[0]
    times = {
        "load": first.loading_seconds,
        "forward": first.forward_seconds,
        "backward": first.backward_seconds,
        "optimizer": first.optimizer_seconds,
    }

    assert is_trace(path)
    assert (trace.rank, trace.world_size, trace.events, trace.refused_events) == (rank, world_size, events, 0)
    assert [step.number for step in steps] == numbers
    assert " ".join(what for what, seconds in times.items() if seconds is not None) == shown
    seconds = first.communication_seconds
    assert (None if seconds is None else round(seconds * 1e3, 2)) == communication
