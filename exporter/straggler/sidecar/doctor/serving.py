"""Whether a sidecar serves here, and how it is protected."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from straggler import __version__
from straggler.sidecar.config import Address, Config
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sidecar.gate import Gate

_TIMEOUT_SECONDS = 5.0
_OURS = "straggler-exporter/"


def examine_serving(config: Config) -> Iterator[Finding]:
    """Ask on the sidecar's own port.

    Raises:
        ConfigError: the web-config file cannot be used.
    """
    gate = Gate(config.web.config_file)
    yield _examine_port(config.listen, gate)
    who = "users of the web-config file" if gate.has_users else "whoever reaches the port"
    if gate.asks_for_certificates:
        who += ", with a certificate of their own"
    how = "encrypted" if gate.is_encrypted else "not encrypted"
    yield Finding("web", Health.OK, f"{how}, for {who}")
    if config.push.tokens_file is not None and not gate.is_encrypted:
        text = "tokens of pushes travel in the clear"
        yield Finding("web", Health.BROKEN, text, "--web-config-file FILE, with tls_server_config (docs/security.md)")


def _examine_port(listen: Address, gate: Gate) -> Finding:
    if not listen.port:
        return Finding("port", Health.ABSENT, "a free one, chosen at the start")
    host = "127.0.0.1" if listen.host in ("", "0.0.0.0", "::") else listen.host  # noqa: S104 - compared, not bound
    where = str(Address(host, listen.port))
    client = (
        # Who is there is asked, and nothing secret is told: a certificate need not name the loopback address.
        HTTPSConnection(host, listen.port, timeout=_TIMEOUT_SECONDS, context=ssl._create_unverified_context())  # noqa: S323, SLF001 - the documented way
        if gate.is_encrypted
        else HTTPConnection(host, listen.port, timeout=_TIMEOUT_SECONDS)
    )
    with contextlib.closing(client):
        try:
            client.request("GET", "/-/healthy")
            server = client.getresponse().getheader("Server", "")
        except ConnectionRefusedError:
            return Finding(
                "port", Health.ABSENT, f"nobody listens on {where}", "systemctl enable --now straggler-exporter"
            )
        except (OSError, HTTPException) as error:
            if gate.asks_for_certificates and isinstance(error, (ssl.SSLError, ConnectionError)):
                text = f"on {where} somebody wants a certificate of ours, as the sidecar should: more it does not tell"
                return Finding("port", Health.OK, text)
            return Finding("port", Health.BROKEN, f"{where}: {error}", f"ss -ltnp 'sport = :{listen.port}'")
    if not server.startswith(_OURS):
        text = f"another program answers on {where}: {server[:60]!r}"
        return Finding("port", Health.BROKEN, text, f"ss -ltnp 'sport = :{listen.port}', or another --listen")
    version = server.removeprefix(_OURS)
    if version != __version__:
        text = f"a sidecar of version {version} answers on {where}, and this is {__version__}"
        return Finding("port", Health.BROKEN, text, "systemctl restart straggler-exporter")
    return Finding("port", Health.OK, f"the sidecar answers on {where}")
