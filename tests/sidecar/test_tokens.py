"""Who may push."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from straggler.errors import ConfigError
from straggler.sidecar.tokens import Grant, TokenFile

TOKEN = "0123456789abcdef0123"
OTHER = "fedcba9876543210fedc"


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    return path


def _touch(path: Path, text: str) -> None:
    """Write, with a time that certainly differs."""
    before = path.stat().st_mtime_ns
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_token_and_namespace(tmp_path: Path) -> None:
    """A token alone may write for anybody; with a namespace for that one only."""
    tokens = TokenFile(_file(tmp_path, f"# the team's\n\n{TOKEN}\n{OTHER} team-a\n"))

    assert tokens.check(f"Bearer {TOKEN}") == Grant(None)
    assert tokens.check(f"bearer  {OTHER} ") == Grant("team-a")


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \udc80"]
)
def test_wrong_header(tmp_path: Path, header: str) -> None:
    """Anything but the scheme and a known token is nobody."""
    assert TokenFile(_file(tmp_path, f"{TOKEN}\n")).check(header) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no token"), ("# only a comment\n", "no token"), ("short\n", "16 characters"), (f"{TOKEN}\nx\n", "line 2")],
)
def test_wrong_file(tmp_path: Path, text: str, message: str) -> None:
    """A file that lets nobody in, or lets anybody guess, is an error that says how to make a token."""
    with pytest.raises(ConfigError, match=message) as caught:
        TokenFile(_file(tmp_path, text))
    assert "openssl rand" in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is an error of the setting."""
    with pytest.raises(ConfigError, match=r"push.tokens_file: cannot read"):
        TokenFile(tmp_path / "nowhere")


def test_replaced_token(tmp_path: Path) -> None:
    """A changed file counts from the next request on."""
    path = _file(tmp_path, f"{TOKEN}\n")
    tokens = TokenFile(path)
    _touch(path, f"{OTHER}\n")

    assert tokens.check(f"Bearer {TOKEN}") is None
    assert tokens.check(f"Bearer {OTHER}") == Grant(None)


def test_broken_replacement_locks_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While the file is gone or half-written the old tokens hold, with one warning; afterwards the new ones."""
    path = _file(tmp_path, f"{TOKEN}\n")
    tokens = TokenFile(path)
    path.unlink()
    with caplog.at_level(logging.WARNING):
        assert tokens.check(f"Bearer {TOKEN}") == Grant(None)
        assert tokens.check(f"Bearer {TOKEN}") == Grant(None)
    assert len(caplog.records) == 1

    path.write_text(f"{OTHER}\n", encoding="utf-8")
    assert tokens.check(f"Bearer {OTHER}") == Grant(None)
