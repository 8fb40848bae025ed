"""The sidecar as a process: put together, started, ended."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from straggler import __version__
from straggler.detect.policy import DEFAULT, Policy
from straggler.errors import ConfigError
from straggler.sidecar.alerting import Alerting
from straggler.sidecar.clock import SystemClock
from straggler.sidecar.collector import Collector, Observer
from straggler.sidecar.config import Config
from straggler.sidecar.gate import Gate
from straggler.sidecar.handler import WebLimits
from straggler.sidecar.push_endpoint import PushEndpoint
from straggler.sidecar.routes import Routes
from straggler.sidecar.scrape import shielded
from straggler.sidecar.sources import Node, host_name
from straggler.sidecar.state import NodeState
from straggler.sidecar.web import WebServer
from straggler.sources.rings.discover import SHARED_DIRECTORY

_log = logging.getLogger(__name__)

_POLL_TIMEOUT_SECONDS = 1.0
_FIRST_TIMEOUT_SECONDS = 1.0
"""The first scrapes share the first look: a hung source must not keep the others from them."""
_LOOK_TIMEOUT_SECONDS = 5.0
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})


class Sidecar:
    """Everything that serves one node; nothing runs until ``start``.

    Args:
        config: the settings.
        policy: what slow and hung mean.
        observers: called with the snapshot after each full collection. If there are any, the sidecar collects every
            ``poll_seconds`` by itself, and not only when it is scraped.

    Raises:
        ConfigError: a file or directory that a setting names cannot be used, or the address cannot be listened on.
    """

    def __init__(self, config: Config, *, policy: Policy = DEFAULT, observers: Sequence[Observer] = ()) -> None:
        clock = SystemClock()
        policy = adjust(policy, config)
        _require_directory(config)
        self._config = config
        self._observed = bool(observers)
        self._node = Node(config, policy, clock)
        state = NodeState(
            clock,
            sources=self._node.sources,
            node_proven=self._node.is_proven,
            gpu_sharing=config.gpu_sharing,
            max_ranks=config.limits.ranks,
            hang_after_seconds=config.hang_seconds,
            host_name=host_name(),
        )
        self._collector = Collector(self._node.sources, state, clock, observers)
        count_http = partial(state.count_one, "http")
        routes = Routes(
            self._collector,
            scrape=config.scrape,
            policy=policy,
            count=state.count,
            push=PushEndpoint(
                self._node.push, count=partial(state.count_one, "push"), tell=partial(state.tell, "push")
            ).answer,
            hint=f"Rings are looked for in {self._node.ring_dir}: the training process must write there "
            "(STRAGGLER_DIR) and use StepTimer.",
        )
        limits = WebLimits(connections=config.limits.connections)
        self._gate = Gate(config.web.config_file)
        try:
            self._web = WebServer(
                config.listen.host, config.listen.port, routes.respond, limits, count_http, gate=self._gate
            )
        except OSError as error:
            raise ConfigError("listen", _why_not_listening(config, error)) from error
        self._stopping = threading.Event()
        self._background = threading.Thread(target=self._poll, name="poll", daemon=True)

    @property
    def port(self) -> int:
        """The port that is really listened on."""
        return self._web.port

    def start(self) -> None:
        """Begin to answer and to read."""
        self._web.start()
        self._background.start()

    def stop(self) -> None:
        """End; answers under way go out. A source that hangs is left behind."""
        self._stopping.set()
        self._web.stop()
        self._background.join(_POLL_TIMEOUT_SECONDS / 2)

    def log_facts(self) -> None:
        """Say what an administrator wants to know first, a line each."""
        config = self._config
        host = config.listen.host or "every address"
        _log.info("Straggler Exporter %s serves on %s, port %d", __version__, host, self.port)
        _log.info("rings: %s", self._node.ring_dir)
        if not self._node.ring_dir.is_dir():
            _log.warning(
                "there is no directory %s yet: no rank is seen before there is one; for the ranks of all users make it "
                "with `install -d -m 3733 %s`, or name another with --ring-dir",
                self._node.ring_dir,
                config.ring_dir or SHARED_DIRECTORY,
            )
        proven = "this node's" if self._node.is_proven else "whose node is proven only by a UUID (dcgm.same_node)"
        _log.info("GPUs: %s", "nobody is asked" if config.dcgm.url == "none" else f"{self._node.dcgm_url}, {proven}")
        receiver = config.alerts.alertmanager_url or config.alerts.webhook_url
        _log.info("alerts: %s", f"for runs of this node alone, to {receiver}" if receiver else "by Prometheus' rules")
        _log.info(
            "clients: %s, %s",
            "encrypted" if self._gate.is_encrypted else "not encrypted",
            "users of the web-config file" if self._gate.has_users else "anybody",
        )
        _log.info("push: %s", f"tokens of {config.push.tokens_file}" if config.push.tokens_file else "off")

    def _poll(self) -> None:
        """Look at everything once, then keep up with the rings (or, if observed, with everything)."""
        shielded("the first look", partial(self._collector.collect, _FIRST_TIMEOUT_SECONDS), None)
        while not self._stopping.wait(self._config.poll_seconds):
            if self._observed:
                shielded("a look", partial(self._collector.collect, _LOOK_TIMEOUT_SECONDS), None)
            else:
                shielded("a look at the rings", partial(self._collector.poll, _POLL_TIMEOUT_SECONDS), None)


def serve(config: Config, *, policy: Policy = DEFAULT) -> int:
    """Serve until SIGTERM or SIGINT. For the main thread.

    Returns:
        0, the exit code of an ordered end.

    Raises:
        ConfigError: as ``Sidecar``.
    """
    policy = adjust(policy, config)
    alerting = make_alerting(config, policy)
    sidecar = Sidecar(config, policy=policy, observers=[alerting.observe] if alerting else [])
    # Blocked before any thread starts, and waited for below: a handler that sets an event can deadlock with the wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    if alerting:
        alerting.start()
    sidecar.start()
    sidecar.log_facts()
    signal.sigwait(_ENDING)
    sidecar.stop()
    if alerting:
        alerting.stop()
    _log.info("ended")
    return 0


def adjust(policy: Policy, config: Config) -> Policy:
    """The policy as the settings want it."""
    return replace(policy, hang_min_seconds=config.hang_seconds)


def make_alerting(config: Config, policy: Policy) -> Alerting | None:
    """The embedded policy, if the settings name a receiver.

    Raises:
        ConfigError: as ``Alerting``.
    """
    if not (config.alerts.alertmanager_url or config.alerts.webhook_url):
        return None
    return Alerting(config.alerts, policy, SystemClock())


def check(config: Config) -> None:
    """Try all settings but the address.

    Raises:
        ConfigError: a file or directory that a setting names cannot be used.
    """
    _require_directory(config)
    Node(config, DEFAULT, SystemClock())
    Gate(config.web.config_file)
    make_alerting(config, DEFAULT)


def _require_directory(config: Config) -> None:
    """Refuse what can never become the ring directory; one that is not there yet may come, e.g. when it is mounted.

    Only if a setting names it: the default under /dev/shm is a place where any user can put a file.
    """
    if config.ring_dir is not None and os.path.exists(config.ring_dir) and not os.path.isdir(config.ring_dir):  # noqa: PTH110, PTH112 - pathlib's raise where a parent may not be entered
        raise ConfigError("ring_dir", f"{config.ring_dir} is no directory")


def _why_not_listening(config: Config, error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: "is in use by another program; choose another port, or see who it is with "
        f"`ss -ltnp 'sport = :{config.listen.port}'`",
        errno.EADDRNOTAVAIL: "is no address of this machine",
        errno.EACCES: "needs a privilege: ports below 1024 are root's",
    }
    return f"{config.listen} {reasons.get(error.errno or 0, error.strerror or str(error))}"
