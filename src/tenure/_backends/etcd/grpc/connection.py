"""A gRPC connection to one endpoint, and the stream of watches; both run on http2.py, in the calling thread.

Most exchanges are a stream each. Renewals share one: the stream for keep-alives stays open on its connection, and
each exchange is a message there and a message back.


WatchStream carries all of a client's watches, over a socket of its own. The watcher's thread serves it.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final

from tenure._backends.etcd.grpc import messages
from tenure._backends.etcd.grpc.http2 import STREAMED, Http2, NotHttp2, framed, unframed
from tenure._backends.etcd.requests import WatchMessage, WatchRequest
from tenure._transport.session import Refusal

_RECEIVE_BYTES: Final = 64 * 1024
_UNASKED_RECEIVES_MAX: Final = 16
_ABOUT_SECONDS: Final = 0.01
"""Tolerance of a receive's deadline: setting the socket's time-out anew costs a system call."""


class GrpcReply:
    """The outcome of an exchange."""

    __slots__ = ("content", "refusal")

    def __init__(self, content: bytes, refusal: Refusal | None) -> None:
        self.content = content
        self.refusal = refusal


def dial(endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
    """Connect a socket, with the handshake where `tls` is given. Raises OSError."""
    sock = socket.create_connection(endpoint, seconds)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=endpoint[0])
    except BaseException:
        sock.close()
        raise


class GrpcConnection:
    """A connection of the pool. Raises OSError, and is of no more use then."""

    def __init__(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> None:
        self.endpoint = endpoint
        self._deadline = self._patience = 0.0
        self._streaming: tuple[str, str | None] | None = None  # path and token of the stream that is open
        self._sock = dial(endpoint, tls, seconds)
        self._http = Http2(endpoint, tls=tls is not None)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)

    @property
    def reusable(self) -> bool:
        return not self._http.going_away

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> GrpcReply:
        """Send one request and read its answer, within `seconds` in all. Raises OSError."""
        self._deadline = time.monotonic() + seconds
        self._patience = seconds
        self._sock.settimeout(seconds)
        try:
            if path in STREAMED:
                return self._over_stream(path, body, token)
            self._http.begin(path, token)
            self._send(framed(body), last=True)
            while not self._http.ended:
                self._receive()
            return self._reply()
        except NotHttp2 as stranger:
            self._http.going_away = True
            return GrpcReply(b"", Refusal(None, str(stranger), _status_of(str(stranger))))

    def still_good(self) -> bool:
        """Take in what has arrived, and tell whether the server neither hung up nor said that it will."""
        try:
            # an answer that nobody has asked for must not be taken for the next one's
            return self._caught_up() and self.reusable and not self._http.messages()
        except (OSError, NotHttp2):
            return False

    def close(self) -> None:
        self._sock.close()

    def _caught_up(self) -> bool:
        """Take what has come. False where the server has hung up, or talks without end."""
        for _ in range(_UNASKED_RECEIVES_MAX):
            if not self._poll.poll(0):
                return True
            self._sock.settimeout(0.0)
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return True  # half a record of TLS
            if not data:
                return False
            self._http.feed(data)
        return False

    def _over_stream(self, path: str, body: bytes, token: str | None) -> GrpcReply:
        """Exchange any number of framed messages over the open stream; each is answered by one."""
        if self._streaming != (path, token) or self._http.ended:
            self._http.begin(path, token)
            self._streaming = (path, token)
        self._send(body, last=False)
        wanted, answers = len(unframed(body)), list[bytes]()
        while len(answers) < wanted:
            if messages := self._http.messages():
                answers += messages
            elif self._http.ended:
                return GrpcReply(b"", self._http.refusal() or Refusal(14, "the server ended the stream", 200))
            else:
                self._receive()
        if len(answers) > wanted:
            raise ConnectionError(f"{len(answers)} messages came where {wanted} were asked for")
        return GrpcReply(b"".join(map(framed, answers)), None)

    def _reply(self) -> GrpcReply:
        refusal = self._http.refusal()
        if refusal is not None:
            return GrpcReply(b"", refusal)
        messages = self._http.messages()
        if len(messages) != 1:
            raise ConnectionError(f"{len(messages)} messages came where one answers")
        return GrpcReply(messages[0], None)

    def _send(self, data: bytes, *, last: bool) -> None:
        out, rest = self._http.sendable(data, last=last)
        self._sock.sendall(out)
        while rest:
            self._receive()
            if self._http.ended:
                return  # refused before it was read
            out, rest = self._http.sendable(rest, last=last)
            if out:
                self._sock.sendall(out)

    def _receive(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        if self._patience - left > _ABOUT_SECONDS:
            self._patience = left
            self._sock.settimeout(left)
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise self._http.hung_up()
        self._http.feed(data)


def _status_of(line: str) -> int:
    """Read the status from the status line of an HTTP/1 answer."""
    words = line.split(" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() and len(words[1]) == 3 else 0


PATH: Final = "/etcdserverpb.Watch/Watch"


class WatchStream:
    """A stream of watches, which are added and cancelled while it is open, with users too."""

    takes_more: Final = True
    silence_seconds: Final = 7.0
    """etcd hangs up on clients that ping more often than every 5 s (its --grpc-keepalive-min-time)."""

    def __init__(
        self,
        sock: socket.socket,
        endpoint: tuple[str, int],
        token: str | None,
        watches: Mapping[int, WatchRequest],
    ) -> None:
        self.sock = sock
        self._http = Http2(endpoint, tls=isinstance(sock, ssl.SSLSocket))
        self._waiting = b""  # for the server's leave to send it
        self._http.begin(PATH, token)
        self._send(b"".join(framed(messages.watch_create(number, watch)) for number, watch in watches.items()))

    def create(self, watch_id: int, watch: WatchRequest) -> None:
        self._send(framed(messages.watch_create(watch_id, watch)))

    def cancel(self, watch_id: int) -> None:
        self._send(framed(messages.watch_cancel(watch_id)))

    def ping(self) -> bool:
        self._http.ping()
        self._send(b"")
        return True

    def receive(self) -> list[WatchMessage]:
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise self._over() or self._http.hung_up()
        try:
            self._http.feed(data)
        except NotHttp2 as stranger:
            raise ConnectionError(f"it speaks no gRPC: {stranger}") from stranger
        self._send(b"")  # what the server wants acknowledged, and what it has given leave for
        arrived = [messages.watch_message(message) for message in self._http.messages()]
        over = self._over()
        if over is not None and not arrived:
            raise over
        if over is not None:
            self.sock.shutdown(socket.SHUT_RD)  # first what has arrived; whoever reads on finds the end, and at once
        return arrived

    def _over(self) -> EOFError | None:
        """The reason why nothing more will come; None where something may."""
        if self._http.ended:
            refusal = self._http.refusal()
            return EOFError(f"the server ended the watches: {refusal.message if refusal else 'without a reason'}")
        return EOFError("the server goes away") if self._http.going_away else None

    def _send(self, data: bytes) -> None:
        out, self._waiting = self._http.sendable(self._waiting + data, last=False)
        if out:
            self.sock.sendall(out)
