"""What the user chose, apart from the rank's identity: arguments first, then ``STRAGGLER_*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

_NO = frozenset({"", "0", "false", "no", "off"})
_MAX_PORT = 65_535


class Options(NamedTuple):
    """Where records go and how own time is to be taken."""

    directory: str | None = None
    """For the ring; ``None``: the default places."""
    wants_ring: bool = True
    """Push and an own page are for ranks without a sidecar: with them there is a ring only in a given directory."""
    allow_any_filesystem: bool = False
    push_url: str = ""
    push_token: str = ""
    push_token_file: str = ""
    serve: tuple[str, int] | None = None
    """Address and port of the rank's own page."""
    own_time: bool = True
    gpu_synchronized: bool = False


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether ``STRAGGLER_DISABLED`` is set to anything but a no."""
    return _flag(environment, "STRAGGLER_DISABLED")


def find_options(
    environment: Mapping[str, str],
    *,
    warn: Callable[[str, str], None],
    local_rank: int | None,
    directory: str | None,
    push: str | None,
    push_token: str | None,
    serve: int | str | None,
    allow_any_filesystem: bool | None,
    own_time: bool | None,
    gpu_synchronized: bool | None,
) -> Options:
    """Put arguments and environment together.

    A port from the environment is that of local rank 0, since all ranks of a node share one environment: local rank 3
    serves on the third port after it. A port given as an argument is taken as it is.
    """
    directory = str(directory) if directory else environment.get("STRAGGLER_DIR") or None
    push_url = push or environment.get("STRAGGLER_PUSH_URL", "")
    if push_url and not push_url.lower().startswith(("http://", "https://")):
        warn("push", f"push URL {push_url[:80]!r} does not begin with http:// or https://: nothing is pushed")
        push_url = ""
    shift = (local_rank or 0) if serve is None else 0
    address = _address(environment.get("STRAGGLER_SERVE") if serve is None else serve, shift, warn)
    return Options(
        directory=directory,
        wants_ring=bool(directory) or not (push_url or address),
        allow_any_filesystem=_choose(environment, "STRAGGLER_ALLOW_ANY_FILESYSTEM", allow_any_filesystem),
        push_url=push_url,
        push_token=push_token or environment.get("STRAGGLER_PUSH_TOKEN", ""),
        push_token_file="" if push_token else environment.get("STRAGGLER_PUSH_TOKEN_FILE", ""),
        serve=address,
        own_time=own_time if own_time is not None else environment.get("STRAGGLER_OWN_TIME", "1").lower() not in _NO,
        gpu_synchronized=_choose(environment, "STRAGGLER_GPU_SYNCHRONIZED", gpu_synchronized),
    )


def _address(value: object, shift: int, warn: Callable[[str, str], None]) -> tuple[str, int] | None:
    """``PORT`` or ``HOST:PORT``; port 0 lets the system choose."""
    if value is None or value == "":
        return None
    host, _, port = str(value).rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) + shift <= _MAX_PORT):
        warn("serve", f"{str(value)[:60]!r} is no port and no HOST:PORT: the rank serves no page of its own")
        return None
    return host.strip("[]"), int(port) + (shift if int(port) else 0)


def _choose(environment: Mapping[str, str], variable: str, given: object) -> bool:
    return _flag(environment, variable) if given is None else bool(given)


def _flag(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "").strip().lower() not in _NO
