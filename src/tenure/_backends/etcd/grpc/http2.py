"""HTTP/2 as far as a gRPC client needs it: one connection, one stream at a time, in the calling thread.

Blocking sockets, no thread of its own and no state beside the connection's: so it goes through forks, signal handlers
and interrupts as the gateway's connections do. A request is one send, an answer usually one receive.

What is left out: more than one stream at a time (a pool of connections does that), priorities, pushes (refused), and
indexed headers: our table has no entries, so that what a block of headers says does not depend on the ones before.
Receive windows are as wide as they can be: an answer is bounded by what is accepted, not by flow control.

Anything unexpected is an OSError, and the connection is of no more use then.
"""

from __future__ import annotations

import struct
from typing import Final
from urllib.parse import unquote

from hpack import Decoder
from hpack.exceptions import HPACKError

from tenure._core.base.options import Endpoint, shown
from tenure._transport.session import Refusal

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE = 0, 1, 3, 4, 5
_PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 4, 5
_CANCEL: Final = 8

_HEAD_BYTES: Final = 9
_FRAME_BYTES_MAX: Final = 16 * 1024
"""Limit of a frame that we take: the protocol's default. We never ask for more."""
_HEADERS_BYTES_MAX: Final = 64 * 1024
_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 2**31 - 1
_WINDOW_FIRST_BYTES: Final = 65_535
_REPLENISH_AT_BYTES: Final = 2**30
_STREAM_ID_MAX: Final = 2**31 - 1
_BLOCKS_REMEMBERED_MAX: Final = 64
_WAITING_MAX: Final = 4096
"""Limit of frames that wait to be sent: answers to pings, mostly."""
_HEADS_REMEMBERED_MAX: Final = 32

_SETTING: Final = struct.Struct(">HI")
_DIGITS_MAX: Final = 9
_NUMBER: Final = struct.Struct(">I")


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return b"".join((len(payload).to_bytes(3, "big"), bytes((kind, flags)), stream.to_bytes(4, "big"), payload))


_PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(
        _SETTINGS, 0, 0,
        _SETTING.pack(1, 0)  # header table size
        + _SETTING.pack(2, 0)  # no pushes
        + _SETTING.pack(_INITIAL_WINDOW_SIZE, _WINDOW_BYTES),
    )
    + _frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(_WINDOW_BYTES - _WINDOW_FIRST_BYTES))
)  # fmt: skip
_blocks: dict[bytes, dict[bytes, bytes]] = {}
"""Decoded blocks of headers that need no table: the same few come over and over."""


def framed(message: bytes) -> bytes:
    """Frame a message as a stream carries it, uncompressed."""
    return b"\x00" + _NUMBER.pack(len(message)) + message


def unframed(data: bytes) -> list[bytes]:
    """Split messages that were `framed` and joined."""
    found, at = [], 0
    while at < len(data):
        end = at + 5 + _NUMBER.unpack_from(data, at + 1)[0]
        found.append(data[at + 5 : end])
        at = end
    return found


class NotHttp2(Exception):
    """The other end speaks something else, with this first line. Never leaves the transport."""


class Http2:
    """The state of one connection, without its socket: bytes in, bytes out."""

    def __init__(self, endpoint: Endpoint, *, tls: bool) -> None:
        self._authority = shown(endpoint)
        self._scheme = b"\x87" if tls else b"\x86"
        self._heads: dict[tuple[str, str | None], bytes] = {}
        self._decoder = Decoder()
        self._out = [_PREFACE]  # acknowledgements, mostly: they go with the next send
        self._buffer = b""
        self._greeted = False
        self._block: list[bytes] = []  # of headers that go on in the next frame
        self._block_bytes = 0  # with their frames' heads
        self._block_stream = 0
        self._block_ends_stream = False
        self._received_bytes = 0
        self._may_send_bytes = _WINDOW_FIRST_BYTES
        self._first_window_bytes = _WINDOW_FIRST_BYTES
        self._frame_bytes_max = _FRAME_BYTES_MAX
        self.going_away = False
        self.answered_pings = 0
        # Of the stream of now:
        self._stream = -1
        self._stream_may_send_bytes = 0
        self._stream_received_bytes = 0
        self._data = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self.ended = True

    # What goes out.

    def begin(self, path: str, token: str | None) -> None:
        """Begin a new stream. The rest of the one before is forgotten; where it is still open, it is reset."""
        if not self.ended:
            self._out.append(_frame(_RST_STREAM, 0, self._stream, _NUMBER.pack(_CANCEL)))
        self._stream += 2
        if self._stream > _STREAM_ID_MAX - 2:
            self.going_away = True  # the last one
        self._stream_may_send_bytes = self._first_window_bytes
        self._stream_received_bytes = 0
        self._data = bytearray()
        self._headers = {}
        self.ended = False
        head = self._heads.get((path, token)) or self._head(path, token)
        self._out.append(_frame(_HEADERS, _END_HEADERS, self._stream, head))

    def sendable(self, data: bytes, *, last: bool) -> tuple[bytes, bytes]:
        """Return the bytes to send now, queued frames included, and the rest of `data`, which exceeds the window."""
        rest = data
        while rest:
            size = min(len(rest), self._frame_bytes_max, self._may_send_bytes, self._stream_may_send_bytes)
            if size <= 0:
                break
            part, rest = rest[:size], rest[size:]
            self._may_send_bytes -= size
            self._stream_may_send_bytes -= size
            self._out.append(_frame(_DATA, _END_STREAM if last and not rest else 0, self._stream, part))
        return self.take_out(), rest

    def ping(self) -> None:
        self._out.append(_frame(_PING, 0, 0, b"tenure  "))  # eight bytes, no more and no fewer

    def take_out(self) -> bytes:
        """Take all queued frames, as bytes to be sent."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _head(self, path: str, token: str | None) -> bytes:
        if len(self._heads) >= _HEADS_REMEMBERED_MAX:
            self._heads.clear()  # tokens change
        head = b"".join(
            (
                b"\x83", self._scheme,  # POST, and the scheme
                b"\x04", _text(path), b"\x01", _text(self._authority),
                b"\x0f\x10", _text("application/grpc"),  # content-type
                b"\x00", _text("te"), _text("trailers"),
                b"\x0f\x2b", _text("tenure"),  # user-agent
                b"" if token is None else b"\x10" + _text("token") + _text(token),  # never to be indexed by anybody
                # a server that has lost its leader ends a stream that says so, instead of falling silent
                b"\x00" + _text("hasleader") + _text("true") if path in STREAMED else b"",
            )
        )  # fmt: skip
        self._heads[path, token] = head
        return head

    # What comes in.

    def feed(self, data: bytes) -> None:
        """Take what has arrived. Raises ConnectionError, NotHttp2."""
        buffer = self._buffer + data if self._buffer else data
        at, size = 0, len(buffer)
        while size - at >= _HEAD_BYTES:
            length = int.from_bytes(buffer[at : at + 3], "big")
            kind = buffer[at + 3]
            if length > _FRAME_BYTES_MAX or not (self._greeted or kind == _SETTINGS):
                raise _nonsense(buffer[at:], self._greeted)
            end = at + _HEAD_BYTES + length
            if end > size:
                break
            self._greeted = True
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big") & _STREAM_ID_MAX
            self._take(kind, buffer[at + 4], stream, buffer[at + _HEAD_BYTES : end])
            at = end
        self._buffer = buffer[at:]
        if len(self._out) > _WAITING_MAX:
            raise ConnectionError("the server wants more answers than it gives")

    def hung_up(self) -> Exception:
        """Make the error for a server that hung up, with what has come so far."""
        if self._buffer and not self._greeted:
            return _nonsense(self._buffer, self._greeted)
        return ConnectionError("the server hung up")

    def messages(self) -> list[bytes]:
        """Take the messages that have arrived complete."""
        found: list[bytes] = []
        data = self._data
        while len(data) >= 5:
            length = int.from_bytes(data[1:5], "big")
            if data[0]:
                raise ConnectionError("a message came compressed, which was not asked for")
            if length > _MESSAGE_BYTES_MAX:
                raise ConnectionError(f"the answer has more than {_MESSAGE_BYTES_MAX} bytes")
            if len(data) < 5 + length:
                break
            found.append(bytes(data[5 : 5 + length]))
            del data[: 5 + length]
        return found

    def refusal(self) -> Refusal | None:
        """Tell how the stream ended; None where it ended well."""
        status = _read_number(self._headers.get(b":status", b"")) or 0
        code = _read_number(self._headers.get(b"grpc-status", b""))
        if code is None:
            kind = self._headers.get(b"content-type", b"").decode(errors="replace")
            return Refusal(None, f"{kind or 'no content type'} {bytes(self._data[:100])!r}", status)
        if code == 0:
            return None
        return Refusal(code, unquote(self._headers.get(b"grpc-message", b"").decode(errors="replace")), status)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block and (kind != _CONTINUATION or stream != self._block_stream):
            raise ConnectionError("headers that don't go on")
        if kind == _DATA:
            self._take_data(flags, stream, payload)
        elif kind in (_HEADERS, _CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == _SETTINGS and not flags & _ACK:
            self._take_settings(payload)
        elif kind == _PING:
            if flags & _ACK:
                self.answered_pings += 1
            else:
                self._out.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and len(payload) == 4:
            self._widen(stream, int.from_bytes(payload, "big") & _WINDOW_BYTES)
        elif kind == _RST_STREAM and stream == self._stream and not self.ended:
            raise ConnectionError(f"the server reset the stream (code {int.from_bytes(payload, 'big')})")
        elif kind == _GOAWAY:
            self._take_goaway(payload)
        elif kind == _PUSH_PROMISE:
            raise ConnectionError("the server pushes, which was refused")

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._received_bytes += len(payload)
        if self._received_bytes > _REPLENISH_AT_BYTES:
            self._out.append(_frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._received_bytes)))
            self._received_bytes = 0
        if stream != self._stream or self.ended:
            return  # of a stream that nobody listens to any more
        self._stream_received_bytes += len(payload)
        if self._stream_received_bytes > _REPLENISH_AT_BYTES:
            self._out.append(_frame(_WINDOW_UPDATE, 0, stream, _NUMBER.pack(self._stream_received_bytes)))
            self._stream_received_bytes = 0
        self._data += _unpadded(flags, payload)
        if len(self._data) > _MESSAGE_BYTES_MAX + _FRAME_BYTES_MAX:
            raise ConnectionError(f"the answer has more than {_MESSAGE_BYTES_MAX} bytes")
        if flags & _END_STREAM:
            self.ended = True

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._block_stream, self._block_ends_stream = stream, bool(flags & _END_STREAM)
            payload = _unpadded(flags, payload)
            if flags & _PRIORITY:
                payload = payload[5:]
        elif not self._block:
            raise ConnectionError("headers that go on from none")
        if not flags & _END_HEADERS or self._block:
            self._block.append(payload)
            self._block_bytes += _HEAD_BYTES + len(payload)  # frames without bytes are no headers without an end either
            if self._block_bytes > _HEADERS_BYTES_MAX:
                raise ConnectionError("headers without an end")
            if not flags & _END_HEADERS:
                return
            payload, self._block, self._block_bytes = b"".join(self._block), [], 0
        headers = self._decoded(payload)
        if stream == self._stream and not self.ended:
            self._headers = {**self._headers, **headers}
            self.ended = self._block_ends_stream

    def _decoded(self, block: bytes) -> dict[bytes, bytes]:
        if not block:
            return {}
        known = _blocks.get(block) if self._decoder.header_table_size == 0 else None
        if known is not None:
            return known
        try:
            headers = dict(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise ConnectionError(f"headers that can't be read: {error}") from error
        if self._decoder.header_table_size == 0 and block[0] & 0xE0 != 0x20 and len(_blocks) < _BLOCKS_REMEMBERED_MAX:
            _blocks[block] = headers  # needs no table, and changes none
        return headers

    def _take_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = _SETTING.unpack_from(payload, at)
            if name == _INITIAL_WINDOW_SIZE:
                self._stream_may_send_bytes += value - self._first_window_bytes
                self._first_window_bytes = value
            elif name == _MAX_FRAME_SIZE:
                self._frame_bytes_max = value
        self._out.append(_frame(_SETTINGS, _ACK, 0))

    def _widen(self, stream: int, size: int) -> None:
        if stream == 0:
            self._may_send_bytes += size
        elif stream == self._stream:
            self._stream_may_send_bytes += size

    def _take_goaway(self, payload: bytes) -> None:
        self.going_away = True
        last = int.from_bytes(payload[:4], "big") & _STREAM_ID_MAX
        if not self.ended and last < self._stream:
            why = payload[8:].decode(errors="replace") or f"code {int.from_bytes(payload[4:8], 'big')}"
            raise ConnectionError(f"the server goes away: {why}")


STREAMED: Final = ("/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive")
"""Methods whose stream stays open for many messages."""


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionError("a frame with more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _read_number(digits: bytes) -> int | None:
    """Read a header's number; None where gRPC or HTTP could not have sent it."""
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else None


def _text(text: str) -> bytes:
    """Write a literal of HPACK, not Huffman-coded."""
    raw = text.encode("latin-1", "replace")
    if len(raw) < 127:
        return bytes((len(raw),)) + raw
    length, rest = bytearray((127,)), len(raw) - 127
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    return bytes(length) + raw


def _nonsense(data: bytes, greeted: bool) -> Exception:
    """Make the error for bytes that are no frame."""
    first = data[:200].decode("latin-1").strip()
    if not greeted and data.startswith(b"HTTP/"):
        return NotHttp2(first)
    return ConnectionError(f"what came back is not HTTP/2: {first[:40]!r}")
