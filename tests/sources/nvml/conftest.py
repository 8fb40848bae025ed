"""A driver library for tests: compiled from C here, loaded by the real binding in the real process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import FakeClock
from stubbed import Stubbed


def _compile(directory: Path, *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = Path(__file__).with_name("stub_nvml.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return directory


@pytest.fixture(scope="session")
def new_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a library like that of a driver of today."""
    return _compile(tmp_path_factory.mktemp("new"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a library that lacks the functions of the last years."""
    return _compile(tmp_path_factory.mktemp("old"), "-DOLD_DRIVER")


@pytest.fixture
def stubbed(new_driver: Path, tmp_path: Path) -> Iterator[Stubbed]:
    """The source on the new driver."""
    made = Stubbed(new_driver, tmp_path, FakeClock())
    yield made
    made.close()


@pytest.fixture
def stubbed_old(old_driver: Path, tmp_path: Path) -> Iterator[Stubbed]:
    """The source on the old driver."""
    made = Stubbed(old_driver, tmp_path, FakeClock())
    yield made
    made.close()
