"""What runs inside the training process: standard library and ``wire``, nothing else.

The order of a step: ``timer`` (what the loop calls) → ``step`` (where a step ends) → ``stopwatch`` (time to phases) →
``recorder`` (totals and bytes) → ``ring_writer``, ``push`` or ``serve``. ``session`` holds them together.
"""

from straggler.hook.timer import StepTimer

__all__ = ["StepTimer"]
