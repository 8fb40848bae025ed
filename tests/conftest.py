"""What all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A deadline, or how long inputs take to be made, is an assertion about wall time, and CI machines are busy. What
# decides whether a change may land says the same each time; `make fuzz` looks for what nobody has seen yet.
settings.register_profile("straggler", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("straggler")

# A shell without job control starts what goes into its background with Ctrl-C ignored, and processes hand that down to
# those that they start: training loops and commands of ours would not hear it either.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXPECTED = Path(__file__).parent / "expected"


class Expected:
    """Compares whole texts with the files in ``tests/expected``; ``--golden`` rewrites them."""

    def __init__(self, *, rewrite: bool) -> None:
        self._rewrite = rewrite

    def check(self, name: str, text: str) -> None:
        """Fail unless the file holds exactly this text."""
        path = EXPECTED / name
        if self._rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run `make golden` and read the diff"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: run `make golden` and read the diff"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--golden`` rewrites the expected files."""
    parser.addoption("--golden", action="store_true", help="rewrite tests/expected")


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> Expected:
    """The whole-page comparison."""
    return Expected(rewrite=bool(request.config.getoption("--golden")))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Inputs met in the field, kept beside the checkout; tests that need them are skipped where they are absent."""
    path = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    if not path.is_dir():
        pytest.skip("no ../shared/corpus beside this checkout")
    return path
