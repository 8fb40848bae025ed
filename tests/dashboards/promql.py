"""What a query asks for, by a real PromQL parser."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import promql_parser as pp

_CHILDREN = ("expr", "lhs", "rhs", "vector_selector", "param")


def selectors(query: str) -> list[pp.VectorSelector]:
    """All vector selectors of a query.

    Raises:
        ValueError: this is not PromQL.
    """
    return [node for node in nodes(pp.parse(query)) if isinstance(node, pp.VectorSelector)]


def nodes(node: Any) -> Iterator[Any]:
    """A node of the syntax tree and all below it."""
    yield node
    for child in _children(node):
        yield from nodes(child)


def outside(node: Any, functions: Container[str]) -> Iterator[pp.VectorSelector]:
    """The vector selectors that stand in none of these functions."""
    if isinstance(node, pp.Call) and node.func.name in functions:
        return
    if isinstance(node, pp.VectorSelector):
        yield node
    for child in _children(node):
        yield from outside(child, functions)


def _children(node: Any) -> list[pp.Expr]:
    found = [getattr(node, name, None) for name in _CHILDREN] + list(getattr(node, "args", None) or [])
    return [child for child in found if isinstance(child, pp.Expr)]
