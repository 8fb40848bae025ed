"""The flags of ``straggler serve``; what it does is tested with the sidecar."""

from __future__ import annotations

from sidecars import straggler
from straggler.sidecar.setting import settings


def test_each_setting_is_a_flag() -> None:
    """Help lists a flag for each setting, with what it means and its default."""
    text = straggler("serve", "--help", environment={"COLUMNS": "1000"}).stdout

    for setting in settings():
        assert f"{setting.flag} " in text
        if setting.default_text():
            assert f"(default {setting.default_text()})" in text


def test_switch_needs_no_value() -> None:
    """A yes-or-no setting can be switched on by its flag alone, and off by a value."""
    on = straggler("serve", "--print-config", "--dcgm-same-node").stdout
    off = straggler("serve", "--print-config", "--dcgm-same-node", "false").stdout

    assert "same_node: true" in on
    assert "same_node: false" in off


def test_flags_that_scripts_rely_on() -> None:
    """The four flags that other people's scripts hold are spelt like this."""
    result = straggler(
        "serve", "--check-config", "--listen", ":0", "--ring-dir", "/x", "--dcgm-url", "http://127.0.0.1:9400/metrics"
    )

    assert (result.returncode, result.stdout) == (0, "the settings can be used\n")
