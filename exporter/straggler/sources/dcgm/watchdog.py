"""Ends a connection when its time is over, whatever it is waiting for then."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_AGAIN_SECONDS: Final = 0.05


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[Watchdog]:
    """Watch over connections while the block lasts.

    Args:
        seconds: from entering the block until the connections are shut down.
    """
    dog = Watchdog()
    thread = threading.Thread(target=dog.run, args=(seconds,), name="dcgm-watchdog", daemon=True)
    thread.start()
    try:
        yield dog
    finally:
        dog.call_off()
        thread.join()


class Watchdog:
    """Waits, and then shuts connections down until it is called off."""

    def __init__(self) -> None:
        self._connections: list[Any] = []
        self._called_off = threading.Event()
        self.has_bitten = False
        """Whether the time was over before the block: what was read may be cut."""

    def watch(self, connection: Any) -> None:
        """Include a connection; its ``sock`` may still be to come."""
        self._connections.append(connection)

    def call_off(self) -> None:
        """Let all connections live from now on."""
        self._called_off.set()

    def run(self, seconds: float) -> None:
        """The thread."""
        if self._called_off.wait(seconds):
            return
        self.has_bitten = True
        while True:  # a connection may get its socket only after the first bite
            for connection in list(self._connections):
                sock = getattr(connection, "sock", None)
                if isinstance(sock, socket.socket):
                    with contextlib.suppress(OSError):
                        # On the plain socket: TLS would want to say goodbye, and wait for the answer.
                        socket.socket.shutdown(sock, socket.SHUT_RDWR)
            if self._called_off.wait(_AGAIN_SECONDS):
                return


class WatchedAdapter(HTTPAdapter):
    """Shows every connection that it opens to a watchdog."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose connections are watched."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            "http": self._watched(HTTPConnectionPool),
            "https": self._watched(HTTPSConnectionPool),
        }

    def _watched(self, pool_class: type[HTTPConnectionPool]) -> Any:
        def make_pool(*args: Any, **kwargs: Any) -> Any:
            pool: Any = pool_class(*args, **kwargs)
            make_connection = pool.ConnectionCls

            def connect(*args: Any, **kwargs: Any) -> Any:
                connection = make_connection(*args, **kwargs)
                self._watchdog.watch(connection)
                return connection

            pool.ConnectionCls = connect
            return pool

        return make_pool
