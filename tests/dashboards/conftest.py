"""A Prometheus with a past, made once for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from dashboards import courses, server
from dashboards.files import NAMES, Json, load

MINUTES = 60
PIPELINE_MINUTES = 25


@pytest.fixture(params=NAMES)
def dashboard(request: pytest.FixtureRequest) -> Json:
    """Each dashboard in turn."""
    return load(request.param)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Prometheus]:
    """A straggler, a healthy run without a ``cluster`` label, a pipeline, 320 ranks, and all sorts of trouble."""
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        pytest.skip("prometheus and promtool are not installed: `.ci/bootstrap --servers`")
    folder = tmp_path_factory.mktemp("prometheus")
    runs = [courses.straggler(MINUTES), courses.healthy(MINUTES, cluster=""), courses.crowd(), *courses.troubled()]
    runs.append(courses.pipeline(PIPELINE_MINUTES))
    server.build(folder, runs)
    with server.serve(folder) as running:
        yield running
