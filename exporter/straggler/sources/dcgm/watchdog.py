"""Ends a connection when its time is over, whatever it is waiting for then."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


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
    """Waits, and then shuts down the sockets that it was shown, and those that come later."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._called_off = threading.Event()
        self.has_bitten = False
        """Whether the time was over before the block: what was read may be cut."""

    def watch(self, sock: socket.socket) -> None:
        """Include a socket. It is held itself: its connection may let go of it while the body is still being read."""
        with self._lock:
            self._sockets.append(sock)
            if self.has_bitten:
                _shut_down(sock)

    def call_off(self) -> None:
        """Let all sockets live from now on."""
        self._called_off.set()

    def run(self, seconds: float) -> None:
        """The thread."""
        if self._called_off.wait(seconds):
            return
        with self._lock:
            self.has_bitten = True
            for sock in self._sockets:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # As a plain socket: TLS would want to say goodbye, and wait for the answer.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class WatchedAdapter(HTTPAdapter):
    """Shows every socket that it connects to a watchdog."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose sockets are watched."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            "http": self._watched(HTTPConnectionPool),
            "https": self._watched(HTTPSConnectionPool),
        }

    def _watched(self, pool_class: type[HTTPConnectionPool]) -> Any:
        def make_pool(*args: Any, **kwargs: Any) -> Any:
            pool: Any = pool_class(*args, **kwargs)
            make_connection = pool.ConnectionCls

            def make_watched(*args: Any, **kwargs: Any) -> Any:
                connection = make_connection(*args, **kwargs)
                connect = connection.connect

                def connect_watched() -> None:
                    connect()
                    self._watchdog.watch(connection.sock)

                connection.connect = connect_watched
                return connection

            pool.ConnectionCls = make_watched
            return pool

        return make_pool
