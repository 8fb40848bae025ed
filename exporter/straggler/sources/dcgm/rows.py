"""What the head of a sample says: which GPU, which field, whose copy. Labels as all generations spell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from straggler.model.gpu import GpuKey
from straggler.model.gpu_identity import normal_bus_id, normal_uuid
from straggler.sources.dcgm.eras import Era, era
from straggler.sources.dcgm.fields import FIELDS, Field, Into, Under, field_of

_UUID = ("UUID", "uuid", "gpu_uuid")
_HOSTNAME = ("Hostname", "hostname")
_MODEL = ("modelName", "model_name")
_POD = ("pod", "pod_name")
_NAMESPACE = ("namespace", "pod_namespace")
_CONTAINER = ("container", "container_name")
_EXPORTED = ("exported_pod", "exported_namespace", "exported_container")
_CONSUMED: Final = frozenset(
    (
        *_UUID,
        *_HOSTNAME,
        *_MODEL,
        *_POD,
        *_NAMESPACE,
        *_CONTAINER,
        *_EXPORTED,
        "gpu",
        "pci_bus_id",
        "GPU_I_ID",
        "GPU_I_PROFILE",
    )
)

_NO_GPU: Final = ("nvlink", "nvswitch", "cpu", "cpucore")
"""Labels of rows about links, switches and CPUs. A link's row names its GPU as well, and is not about it."""

_FROM_PROMETHEUS: Final = frozenset(("job", "instance", "endpoint", "service", *_EXPORTED))
"""Labels that a scrape adds. Where they are, ``pod`` is the exporter's own, and the GPU's is in ``exported_pod``."""

_SHARES: Final = frozenset(("vgpu", "pid"))
"""Labels of rows about a virtual GPU or a process."""

_BLANKS: Final = ("<<<", "SKIPPING DCGM VALUE")
"""How label values that are none begin: DCGM's ``<<<NULL>>>``, ``<<<NOT_SUPPORTED>>>``, …"""

_EXPORTER_POD: Final = "dcgm-exporter"
"""With time slicing the kubelet may name the exporter's own pod as the one on the GPU."""

_NO_INSTANCE: Final = 0xFFFFFFFF
_MAX_INSTANCE: Final = 1023
_MAX_INTERNED: Final = 50_000

_ORDER: Final = {name: (row, column) for row, field in enumerate(FIELDS) for column, name in enumerate(field.names)}


@dataclass(frozen=True, slots=True)
class About:
    """What a row says about its GPU besides the value."""

    key: GpuKey
    gpu: int | None
    pci_bus_id: str
    model: str
    hostname: str
    mig_profile: str
    pod: tuple[str, str, str]
    """Namespace, pod, container; blanks where unknown."""
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One value of one GPU: what several rows may be copies of. Interned, so that identity is equality."""

    owner: GpuKey
    """Which GPU the value belongs to: an amount of the whole GPU is not the instance's."""
    into: Into
    attribute: str


@dataclass(frozen=True, slots=True)
class Row:
    """One sample without its value."""

    about: About
    """Interned."""
    field: Field | None
    """``None``: a field that we do not use; the row still proves that the GPU is there."""
    slot: Slot | None
    order: tuple[int, int] = (0, 0)
    """Place of the name in ``fields.FIELDS``: the first that a page has is taken."""
    is_share: bool = False
    """The row is about a pod, a process or a virtual GPU: its value may be a part of the device's."""
    era: Era = Era.ANY


@dataclass(frozen=True, slots=True)
class Unusable:
    """A sample that is not believed, whatever its value."""

    reason: str
    """One of ``reasons.SAMPLE_REASONS``."""
    detail: str
    about: About | None = None
    """Which GPU is there all the same."""


class Interpreter:
    """Tells what the head of a sample means; equal parts of many heads are kept once."""

    def __init__(self) -> None:
        self._abouts: dict[About, About] = {}
        self._slots: dict[tuple[GpuKey, Into, str], Slot] = {}

    def __call__(self, name: str, labels: Mapping[str, str]) -> Row | Unusable | None:
        """Tell what a sample is about.

        Args:
            name: of the metric.
            labels: as on the page, with blank values.

        Returns:
            The row; or why it is not believed; or ``None`` if it is about no GPU.
        """
        if not name.startswith(("DCGM_", "dcgm_")):
            return None
        labels = {key: value for key, value in labels.items() if value and not value.startswith(_BLANKS)}
        if not labels.keys().isdisjoint(_NO_GPU):
            return None
        field = field_of(name)
        uuid = normal_uuid(_first(labels, _UUID))
        if not uuid:
            return Unusable("no_uuid", f"{name} of gpu {labels.get('gpu', '?')}") if field else None
        instance = _instance(labels.get("GPU_I_ID", ""))
        if instance is not None and instance < 0:
            return Unusable("bad_gpu_instance", f"{name} of {uuid}: GPU_I_ID={labels['GPU_I_ID']}")
        key = GpuKey(uuid, instance)
        about = self._about(key, labels)
        if field and instance is not None and field.under_mig is Under.NOTHING:
            return Unusable("meaningless_under_mig", f"{name} of {uuid}, GPU instance {instance}", about)
        return Row(
            about=about,
            field=field,
            slot=self._slot(GpuKey(uuid) if field.under_mig is Under.WHOLE else key, field) if field else None,
            order=_ORDER.get(name) or _ORDER.get(name.removesuffix("_total"), (0, 0)),
            is_share=bool(about.pod[1] or not _SHARES.isdisjoint(labels)) and _FROM_PROMETHEUS.isdisjoint(labels),
            era=era(name),
        )

    def _about(self, key: GpuKey, labels: Mapping[str, str]) -> About:
        about = _about(key, labels)
        if len(self._abouts) >= _MAX_INTERNED:  # only labels that change with every scrape come to this
            self._abouts.clear()
        return self._abouts.setdefault(about, about)

    def _slot(self, owner: GpuKey, field: Field) -> Slot:
        if len(self._slots) >= _MAX_INTERNED:
            self._slots.clear()
        into = Into.VALUE if field.into is Into.UTILIZATION else field.into
        key = (owner, into, field.attribute)
        return self._slots.setdefault(key, Slot(*key))


def _about(key: GpuKey, labels: Mapping[str, str]) -> About:
    index = labels.get("gpu", "")
    return About(
        key=key,
        gpu=int(index) if index.isascii() and index.isdigit() and len(index) < 5 else None,
        pci_bus_id=normal_bus_id(labels.get("pci_bus_id", "")),
        model=_first(labels, _MODEL),
        hostname=_first(labels, _HOSTNAME),
        mig_profile=labels.get("GPU_I_PROFILE", ""),
        pod=_pod(labels),
        labels=tuple(sorted((name, value) for name, value in labels.items() if name not in _CONSUMED)),
    )


def _pod(labels: Mapping[str, str]) -> tuple[str, str, str]:
    if _FROM_PROMETHEUS.isdisjoint(labels):
        pod = (_first(labels, _NAMESPACE), _first(labels, _POD), _first(labels, _CONTAINER))
    else:
        pod = (
            labels.get("exported_namespace", ""),
            labels.get("exported_pod", ""),
            labels.get("exported_container", ""),
        )
    return ("", "", "") if not pod[1] or _EXPORTER_POD in pod[1] else pod


def _instance(text: str) -> int | None:
    """The GPU instance; ``None`` for none, which 4294967295 means too; -1 if unreadable. 0 is an instance."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        return -1
    number = int(text[:20])
    if number == _NO_INSTANCE:
        return None
    return number if number <= _MAX_INSTANCE else -1


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if name in labels), "")
