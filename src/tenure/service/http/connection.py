"""A connection: uvicorn's HTTP/1.1 over httptools, with bounds where that has none.

A client has `HEAD_SECONDS` for a request's line and headers, from the connection or from their first byte, and
`HEAD_BYTES_MAX` bytes; as many may come between the parts of a body and behind it, where trailers are dropped. A
request that can't be read is answered with a problem document, and the connection ends. The head and the body of an
answer leave in one system call. A client that takes none of what is sent to it for `SEND_SECONDS` is cut off.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tenure.service.auth.tokens import CERTIFIED
from tenure.service.http.listener import ConnectionRoom
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.http.request import CONNECTION
from tenure.service.limits import HEAD_BYTES_MAX, HEAD_SECONDS, SEND_SECONDS

_COPIED_BYTES_MAX: Final = 16 * 1024
_TAKEN: Final = (("1.1", 1), ("1.0", 1), ("1.0", 0))
"""Versions of HTTP, each with how many Host headers a request may have."""
_TOO_LARGE: Final = f"request line and headers may have at most {HEAD_BYTES_MAX} bytes"


class JoiningTransport(asyncio.Transport):
    """A transport that joins two writes in a row, as uvicorn makes for the head of an answer and its body, into one.

    The first of two is kept back until the second comes, but no longer than until the event loop goes on: a single
    write, as of an event of a stream, leaves then. The order of writes stays, and writes before `close` leave before
    it. Has only the methods that uvicorn's protocol uses; flow control goes by the transport itself.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._first = b""
        self._soon: asyncio.Handle | None = None
        self._look: asyncio.TimerHandle | None = None  # while the client has to read

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data, at the latest when the event loop goes on."""
        first = self._taken()
        if not first:
            self._first = bytes(data)
            self._soon = self._loop.call_soon(self._send_first)
        elif len(data) <= _COPIED_BYTES_MAX:
            self._send(first + data)
        elif not self._transport.is_closing():
            self._transport.writelines((first, data))

    def close(self) -> None:
        """Send the data that was kept back, then end the connection."""
        self._send_first()
        self._transport.close()
        self.expect_reading()

    def abort(self) -> None:
        """End the connection, and send nothing more."""
        self._taken()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether the connection is being ended."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection from the transport itself."""
        return self._transport.get_extra_info(name, default)

    def expect_reading(self) -> None:
        """Cut off a client that from now on takes nothing for `SEND_SECONDS`."""
        if self._look is None:
            self._look_later(self._transport.get_write_buffer_size())

    def expect_nothing(self) -> None:
        """End what `expect_reading` began."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self, unsent_bytes: int) -> None:
        self._look = self._loop.call_later(SEND_SECONDS, self._look_at, unsent_bytes)

    def _look_at(self, unsent_before: int) -> None:
        self._look = None
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent >= unsent_before:
            self.abort()
        elif unsent:
            self._look_later(unsent)

    def _taken(self) -> bytes:
        first, self._first = self._first, b""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        return first

    def _send_first(self) -> None:
        self._send(self._taken())

    def _send(self, data: bytes) -> None:
        if data and not self._transport.is_closing():  # else the client has gone meanwhile
            self._transport.write(data)


class HttpProtocol(HttpToolsProtocol):
    """The protocol of one connection. `_head` is the timer of a head that is awaited; None while none is."""

    def __init__(self, room: ConnectionRoom, **options: Any) -> None:
        super().__init__(**options)
        self._room = room
        self._head: asyncio.TimerHandle | None = None
        self._reads_head = False
        self._loose_bytes = 0  # since the last head, or part of a body, that was taken
        self._parts_taken = 0
        self._certified: tuple[bytes, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the time for the first head."""
        super().connection_made(transport)
        self.transport: JoiningTransport = JoiningTransport(transport, self.loop)
        self._certified = _certified_names(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and give the room back."""
        self._room.leave(self)
        self._head_came()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.transport.expect_nothing()

    def pause_writing(self) -> None:
        """Stop sending until the client has read."""
        super().pause_writing()
        self.transport.expect_reading()

    def resume_writing(self) -> None:
        """Send on."""
        if not self.transport.is_closing():
            self.transport.expect_nothing()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse more bytes, and refuse too many that are no part of a body."""
        if self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        parts_before = self._parts_taken
        self._loose_bytes += len(data)
        super().data_received(data)
        if self._parts_taken != parts_before:
            self._loose_bytes = 0
        elif self._loose_bytes > HEAD_BYTES_MAX:
            self._refuse(ProblemCode.HEAD_TOO_LARGE, _TOO_LARGE)

    def on_message_begin(self) -> None:
        """Put into the new request's scope what the application reads of its connection."""
        super().on_message_begin()
        self._reads_head = True
        self.scope[CONNECTION] = id(self)  # type: ignore[typeddict-unknown-key]  # what an application may add
        if self._certified:
            self.scope["extensions"] = {CERTIFIED: {"names": self._certified}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and drop a trailer."""
        if self._reads_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the head's timer, and refuse a head that is too large though it came in one piece, or is no HTTP/1.1."""
        self._reads_head = False
        self._parts_taken += 1
        self._head_came()
        if self.transport.is_closing():  # refused before: these bytes came along with those that were
            return
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES_MAX:
            self._refuse(ProblemCode.HEAD_TOO_LARGE, _TOO_LARGE)
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if (self.parser.get_http_version(), hosts) not in _TAKEN:
            self._refuse(ProblemCode.BAD_REQUEST, "a request has to be HTTP/1.1, with one Host header, or HTTP/1.0")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body, unless its head was refused."""
        if self.cycle is not None:
            self._parts_taken += not self.cycle.response_complete
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Pass on the end of a request, unless its head was refused."""
        self._parts_taken += 1
        if self.cycle is not None:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP."""
        self._refuse(ProblemCode.BAD_REQUEST, "this is no HTTP/1.1 request that can be read")

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a request to upgrade is answered as if it were none."""

    def _await_head(self) -> None:
        self._head = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self._head = None
        if self._loose_bytes:
            self._refuse(ProblemCode.TOO_SLOW, f"request line and headers did not come within {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, code: ProblemCode, detail: str) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:  # a request before it is not answered yet
            self.transport.close()
            return
        answer = Problem(code, detail).answer()
        reason = code.title.encode()
        head = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n"
        always = b"".join(b"%s: %s\r\n" % header for header in self.server_state.default_headers)
        self.transport.write(head % (code.status, reason, answer.type.encode(), len(answer.body)) + always + b"\r\n")
        self.transport.write(answer.body)
        self.transport.close()


def _certified_names(transport: Any) -> tuple[bytes, ...]:
    """Return URIs and the common name in the client's certificate; () without a verified certificate."""
    secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate: Any = (
        secured.getpeercert() if secured is not None else None
    ) or {}  # typeshed: one type for all of it
    uris = [f"uri:{value}" for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    subject = [f"cert:{value}" for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(name.encode() for name in uris + subject)
