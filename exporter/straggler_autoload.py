"""What ``import torch`` calls in every process where this package is installed (entry point group ``torch.backends``).

Beside the package and under a name that nobody else has: a researcher's own ``straggler.py`` would be found before the
package, and an entry point that cannot be imported makes ``import torch`` fail. For the same reason nothing is imported
here before somebody has asked for it, and the syntax is that of every Python with which a torch reads entry points.
"""

from __future__ import annotations

import os
import sys

_NO = ("", "0", "false", "no", "off")


def autoload() -> None:
    """Put the PyTorch instrument in, if ``STRAGGLER_TORCH`` asks for it. Raises nothing, whatever state we are in."""
    if os.environ.get("STRAGGLER_TORCH", "").strip().lower() in _NO or sys.version_info < (3, 10):
        return
    try:
        from straggler.hook.launch.begin import begin  # noqa: PLC0415 - see above

        begin()
    except Exception as error:  # noqa: BLE001 - hook/guard.py is what may just have failed to import
        import logging  # noqa: PLC0415 - only a process in trouble pays for it

        logging.getLogger("straggler").warning("this process is not measured: %r. Training goes on", error)
