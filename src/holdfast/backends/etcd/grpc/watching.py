"""The stream that carries all of a client's watches, over a socket of its own. The watcher's thread serves it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from holdfast.backends.etcd.grpc import messages
from holdfast.backends.etcd.grpc.http2 import Http2, NotHttp2, framed
from holdfast.backends.etcd.words import Told, Watching

PATH: Final = "/etcdserverpb.Watch/Watch"
_RECEIVE_BYTES: Final = 64 * 1024


class WatchStream:
    """Watches are added and cancelled while it is open, with users too."""

    takes_more: Final = True
    silence_seconds: Final = 7.0
    """etcd hangs up on clients that ping more often than every 5 s (its --grpc-keepalive-min-time)."""

    def __init__(
        self,
        sock: socket.socket,
        endpoint: tuple[str, int],
        token: str | None,
        watches: Mapping[int, Watching],
    ) -> None:
        self.sock = sock
        self._http = Http2(endpoint, tls=isinstance(sock, ssl.SSLSocket))
        self._waiting = b""  # for the server's leave to send it
        self._http.begin(PATH, token)
        self._send(b"".join(framed(messages.watch_create(number, watching)) for number, watching in watches.items()))

    def create(self, watch_id: int, watching: Watching) -> None:
        self._send(framed(messages.watch_create(watch_id, watching)))

    def cancel(self, watch_id: int) -> None:
        self._send(framed(messages.watch_cancel(watch_id)))

    def ping(self) -> bool:
        self._http.ping()
        self._send(b"")
        return True

    def receive(self) -> list[Told]:
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise self._http.hung_up()
        try:
            self._http.feed(data)
        except NotHttp2 as stranger:
            raise ConnectionError(f"it speaks no gRPC: {stranger}") from stranger
        self._send(b"")  # what the server wants acknowledged, and what it has given leave for
        told = [messages.told(message) for message in self._http.messages()]
        if self._http.ended and not told:
            refusal = self._http.refusal()
            raise EOFError(f"the server ended the watches: {refusal.message if refusal else 'without a reason'}")
        if self._http.going_away and not told:
            raise EOFError("the server goes away")
        return told

    def _send(self, data: bytes) -> None:
        out, self._waiting = self._http.sendable(self._waiting + data, last=False)
        if out:
            self.sock.sendall(out)
