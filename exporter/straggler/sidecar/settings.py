"""From flags, environment and file to a ``Config``: who wins, and what a wrong setting is told.

Flags win over the environment, the environment over the file, the file over the defaults. Every refusal names the key,
where it came from, what was given and what to write.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from straggler.errors import ConfigError
from straggler.sidecar.config import Address, Config

PREFIX = "STRAGGLER_"
CONFIG_VARIABLE = "STRAGGLER_CONFIG"
HOOK_DIRECTORY_VARIABLE = "STRAGGLER_DIR"
"""Where the hook writes; a sidecar that inherits it and is told nothing else reads there."""

HOOK_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "ALLOW_ANY_FILESYSTEM",
        "ATTEMPT",
        "DIR",
        "DISABLED",
        "GPU_SYNCHRONIZED",
        "GPU_UUID",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE",
        "OWN_TIME",
        "PEER_GROUP",
        "PUSH_TOKEN",
        "PUSH_TOKEN_FILE",
        "PUSH_URL",
        "RANK",
        "RUN",
        "SERVE",
        "WORLD_SIZE",
    )
)
"""What the hook reads (it may not be imported here): no misspelling of ours. A guard compares with the hook's code."""

Path_ = tuple[str, ...]


class Setting(NamedTuple):
    """One key of the configuration."""

    path: Path_
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
        return "" if default is None else str(_plain(default))


def settings(model: type[BaseModel] = Config, parents: Path_ = ()) -> Iterator[Setting]:
    """All keys, in the order in which ``Config`` names them."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, (*parents, name))
        else:
            yield Setting((*parents, name), field)


def load(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None) -> Config:
    """Put the configuration together.

    Args:
        flags: by flat name (``dcgm_url``); ``None`` is a flag that was not given.
        environment: all variables; an empty one counts as not set.
        file: the YAML file; without it ``STRAGGLER_CONFIG`` names one.

    Raises:
        ConfigError: a key that does not exist or a value that cannot be used. Further ones stand on lines of their own.
    """
    if file is None and environment.get(CONFIG_VARIABLE):
        file = Path(environment[CONFIG_VARIABLE])
    merged: dict[str, Any] = {}
    origins: dict[Path_, str] = {}
    if file is not None:
        for path, value in _leaves(_nested(read_yaml(file), file)):
            _put(merged, origins, path, value, f"in {file}")
    if environment.get(HOOK_DIRECTORY_VARIABLE) and ("ring_dir",) not in origins:
        _put(merged, origins, ("ring_dir",), environment[HOOK_DIRECTORY_VARIABLE], HOOK_DIRECTORY_VARIABLE)
    for setting in settings():
        if environment.get(setting.variable):
            _put(merged, origins, setting.path, environment[setting.variable], setting.variable)
        if flags.get(setting.flat) is not None:
            _put(merged, origins, setting.path, flags[setting.flat], setting.flag)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        (key, first), *others = (_explain(detail, origins) for detail in error.errors())
        raise ConfigError(key, "\n".join([first, *(f"{name}: {text}" for name, text in others)])) from None


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Find misspelt variables.

    Args:
        environment: all variables.

    Returns:
        One sentence for each variable that starts like ours and is none of them.
    """
    known = {CONFIG_VARIABLE, *HOOK_VARIABLES, *(setting.variable for setting in settings())}
    return [
        f"unknown variable {name} in the environment{_nearest(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]


class _StrictLoader(yaml.SafeLoader):
    """YAML without the silent loss of a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen = set[str]()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(file: Path) -> dict[str, Any]:
    """Read the configuration file.

    Raises:
        ConfigError: it cannot be read, or is no mapping of keys to values.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _StrictLoader)  # noqa: S506 - a SafeLoader, only stricter
    except OSError as error:
        raise ConfigError("config", f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("config", f"{file} is not UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError("config", f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError("config", f"{file} is no mapping: write lines of the form `listen: 127.0.0.1:10110`")
    return {str(key): value for key, value in content.items()}


def _nested(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """Put keys that are written flat (``dcgm_url``) where they belong; an empty section is no section."""
    flat = {setting.flat: setting.path for setting in settings() if len(setting.path) > 1}
    result: dict[str, Any] = {key: value for key, value in content.items() if key not in flat and value is not None}
    for key, value in content.items():
        if key not in flat:
            continue
        section, name = flat[key]
        inner = result.setdefault(section, {})
        if not isinstance(inner, dict) or name in inner:
            raise ConfigError(f"{section}.{name}", f"stands twice in {file}, as {key} too")
        inner[name] = value
    return result


def _leaves(content: Mapping[str, Any], parents: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    sections = {setting.path[0] for setting in settings() if len(setting.path) > 1}
    for key, value in content.items():
        if isinstance(value, Mapping) and not parents and key in sections:
            yield from _leaves({str(name): inner for name, inner in value.items()}, (key,))
        else:
            yield (*parents, key), value


def _put(merged: dict[str, Any], origins: dict[Path_, str], path: Path_, value: Any, origin: str) -> None:
    place = merged
    for name in path[:-1]:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):  # the file gave a plain value where a section belongs: leave it to be refused
            return
        place = inner
    place[path[-1]] = value
    origins[path] = origin


def _explain(detail: ErrorDetails, origins: Mapping[Path_, str]) -> tuple[str, str]:
    """Key and sentence for one refusal of pydantic's."""
    path = tuple(str(part) for part in detail["loc"])
    known = {setting.path: setting for setting in settings()}
    while path not in known and path not in origins and len(path) > 1:
        path = path[:-1]  # pydantic goes on into the members of a union
    key = ".".join(path)
    origin = f" ({origins[path]})" if path in origins else ""
    if detail["type"] == "extra_forbidden":
        return key, f"unknown key{origin}{_nearest(key, {setting.key for setting in known.values()})}"
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


def _nearest(name: str, known: set[str]) -> str:
    matches = get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def to_yaml(config: Config) -> str:
    """The settings as a file that ``load`` would read back; those that are not set stand as ``null``."""
    content: dict[str, Any] = {}
    for setting in settings():
        place: Any = content
        value: Any = config
        for name in setting.path[:-1]:
            place = place.setdefault(name, {})
            value = getattr(value, name)
        place[setting.path[-1]] = _plain(getattr(value, setting.path[-1]))
    return yaml.safe_dump(content, sort_keys=False)


def _plain(value: Any) -> Any:
    """A value as YAML has it."""
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
