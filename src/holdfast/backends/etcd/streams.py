"""The two kinds of stream that carry watches: a WebSocket, and one long POST.

etcd's gateway speaks WebSocket on /v3/watch, where watches are added and cancelled as one goes. With etcd
users enabled it refuses that, whatever carries the token; there one streaming POST with all create requests
in its body does, opened anew when a watch is added.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from typing import Any, Final, Protocol

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_RECEIVE_BYTES: Final = 64 * 1024


class Stream(Protocol):
    """An open connection that carries watches."""

    sock: socket.socket
    takes_more: bool
    """Can watches be added to it while it is open?"""

    def send(self, request: dict[str, Any]) -> None: ...
    def ping(self) -> bool:
        """Ask the other end for a sign of life; False where the stream has no way to."""

    def receive(self) -> list[Any]:
        """Messages that have arrived; blocks only while one is on its way. Raises OSError when it broke."""


class WebSocketStream:
    """Watches over a WebSocket: added and cancelled while it is open."""

    takes_more = True

    def __init__(self, sock: socket.socket, endpoint: tuple[str, int]) -> None:
        self.sock = sock
        self._protocol = ClientProtocol(parse_uri(f"ws://{_host(endpoint)}/v3/watch"), max_size=_MESSAGE_BYTES_MAX)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while self._protocol.state is State.CONNECTING:
            self._feed()
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc

    def send(self, request: dict[str, Any]) -> None:
        self._protocol.send_text(json.dumps(request, separators=(",", ":")).encode())
        self._flush()

    def ping(self) -> bool:
        self._protocol.send_ping(b"")
        self._flush()
        return True

    def receive(self) -> list[Any]:
        messages = []
        for event in self._feed():
            if isinstance(event, Frame):
                if event.opcode is Opcode.CLOSE:
                    raise EOFError("the server closed the watch")
                if event.opcode is Opcode.TEXT and event.data:
                    messages += [json.loads(line) for line in bytes(event.data).splitlines() if line]
        return messages

    def _feed(self) -> list[Frame | Response]:
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise EOFError("the server hung up")
        self._protocol.receive_data(data)
        self._flush()
        events: list[Frame | Response] = [
            e for e in self._protocol.events_received() if isinstance(e, (Frame, Response))
        ]
        return events

    def _flush(self) -> None:
        out = b"".join(self._protocol.data_to_send())
        if out:
            self.sock.sendall(out)


class PostStream:
    """Watches over one streaming POST: all of them in its body."""

    takes_more = False

    def __init__(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str, creates: Iterable[dict[str, Any]]
    ) -> None:
        self.sock = sock
        _keep_alive(sock)
        self._buffer = b""
        self._lines = b""
        self._in_body = False
        body = b"\n".join(json.dumps(create, separators=(",", ":")).encode() for create in creates)
        head = (
            f"POST /v3/watch HTTP/1.1\r\nHost: {_host(endpoint)}\r\nContent-Type: application/json\r\n"
            f"Authorization: {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body)

    def send(self, request: dict[str, Any]) -> None:
        raise ValueError(f"a streaming POST takes no more requests once it is sent: {request}")

    def ping(self) -> bool:
        return False  # the kernel asks, see _keep_alive

    def receive(self) -> list[Any]:
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise EOFError("the server hung up")
        self._buffer += data
        if not self._in_body and not self._read_head():
            return []
        self._read_chunks()
        *lines, self._lines = self._lines.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def _read_head(self) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        status = head.split(b"\r\n", 1)[0]
        if b" 200 " not in status + b" ":
            raise OSError(f"the server refused the watch: {status.decode(errors='replace')}")
        if b"chunked" not in head.lower():
            raise OSError("the server did not stream the watch")
        self._buffer, self._in_body = rest, True
        return True

    def _read_chunks(self) -> None:
        while True:
            size_line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                return
            size = int(size_line.split(b";")[0], 16)
            if size == 0:
                raise EOFError("the server ended the watch")
            if len(rest) < size + 2:
                return
            self._lines += rest[:size]
            self._buffer = rest[size + 2 :]


def _host(endpoint: tuple[str, int]) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def pending(sock: socket.socket) -> int:
    """Bytes already decrypted that select() can't see."""
    pending = getattr(sock, "pending", None)
    return int(pending()) if pending is not None else 0


def _keep_alive(sock: socket.socket) -> None:
    """Have the kernel find out within seconds that the other end is gone, where it can."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
