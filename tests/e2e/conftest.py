"""What the end-to-end tests measure, at the end of the output: they print figures and assert none."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the properties that tests recorded."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    figures = [(report.nodeid, *pair) for report in reports if report.when == "call" for pair in report.user_properties]
    if figures:
        terminalreporter.section("measured")
        for test, name, value in figures:
            terminalreporter.line(f"{test.partition('::')[2]}: {name} = {value}")
