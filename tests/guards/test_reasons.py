"""Values of the label ``reason``: a source counts under none that it does not list.

Once ``torn`` was counted and stood in no list, so that nobody who read the lists knew what it meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import straggler

SOURCES = Path(straggler.__file__).parent / "sources"
SHOWN = ("dcgm", "host", "infiniband", "nccl", "nvml", "push", "rings")
"""Those of the sidecar: what ``inspect`` and ``replay`` read is told in words."""


def _strings(node: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _listed(tree: ast.AST) -> set[str]:
    """The strings of constants that are called ``…REASONS``, or are told to be the failures of a source."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found |= _strings(value) if name.endswith(("REASONS", "FAILURES")) else set()
    return found


def _counted(tree: ast.AST) -> Iterator[str]:
    """Reasons that are written out where something is refused or cannot be seen."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [keyword.value for keyword in node.keywords if name == "Problem" and keyword.arg == "reason"]
            if name == "SourceFailedError" or (name == "add" and len(node.args) > 1):
                given += node.args[:1]
            for argument in given:
                yield from _strings(argument)


@pytest.mark.parametrize("source", SHOWN)
def test_reasons_are_listed(source: str) -> None:
    """Each reason that a source writes out stands in its lists, where it is explained."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((SOURCES / source).rglob("*.py"))]
    counted = {reason for tree in trees for reason in _counted(tree)}
    listed = {reason for tree in trees for reason in _listed(tree)}

    assert counted
    assert counted - listed == set()
