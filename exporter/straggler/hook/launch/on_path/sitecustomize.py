"""Waits for ``import torch``, and is not there otherwise.

This directory stands first on ``PYTHONPATH``, put there by ``straggler run``, so every Python of the job runs this file
at its start: torchrun, the ranks, their loader workers, and whatever old Python some helper script asks for. Hence the
syntax is that of Python 2.7 and 3 alike, nothing of ours is imported before torch is there, and nothing here raises.

What another ``sitecustomize`` further on the path does is done as ever, errors included: this directory leaves
``sys.path``, and the name ``sitecustomize`` is given to the other one. ``usercustomize`` comes after as it always does.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
"""Holds the package ``straggler``: in a checkout, or in the site packages of another Python, whose other packages this
Python must never see."""
_OURS = ("straggler", "straggler_autoload")
_NO = ("", "0", "false", "no", "off")


class _Package(object):
    """Finds this package for a Python in which it is not installed. Last of all finders."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _OURS:
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, [_ROOT], target)
        return None


class _WaitForTorch(object):
    """Lets the other finders find torch, and is told when it has been loaded. First of all finders."""

    def __init__(self):
        self._asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self._asking:
            return None
        self._asking = True  # other tools' finders ask all finders in their turn
        try:
            for finder in list(sys.meta_path):
                find_spec = getattr(finder, "find_spec", None)  # Python 3.10 and 3.11 know older finders too
                spec = find_spec(name, path, target) if finder is not self and find_spec else None
                if spec is not None:
                    self._listen(spec.loader)
                    return spec
        finally:
            self._asking = False
        return None

    def _listen(self, loader):
        """Of this one loader object replace ``exec_module``; its type, by which loaders are known, stays."""
        load = getattr(loader, "exec_module", None)
        if load is None:
            return

        def exec_module(module):
            vars(loader).pop("exec_module", None)  # a finder may give the same loader twice
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _torch_is_here()

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            return  # a loader of another kind: torch works, and is not measured


def _torch_is_here():
    try:
        from straggler_autoload import autoload

        autoload()
    except Exception as error:
        import logging

        logging.getLogger("straggler").warning("this process is not measured: %r. Training goes on", error)


def _wait():
    if os.environ.get("STRAGGLER_TORCH", "").strip().lower() in _NO or sys.version_info < (3, 10):
        return
    sys.meta_path.append(_Package)
    if "torch" in sys.modules:
        _torch_is_here()
    else:
        sys.meta_path.insert(0, _WaitForTorch())


def _give_way():
    """Run the ``sitecustomize`` that would have been found without us."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if ours is not None and str(error).replace("'", "").endswith("No module named sitecustomize"):
            sys.modules["sitecustomize"] = ours  # there is no other; Python wants to find what it has imported
        else:
            raise


_wait()
_give_way()
