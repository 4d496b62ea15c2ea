"""Streams of gRPC: where one request or answer ends in the HTTP/2 frames of one connection, as etcd speaks them. See
framing.

Every message that a client sends is a request, counted under its method's path; on a stream that stays open
(keep-alive, watch) each of them is. What is matched is the message, without its prefix; of one that is cut into several
frames the first. An answer begins with the first frame of its stream that the server sends after it: a message, or the
headers before it. Frames of the connection itself (settings, pings) pass unnamed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from hpack import Decoder
from hpack.exceptions import HPACKError

from tenure.testing.servers.framing import HTTP_2, FramedRequest, Piece

_HEAD_BYTES: Final = 9
_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20
_PREFIX_BYTES: Final = 5


class _Frame:
    """A frame of HTTP/2: its bytes, and what they say."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.kind = data[3]
        self.flags = data[4]
        self.stream = int.from_bytes(data[5:9], "big") & 0x7FFF_FFFF

    @property
    def payload(self) -> bytes:
        """The payload without padding and priority."""
        payload = self.data[_HEAD_BYTES:]
        if self.flags & _PADDED and payload:
            payload = payload[1 : len(payload) - payload[0]]
        return payload[5:] if self.kind == _HEADERS and self.flags & _PRIORITY else payload


class _StreamFrames:
    """Splits one direction into frames; transparent from the first senseless one on."""

    def __init__(self, preface: bytes) -> None:
        self._preface = preface
        self._buffer = b""
        self.transparent = False

    def feed(self, data: bytes) -> tuple[bytes, list[_Frame], bytes]:
        """The preface once, the frames now complete, and bytes that are no frames at all."""
        self._buffer += data
        if self._preface and not self._preface.startswith(self._buffer[: len(self._preface)]):
            self.transparent = True
        preface = b""
        if self._preface and not self.transparent:
            if len(self._buffer) < len(self._preface):
                return b"", [], b""
            preface, self._preface = self._preface, b""
            self._buffer = self._buffer[len(preface) :]
        frames: list[_Frame] = []
        while not self.transparent and len(self._buffer) >= _HEAD_BYTES:
            end = _HEAD_BYTES + int.from_bytes(self._buffer[:3], "big")
            self.transparent = end > _FRAME_BYTES_MAX
            if self.transparent or len(self._buffer) < end:
                break
            frames.append(_Frame(self._buffer[:end]))
            self._buffer = self._buffer[end:]
        if not self.transparent:
            return preface, frames, b""
        rest, self._buffer = self._buffer, b""
        return preface, frames, rest


class _StreamCall:
    """A gRPC call, as far as it has gone."""

    def __init__(self, head: bytes) -> None:
        self.head = head  # its headers' frames; they wait for the first message
        self.block = b""
        self.path = ""
        self.asked = _Messages()
        self.answered = _Messages()
        self.pending: deque[FramedRequest] = deque()


class _Messages:
    """The beginnings of messages in the data of one direction of one stream."""

    def __init__(self) -> None:
        self._prefix = b""
        self._left = 0

    def begins(self, data: bytes) -> bytes | None:
        """The first message that begins in `data`, as much of it as is there; None where none does."""
        first: bytes | None = None
        while data:
            if self._left:
                used = min(self._left, len(data))
                self._left -= used
                data = data[used:]
                continue
            missing = _PREFIX_BYTES - len(self._prefix)
            self._prefix, data = self._prefix + data[:missing], data[missing:]
            if len(self._prefix) == _PREFIX_BYTES:
                self._left, self._prefix = int.from_bytes(self._prefix[1:], "big"), b""
                first = data[: self._left] if first is None else first
        return first


class GrpcConversation:
    """HTTP/2 with gRPC's messages in it; anything else passes as it is."""

    def __init__(self) -> None:
        self._from_client = _StreamFrames(HTTP_2)
        self._from_server = _StreamFrames(b"")
        self._decoder = Decoder()
        self._streams: dict[int, _StreamCall] = {}
        self._count = 0

    def requests(self, data: bytes) -> list[Piece]:
        preface, frames, rest = self._from_client.feed(data)
        if self._from_client.transparent:
            self._from_server.transparent = True
        pieces = [Piece(preface)] if preface else []
        pieces += [piece for frame in frames if (piece := self._sent(frame)) is not None]
        return pieces + ([Piece(rest)] if rest else [])

    def answers(self, data: bytes) -> list[Piece]:
        _, frames, rest = self._from_server.feed(data)
        return [Piece(frame.data, self._answered(frame)) for frame in frames] + ([Piece(rest)] if rest else [])

    def _sent(self, frame: _Frame) -> Piece | None:
        """The piece that this frame of a client completes; None while it waits for what follows."""
        if frame.kind in (_HEADERS, _CONTINUATION):
            return self._opened(frame)
        stream = self._streams.get(frame.stream)
        if frame.kind != _DATA or stream is None:
            return Piece(frame.data)
        head, stream.head = stream.head, b""
        message = stream.asked.begins(frame.payload)
        if message is None:
            return Piece(head + frame.data)
        self._count += 1
        request = FramedRequest(self._count, stream.path, ("POST", stream.path, message))
        stream.pending.append(request)
        return Piece(head + frame.data, request)

    def _opened(self, frame: _Frame) -> Piece | None:
        stream = self._streams.setdefault(frame.stream, _StreamCall(b""))
        stream.head += frame.data
        stream.block += frame.payload
        if frame.flags & _END_HEADERS:
            stream.path = self._path(stream.block)
            stream.block = b""
        if frame.kind == _HEADERS and frame.flags & _END_STREAM:  # a call without a message
            head, stream.head = stream.head, b""
            return Piece(head)
        return None

    def _path(self, block: bytes) -> str:
        try:
            headers = dict(self._decoder.decode(block, raw=True))
        except HPACKError:
            return ""
        return headers.get(b":path", b"").decode(errors="replace")

    def _answered(self, frame: _Frame) -> FramedRequest | None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return None
        ends = bool(frame.flags & _END_STREAM) and frame.kind in (_HEADERS, _DATA)
        if ends:
            del self._streams[frame.stream]
        if not stream.pending:
            return None
        if frame.kind == _HEADERS:
            return stream.pending[0]
        if frame.kind == _DATA and stream.answered.begins(frame.payload) is not None:
            return stream.pending.popleft()
        return None
