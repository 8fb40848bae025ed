"""The configuration file, read more strictly than YAML asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from straggler.errors import ConfigError


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


def read_yaml(file: Path, setting: str = "config") -> dict[str, Any]:
    """Read a configuration file.

    Args:
        file: its path.
        setting: which setting names it, for the errors.

    Raises:
        ConfigError: it cannot be read, or is no mapping of keys to values.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _StrictLoader)  # noqa: S506 - a SafeLoader, only stricter
    except OSError as error:
        raise ConfigError(setting, f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(setting, f"{file} is not UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(setting, f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(setting, f"{file} is no mapping: write lines of the form `key: value`")
    return {str(key): value for key, value in content.items()}
