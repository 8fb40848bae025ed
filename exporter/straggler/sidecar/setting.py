"""The keys of the configuration, one by one, as ``config.py`` has them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from straggler.sidecar.config import Address, Config

PREFIX = "STRAGGLER_"

KeyPath = tuple[str, ...]
"""``("dcgm", "url")``."""


class Setting(NamedTuple):
    """One key of the configuration."""

    path: KeyPath
    field: FieldInfo

    @property
    def key(self) -> str:
        """As error texts and documents spell it: ``dcgm.url``."""
        return ".".join(self.path)

    @property
    def flat(self) -> str:
        """The same on one level: ``dcgm_url``."""
        return "_".join(self.path)

    @property
    def flag(self) -> str:
        """``--dcgm-url``."""
        return "--" + self.flat.replace("_", "-")

    @property
    def variable(self) -> str:
        """``STRAGGLER_DCGM_URL``."""
        return PREFIX + self.flat.upper()

    def default_text(self) -> str:
        """The default as one would write it; ``""`` where there is none."""
        default = self.field.default
        if default is None:
            return ""
        return str(plain(default)).lower() if isinstance(default, bool) else str(plain(default))


def settings(model: type[BaseModel] = Config, parents: KeyPath = ()) -> Iterator[Setting]:
    """All keys, in the order in which ``Config`` names them."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, (*parents, name))
        else:
            yield Setting((*parents, name), field)


def plain(value: Any) -> Any:
    """A value as YAML and people have it."""
    if isinstance(value, (Path, Address)):
        return str(value)
    return value


_TYPE_NAMES: dict[Any, str] = {bool: "true|false", int: "number", float: "number", Path: "path", Address: "address"}


def type_name(field: FieldInfo) -> str:
    """What a value is, for people."""
    annotation = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if choices := get_args(annotation):
        return "|".join(map(str, choices))
    return _TYPE_NAMES.get(annotation, "text")
