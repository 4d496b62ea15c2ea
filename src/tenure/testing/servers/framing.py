"""Framing: where one request or answer ends in HTTP/1.1, as etcd's gateway speaks it, and in ZooKeeper's jute frames.
For etcd's gRPC see streams.

Pure: bytes in, pieces out, no sockets and no clock. A `Conversation` sees both directions of one connection, so that
answers can name the request they belong to: HTTP by order, ZooKeeper by xid. Bytes that make no sense (TLS, a
four-letter word, a chunked request) turn the connection transparent: they pass, unnamed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

WireProtocol: TypeAlias = Literal["etcd", "etcd+grpc", "zookeeper", "raw"]
"""etcd's two are one: each connection says itself whether it is HTTP/1.1 or HTTP/2."""
_HEAD_BYTES_MAX = 64 * 1024
_FRAME_BYTES_MAX = 64 * 1024 * 1024
_XID_AND_OPCODE = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_CONNECT = 0
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client's side of HTTP/2 begins with."""


@dataclass(frozen=True)
class FramedRequest:
    """A request on one connection. It is counted under `label`; a match is called with `arguments`."""

    number: int
    label: str | int
    arguments: tuple[object, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes to pass on together. Towards the server: a whole request, or unnamed bytes. Towards the client: a part
    of the answer to `request`, or unnamed bytes.
    """

    data: bytes
    request: FramedRequest | None = None
    websocket_frames: int = 0


class Conversation(Protocol):
    """The two directions of one connection. No byte is lost or changed; some wait until their frame is complete."""

    def requests(self, data: bytes) -> list[Piece]: ...

    def answers(self, data: bytes) -> list[Piece]: ...


def conversation(protocol: WireProtocol) -> Conversation:
    """A fresh conversation for a fresh connection."""
    if protocol in ("etcd", "etcd+grpc"):
        return EtcdConversation()
    return ZooKeeperConversation() if protocol == "zookeeper" else RawConversation()


class RawConversation:
    """Bytes without meaning."""

    def requests(self, data: bytes) -> list[Piece]:
        return [Piece(data)]

    def answers(self, data: bytes) -> list[Piece]:
        return [Piece(data)]


class ZooKeeperConversation:
    """Length-prefixed frames; the first each way is the session's connect, later ones are paired by xid."""

    def __init__(self) -> None:
        self._from_client = _FrameSplitter()
        self._from_server = _FrameSplitter()
        self._count = 0
        self._connect: FramedRequest | None = None
        self._connect_answered = False
        self._pending: dict[int, deque[FramedRequest]] = {}

    def requests(self, data: bytes) -> list[Piece]:
        frames, rest = self._from_client.feed(data)
        return [Piece(frame, self._request(frame[4:])) for frame in frames] + _unnamed(rest)

    def answers(self, data: bytes) -> list[Piece]:
        frames, rest = self._from_server.feed(data)
        return [Piece(frame, self._answered(frame[4:])) for frame in frames] + _unnamed(rest)

    def _request(self, frame: bytes) -> FramedRequest | None:
        self._count += 1
        if self._count == 1:
            self._connect = FramedRequest(self._count, _CONNECT, (_CONNECT, frame))
            return self._connect
        if len(frame) < _XID_AND_OPCODE.size:
            return None
        xid, opcode = _XID_AND_OPCODE.unpack_from(frame)
        request = FramedRequest(self._count, opcode, (opcode, frame))
        self._pending.setdefault(xid, deque()).append(request)
        return request

    def _answered(self, frame: bytes) -> FramedRequest | None:
        if not self._connect_answered:
            self._connect_answered = True
            return self._connect
        if len(frame) < _LENGTH.size:
            return None
        xid = _LENGTH.unpack_from(frame)[0]
        waiting = self._pending.get(xid)
        if not waiting:
            return None  # a watch event, or nothing we saw asked
        request = waiting.popleft()
        if not waiting:
            del self._pending[xid]
        return request


class _FrameSplitter:
    """Splits a byte stream into frames, prefix included; transparent from the first senseless length on."""

    def __init__(self) -> None:
        self._buffer = b""
        self._raw = False

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The frames now complete, and bytes that are no frames at all."""
        self._buffer += data
        frames: list[bytes] = []
        while not self._raw and len(self._buffer) >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._buffer)[0]
            end = _LENGTH.size + length
            self._raw = not 0 <= length <= _FRAME_BYTES_MAX
            if self._raw or len(self._buffer) < end:
                break
            frames.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
        if not self._raw:
            return frames, b""
        rest, self._buffer = self._buffer, b""
        return frames, rest


class EtcdConversation:
    """HTTP/1.1 or, where it begins like that, HTTP/2 with gRPC. Of a server that speaks first it is not known yet."""

    def __init__(self) -> None:
        self._begun: Conversation | None = None
        self._first = b""
        self._early = b""

    def requests(self, data: bytes) -> list[Piece]:
        if self._begun is None:
            self._first, data = self._first + data, b""
            if len(self._first) < len(HTTP_2) and HTTP_2.startswith(self._first):
                return []
            self._begun, data = self._begin(), self._first
        return self._begun.requests(data)

    def answers(self, data: bytes) -> list[Piece]:
        if self._begun is None:
            self._early += data
            return [Piece(data)]
        return self._begun.answers(data)

    def _begin(self) -> Conversation:
        if not self._first.startswith(HTTP_2):
            return HttpConversation()
        from tenure.testing.servers.streams import GrpcConversation  # needs a package that the others don't

        begun = GrpcConversation()
        begun.answers(self._early)  # they have been passed on; what comes now goes on where they ended
        return begun


class HttpConversation:
    """Content-Length requests; answers of any framing; counted WebSocket frames after an upgrade."""

    def __init__(self) -> None:
        self._buffer = b""
        self._count = 0
        self._transparent = False
        self._upgrade_asked = False
        self._pending: deque[FramedRequest] = deque()
        self._answers = _HttpAnswers(self._pending)
        self._websocket = _WebSocketCounter()

    def requests(self, data: bytes) -> list[Piece]:
        self._buffer += data
        pieces: list[Piece] = []
        while self._buffer:
            if self._passes_unread():
                rest, self._buffer = self._buffer, b""
                return [*pieces, Piece(rest, websocket_frames=self._count_frames(rest))]
            piece = self._next_request()
            if piece is None:
                return pieces
            pieces.append(piece)
        return pieces

    def answers(self, data: bytes) -> list[Piece]:
        return self._answers.feed(data)

    def _passes_unread(self) -> bool:
        if self._upgrade_asked and self._answers.last_status not in (None, 101):
            self._upgrade_asked = False  # the server refused the upgrade: plain requests follow
        return self._transparent or self._upgrade_asked

    def _count_frames(self, data: bytes) -> int:
        return self._websocket.feed(data) if self._upgrade_asked else 0

    def _next_request(self) -> Piece | None:
        """The next whole request, or bytes that are none; None while the request is incomplete."""
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            self._transparent = len(self._buffer) > _HEAD_BYTES_MAX or not _may_be_http(self._buffer)
            return Piece(b"") if self._transparent else None
        method, path, headers = _parse_head(self._buffer[:head_end])
        length = _content_length(headers)
        if length is None:
            self._transparent = True
            return Piece(b"")
        body_start, end = head_end + 4, head_end + 4 + length
        if len(self._buffer) < end:
            return None
        return self._take(end, method, path, body=self._buffer[body_start:end], headers=headers)

    def _take(self, end: int, method: str, path: str, *, body: bytes, headers: Mapping[str, str]) -> Piece:
        whole, self._buffer = self._buffer[:end], self._buffer[end:]
        self._count += 1
        self._upgrade_asked = headers.get("upgrade", "").lower() == "websocket"
        self._answers.last_status = None
        request = FramedRequest(self._count, path.partition("?")[0], (method, path, body))
        self._pending.append(request)
        return Piece(whole, request)


class _HttpAnswers:
    """The server's side: heads are read whole, bodies pass as they come, so that endless streams flow."""

    def __init__(self, pending: deque[FramedRequest]) -> None:
        self.last_status: int | None = None
        self._pending = pending
        self._buffer = b""
        self._current: FramedRequest | None = None
        self._body: _BodyFraming | None = None
        self._websocket: _WebSocketCounter | None = None

    def feed(self, data: bytes) -> list[Piece]:
        self._buffer += data
        pieces: list[Piece] = []
        while self._buffer:
            piece = self._next()
            if piece is None:
                return pieces
            pieces.append(piece)
        return pieces

    def _next(self) -> Piece | None:
        if self._websocket is not None:
            data, self._buffer = self._buffer, b""
            return Piece(data, websocket_frames=self._websocket.feed(data))
        return self._next_head() if self._body is None else self._next_body(self._body)

    def _next_head(self) -> Piece | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and _may_be_http(self._buffer) and len(self._buffer) <= _HEAD_BYTES_MAX:
            return None
        if end < 0:
            self._body = _UntilClose()
            return Piece(b"")
        head, self._buffer = self._buffer[: end + 4], self._buffer[end + 4 :]
        self._begin_answer(head)
        return Piece(head, self._current)

    def _begin_answer(self, head: bytes) -> None:
        _, status, headers = _parse_head(head[:-4])
        self.last_status = int(status) if status.isdigit() else 0
        if 100 <= self.last_status < 200 and self.last_status != 101:
            return  # an interim answer: the real one follows
        self._current = self._pending.popleft() if self._pending else None
        if self.last_status == 101:
            self._websocket = _WebSocketCounter()
        else:
            self._body = _answer_body(self.last_status, headers, self._current)

    def _next_body(self, body: _BodyFraming) -> Piece:
        used, ended = body.consume(self._buffer)
        data, self._buffer = self._buffer[:used], self._buffer[used:]
        piece = Piece(data, self._current)
        if ended:
            self._body = None
        return piece


class _BodyFraming(Protocol):
    def consume(self, data: bytes) -> tuple[int, bool]:
        """The number of these bytes that belong to the body, and whether it ends with them."""
        ...


def _answer_body(status: int, headers: Mapping[str, str], request: FramedRequest | None) -> _BodyFraming | None:
    if status in (204, 304) or (request is not None and request.arguments[0] == "HEAD"):
        return None
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _Chunked()
    length = headers.get("content-length")
    if length is None:
        return _UntilClose()
    return _Counted(int(length)) if int(length) else None


class _Counted:
    def __init__(self, length: int) -> None:
        self._left = length

    def consume(self, data: bytes) -> tuple[int, bool]:
        used = min(self._left, len(data))
        self._left -= used
        return used, self._left == 0


class _UntilClose:
    def consume(self, data: bytes) -> tuple[int, bool]:
        return len(data), False


class _Chunked:
    """Finds the end of a chunked body: size line, data, ..., a zero size, trailers, an empty line."""

    def __init__(self) -> None:
        self._data_left = 0
        self._line = b""
        self._in_trailers = False

    def consume(self, data: bytes) -> tuple[int, bool]:
        position = 0
        while position < len(data):
            if self._data_left:
                used = min(self._data_left, len(data) - position)
                self._data_left -= used
                position += used
                continue
            newline = data.find(b"\n", position)
            if newline < 0:
                self._line += data[position:]
                return len(data), False
            line, self._line = self._line + data[position:newline], b""
            position = newline + 1
            if self._ends_with(line.strip()):
                return position, True
        return position, False

    def _ends_with(self, line: bytes) -> bool:
        if self._in_trailers:
            return not line
        size = int(line.partition(b";")[0] or b"0", 16)
        self._in_trailers = size == 0
        self._data_left = size + 2 if size else 0
        return False


class _WebSocketCounter:
    """Counts the WebSocket frames that one direction has completed."""

    def __init__(self) -> None:
        self._header = b""
        self._payload_left = 0

    def feed(self, data: bytes) -> int:
        frames = 0
        while data:
            if self._payload_left:
                used = min(self._payload_left, len(data))
                self._payload_left -= used
                data = data[used:]
                frames += not self._payload_left
                continue
            self._header, data = self._header + data[:1], data[1:]
            payload = _websocket_payload(self._header)
            if payload is not None:
                self._header, self._payload_left = b"", payload
                frames += not payload
        return frames


def _websocket_payload(header: bytes) -> int | None:
    """The payload's length once the header is complete, else None (RFC 6455, section 5.2)."""
    if len(header) < 2:
        return None
    short = header[1] & 0x7F
    extended = {126: 2, 127: 8}.get(short, 0)
    mask = 4 if header[1] & 0x80 else 0
    if len(header) < 2 + extended + mask:
        return None
    return int.from_bytes(header[2 : 2 + extended], "big") if extended else short


def _unnamed(data: bytes) -> list[Piece]:
    return [Piece(data)] if data else []


def _may_be_http(data: bytes) -> bool:
    """TLS records start with a control byte; every method and version starts with a capital letter."""
    return data[:1].isupper()


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """The first two words of the start line, and the headers by lower-case name."""
    start, *lines = head.decode("latin-1").split("\r\n")
    words = [*start.split(" "), "", ""]
    pairs = (line.partition(":") for line in lines)
    return words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _content_length(headers: Mapping[str, str]) -> int | None:
    """The request body's length; None when the request is framed in another way."""
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "0")
    return int(text) if text.isdigit() and int(text) <= _FRAME_BYTES_MAX else None
