"""Web-config files for tests, and certificates made by openssl as an administrator would."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from straggler.sidecar.web_config import REQUIRE

PASSWORD = "correct horse"


class Certificate(NamedTuple):
    """Two files in PEM."""

    certificate: Path
    key: Path


def openssl(*arguments: str | Path) -> None:
    """Run it."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(directory: Path, name: str) -> Certificate:
    """A CA of one's own."""
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign", "-keyout", made.key, "-out", made.certificate),
    )
    return made


def signed(ca: Certificate, directory: Path, name: str, alternative: str) -> Certificate:
    """A certificate for ``alternative``, e.g. ``DNS:localhost,IP:127.0.0.1``, signed by the CA."""
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    request = directory / f"{name}.csr"
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"),
        *("-addext", f"subjectAltName={alternative}", "-keyout", made.key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", ca.certificate, "-CAkey", ca.key, "-days", "2"),
        *("-copy_extensions", "copyall", "-out", made.certificate),
    )
    return made


@dataclass
class WebFiles:
    """A directory with ``web.yml``, rewritten by the test."""

    directory: Path

    @property
    def file(self) -> Path:
        """The web-config file."""
        return self.directory / "web.yml"

    def write(self, content: object) -> Path:
        """Write it anew, with a time that certainly differs; who looks meanwhile sees one change, not three."""
        before = self.file.stat().st_mtime_ns if self.file.exists() else 0
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        os.utime(fresh, ns=(before + 10**9, before + 10**9))
        fresh.replace(self.file)
        return self.file

    def tls(self, *, clients: bool = False, **more: object) -> dict[str, object]:
        """The section for the server's certificate, and for clients' if wanted."""
        section: dict[str, object] = {"cert_file": "server.pem", "key_file": "server.key"}
        if clients:
            section |= {"client_auth_type": REQUIRE, "client_ca_file": "ca.pem"}
        return section | more
