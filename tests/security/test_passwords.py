"""Users and passwords."""

from __future__ import annotations

import base64

import pytest

from security_files import PASSWORD
from straggler.sidecar.auth import Passwords
from straggler.sidecar.exchange import Refusal


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_user_and_password(digest: str) -> None:
    """The right pair passes, the first time and the next."""
    passwords = Passwords({"me": digest})

    passwords.admit(_basic("me", PASSWORD))
    passwords.admit(_basic("me", PASSWORD))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic !!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        _basic("me", "wrong"),
        _basic("me", ""),
        _basic("me", "nul\0" + PASSWORD),
        _basic("you", PASSWORD),
        _basic("", PASSWORD),
        "Bearer " + PASSWORD,
        _basic("me", PASSWORD).replace("Basic", "Digest"),
    ],
)
def test_anything_else(digest: str, header: str) -> None:
    """Whoever is not a user with the password is asked for both; also after the right one has been remembered."""
    passwords = Passwords({"me": digest})
    passwords.admit(_basic("me", PASSWORD))

    with pytest.raises(Refusal) as caught:
        passwords.admit(header)
    assert (caught.value.status, caught.value.reason) == (401, "unauthorized")
    assert caught.value.headers[0][0] == "WWW-Authenticate"


def test_right_password_is_hashed_once(digest: str) -> None:
    """Once a password was right it is known without bcrypt: also while every core is busy with wrong ones."""
    passwords = Passwords({"me": digest})
    passwords.admit(_basic("me", PASSWORD))

    with passwords._slow:  # whoever needs bcrypt now would wait
        passwords.admit(_basic("me", PASSWORD))


def test_password_is_not_kept(digest: str) -> None:
    """What is remembered is a keyed hash: the password does not stand in the object."""
    passwords = Passwords({"me": digest})
    passwords.admit(_basic("me", PASSWORD))

    assert PASSWORD.encode() not in b"".join(passwords._good.values())
    assert Passwords({"me": digest})._key != passwords._key


def test_guesses_wait_for_each_other(digest: str) -> None:
    """Only one wrong password is computed at a time; the next is turned away after a while."""
    passwords = Passwords({"me": digest}, patience_seconds=0.01)

    with passwords._slow, pytest.raises(Refusal) as caught:
        passwords.admit(_basic("me", "guess"))
    assert caught.value.reason == "too_many_logins"
