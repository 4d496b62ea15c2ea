"""One HTTP/1.1 connection, kept open: a request is one send, an answer usually one receive.

urllib3 connects, verifies and sets the socket up. The exchange itself is done here, because its general
machinery (two sends a request, a mail parser for the headers, a stream object for the body) costs a
fifth of a whole lock cycle, and etcd's gateway needs none of it. Anything unexpected is an OSError, and
the connection is of no more use then.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from holdfast.errors import StoreRefused

_RECEIVE_BYTES: Final = 64 * 1024
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class Answer:
    """As much of a `requests` response as etcd3gw looks at."""

    __slots__ = ("content", "reason", "status_code")

    def __init__(self, status_code: int, reason: str, content: bytes) -> None:
        self.status_code = status_code
        self.reason = reason
        self.content = content

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:  # Any: JSON
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise StoreRefused(f"something answers there, but it is not etcd: {self.text.strip()[:80]!r}") from error


def connect(endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
    """A connected socket, shaken hands where `tls` is given. Raises OSError."""
    host, port = endpoint
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
        raise ConnectionError(f"no connection to {host}:{port}")
    return sock


def _as_os_error(error: HTTPError) -> OSError:
    for cause in (error.__cause__, error.__context__, *error.args):
        if isinstance(cause, OSError):
            return cause
    return ConnectionError(str(error))


class Connection:
    """A connection to one endpoint. One exchange at a time."""

    def __init__(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> None:
        self.endpoint = endpoint
        self.reusable = True
        self._sock = connect(endpoint, tls, seconds)
        host, port = endpoint
        self._fixed = f"Host: {f'[{host}]' if ':' in host else host}:{port}\r\nContent-Type: application/json\r\n"
        self._deadline = 0.0
        self._buffer = b""

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> Answer:
        """Send one request and read its answer, within `seconds` in all. Raises OSError."""
        self._deadline = time.monotonic() + seconds
        self._sock.settimeout(seconds)
        signed = "" if token is None else f"Authorization: {token}\r\n"
        head = f"POST {path} HTTP/1.1\r\n{self._fixed}{signed}Content-Length: {len(body)}\r\n\r\n"
        self._sock.sendall(head.encode("latin-1") + body)
        try:
            return self._answer()
        except ValueError as error:
            raise ConnectionError(f"what came back is not HTTP: {error}") from error

    def close(self) -> None:
        self._sock.close()

    def _answer(self) -> Answer:
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status, *lines = head.split("\r\n")
        version, code, reason = (*status.split(" ", 2), "", "")[:3]
        if not version.startswith("HTTP/1."):
            raise ValueError(status[:80])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("connection", "").lower() == "close":
            self.reusable = False
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return Answer(int(code), reason, self._chunks())
        if "content-length" in headers:
            return Answer(int(code), reason, self._exactly(int(headers["content-length"])))
        self.reusable = False
        return Answer(int(code), reason, self._rest())

    def _rest(self) -> bytes:
        """All until the server hangs up: an answer without a length, as some proxies' error pages are."""
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
        self._sock.settimeout(left)
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server hung up")
        self._buffer += data
