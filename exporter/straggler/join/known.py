"""The GPUs of one page, looked up by whatever names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from straggler.join.visible import Named
from straggler.model.gpu import GpuFacts, GpuKey
from straggler.model.gpu_identity import is_full_uuid

_MIG_UUID_LABEL: Final = "dra_mig_device_uuid"

_SURE_PREFIX: Final = len("GPU-") + 8
"""An abbreviated UUID of eight digits names one GPU of four billion; a shorter one, only one of its node."""


class Found(NamedTuple):
    """A GPU, or why there is none."""

    key: GpuKey | None
    reason: str = ""
    """One of ``evidence.UNMATCHED``."""


class KnownGpus:
    """What ranks can be on: whole GPUs, and the instances of divided ones.

    Args:
        gpus: all that the sources told of. Of two with one key the first counts.
    """

    def __init__(self, gpus: Sequence[GpuFacts]) -> None:
        told = {gpu.key: gpu for gpu in reversed(gpus)}
        divided = {key.uuid for key in told if key.gpu_instance is not None}
        self.by_key: Final = {
            key: gpu for key, gpu in told.items() if key.gpu_instance is not None or key.uuid not in divided
        }
        self._has_instances = bool(divided)
        self.is_of_one_node: Final = len({gpu.hostname for gpu in told.values() if gpu.hostname}) <= 1
        self._by_uuid: dict[str, list[GpuKey]] = defaultdict(list)
        self._by_bus_id: dict[str, set[str]] = defaultdict(set)
        self._by_mig_uuid: dict[str, list[GpuKey]] = defaultdict(list)
        for key, gpu in self.by_key.items():
            self._by_uuid[key.uuid].append(key)
            if gpu.pci_bus_id:
                self._by_bus_id[gpu.pci_bus_id].add(key.uuid)
            for mig_uuid in {*gpu.mig_uuids, gpu.labels.get(_MIG_UUID_LABEL, "").lower()} - {""}:
                self._by_mig_uuid[mig_uuid.lower()].append(key)

    def has_uuid(self, uuid: str) -> bool:
        """Whether the page has exactly this UUID."""
        return uuid in self._by_uuid

    def by_name(self, named: Named, *, proven: bool) -> Found:
        """Find the GPU that CUDA's name means.

        Args:
            named: from the rank.
            proven: whether the page is of the rank's node.
        """
        if named.mig_uuid:
            return self._by_mig(named.mig_uuid) or Found(None, "mig_uuid_unresolved")
        if named.uuid in self._by_uuid:
            return self._part(named.uuid, named.instance)
        if as_instance := self._by_mig(f"MIG-{named.uuid.removeprefix('GPU-')}"):
            return as_instance  # CUDA gives an instance's own UUID where a whole GPU's would be
        if is_full_uuid(named.uuid):
            missing = "mig_uuid_unresolved" if self._has_instances else "uuid_not_on_page"
            return Found(None, missing if proven else "page_of_other_node")
        if len(named.uuid) < _SURE_PREFIX and not proven:
            return Found(None, "page_unproven")
        uuids = [uuid for uuid in self._by_uuid if uuid.startswith(named.uuid)]
        if not uuids:
            return Found(None, "uuid_not_on_page" if proven else "page_of_other_node")
        return self._part(uuids[0], named.instance) if len(uuids) == 1 else Found(None, "ambiguous")

    def by_bus_id(self, bus_id: str, instance: int | None) -> Found:
        """Find the GPU in one PCI slot."""
        uuids = self._by_bus_id.get(bus_id)
        if not uuids:
            return Found(None, "bus_id_not_on_page")
        return self._part(min(uuids), instance) if len(uuids) == 1 else Found(None, "ambiguous")

    @property
    def knows_all_bus_ids(self) -> bool:
        """Whether a bus id that is not on the page is none of its GPUs'. Old exporters have none at all."""
        return all(gpu.pci_bus_id for gpu in self.by_key.values())

    def by_index(self, index: int, visible: int) -> Found:
        """Find a GPU by its place, if all orders are one.

        Args:
            index: the place among the visible GPUs.
            visible: how many the rank can see.
        """
        gpus = list(self.by_key.values())
        indices = {gpu.gpu: gpu.key for gpu in gpus}
        all_visible = visible == len(gpus) and indices.keys() == set(range(visible))
        if not all_visible or not are_equal_whole_gpus(gpus) or index not in indices:
            return Found(None, "ambiguous")
        return Found(indices[index])

    def of_pod(self, namespace: str, pod: str, container: str) -> list[GpuFacts]:
        """The GPUs of a pod, in PCI order, which is the order in which the pod sees them."""
        return sorted(
            (
                gpu
                for gpu in self.by_key.values()
                if gpu.pod == pod and agree(gpu.namespace, namespace) and agree(gpu.container, container)
            ),
            key=lambda gpu: (gpu.pci_bus_id, gpu.key.uuid, gpu.key.gpu_instance or 0),
        )

    def _by_mig(self, mig_uuid: str) -> Found | None:
        keys = self._by_mig_uuid.get(mig_uuid.lower(), [])
        return Found(keys[0]) if len(keys) == 1 else None

    def _part(self, uuid: str, instance: int | None) -> Found:
        """The instance; without one named, the GPU itself, or its only instance."""
        keys = self._by_uuid[uuid]
        if instance is not None:
            key = GpuKey(uuid, instance)
            return Found(key) if key in self.by_key else Found(None, "uuid_not_on_page")
        return Found(keys[0]) if len(keys) == 1 else Found(None, "ambiguous")


def are_equal_whole_gpus(gpus: Sequence[GpuFacts]) -> bool:
    """Whether CUDA lists them in PCI order whatever CUDA_DEVICE_ORDER is: it puts the fastest *model* first."""
    models = {gpu.model for gpu in gpus}
    whole = all(gpu.key.gpu_instance is None for gpu in gpus)
    return whole and (len(gpus) == 1 or (len(models) == 1 and "" not in models))


def agree(one: str, other: str) -> bool:
    """Whether two names may be of one thing: equal, or one of them unknown."""
    return one == other or not one or not other
