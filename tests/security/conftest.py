"""What the tests of the protection share."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest

from security_files import PASSWORD, WebFiles


@pytest.fixture
def web(tmp_path: Path) -> WebFiles:
    """An empty directory for a web-config file."""
    return WebFiles(tmp_path)


@pytest.fixture(scope="session")
def digest() -> str:
    """Bcrypt's hash of ``PASSWORD``, cheap."""
    return bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
