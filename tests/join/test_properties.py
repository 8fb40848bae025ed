"""What holds for any ranks on any GPUs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from facts import gpu_facts, identity, rank_facts
from straggler.join.evidence import EVIDENCE, UNMATCHED
from straggler.join.match import match
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.rank import RankFacts, RankState

UUIDS = [f"GPU-{index:08x}-0000-0000-0000-000000000000" for index in range(4)]
MIG = "MIG-8f7c2c2e-5d8e-5c3c-9a51-0b9a1f6d3a10"
BUS_IDS = ["", "00000000:10:00.0", "00000000:11:00.0"]
NAMES = ["", *UUIDS, UUIDS[0][:12], "GPU-0", MIG, f"MIG-{UUIDS[0]}/3/0", "nonsense"]
DEVICES = ["", "0", "0,1", "1,0", "0,1,2,3", ",".join(UUIDS), UUIDS[2], MIG, "-1", "0,x"]

ranks_strategy = st.lists(
    st.builds(
        rank_facts,
        st.just(0),
        identity=st.builds(
            identity,
            st.integers(0, 7),
            local_rank=st.sampled_from([None, 0, 1, 2, 3]),
            local_world_size=st.sampled_from([None, 1, 2, 4]),
            gpu_uuid=st.sampled_from(NAMES),
            gpu=st.sampled_from([None, 0, 1]),
            gpu_instance=st.sampled_from([None, 0, 3]),
            pci_bus_id=st.sampled_from([*BUS_IDS, "junk"]),
            visible_devices=st.sampled_from(DEVICES),
            pod=st.sampled_from(["", "p", "q"]),
            clock=st.sampled_from(["host", "cuda"]),
            node=st.sampled_from(["", "n1", "n2"]),
        ),
        state=st.sampled_from(RankState),
        source=st.sampled_from(["rings", "push"]),
    ),
    max_size=6,
)
gpus_strategy = st.lists(
    st.builds(
        gpu_facts,
        st.integers(0, 3),
        key=st.builds(GpuKey, st.sampled_from(UUIDS), st.sampled_from([None, None, 0, 3])),
        pci_bus_id=st.sampled_from(BUS_IDS),
        model=st.sampled_from(["", "A", "A", "B"]),
        hostname=st.sampled_from(["", "n1", "n1", "n2"]),
        pod=st.sampled_from(["", "p", "q"]),
        labels=st.sampled_from([{}, {"dra_mig_device_uuid": MIG}]),
    ),
    max_size=6,
    unique_by=lambda gpu: gpu.key,
)


def outcome(
    ranks: list[RankFacts], gpus: list[GpuFacts], *, node_proven: bool, sharing: bool
) -> list[tuple[GpuKey | None, str, str]]:
    """What each rank gets."""
    views = match(ranks, gpus, node_proven=node_proven, sharing=sharing)
    return [(view.gpu.key if view.gpu else None, view.evidence, view.unmatched_reason) for view in views]


@given(ranks=ranks_strategy, gpus=gpus_strategy, node_proven=st.booleans())
def test_no_gpu_has_two_ranks(ranks: list[RankFacts], gpus: list[GpuFacts], *, node_proven: bool) -> None:
    """Without declared sharing a GPU has one rank at most, and only a living one."""
    views = match(ranks, gpus, node_proven=node_proven)
    keys = [view.gpu.key for view in views if view.gpu]

    assert max(Counter(keys).values(), default=0) <= 1
    assert all(view.rank.alive for view in views if view.gpu)


@given(ranks=ranks_strategy, gpus=gpus_strategy, node_proven=st.booleans(), sharing=st.booleans())
def test_all_is_listed(ranks: list[RankFacts], gpus: list[GpuFacts], *, node_proven: bool, sharing: bool) -> None:
    """Every rank has a GPU of the page with listed evidence, or a listed reason; never both, never neither."""
    keys = {gpu.key for gpu in gpus}
    found = outcome(ranks, gpus, node_proven=node_proven, sharing=sharing)

    assert len(found) == len(ranks)
    for key, evidence, reason in found:
        assert (key in keys and evidence in EVIDENCE and not reason) or (
            key is None and not evidence and reason in UNMATCHED
        )


@given(data=st.data(), ranks=ranks_strategy, gpus=gpus_strategy, node_proven=st.booleans(), sharing=st.booleans())
def test_order_does_not_matter(
    data: st.DataObject, ranks: list[RankFacts], gpus: list[GpuFacts], *, node_proven: bool, sharing: bool
) -> None:
    """The same ranks and GPUs in another order get the same."""
    order = data.draw(st.permutations(range(len(ranks))))
    shuffled = data.draw(st.permutations(gpus))
    before = outcome(ranks, gpus, node_proven=node_proven, sharing=sharing)
    after = outcome([ranks[index] for index in order], shuffled, node_proven=node_proven, sharing=sharing)

    assert after == [before[index] for index in order]


@given(ranks=ranks_strategy, gpus=gpus_strategy, node_proven=st.booleans())
def test_unrelated_gpu_changes_no_uuid_match(
    ranks: list[RankFacts], gpus: list[GpuFacts], *, node_proven: bool
) -> None:
    """One more GPU, of another node even, moves no rank off the GPU whose UUID it names."""
    stranger = gpu_facts(0, key=GpuKey("GPU-ffffffff-0000-0000-0000-000000000000"), hostname="elsewhere")
    sure = [rank for rank in ranks if rank.identity.gpu_uuid != "GPU-0"]
    before = outcome(sure, gpus, node_proven=node_proven, sharing=False)
    after = outcome(sure, [*gpus, stranger], node_proven=node_proven, sharing=False)

    for was, now in zip(before, after, strict=True):
        if was[1] in ("uuid", "visible_uuid"):
            assert now == was
