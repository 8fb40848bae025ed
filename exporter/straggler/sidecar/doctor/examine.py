"""All checks, in the order in which one would do them by hand."""

from __future__ import annotations

from collections.abc import Iterator

from straggler.sidecar.config import Config
from straggler.sidecar.doctor.directory import examine_directory
from straggler.sidecar.doctor.finding import Finding
from straggler.sidecar.doctor.machine import examine_machine
from straggler.sidecar.doctor.monitoring import examine_monitoring
from straggler.sidecar.doctor.origins import examine_sources
from straggler.sidecar.doctor.serving import examine_serving
from straggler.sources.dcgm.fetch import Access
from straggler.sources.rings.discover import default_ring_dir


def examine(
    config: Config, prometheus_url: str | None = None, prometheus_access: Access | None = None
) -> Iterator[Finding]:
    """Look at this node, and change nothing.

    Args:
        config: the sidecar's settings.
        prometheus_url: who should scrape it; ``None``: not asked.
        prometheus_access: how that is asked.

    Raises:
        ConfigError: a file that a setting names cannot be used.
    """
    yield from examine_directory(config.ring_dir or default_ring_dir())
    yield from examine_sources(config)
    yield from examine_machine()
    yield from examine_serving(config)
    if prometheus_url:
        yield from examine_monitoring(prometheus_url, config.listen.port, prometheus_access or Access())
