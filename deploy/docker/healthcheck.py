"""Whether the sidecar in this container answers. Exit code 0 if it does, 1 if not.

With TLS or passwords it cannot be asked for its health without a secret of its own. That it refuses us, in proper HTTP
or in proper TLS, shows as well that it lives.
"""

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

SECONDS = 2.5
HEALTHY = (200, 401, 403)


def answers(connection: HTTPConnection) -> bool:
    """Ask once."""
    speaks_tls = False
    try:
        connection.connect()
        speaks_tls = isinstance(connection.sock, ssl.SSLSocket)
        connection.request("GET", "/-/healthy")
        return connection.getresponse().status in HEALTHY
    except ssl.SSLError as error:
        return speaks_tls or "ALERT" in str(error)  # it wants a certificate of ours
    except ConnectionError:
        return speaks_tls  # the same; in TLS 1.3 that comes after the handshake, if it comes at all
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    """Ask by TLS where it is likely, and then the other way."""
    host, _, port = os.environ.get("STRAGGLER_LISTEN", ":10110").rpartition(":")
    place = (host.strip("[]") or "127.0.0.1", int(port))
    # Nothing secret is sent and nothing received is believed, so that the certificate does not matter.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above; there is no public name for it
    plain = HTTPConnection(*place, timeout=SECONDS)
    secure = HTTPSConnection(*place, timeout=SECONDS, context=context)
    order = [secure, plain] if os.environ.get("STRAGGLER_WEB_CONFIG_FILE") else [plain, secure]
    return 0 if any(map(answers, order)) else 1


if __name__ == "__main__":
    sys.exit(main())
