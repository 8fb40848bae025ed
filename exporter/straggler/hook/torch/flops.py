"""Counts the floating point operations of one step, by the operators that run in it.

A dispatch mode sees every operator of the training thread and of its ``backward``, and ``torch.utils.flop_counter`` has
a formula for each that multiplies matrices: products, convolutions, torch's own attention. One step is counted and
stands for all. It takes some microseconds more for each operator, and is marked as profiled.

It is an estimate, and says nothing rather than something wrong:

- Recomputation by activation checkpointing counts, so what comes of it is hardware utilization, not model utilization.
- Operators without a formula count nothing: kernels of other libraries (flash-attn, Triton) are missing.
- A compiled step, or one replayed from a CUDA graph, runs no operators that could be seen; nor does a step with tensor
  subclasses (DTensor) show what this rank computes of them. Then there is no count, and a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _python_dispatch as dispatch
from torch.utils import flop_counter
from torch.utils._pytree import tree_map

from straggler.hook.guard import attempt

COUNTED_STEP = 3
"""Steps before it warm up: algorithms are tried out, optimizers make their state, the compiler compiles."""
_TAKES_TENSORS = hasattr(flop_counter, "flop_registry")
"""torch 2.1 has another table, whose formulas take shapes."""
FORMULAS: dict[Any, Callable[..., int]] = flop_counter.flop_registry if _TAKES_TENSORS else flop_counter.flop_mapping
"""Torch's own table: operator to the operations that it takes."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class FlopCount:
    """The count of one step, or why there is none.

    Args:
        opaque: tells why operators cannot be seen at present; ``""`` if they can.
        warn: told once if there is no count.
    """

    def __init__(self, opaque: Callable[[], str], warn: Callable[[str, str], None]) -> None:
        self.flops: float | None = None
        """Of a step; ``None`` as long as it is unknown."""
        self._opaque = opaque
        self._warn = warn
        self._mode: _Counting | None = None

    @property
    def is_counting(self) -> bool:
        """Whether the step that runs is the one that is counted."""
        return self._mode is not None

    def step_begins(self, ended: int) -> None:
        """So many steps have ended and the next begins, in the training thread."""
        if self._mode is not None:
            self._end(self._mode)
        elif ended == COUNTED_STEP:
            self._begin()

    def stop(self) -> None:
        """Count no further."""
        if self._mode is not None:
            self._mode.problem = "the hook was stopped"
            self._leave(self._mode)

    def _begin(self) -> None:
        if reason := self._opaque():
            self._give_up(reason)
            return
        self._mode = _Counting()
        self._mode.__enter__()

    def _end(self, mode: _Counting) -> None:
        if not self._leave(mode):
            return  # a mode of the user's is on top of ours: it has to go first
        reason = mode.problem or self._opaque()
        if reason:
            self._give_up(reason)
        elif mode.flops:
            self.flops = float(mode.flops)
        else:
            self._give_up("no operator with a formula ran in the training thread")

    def _leave(self, mode: _Counting) -> bool:
        mode.is_over = True
        if dispatch._get_current_dispatch_mode() is not mode:  # noqa: SLF001 - leaving removes whichever is on top
            mode.problem = "the step ended inside a dispatch mode of the training's own"
            return False
        mode.__exit__(None, None, None)
        self._mode = None
        return True

    def _give_up(self, reason: str) -> None:
        self._warn("flops", f"operations are not counted: {reason}. Set STRAGGLER_FLOPS_PER_STEP to a number")


class _Counting(dispatch.TorchDispatchMode):  # type: ignore[misc]  # unknown to mypy, as all of torch
    """Passes every operator on, and adds up those with a formula."""

    supports_higher_order_operators = True
    """Without this torch raises where such an operator runs inside the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.problem = ""
        self.is_over = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.is_over:
            error = attempt(self._count, func, types, args, kwargs or {}, result)
            if error is not None:
                self.problem = f"{type(error).__name__} in the formula of {func}"
        return result

    def _count(self, func: Any, types: Any, args: Any, kwargs: Any, result: Any) -> None:
        packet = getattr(func, "_overloadpacket", None)
        if packet is None:
            self.problem = f"the operator {func} runs others that cannot be seen"
            return
        formula = FORMULAS.get(packet)
        if formula is None:
            return
        strange = [kind for kind in types if kind not in _PLAIN]
        if strange:
            self.problem = f"{packet} ran on a {strange[0].__name__}, whose shape is not what this rank computes"
            return
        if _TAKES_TENSORS:
            self.flops += formula(*args, **kwargs, out_val=result)
        else:
            args, kwargs, shape = tree_map(flop_counter.get_shape, (args, kwargs, result))
            self.flops += formula(*args, **kwargs, out_shape=shape)
