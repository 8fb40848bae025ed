"""Hugging Face: ``Trainer(callbacks=[StragglerCallback()])``, also for trainers built on it (TRL)."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from straggler.hook.torch import install


class StragglerCallback(TrainerCallback):  # type: ignore[misc]  # unknown where transformers is not installed
    """Measures each rank's own time from the first to the last step of ``train``.

    Evaluation and saving are seen without help, in the phases ``eval`` and ``checkpoint``. At the end of ``train`` the
    rank is said to have finished; the next ``train`` is measured anew. Make it before the model is compiled.
    """

    def __init__(self) -> None:
        install.start()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """For the second ``train`` of a process."""
        del args, state, control, kwargs
        install.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The rank has finished; evaluating goes on unmeasured."""
        del args, state, control, kwargs
        install.stop()
