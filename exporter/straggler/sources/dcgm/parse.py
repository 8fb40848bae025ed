"""A page of dcgm-exporter → the GPUs that it is about. No I/O.

One GPU has many rows for one field: a copy for each job on it (``hpc_job``), for each pod that shares it (``vgpu``),
for each GPU instance of quantities that only the whole GPU has; and one Prometheus page may hold a GPU under all pods
it ever had. Nothing here adds rows up. Equal copies are one value. Unequal ones are refused, both, as
``conflicting_duplicates``, with one exception: for utilization and used memory, exporters from 4.8.2 on write the
device's row without a pod, and one row with a pod for each process; there the device's row counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from straggler.model.gpu import CLOCKS_EVENT_BITS, GpuFacts, GpuKey
from straggler.model.reading import Problem
from straggler.sources.dcgm.eras import Era
from straggler.sources.dcgm.fields import Field, Into
from straggler.sources.dcgm.reasons import Tally
from straggler.sources.dcgm.rows import About, Interpreter, Row, Slot, Unusable
from straggler.sources.dcgm.text import TextParser
from straggler.sources.dcgm.units import to_base_unit

_HAS_SHARES: Final = frozenset(("utilization_ratio", "memory_used_bytes"))
"""Fields of which exporters from 4.8.2 on write a part for each process besides the device's row."""

_MAX_LABEL_CHARACTERS: Final = 200
_MOST_LOOKED_AT: Final = 100
"""Lines in which a stranger's first sample is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPage:
    """What a page says."""

    facts: tuple[GpuFacts, ...] = ()
    """By index on the node, then UUID, then GPU instance."""
    problems: tuple[Problem, ...] = ()
    blind: tuple[Problem, ...] = ()
    refused: str = ""
    """Why the whole page is useless: one of ``reasons.PAGE_REASONS``; then there are no facts."""
    seen: Era = Era.ANY
    """What the names tell about the page's age."""


class _Claim(NamedTuple):
    """What one row says that a value is."""

    order: tuple[int, int]
    is_share: bool
    value: float


_Claims = dict[Slot, list[_Claim]]


class GpuPageParser:
    """Reads the pages of one exporter, one after the other."""

    def __init__(self) -> None:
        self._text = TextParser(Interpreter())

    def parse(self, text: str, *, complete: bool = True) -> GpuPage:
        """Read one page. Never raises, whatever the text.

        Args:
            text: the whole body.
            complete: ``False`` if the body is known to be cut.
        """
        if not text.strip("\N{BYTE ORDER MARK} \t\r\n"):
            return _useless("empty_body", "the page is empty")
        page = self._text.parse(text, complete=complete)
        if page.problems and not page.looks_like_metrics:
            return _useless("not_metrics", f"the page begins: {text.lstrip()[:100]}")
        tally = Tally()
        tally.extend(page.problems)
        read = _Read()
        for row, raw in page.samples:
            if row is not None:
                read.take(row, raw, tally)
        blind = read.claim_utilization(tally)
        facts = _facts(read.abouts.values(), _settle(read.claims, tally))
        if not facts:
            tally.add("no_gpu_samples", f"no DCGM sample of a GPU: is this dcgm-exporter's page? {_first_sample(text)}")
            return GpuPage(problems=tally.problems(), refused="no_gpu_samples", seen=read.seen)
        return GpuPage(facts=facts, problems=tally.problems(), blind=blind, seen=read.seen)


def _useless(reason: str, detail: str) -> GpuPage:
    tally = Tally()
    tally.add(reason, detail)
    return GpuPage(problems=tally.problems(), refused=reason)


def _first_sample(text: str) -> str:
    """What the page has instead, for whoever has to find out whose it is."""
    # nvidia_smi_gpu_info{uuid="…"} 1        (nvidia_gpu_exporter), node_load1 0.5, gpu_power_usage{…} (AMD's)
    for line in islice(text.split("\n", _MOST_LOOKED_AT), _MOST_LOOKED_AT):
        if line.strip() and not line.startswith("#"):
            return f"It begins: {line.strip()[:80]}"
    return ""


class _Read:
    """What the rows of one page claim."""

    def __init__(self) -> None:
        self.abouts: dict[int, About] = {}
        """By identity: equal ones are interned."""
        self.claims: _Claims = defaultdict(list)
        self.seen = Era.ANY
        self._doubtful: list[tuple[Row, Field, float]] = []

    def take(self, row: Row | Unusable, raw: float, tally: Tally) -> None:
        """Read one row."""
        if row.about is not None:
            self.abouts[id(row.about)] = row.about
        if isinstance(row, Unusable):
            tally.add(row.reason, row.detail)
            return
        if row.era is not Era.ANY:
            self.seen |= row.era
        if row.field is None:
            return
        if row.field.into is Into.UTILIZATION:
            self._doubtful.append((row, row.field, raw))
        else:
            self._claim(row, row.field, raw, tally)

    def claim_utilization(self, tally: Tally) -> tuple[Problem, ...]:
        """Settle what ``DCGM_FI_DEV_GPU_UTIL_RATIO`` is: a percentage in DCGM 4.6, a ratio from 4.7 on.

        A name that only 4.7 has, or a fraction, proves the ratio; a value over 1 the percentage. Where a page has
        neither, 0 is 0 in both, and 1 is left out: a busy GPU and an idle one must not be mixed up.
        """
        is_ratio = Era.BASE_UNITS in self.seen or any(0 < raw < 1 for _, _, raw in self._doubtful)
        is_percentage = not is_ratio and any(1 < raw <= 100 for _, _, raw in self._doubtful)
        unknown = 0
        for row, field, raw in self._doubtful:
            if raw == 1 and not is_ratio and not is_percentage:
                unknown += 1
            else:
                scale = 1 if is_ratio else 100
                self._claim(row, replace(field, high=scale, per=scale), raw, tally)
        if not unknown:
            return ()
        detail = "DCGM_FI_DEV_GPU_UTIL_RATIO is 1: 1 % in DCGM 4.6, 100 % from 4.7 on, and nothing tells which"
        return (Problem(reason="gpu_util_unit_unknown", detail=detail, count=unknown),)

    def _claim(self, row: Row, field: Field, raw: float, tally: Tally) -> None:
        value = to_base_unit(field, raw, under_mig=row.about.key.gpu_instance is not None)
        if isinstance(value, str):
            tally.add(value, f"{field.names[0]} of {row.about.key.uuid} is {raw:.17g}")
        elif value is not None and row.slot is not None:
            self.claims[row.slot].append(_Claim(row.order, row.is_share, value))


def _settle(claims: _Claims, tally: Tally) -> dict[GpuKey, list[tuple[Slot, float]]]:
    """One value for each field of each GPU, or none."""
    settled: dict[GpuKey, list[tuple[Slot, float]]] = defaultdict(list)
    for slot, made in claims.items():
        value = made[0].value if len(made) == 1 else _agree(slot.attribute, made)
        if value is None:
            unequal = sorted({claim.value for claim in made})[:4]
            tally.add("conflicting_duplicates", f"{slot.attribute} of {slot.owner.uuid}: {unequal}")
        else:
            settled[slot.owner].append((slot, value))
    return settled


def _agree(attribute: str, made: list[_Claim]) -> float | None:
    first = min(claim.order for claim in made)
    values = {claim.value for claim in made if claim.order == first}
    if len(values) > 1 and attribute in _HAS_SHARES:
        values = {claim.value for claim in made if claim.order == first and not claim.is_share}
    return values.pop() if len(values) == 1 else None


def _facts(abouts: Iterable[About], settled: Mapping[GpuKey, list[tuple[Slot, float]]]) -> tuple[GpuFacts, ...]:
    said: dict[GpuKey, list[About]] = defaultdict(list)
    for about in abouts:
        said[about.key].append(about)
    for key in settled:
        if key not in said:  # amounts of a GPU of which the page has rows of its instances only
            said[key] = [
                _parent(about) for other, group in list(said.items()) if other.uuid == key.uuid for about in group
            ]
    facts = [_one(key, said[key], settled.get(key, [])) for key in said]
    return tuple(sorted(facts, key=lambda gpu: (_last(gpu.gpu), gpu.key.uuid, _last(gpu.key.gpu_instance, -1))))


def _last(number: int | None, missing: int = 1 << 31) -> int:
    return missing if number is None else number


def _parent(about: About) -> About:
    return About(
        key=GpuKey(about.key.uuid),
        gpu=about.gpu,
        pci_bus_id=about.pci_bus_id,
        model=about.model,
        hostname=about.hostname,
        mig_profile="",
        pod=("", "", ""),
        labels=(),
    )


def _one(key: GpuKey, abouts: list[About], settled: list[tuple[Slot, float]]) -> GpuFacts:
    values: dict[str, float] = {}
    seconds: dict[str, float] = {}
    reasons: dict[str, float] = {}
    for slot, value in settled:
        if slot.into is Into.VALUE:
            values[slot.attribute] = value
        elif slot.into is Into.EVENT_SECONDS:
            seconds[slot.attribute] = value
        else:
            mask = int(value)
            reasons = {reason: float(bool(mask & bit)) for bit, reason in CLOCKS_EVENT_BITS.items()}
    pods = {about.pod for about in abouts if about.pod[1]}
    namespace, pod, container = pods.pop() if len(pods) == 1 else ("", "", "")
    return GpuFacts(
        key=key,
        values=values,
        clocks_event_seconds=seconds,
        clocks_event_reasons=reasons,
        gpu=next((about.gpu for about in abouts if about.gpu is not None), None),
        pci_bus_id=next((about.pci_bus_id for about in abouts if about.pci_bus_id), ""),
        model=next((about.model for about in abouts if about.model), ""),
        hostname=next((about.hostname for about in abouts if about.hostname), ""),
        mig_profile=next((about.mig_profile for about in abouts if about.mig_profile), ""),
        pod=pod,
        namespace=namespace,
        container=container,
        labels=_labels(abouts),
    )


def _labels(abouts: list[About]) -> dict[str, str]:
    """All other labels; where rows differ, as copies for two jobs do, all values in order."""
    found: dict[str, set[str]] = defaultdict(set)
    for about in abouts:
        for name, value in about.labels:
            found[name].add(value)
    return {name: ",".join(sorted(values))[:_MAX_LABEL_CHARACTERS] for name, values in sorted(found.items())}
