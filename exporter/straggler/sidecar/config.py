"""Every setting of the sidecar, once. Flags, variables, YAML keys and ``docs/configuration.md`` all follow from here.

A key ``dcgm.url`` is the flag ``--dcgm-url``, the variable ``STRAGGLER_DCGM_URL`` and, in YAML, ``url`` under ``dcgm``.
Secrets come in files only: an environment or a command line is readable by too many.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from straggler.sources.dcgm.freshness import STALE_AFTER_SECONDS

DEFAULT_PORT = 10110
AUTO_DCGM_URL = "http://127.0.0.1:9400/metrics"
"""Where dcgm-exporter listens if nobody moved it."""


class Address(NamedTuple):
    """Where to listen. An empty host is every address of the machine, IPv6 and IPv4."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: Any) -> Address:
    """Read ``HOST:PORT``, ``:PORT``, ``[::1]:PORT`` or ``PORT``.

    Raises:
        ValueError: anything else; the text says what to write.
    """
    if isinstance(text, Address):
        return text
    host, colon, port = str(text).strip().rpartition(":")
    if not colon:
        host = ""
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"put an IPv6 address in brackets: [{host}]:{port}")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"write HOST:PORT with a port of 0 to 65535, e.g. 127.0.0.1:{DEFAULT_PORT}")
    return Address(host.strip("[]"), int(port))


def _parse_dcgm_url(text: Any) -> str:
    url = str(text).strip()
    if url in ("auto", "none"):
        return url
    wanted = f"write auto, none or a URL like {AUTO_DCGM_URL}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError as error:
        raise ValueError(f"{error}; {wanted}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(wanted)
    if parts.username or parts.password:
        raise ValueError("no user or password in the URL: set dcgm.username and dcgm.password_file")
    return url if parts.path not in ("", "/") else f"{url.rstrip('/')}/metrics"


def _parse_receiver_url(text: Any) -> str:
    url = str(text).strip()
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError as error:
        raise ValueError(f"{error}; write a URL like http://127.0.0.1:9093") from error
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("write a URL like http://127.0.0.1:9093")
    return url


Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
DcgmUrl = Annotated[str, BeforeValidator(_parse_dcgm_url)]
ReceiverUrl = Annotated[str, BeforeValidator(_parse_receiver_url)]
ListenAddress = Annotated[Address, BeforeValidator(parse_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _parse_owners(text: Any) -> str:
    user_ranges(str(text))
    return str(text)


def user_ranges(text: str) -> tuple[range, ...]:
    """Read users by number, e.g. ``0,1000-60000``.

    Raises:
        ValueError: anything else; the text says what to write.
    """
    ranges = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else not last)) or int(last or first) < int(first):
            raise ValueError("write users by number, e.g. 0,1000-60000")
        ranges.append(range(int(first), int(last or first) + 1))
    return tuple(ranges)


class RingsConfig(_Section):
    """Whose rings are believed; that a run belongs to one user is always demanded."""

    owners: Annotated[str, BeforeValidator(_parse_owners)] = Field(
        default="", description="Users that may write rings, by number, e.g. `0,1000-60000`; empty: everybody"
    )
    namespaced_runs: bool = Field(
        default=False,
        description="Below `NAMESPACE/POD/`, as on Kubernetes, believe only rings of runs called `NAMESPACE/…`. Set it "
        "where namespaces do not trust each other",
    )


class DcgmConfig(_Section):
    """dcgm-exporter's page."""

    url: DcgmUrl = Field(
        default="auto",
        description=f"Page of dcgm-exporter. `auto` tries `{AUTO_DCGM_URL}` and is content if nobody answers there; "
        "`none` asks nobody",
    )
    same_node: bool = Field(
        default=False,
        description="Set it if the URL is not loopback but always leads to this node's exporter, e.g. a Kubernetes "
        "Service with `internalTrafficPolicy: Local`. Then bus ids and indices count as evidence for the join",
    )
    username: str = Field(default="", description="User for basic authentication")
    password_file: Path | None = Field(default=None, description="File with the password for basic authentication")
    ca_file: Path | None = Field(default=None, description="CA certificates (PEM) to check an `https` page with")
    client_certificate_file: Path | None = Field(
        default=None, description="Certificate (PEM) to show to a page that asks for one; may hold the key too"
    )
    client_key_file: Path | None = Field(default=None, description="Key (PEM) of that certificate")
    verify: bool = Field(default=True, description="Whether the certificate of an `https` page is checked")
    timeout_seconds: Seconds = Field(
        default=5.0, description="Longest wait for the page; never longer than the scrape allows"
    )
    stale_after_seconds: Seconds = Field(
        default=STALE_AFTER_SECONDS,
        description="How long the values may stand still while ranks step, before the source is `stale`: "
        "more than dcgm-exporter's own interval, which is 30 s by default",
    )


class NvmlConfig(_Section):
    """The driver's own library, read in a process of its own."""

    use: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="`auto`: while ranks live here, and only where dcgm-exporter is absent, has failed or is blind for "
        "something; `always`: also without ranks, and its absence is a failure; `never`",
    )
    timeout_seconds: Seconds = Field(
        default=5.0, description="Longest wait for the driver in one collection; the call goes on, and counts later"
    )
    hang_seconds: Seconds = Field(
        default=60.0, description="How long a call into the driver may last before its process is killed"
    )
    idle_seconds: Seconds = Field(
        default=60.0,
        description="How long after the last rank, or the last scrape, the GPUs are let go: while they are open a GPU "
        "cannot be reset and MIG cannot be switched",
    )


class WebConfig(_Section):
    """Encryption and passwords of the HTTP server."""

    config_file: Path | None = Field(
        default=None,
        description="TLS, client certificates, users and headers, in the web-config file that the exporters of "
        "Prometheus read; read again when it changes (docs/security.md)",
    )


class HostConfig(_Section):
    """What the kernel says about the node and the ranks' processes."""

    enabled: bool = Field(
        default=True,
        description="Whether pressure, CPU limits, page faults and disk waits are read. A rank's own need a shared PID "
        "namespace (`hostPID: true`)",
    )


class InfinibandConfig(_Section):
    """RDMA adapters, InfiniBand and RoCE."""

    enabled: bool = Field(default=True, description="Whether the ports under `/sys/class/infiniband` are read")
    sys_dir: Path = Field(
        default=Path("/sys"),
        description="Where the host's `/sys` is. In a container with a network of its own the kernel shows ports and "
        "hides their counters: mount the host's and name it here",
    )
    ignore: str = Field(
        default="",
        description="Adapters that are left alone, as shell patterns with commas between, e.g. `mlx5_bond_*,rocep*`: "
        "those of storage or management, whose speed is another one by design",
    )


def _parse_logs(text: Any) -> str:
    log_patterns(str(text))
    return str(text)


def log_patterns(text: str) -> tuple[str, ...]:
    """Read paths with wildcards, e.g. ``/var/log/nccl/*.log, /scratch/*/job.out``.

    Raises:
        ValueError: one is not absolute.
    """
    patterns = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(pattern.startswith("/") and not pattern.endswith("/") for pattern in patterns):
        raise ValueError("write absolute paths of files, e.g. /var/log/nccl/*.log")
    return patterns


class NcclConfig(_Section):
    """What NCCL says about itself in the logs of the training processes."""

    logs: Annotated[str, BeforeValidator(_parse_logs)] = Field(
        default="",
        description="Logs with NCCL's lines: absolute paths with `*`, separated by commas, e.g. "
        "`/var/log/nccl/*.log`; empty: none. Training must run with `NCCL_DEBUG=INFO` (docs/nccl.md)",
    )


class PushConfig(_Section):
    """Step records over HTTP, for training that shares no directory with the sidecar."""

    tokens_file: Path | None = Field(
        default=None,
        description="Switches `POST /api/v1/push` on. One line for each token: the token, then optionally a blank and "
        "the Kubernetes namespace that it may write for",
    )


class AlertsConfig(_Section):
    """The embedded policy: verdicts without a Prometheus, for runs whose ranks are all on this node."""

    alertmanager_url: ReceiverUrl = Field(
        default="",
        description="Judge the runs of this node here and send alerts to this Alertmanager, e.g. `http://host:9093`; "
        "for nodes without a Prometheus and its rules",
    )
    webhook_url: ReceiverUrl = Field(
        default="", description="The same, to whoever takes the messages of an Alertmanager's webhook"
    )
    authorization_file: Path | None = Field(
        default=None, description="File with the header `Authorization` for the receiver, e.g. `Bearer …`"
    )
    ca_file: Path | None = Field(default=None, description="CA certificates (PEM) to check an `https` receiver with")
    cluster: str = Field(default="", description="Label `cluster` of each alert")
    runbook_url: str = Field(
        default="", description="Address under which the runbooks are, for the annotation `runbook_url`"
    )
    dashboard_url: str = Field(
        default="", description="Address of the dashboard of a run, for the annotation `dashboard_url`"
    )
    patience: float = Field(
        default=1.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="What the waiting times before and after an alert are multiplied by; thresholds stay as they are",
    )


class ScrapeConfig(_Section):
    """How long a scrape may take."""

    timeout_seconds: Seconds = Field(default=9.5, description="For scrapes that announce no timeout")
    timeout_offset_seconds: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="The answer goes out this long before the timeout that Prometheus announces",
    )


class LimitsConfig(_Section):
    """What one node can be made to hold."""

    ranks: int = Field(default=512, ge=1, le=10_000, description="Most ranks on the page; more are counted as refused")
    connections: int = Field(
        default=64, ge=1, le=10_000, description="Most HTTP connections at a time; more are turned away with 503"
    )


class Config(_Section):
    """All settings."""

    listen: ListenAddress = Field(
        default=Address("", DEFAULT_PORT),
        description="Where to serve: `HOST:PORT`, `[IPV6]:PORT` or `:PORT` for every address of the machine",
    )
    ring_dir: Path | None = Field(
        default=None,
        description="Directory of the step rings. Without it: `STRAGGLER_DIR` as for the hook, else `/run/straggler`, "
        "else the per-user directory under `/dev/shm`",
    )
    poll_seconds: Seconds = Field(
        default=2.0,
        description="How often the rings are read between scrapes, so that a fast run does not lap the reader",
    )
    hang_seconds: Seconds = Field(
        default=120.0, description="Shortest silence of a rank that counts as a hang; never less than ten of its steps"
    )
    remove_after_seconds: float = Field(
        default=3600.0,
        ge=0,
        allow_inf_nan=False,
        description="Age at which the ring file of a dead rank is removed; 0: never",
    )
    gpu_sharing: bool = Field(
        default=False,
        description="Set it if several ranks run on one GPU on purpose: then all that name its UUID are on it",
    )
    rings: RingsConfig = RingsConfig()
    dcgm: DcgmConfig = DcgmConfig()
    nvml: NvmlConfig = NvmlConfig()
    host: HostConfig = HostConfig()
    infiniband: InfinibandConfig = InfinibandConfig()
    nccl: NcclConfig = NcclConfig()
    web: WebConfig = WebConfig()
    push: PushConfig = PushConfig()
    alerts: AlertsConfig = AlertsConfig()
    scrape: ScrapeConfig = ScrapeConfig()
    limits: LimitsConfig = LimitsConfig()
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What goes to standard error"
    )


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine whatever the network is like."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
