"""HTTP/2 as our gRPC reads and writes it: every kind of frame, well formed, late, hostile, or nonsense. No sockets."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tenure._backends.etcd.grpc.connection import WatchStream
from tenure._backends.etcd.grpc.http2 import Http2, NotHttp2, framed
from tenure._transport.session import Refusal

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 3, 4, 5
PATH = "/etcdserverpb.KV/Txn"
OK = b"\x88" + b"\x0f\x10\x10application/grpc"  # :status 200, content-type
NO_TABLE = b"\x20"  # the table has no entries from here on, as we ask for


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    length = bytes([len(value)]) if len(value) < 127 else b"\x7f" + _rest(len(value) - 127)
    return b"\x00" + bytes([len(name)]) + name + length + value


def _rest(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, payload=struct.pack(">HI", name, value))


def widened(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def connected(*frames: bytes) -> Http2:
    """A connection whose server has greeted, with a stream begun."""
    http = Http2(("127.0.0.1", 2379), tls=False)
    http.feed(frame(SETTINGS))
    http.begin(PATH, None)
    http.take_out()
    for data in frames:
        http.feed(data)
    return http


def sent(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """The frames in what we send: kind, flags, stream, payload."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


def ended(status: bytes, *, stream: int = 1) -> bytes:
    """Trailers alone."""
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, OK + literal(b"grpc-status", status))


frames = some.builds(
    frame,
    some.integers(0, 11),
    some.integers(0, 255),
    some.sampled_from([0, 1, 2, 3, 2**31 - 1]),
    some.one_of(
        some.binary(max_size=40),
        some.lists(
            some.sampled_from(
                [NO_TABLE, OK, b"\x82", b"\xbe", literal(b"grpc-status", b"7"), literal(b"a", b""), b"\x3f"]
            )
        ).map(b"".join),
    ),
)


@settings(deadline=None, max_examples=500)
@given(some.lists(frames, max_size=12), some.booleans())
def test_frames_of_anybody_are_taken_or_are_a_broken_connection(story: list[bytes], greets: bool) -> None:
    """Whatever comes, in whatever order: nothing is raised that the session would not know what to do with."""
    http = Http2(("127.0.0.1", 2379), tls=False)
    http.begin(PATH, None)
    try:
        if greets:
            http.feed(frame(SETTINGS))
        for data in story:
            http.feed(data)
            http.messages()
        http.refusal()
    except (ConnectionError, NotHttp2):
        return
    http.sendable(framed(b"x" * 70_000), last=True)


@settings(deadline=None, max_examples=500)
@given(some.binary(max_size=300))
def test_headers_of_anybody_are_taken_or_are_a_broken_connection(block: bytes) -> None:
    """HPACK that is none, with and without a table, twice on one connection."""
    try:
        http = connected(ended(b"0"))
        http.begin(PATH, None)
        http.feed(frame(HEADERS, END_HEADERS | END_STREAM, 3, NO_TABLE + block))
        http.begin(PATH, None)
        http.feed(frame(HEADERS, END_HEADERS | END_STREAM, 5, block))
        http.refusal()
    except ConnectionError:
        return


def test_headers_without_a_header_are_no_headers() -> None:
    """An empty block, where the server keeps no table."""
    http = connected(frame(HEADERS, END_HEADERS, 1, NO_TABLE + OK), frame(HEADERS, END_HEADERS, 1, b""))
    assert not http.ended


@pytest.mark.parametrize("name", [b"grpc-status", b":status"])
def test_status_with_thousands_of_digits_is_none(name: bytes) -> None:
    """Python refuses to read a number that long, with an error of its own."""
    http = connected(frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(name, b"9" * 5000)))
    refusal = http.refusal()
    assert refusal is not None
    assert refusal.code is None


def test_continuations_without_bytes_end_in_time() -> None:
    """A hundred thousand frames that say nothing are headers without an end, and cost no more than their reading."""
    began = time.process_time()
    with pytest.raises(ConnectionError, match="without an end"):
        connected(frame(HEADERS, 0, 1), frame(CONTINUATION, 0, 1) * 100_000)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    "frames",
    [
        frame(CONTINUATION, END_HEADERS | END_STREAM, 1, OK),
        frame(HEADERS, END_HEADERS, 1, OK) + frame(CONTINUATION, END_HEADERS, 1, OK),
        frame(HEADERS, 0, 1, OK) + frame(CONTINUATION, END_HEADERS, 3, b""),
        frame(HEADERS, 0, 1, OK) + frame(HEADERS, END_HEADERS, 1, OK),
        frame(HEADERS, 0, 1, OK) + frame(DATA, 0, 1, b""),
    ],
)
def test_continuation_goes_on_from_the_headers_of_its_stream_or_breaks_the_connection(frames: bytes) -> None:
    """What does not follow is not guessed at."""
    with pytest.raises(ConnectionError):
        connected(frames)


@pytest.mark.parametrize("code", range(14))
def test_reset_of_the_stream_breaks_the_connection_whatever_its_code(code: int) -> None:
    """And says the code. A reset after the answer was whole means nothing."""
    reset = frame(RST_STREAM, 0, 1, struct.pack(">I", code))
    with pytest.raises(ConnectionError, match=f"code {code}"):
        connected(frame(HEADERS, END_HEADERS, 1, OK), reset)
    http = connected(ended(b"0"), reset)
    assert http.ended
    assert http.refusal() is None


@pytest.mark.parametrize(
    ("end", "words"),
    [(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)), "goes away"), (ended(b"0"), "ended the watches")],
    ids=["notice", "trailers"],
)
def test_watches_that_end_in_the_read_of_a_message_end_right_behind_it(end: bytes, words: str) -> None:
    """The message first; then the end, though the server sends nothing more and keeps the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5.0)
        stream = WatchStream(ours, ("127.0.0.1", 2379), None, {})
        theirs.sendall(frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, OK) + frame(DATA, 0, 1, framed(b"")) + end)
        assert len(stream.receive()) == 1
        with pytest.raises(EOFError, match=words):
            stream.receive()


def test_answer_of_headers_alone_is_a_refusal() -> None:
    """Trailers only: a code, and no message."""
    http = connected(ended(b"14"))
    assert http.ended
    assert http.refusal() == Refusal(14, "", 200)
    assert http.messages() == []


def test_stream_that_ends_without_trailers_is_no_answer_of_grpc() -> None:
    """Half-closed by its data: there is no status."""
    http = connected(frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, END_STREAM, 1, framed(b"x")))
    refusal = http.refusal()
    assert refusal is not None
    assert refusal.code is None


def test_notice_in_the_midst_of_an_answer_lets_it_come_and_is_the_last() -> None:
    """GOAWAY for streams after ours: this one is answered, no other begun."""
    http = connected(
        frame(HEADERS, END_HEADERS, 1, OK),
        frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)),
        frame(DATA, 0, 1, framed(b"x")),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"grpc-status", b"0")),
    )
    assert http.messages() == [b"x"]
    assert http.refusal() is None
    assert http.going_away


def test_nothing_is_sent_beyond_the_servers_windows() -> None:
    """A window of nothing, widened by a byte, by much on the stream alone, then on the connection."""
    http = connected(setting(INITIAL_WINDOW_SIZE, 0))
    message = bytes(range(256)) * 400
    out, rest = http.sendable(message, last=True)
    assert [kind for kind, *_ in sent(out)] == [SETTINGS]  # our acknowledgement
    assert rest == message
    got, steps = b"", [widened(1, 1), widened(1, 2**20), widened(0, 2**20)]
    for size, step in zip((1, 65_535, len(message)), steps, strict=True):
        http.feed(step)
        out, rest = http.sendable(rest, last=True)
        found = sent(out)
        assert all(len(payload) <= 16_384 for *_, payload in found)
        got += b"".join(payload for *_, payload in found)
        assert len(got) == size
        assert (found[-1][1] == END_STREAM) == (not rest)
    assert got == message


def test_window_that_shrinks_below_what_was_sent_waits_for_as_much() -> None:
    """SETTINGS in the midst of a stream: its window may be negative for a while."""
    http = connected()
    assert http.sendable(b"x" * 1000, last=False)[1] == b""
    http.feed(setting(INITIAL_WINDOW_SIZE, 400))
    assert http.sendable(b"y", last=False)[1] == b"y"  # 600 too many
    http.feed(widened(1, 600))
    assert http.sendable(b"y", last=False)[1] == b"y"
    http.feed(widened(1, 1))
    assert http.sendable(b"y", last=False)[1] == b""


def test_larger_frames_are_sent_where_the_server_takes_them() -> None:
    """MAX_FRAME_SIZE; what else it sets concerns nothing that we do: one stream at a time, and no table."""
    http = connected(setting(MAX_FRAME_SIZE, 30_000), setting(HEADER_TABLE_SIZE, 0), setting(MAX_CONCURRENT_STREAMS, 1))
    out, _ = http.sendable(b"x" * 40_000, last=True)
    assert [len(payload) for kind, _, _, payload in sent(out) if kind == DATA] == [30_000, 10_000]
    http.feed(ended(b"0") + setting(HEADER_TABLE_SIZE, 4096))
    http.begin(PATH, None)
    out, _ = http.sendable(b"x", last=True)
    kinds = [(kind, stream) for kind, _, stream, _ in sent(out)]
    assert kinds == [(SETTINGS, 0), (HEADERS, 3), (DATA, 3)]


def test_stream_that_is_left_open_is_cancelled_before_the_next_begins() -> None:
    """So that a server that takes one at a time takes it; what comes of the old one is no part of the new one."""
    http = connected(setting(MAX_CONCURRENT_STREAMS, 1), frame(HEADERS, END_HEADERS, 1, OK))
    http.begin(PATH, None)
    kinds = [(kind, stream) for kind, _, stream, _ in sent(http.take_out())]
    assert kinds == [(SETTINGS, 0), (RST_STREAM, 1), (HEADERS, 3)]
    http.feed(frame(DATA, 0, 1, framed(b"of the old one")) + ended(b"14"))
    assert not http.ended
    assert http.messages() == []


def test_pings_are_answered_with_their_own_bytes() -> None:
    """And an answer to ours is counted, not answered."""
    http = connected(frame(PING, 0, 0, b"12345678"), frame(PING, ACK, 0, b"tenure"))
    assert sent(http.take_out()) == [(PING, ACK, 0, b"12345678")]
    assert http.answered_pings == 1


def test_frames_that_nobody_knows_are_passed_over() -> None:
    """So HTTP/2 is extended."""
    http = connected(frame(11, 255, 1, b"whatever"), frame(PRIORITY, 0, 1, b"12345"), ended(b"0"))
    assert http.refusal() is None
