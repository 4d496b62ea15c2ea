"""The way in: connections are accepted here, as many as there is room for, and begin with their TLS handshake.

Descriptors are kept back for the store, so that clients who come in numbers stop no renewal; and one address gets half
of the room, so that it does not shut out the others. Programs behind one proxy share its address. A connection counts
from the moment that it is accepted: its handshake has a time of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.service.limits import CONNECTIONS_MAX, DESCRIPTORS_KEPT_MAX, HANDSHAKE_SECONDS

_ACCEPTED_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 1.0
_SHARED_BYTES: Final = 8
_log = logging.getLogger("tenure.service")


class ConnectionRoom(Collector):
    """The room for connections: `maximum` in all, and half of it for one address. Local sockets have no address."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._inside: dict[object, object] = {}  # by connection: the sender whose room it takes
        self._by_sender: Counter[object] = Counter()
        self._refused = 0

    def enter(self, connection: object, address: str) -> bool:
        """Take room for a connection. False where none is left."""
        sender = _sender(address) if address else None
        of_sender = self._by_sender[sender] if sender is not None else 0
        if len(self._inside) >= self._maximum or of_sender >= max(1, self._maximum // 2):
            self._refused += 1
            return False
        self._inside[connection] = sender
        self._by_sender[sender] += 1
        return True

    def leave(self, connection: object) -> None:
        """Give the room back. Idempotent."""
        if connection in self._inside:
            sender = self._inside.pop(connection)
            self._by_sender[sender] -= 1
            if not self._by_sender[sender]:
                del self._by_sender[sender]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics; see prometheus_client."""
        yield GaugeMetricFamily("tenure_http_connections", "Connections that are open.", value=len(self._inside))
        yield CounterMetricFamily(
            "tenure_http_connections_refused", "Connections for which there was no room.", value=self._refused
        )


def connections_max() -> int:
    """Return how many connections may be open at once, by the descriptors that this process may have."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, allowed - min(allowed // 4, DESCRIPTORS_KEPT_MAX))


class Listener:
    """A listening socket, from which connections are accepted until `close`; each becomes a protocol that `make` makes.

    To uvicorn it is one of its servers.
    """

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext | None, room: ConnectionRoom, make: Callable[[], Any]
    ) -> None:
        self._sock = sock
        self._context = context
        self._room = room
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._accept_on()

    def close(self) -> None:
        """Accept no more, and end the handshakes."""
        self._loop.remove_reader(self._sock)
        if self._paused is not None:
            self._paused.cancel()
        self._sock.close()
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when the handshakes have ended."""
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept_on(self) -> None:
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors: who comes waits until there are some again
                _log.error("no connection can be accepted for %g s: %s", _PAUSE_SECONDS, error.strerror)
                self._loop.remove_reader(self._sock)
                self._paused = self._loop.call_later(_PAUSE_SECONDS, self._accept_on)
                return
            protocol = self._make()
            if not self._room.enter(protocol, address[0] if isinstance(address, tuple) else ""):
                sock.close()
                continue
            sock.setblocking(False)
            task = self._loop.create_task(self._begin(protocol, sock))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, protocol: Any, sock: socket.socket) -> None:
        limit = None if self._context is None else HANDSHAKE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._context, ssl_handshake_timeout=limit
            )
        except BaseException as error:
            self._room.leave(protocol)
            sock.close()
            if not isinstance(error, OSError):  # else no handshake, or gone meanwhile: nothing to tell anybody
                raise


def _sender(address: str) -> object:
    """Return who an address stands for: one sender has all IPv6 addresses of a network of 64 bits."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 4:
        return found
    return found.ipv4_mapped or found.packed[:_SHARED_BYTES]
