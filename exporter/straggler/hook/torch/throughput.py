"""What a step did besides taking time: tokens, samples, operations, bytes given to all-reduce.

Nothing of it is guessed. Each is given by the training (``add``), or seen where the user said so in the environment:

- ``STRAGGLER_TOKENS=input_ids``: all elements of that tensor of each batch; ``STRAGGLER_SAMPLES=input_ids``: its first
  dimension. The name is a key, an attribute or an index of the batch, or several with dots between; ``*`` is the batch
  itself. ``/8`` behind it: eight ranks get the same batch (tensor and pipeline parallelism), so each counts an eighth.
  Only shapes are looked at, so nothing waits for a GPU. Batches count if the training thread took them from a torch
  ``DataLoader``, or from the loader given to ``instrument``, and not for evaluation.
- ``STRAGGLER_FLOPS_PER_STEP``: a number, or ``count`` (``flops.py``); ``STRAGGLER_FLOPS_PER_TOKEN``: a number, e.g. 6
  times the parameters.

All-reduce is seen without being told: the gradients of each DistributedDataParallel whose backward reduces them. Where
a communication hook changes them, the bytes are unknown.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from straggler.hook.book import MOST_FLOPS, is_count
from straggler.hook.guard import attempt, guarded

if TYPE_CHECKING:
    from straggler.hook.torch.flops import FlopCount
    from straggler.hook.torch.tracker import Tracker

# input_ids, 0, net_input.src_tokens, */8
_RULE = re.compile(r"([\w.\-]+|\*)(?:/([1-9]\d{0,5}))?")
_PATIENCE_STEPS = 16
"""After so many steps without a tensor of the given name it is said that there is none."""
COUNT = "count"


class Rule(NamedTuple):
    """Which tensor of a batch tells."""

    path: tuple[str, ...]
    shared_by: int
    """How many ranks get the same batch."""

    def shape(self, batch: Any) -> tuple[int, ...] | None:
        """The shape of the tensor; ``None``, or an error, if the batch has no such tensor."""
        value = batch
        for name in self.path:
            value = _member(value, name)
        shape = getattr(value, "shape", None)
        if not isinstance(shape, tuple) or not all(isinstance(length, int) for length in shape):
            return None
        return tuple(shape)


def parse_rule(text: str) -> Rule | None:
    """``NAME`` or ``NAME/N``; ``None`` if it is neither."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        return None
    path = () if match[1] == "*" else tuple(match[1].split("."))
    return Rule(path, int(match[2] or 1))


def _member(value: Any, name: str) -> Any:
    if hasattr(value, "keys"):  # a mapping, also one that is none by type, as transformers' BatchEncoding
        return value[name]
    if isinstance(value, (list, tuple)) and name.isdigit():
        return value[int(name)]
    return getattr(value, name, None)


class _Seen:
    """A number that grows with each batch, and is handed on step by step in whole numbers."""

    def __init__(self, rule: Rule, measure: Callable[[tuple[int, ...]], int]) -> None:
        self._rule = rule
        self._measure = measure
        self._total = self._handed_on = 0
        self.is_known = False

    def look(self, batch: Any) -> None:
        shape = self._rule.shape(batch)
        if shape is not None:
            self._total += self._measure(shape)
            self.is_known = True

    def take(self) -> int | None:
        if not self.is_known:
            return None
        new = self._total // self._rule.shared_by - self._handed_on
        self._handed_on += new
        return new


class Throughput:
    """Collects the amounts of the step that runs."""

    def __init__(self, tracker: Tracker, environment: Mapping[str, str]) -> None:
        self._tracker = tracker
        self.fail = tracker.fail
        self._steps = 0
        self._added: dict[str, float] = {}
        self._seen: dict[str, _Seen] = {}
        for amount, (variable, measure) in _RULES.items():
            text = environment.get(variable, "")
            rule = parse_rule(text)
            if rule is not None:
                self._seen[amount] = _Seen(rule, measure)
            elif text:
                tracker.warn(variable, f"{variable}={text[:60]!r} names no tensor: write e.g. input_ids or input_ids/8")
        self._flops_per_token = _number(environment, "STRAGGLER_FLOPS_PER_TOKEN", tracker.warn)
        self._flops_per_step: float | None = None
        self.count: FlopCount | None = None
        if environment.get("STRAGGLER_FLOPS_PER_STEP", "").strip().lower() == COUNT:
            self._count_flops()
        else:
            self._flops_per_step = _number(environment, "STRAGGLER_FLOPS_PER_STEP", tracker.warn)
        self._knows_flops = (self._flops_per_token, self._flops_per_step, self.count) != (None, None, None)
        self._reduced: dict[weakref.ref[Any], int | None] = {}
        """Bytes of the gradients of each DistributedDataParallel; ``None``: unknown."""
        self._armed: set[weakref.ref[Any]] = set()
        """Those that ran forward, so that their coming backward reduces."""

    @guarded
    def _count_flops(self) -> None:
        from straggler.hook.torch.flops import FlopCount  # noqa: PLC0415 - only where chosen

        tracker = self._tracker
        self.count = FlopCount(lambda: tracker.lasting.opaque, tracker.warn)
        tracker.on_stop.append(self.count.stop)

    @property
    def wants_batches(self) -> bool:
        """Whether batches have to be looked at."""
        return bool(self._seen)

    @guarded
    def add(self, amounts: Mapping[str, float | None]) -> None:
        """The training says it by itself: for the step that runs."""
        if not self._tracker.is_training_thread():
            return
        for name, value in amounts.items():
            if value is None:
                continue
            if is_count(value, MOST_FLOPS):
                self._added[name] = self._added.get(name, 0) + value
            else:
                kind = type(value).__name__
                self._tracker.warn(name, f"{name}: this {kind} is ignored: give a plain number of 0 or more, no tensor")

    def saw_batch(self, batch: Any) -> None:
        """The training thread got a batch. A batch whose own code raises has no such tensor."""
        for seen in self._seen.values():
            attempt(seen.look, batch)

    def take(self) -> dict[str, Any]:
        """The amounts of the step that ends here; what is unknown is not among them."""
        self._steps += 1
        amounts, self._added = self._added, {}
        for name, seen in self._seen.items():
            value = seen.take()
            if value is not None:
                amounts.setdefault(name, value)
            elif self._steps == _PATIENCE_STEPS:
                variable, _ = _RULES[name]
                self._tracker.warn(
                    variable,
                    f"no batch had the tensor that {variable} names, so {name} are unknown; see docs/throughput.md",
                )
        if self._knows_flops:
            flops = self._flops(amounts.get("tokens"))
            if flops is not None:
                amounts.setdefault("flops", flops)
        if self._tracker.profiled or (self.count is not None and self.count.is_counting):
            amounts["profiled"] = True
        return amounts

    def _flops(self, tokens: float | None) -> float | None:
        if self._flops_per_step is not None:
            return self._flops_per_step
        if self.count is not None:
            return self.count.flops
        if self._flops_per_token is not None and tokens is not None:
            return self._flops_per_token * tokens
        return None

    # All-reduce

    def runs_forward(self, module: Any) -> None:
        """A DistributedDataParallel runs forward with gradients: its coming backward will reduce them."""
        if getattr(module, "require_backward_grad_sync", False):
            self._armed.add(weakref.ref(module))

    def reduces(self) -> None:
        """A backward begins that waits for peers at its end."""
        armed, added = self._armed, self._added
        for one in armed:
            if one not in self._reduced:
                self._reduced[one] = self._count(one())
            count = self._reduced[one]
            if count is not None:
                added["allreduce_bytes"] = added.get("allreduce_bytes", 0) + count
        armed.clear()

    def _count(self, module: Any) -> int | None:
        """As ``gradient_bytes``, for a module that may be gone or raise."""
        self._reduced = {one: count for one, count in self._reduced.items() if one() is not None}
        counts: list[int | None] = []
        if module is not None:
            attempt(lambda: counts.append(gradient_bytes(module)))
        return counts[0] if counts else None


def _first(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 1


_RULES: dict[str, tuple[str, Callable[[tuple[int, ...]], int]]] = {
    "tokens": ("STRAGGLER_TOKENS", math.prod),
    "samples": ("STRAGGLER_SAMPLES", _first),
}


def _number(environment: Mapping[str, str], variable: str, warn: Callable[[str, str], None]) -> float | None:
    text = environment.get(variable, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        warn(variable, f"{variable}={text[:40]!r} is no number above 0")
        return None
    return value


def gradient_bytes(module: Any) -> int | None:
    """What one backward of a DistributedDataParallel gives to all-reduce; ``None`` if that cannot be known.

    A communication hook may compress what it is given; only torch's default reduces the gradients as they are.
    """
    if getattr(module, "_comm_hooks", None) or module._get_ddp_logging_data().get("comm_hook"):  # noqa: SLF001 - nothing public tells it
        return None
    mixed = getattr(module, "mixed_precision", None)
    reduced_as = None if mixed is None else mixed.reduce_dtype or mixed.param_dtype
    ignored = set(getattr(module, "parameters_to_ignore", ()))
    total = 0
    for name, parameter in module.module.named_parameters():
        if parameter.requires_grad and name not in ignored:
            size = parameter.element_size() if reduced_as is None else reduced_as.itemsize
            total += int(parameter.numel()) * int(size)
    return total
