"""What is on this node, and what of it nobody shows."""

from __future__ import annotations

from facts import gpu_facts, identity, rank_facts
from straggler.join.node import own_gpus, still_blind, unseen_gpus
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankState
from straggler.model.reading import Problem

GPUS = [gpu_facts(index) for index in range(4)]
BLIND = Problem(reason="sm_active_absent", count=4)


def _rank(rank: int, size: int | None, **changes: object) -> RankFacts:
    named = {"run": "r", "clock": "cuda", **changes}
    return rank_facts(rank, identity=identity(rank, local_world_size=size, **named))


def _without_activity(gpu: GpuFacts) -> GpuFacts:
    return gpu_facts(gpu.gpu or 0, values={"utilization_ratio": 0.9})


def test_shared_gpu_proves_the_page() -> None:
    """A page that shows one of NVML's GPUs is of this node, also with GPUs that a container does not see."""
    own = own_gpus(GPUS, {"dcgm": GPUS, "nvml": GPUS[1:2]}, node_proven=False)

    assert own == (tuple(GPUS), True)


def test_page_of_another_node_is_left_out() -> None:
    """A page that shows none of NVML's GPUs is another node's, and no rank is matched with it."""
    own = own_gpus(GPUS, {"dcgm": GPUS[:2], "nvml": GPUS[2:]}, node_proven=False)

    assert own == (tuple(GPUS[2:]), True)


def test_nvml_alone_is_proof() -> None:
    """NVML's GPUs are this node's."""
    assert own_gpus(GPUS, {"dcgm": (), "nvml": GPUS}, node_proven=False).node_proven


def test_page_alone_is_no_proof() -> None:
    """Without NVML the page stays as proven as it was."""
    assert not own_gpus(GPUS, {"dcgm": GPUS}, node_proven=False).node_proven
    assert own_gpus(GPUS, {"dcgm": GPUS}, node_proven=True).node_proven


def test_gpus_that_the_page_lacks() -> None:
    """The page is blind for each GPU that the driver has and it has not."""
    unseen = unseen_gpus({"dcgm": GPUS[:1], "nvml": GPUS}, (), node_proven=False, sharing=False)

    assert [(problem.reason, problem.count) for problem in unseen["dcgm"]] == [("gpu_not_on_page", 3)]
    assert GPUS[1].key.uuid in unseen["dcgm"][0].detail


def test_other_nodes_page_is_told() -> None:
    """A page without any of the driver's GPUs is the wrong page, unless it is known to be the right one."""
    told = {"dcgm": GPUS[:2], "nvml": GPUS[2:]}
    wrong = unseen_gpus(told, (), node_proven=False, sharing=False)
    right = unseen_gpus(told, (), node_proven=True, sharing=False)

    assert [problem.reason for problem in wrong["dcgm"]] == ["page_of_other_node"]
    assert [(problem.reason, problem.count) for problem in right["dcgm"]] == [("gpu_not_on_page", 2)]


def test_equal_views_see_everything() -> None:
    """A page with all GPUs, and ranks on all of them, leaves nothing unseen."""
    ranks = [_rank(rank, 4) for rank in range(4)]

    assert unseen_gpus({"dcgm": GPUS, "nvml": GPUS}, ranks, node_proven=False, sharing=False) == {}


def test_run_uses_more_gpus_than_shown() -> None:
    """A run of four local ranks cannot run on three GPUs."""
    ranks = [_rank(rank, 4) for rank in range(4)]
    unseen = unseen_gpus({"dcgm": GPUS[:3]}, ranks, node_proven=True, sharing=False)

    assert [(problem.reason, problem.count) for problem in unseen["dcgm"]] == [("fewer_gpus_than_ranks", 1)]


def test_two_runs_add_up() -> None:
    """Two runs of two ranks each use four GPUs, whoever of them is seen."""
    ranks = [_rank(0, 2), _rank(0, 2, run="other")]
    unseen = unseen_gpus({"nvml": GPUS[:3]}, ranks, node_proven=True, sharing=False)

    assert [(problem.reason, problem.count) for problem in unseen["nvml"]] == [("fewer_gpus_than_ranks", 1)]


def test_who_uses_no_gpu_of_its_own_is_not_counted() -> None:
    """Ranks on a CPU, pushed from anywhere, gone, or sharing on purpose need no GPU here."""
    cpu = _rank(0, 9, clock="host")
    pushed = rank_facts(1, identity=identity(1, local_world_size=9, clock="cuda"), source="push")
    gone = rank_facts(2, identity=identity(2, local_world_size=9, clock="cuda"), state=RankState.CRASHED)

    assert unseen_gpus({"dcgm": GPUS}, [cpu, pushed, gone], node_proven=True, sharing=False) == {}
    assert unseen_gpus({"dcgm": GPUS}, [_rank(0, 9)], node_proven=True, sharing=True) == {}


def test_no_gpus_at_all_are_no_hole() -> None:
    """Where no source tells of any GPU, that is said of the ranks and not here."""
    assert unseen_gpus({"rings": ()}, [_rank(0, 8)], node_proven=True, sharing=False) == {}


def test_activity_from_another_source_is_sight() -> None:
    """What the page lacks and NVML has is not missing; what else the page lacks is."""
    missing = Problem(reason="gpu_missing")

    assert still_blind({"dcgm": [BLIND, missing]}, GPUS) == {"dcgm": (missing,)}


def test_activity_of_some_is_missing_for_the_others() -> None:
    """As many are counted as are really without; a divided GPU needs none."""
    part = gpu_facts(3, key=GpuKey(GPUS[3].key.uuid, 1))
    gpus = [GPUS[0], *map(_without_activity, GPUS[1:]), part]

    assert [problem.count for problem in still_blind({"dcgm": [BLIND]}, gpus)["dcgm"]] == [2]


def test_activity_that_nobody_has_is_told_once() -> None:
    """One hole is one reason for an alert, though two sources have it."""
    gpus = [_without_activity(gpu) for gpu in GPUS]

    assert still_blind({"dcgm": [BLIND], "nvml": [BLIND]}, gpus) == {"dcgm": (BLIND,), "nvml": ()}


def test_source_without_gpus_keeps_its_word() -> None:
    """Where no GPU is shown at all, what a source says of its blindness stands."""
    assert still_blind({"dcgm": [BLIND]}, ()) == {"dcgm": (BLIND,)}
