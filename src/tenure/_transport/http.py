"""An HTTP/1.1 connection, kept open: a request is one send, an answer usually one receive.

urllib3 connects, verifies and sets the socket up; a UNIX socket needs nothing of that. The exchange itself is done
here, because its general machinery (two sends a request, a mail parser for the headers, a stream object for the body)
costs a fifth of a whole lock cycle, and nobody whom we ask needs any of it. Anything unexpected is an OSError, and the
connection is of no more use then.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from tenure._core.base import yielding
from tenure._core.base.options import Endpoint, is_path, shown
from tenure._transport.session import Refusal
from tenure.errors import StoreRefused

_RECEIVE_BYTES: Final = 64 * 1024
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_ABOUT_SECONDS: Final = 0.01
"""Tolerance of a receive's deadline: setting the socket's time-out anew costs a system call."""


class JsonResponse:
    """A response with as much of a `requests` response as etcd3gw looks at."""

    __slots__ = ("content", "reason", "status_code")

    def __init__(self, status_code: int, reason: str, content: bytes) -> None:
        self.status_code = status_code
        self.reason = reason
        self.content = content

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    @property
    def refusal(self) -> Refusal | None:
        """The refusal, with gRPC's code and message where etcd's gateway gave them; None where the status is 200."""
        if self.status_code == 200:
            return None
        try:
            body = json.loads(self.content)
            return Refusal(int(body["code"]), str(body.get("message") or body.get("error")), self.status_code)
        except (RecursionError, ValueError, KeyError, TypeError):
            return Refusal(None, self.text.strip()[:200], self.status_code)

    def json(self) -> Any:  # Any: JSON
        try:
            return json.loads(self.content.decode())  # text: of bytes it would first guess the encoding
        except (ValueError, RecursionError) as error:
            raise StoreRefused(f"something answers there, but it is not etcd: {self.text.strip()[:80]!r}") from error


def connect(endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
    """Connect a socket, with the handshake where `tls` is given. Raises OSError."""
    host, port = endpoint
    if is_path(endpoint):
        return _connect_path(host, seconds)
    if tls is None:
        connection = HTTPConnection(host, port, timeout=seconds)
    else:
        connection = HTTPSConnection(host, port, timeout=seconds, ssl_context=tls)
    try:
        connection.connect()
    except HTTPError as error:  # urllib3's own: no OSError, but what it was made from may be
        raise _as_os_error(error) from error
    sock = connection.sock
    if sock is None:
        raise ConnectionError(f"no connection to {shown(endpoint)}")
    return sock


def _connect_path(path: str, seconds: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _as_os_error(error: HTTPError) -> OSError:
    for cause in (error.__cause__, error.__context__, *error.args):
        if isinstance(cause, OSError):
            return cause
    return ConnectionError(str(error))


class HttpConnection:
    """A connection to one endpoint, for one exchange at a time."""

    answer: type[JsonResponse] = JsonResponse

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> None:
        self.endpoint = endpoint
        self.reusable = True
        self._sock = connect(endpoint, tls, seconds)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._fixed = f"Host: {host_header(endpoint)}\r\nContent-Type: application/json\r\n"
        self._deadline = self._patience = 0.0
        self._buffer = b""

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> JsonResponse:
        """Send one request and read its answer, within `seconds` in all. Raises OSError."""
        self._deadline, self._patience = time.monotonic() + seconds, seconds
        self._sock.settimeout(seconds)
        signed = "" if token is None else f"Authorization: {token}\r\n"
        head = f"POST {path} HTTP/1.1\r\n{self._fixed}{signed}Content-Length: {len(body)}\r\n\r\n"
        self._sock.sendall(head.encode("latin-1") + body)
        try:
            return self._answer()
        except ValueError as error:
            raise ConnectionError(f"what came back is not HTTP: {error}") from error

    def still_good(self) -> bool:
        # Readable means that the server has hung up, or says what nobody asked for; a stray answer may be here, too.
        return self.reusable and not self._buffer and not self._poll.poll(0)

    def close(self) -> None:
        self._sock.close()

    def _answer(self) -> JsonResponse:
        head = self._until(b"\r\n\r\n")
        status = head.partition(b"\r\n")[0].decode("latin-1")
        version, code, reason = (*status.split(" ", 2), "", "")[:3]
        if not version.startswith("HTTP/1."):
            raise ValueError(status[:80])
        headers = head.lower()
        if _header(headers, b"connection") == b"close":
            self.reusable = False
        if b"chunked" in _header(headers, b"transfer-encoding"):
            return self.answer(int(code), reason, self._chunks())
        if length := _header(headers, b"content-length"):
            return self.answer(int(code), reason, self._exactly(int(length)))
        self.reusable = False
        return self.answer(int(code), reason, self._rest())

    def _rest(self) -> bytes:
        """Read until the server hangs up: an answer without a length, as some proxies' error pages are."""
        while True:
            try:
                self._more(len(self._buffer))
            except ConnectionError:
                return self._buffer

    def _chunks(self) -> bytes:
        content = b""
        while True:
            size = int(self._until(b"\r\n").split(b";")[0], 16)
            chunk = self._exactly(size)
            self._until(b"\r\n")
            if size == 0:
                return content
            content += chunk
            if len(content) > _ANSWER_BYTES_MAX:
                raise ConnectionError(f"the answer has more than {_ANSWER_BYTES_MAX} bytes")

    def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            self._more(len(self._buffer))
        found, self._buffer = self._buffer[:at], self._buffer[at + len(end) :]
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more(size)
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _more(self, wanted: int) -> None:
        if wanted > _ANSWER_BYTES_MAX:
            raise ConnectionError(f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        lane = yielding.lane()
        if lane is not None:
            # a long answer is read bit by bit, and others have the thread in between
            come = len(self._buffer) < _RECEIVE_BYTES and self._poll.poll(lane.moment() * 1000)
            if not come and not lane.readable(self._sock, left):
                raise TimeoutError("timed out")
        elif self._patience - left > _ABOUT_SECONDS:
            self._patience = left
            self._sock.settimeout(left)
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server hung up")
        self._buffer += data


class LineStream:
    """A stream of lines: one answer that does not end, a chunked body, read as it comes.

    The request says that its connection is for this one: else a server in Go, as etcd's gateway is, throws away what it
    has not read of the body yet as soon as it begins to answer.
    """

    def __init__(self, sock: socket.socket, endpoint: Endpoint, path: str, body: bytes, token: str | None) -> None:
        """Send the request. Raises OSError."""
        self.sock = sock
        _keep_alive(sock)
        self._buffer = b""
        self._lines = b""
        self._in_body = False
        signed = "" if token is None else f"Authorization: {token}\r\n"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host_header(endpoint)}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\n{signed}Content-Length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode("latin-1") + body)

    def receive(self) -> list[bytes]:
        """Return lines that have arrived, blocking for more bytes. Raises OSError, EOFError at the end, ValueError."""
        data = self.sock.recv(_RECEIVE_BYTES)
        if not data:
            raise EOFError("the server hung up")
        self._buffer += data
        if not self._in_body and not self._read_head():
            return []
        self._read_chunks()
        *lines, self._lines = self._lines.split(b"\n")
        return [line for line in lines if line.strip()]

    def _read_head(self) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        status = head.split(b"\r\n", 1)[0]
        if b" 200 " not in status + b" ":
            raise OSError(f"the server refused: {status.decode(errors='replace')}")
        if b"chunked" not in head.lower():
            raise OSError("the server did not stream")
        self._buffer, self._in_body = rest, True
        return True

    def _read_chunks(self) -> None:
        while True:
            size_line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                return
            size = int(size_line.split(b";")[0], 16)
            if size == 0:
                raise EOFError("the server ended the stream")
            if len(rest) < size + 2:
                return
            self._lines += rest[:size]
            self._buffer = rest[size + 2 :]


def host_header(endpoint: Endpoint) -> str:
    """The value of the `Host` header. A path is no host, and whoever listens there is on this machine."""
    return "localhost" if is_path(endpoint) else shown(endpoint)


def _keep_alive(sock: socket.socket) -> None:
    """Have the kernel find out within seconds that the other end is gone, where it can, and does not know at once."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _header(head: bytes, name: bytes) -> bytes:
    """Read a header from `head` (all lower case); b"" where it is not there. Cheaper than parsing all of them."""
    at = head.find(b"\r\n" + name + b":")
    if at < 0:
        return b""
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : len(head) if end < 0 else end].strip()
