"""What the PyTorch tests share: they are skipped where torch is not installed."""

from __future__ import annotations

import importlib.util

collect_ignore = ["training_job.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
