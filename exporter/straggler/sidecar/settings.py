"""From flags, environment and file to a ``Config``: who wins.

Flags win over the environment, the environment over the file, the file over the defaults. Every refusal names the key,
where it came from, what was given and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from straggler.errors import ConfigError
from straggler.sidecar.config import Config
from straggler.sidecar.setting import PREFIX, KeyPath, plain, settings
from straggler.sidecar.setting_errors import explain, nearest
from straggler.sidecar.yaml_file import read_yaml

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
        "FLOPS_PER_STEP",
        "FLOPS_PER_TOKEN",
        "GPU_SYNCHRONIZED",
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
        "SAMPLES",
        "SERVE",
        "TOKENS",
        "TORCH",
        "TRACE_DIR",
        "WORLD_SIZE",
    )
)
"""What the hook reads (it may not be imported here): no misspelling of ours. A guard compares with the hook's code."""


# STRAGGLER_SERVICE_HOST, STRAGGLER_SERVICE_PORT_PUSH, STRAGGLER_PORT, STRAGGLER_PORT_10110_TCP_ADDR (Kubernetes 1.34)
_SERVICE_LINK = re.compile(
    r"([A-Z0-9_]+?)_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)


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
    origins: dict[KeyPath, str] = {}
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
        (key, first), *others = (explain(detail, origins) for detail in error.errors())
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
        f"unknown variable {name} in the environment{nearest(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known and not _is_service_link(name, environment)
    ]


def _is_service_link(name: str, environment: Mapping[str, str]) -> bool:
    """Whether Kubernetes set it: into each pod, for each Service of its namespace, called ``straggler`` for example.

    A whole set comes with each Service, so that a port of ours that somebody made up is still told.

    Source:
        https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    """
    found = _SERVICE_LINK.fullmatch(name)
    return found is not None and f"{found[1]}_SERVICE_HOST" in environment


def to_yaml(config: Config) -> str:
    """The settings as a file that ``load`` would read back; those that are not set stand as ``null``."""
    content: dict[str, Any] = {}
    for setting in settings():
        place: Any = content
        value: Any = config
        for name in setting.path[:-1]:
            place = place.setdefault(name, {})
            value = getattr(value, name)
        place[setting.path[-1]] = plain(getattr(value, setting.path[-1]))
    return yaml.safe_dump(content, sort_keys=False)


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


def _leaves(content: Mapping[str, Any], parents: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    sections = {setting.path[0] for setting in settings() if len(setting.path) > 1}
    for key, value in content.items():
        if isinstance(value, Mapping) and not parents and key in sections:
            yield from _leaves({str(name): inner for name, inner in value.items()}, (key,))
        else:
            yield (*parents, key), value


def _put(merged: dict[str, Any], origins: dict[KeyPath, str], path: KeyPath, value: Any, origin: str) -> None:
    place = merged
    for name in path[:-1]:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):  # the file gave a plain value where a section belongs: leave it to be refused
            return
        place = inner
    place[path[-1]] = value
    origins[path] = origin
