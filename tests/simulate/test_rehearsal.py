"""Ranks, sidecar and GPUs together, without servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

from straggler.errors import SourceFailedError
from straggler.simulate.dcgm_text import Generation
from straggler.simulate.measure import read_records
from straggler.simulate.rehearsal import Rehearsal
from straggler.simulate.scenario import Scenario
from straggler.simulate.workspace import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    """A directory in memory."""
    workspace = Workspace()
    yield workspace
    workspace.close()


def until(true: Callable[[], bool], rehearsal: Rehearsal) -> None:
    """Wait; fail, with all logs, if it does not become true."""
    deadline = time.monotonic() + 200
    while not true():
        assert time.monotonic() < deadline, rehearsal.crew.logs()
        time.sleep(0.05)


@pytest.mark.parametrize("generation", list(Generation))
def test_ranks_end_together_and_all_steps_are_seen(workspace: Workspace, generation: Generation) -> None:
    """Ranks, rings and page agree on the number of steps, and each rank has its GPU, whatever wrote the GPU page."""
    rehearsal = Rehearsal(Scenario(ranks=3), workspace.directory, generation=generation)
    try:
        rehearsal.start_sidecars()
        rehearsal.start_ranks()
        until(lambda: min(rehearsal.steps) > 20, rehearsal)
        living = rehearsal.metrics()
        assert rehearsal.end_ranks(), rehearsal.crew.logs()
        page = rehearsal.metrics()
    finally:
        rehearsal.close()

    steps = rehearsal.steps[0]
    assert rehearsal.steps == [steps] * 3
    assert [len(records) for _, records in sorted(read_records(rehearsal.rings).items())] == [steps] * 3
    assert [float(count) for count in re.findall(r"^training_step_seconds_count{.*} (\S+)$", page, re.MULTILINE)] == [
        steps
    ] * 3
    assert len(re.findall(r'^training_rank_state{.*state="finished"} 1\.0$', page, re.MULTILINE)) == 3
    assert len(re.findall(r"^training_gpu_sm_active_ratio{", living, re.MULTILINE)) == 3


def test_two_nodes(workspace: Workspace) -> None:
    """Each node has its own ranks, GPUs, ports and logs of NCCL, and a sidecar that sees them and no others."""
    rehearsal = Rehearsal(Scenario(ranks=4, nodes=2), workspace.directory)
    try:
        rehearsal.start_sidecars()
        rehearsal.start_ranks()
        until(lambda: min(rehearsal.steps) > 20, rehearsal)
        pages = [node.metrics() for node in rehearsal.nodes]
        table = rehearsal.rank_table()
        assert rehearsal.end_ranks(), rehearsal.crew.logs()
    finally:
        rehearsal.close()

    assert [rank["rank"] for rank in table["ranks"]] == [0, 1, 2, 3]
    for node, ranks, page in zip("ab", ("01", "23"), pages, strict=True):
        name = f'rank_node="demo-node-{node}"'
        assert re.findall(rf'^training_step{{.*rank="(\d)",{name}.*}}', page, re.MULTILINE) == list(ranks)
        assert len(re.findall(rf"^network_port_up{{.*{name}}} 1\.0$", page, re.MULTILINE)) == 2
        assert len(re.findall(rf'^training_nccl_channels{{.*{name}.*transport="ib"}}', page, re.MULTILINE)) == 2
        assert len(re.findall(r"^training_gpu_sm_active_ratio{", page, re.MULTILINE)) == 2


def test_sidecar_that_cannot_start_says_why(workspace: Workspace) -> None:
    """A sidecar that ends at once is reported with its own words."""
    rehearsal = Rehearsal(Scenario(ranks=1), workspace.directory, sidecar_flags=("--no-such-flag",))
    try:
        with pytest.raises(SourceFailedError, match="--no-such-flag"):
            rehearsal.start_sidecars()
    finally:
        rehearsal.close()


def test_dead_ranks_are_told(workspace: Workspace) -> None:
    """A rank that died is listed and its GPU becomes idle; the others wait, and end when they are asked to."""
    rehearsal = Rehearsal(Scenario(ranks=2), workspace.directory)
    try:
        rehearsal.start_ranks()
        until(lambda: min(rehearsal.steps) > 5, rehearsal)
        rehearsal.ranks[1].kill()

        assert rehearsal.tend() == [rehearsal.ranks[1]]
        assert not rehearsal.board.cell(1).alive
        assert not rehearsal.end_ranks()
        assert rehearsal.ranks[0].returncode == 0
    finally:
        rehearsal.close()
