"""What a wrong setting is told: the key, where the value came from, what it was, and what to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from straggler.sidecar.setting import KeyPath, settings


def explain(detail: ErrorDetails, origins: Mapping[KeyPath, str]) -> tuple[str, str]:
    """Key and sentence for one refusal of pydantic's."""
    path = tuple(str(part) for part in detail["loc"])
    known = {setting.path: setting for setting in settings()}
    while path not in known and path not in origins and len(path) > 1:
        path = path[:-1]  # pydantic goes on into the members of a union
    key = ".".join(path)
    origin = f" ({origins[path]})" if path in origins else ""
    if detail["type"] == "extra_forbidden":
        return key, f"unknown key{origin}{nearest(key, {setting.key for setting in known.values()})}"
    if path not in known:
        return key, f"{detail['input']!r}{origin} is no section: write its keys below it, indented"
    return key, f"{detail['input']!r}{origin} cannot be used: {_wanted(detail)}"


_WANTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "a number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "path_type": "a path",
    "string_type": "text, in quotes where it looks like a number",
}
"""What to write instead, by pydantic's error type."""


def _wanted(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if "error" in context:
        return str(context["error"])  # one of our own validators
    wanted = _WANTED.get(detail["type"])
    return f"write {wanted.format(**context)}" if wanted else detail["msg"]


def nearest(name: str, known: Iterable[str]) -> str:
    """A question about the name that was probably meant; empty if none is near."""
    matches = get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
