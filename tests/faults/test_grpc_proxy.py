"""The fault proxy reads HTTP/2 with gRPC in it: what it calls a request and an answer, and that no byte is lost."""

from __future__ import annotations

import random
import struct

import pytest
from hpack import Encoder

import tenure
from tenure.testing.servers.framing import Conversation, Piece, conversation
from tests.faults.test_faults import proxied
from tests.faults.transports import GRPC
from tests.servers import Cluster, FaultProxy

DATA, HEADERS, SETTINGS, PING, CONTINUATION = 0, 1, 4, 6, 9
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(content: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(content)) + content


def head(encoder: Encoder, path: str) -> bytes:
    block: bytes = encoder.encode([(":method", "POST"), (":path", path), ("te", "trailers")])
    return block


def test_calls_and_messages_are_named_however_their_bytes_come() -> None:
    """Indexed headers, headers in parts, padding, two messages in a frame, one in two: the same, cut anywhere."""
    encoder = Encoder()
    first, second, long = (head(encoder, path) for path in ("/kv/Txn", "/kv/Txn", "/kv/Long"))  # in this order
    to_server = (
        PREFACE
        + frame(SETTINGS, 0, 0)
        + frame(HEADERS, END_HEADERS, 1, first)
        + frame(DATA, END_STREAM, 1, message(b"first"))
        + frame(PING, 0, 0, b"8 bytes!")
        + frame(HEADERS, END_HEADERS, 3, second)
        + frame(DATA, END_STREAM | PADDED, 3, b"\x03" + message(b"second") + b"\0\0\0")
        + frame(HEADERS, 0, 5, long[:3])
        + frame(CONTINUATION, END_HEADERS, 5, long[3:])
        + frame(DATA, 0, 5, message(b"third") + message(b"fourth"))
        + frame(DATA, 0, 5, message(b"fifth, in parts")[:9])
        + frame(DATA, END_STREAM, 5, message(b"fifth, in parts")[9:])
    )
    to_client = (
        frame(SETTINGS, 0, 0)
        + frame(HEADERS, END_HEADERS, 1, b"\x88")
        + frame(DATA, 0, 1, message(b"answer"))
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88")
        + frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88")
        + frame(HEADERS, END_HEADERS, 5, b"\x88")
        + frame(DATA, 0, 5, message(b"to the third"))
        + frame(DATA, END_STREAM, 5, message(b"to the fifth"))
    )
    chance = random.Random(7)
    for _ in range(50):
        talk = conversation("etcd")
        asked = fed(talk, to_server, chance, to_server=True)
        assert b"".join(piece.data for piece in asked) == to_server
        requests = [piece.request for piece in asked if piece.request]
        assert [request.arguments for request in requests] == [
            ("POST", "/kv/Txn", b"first"),
            ("POST", "/kv/Txn", b"second"),
            ("POST", "/kv/Long", b"third"),
            ("POST", "/kv/Long", b"fift"),
        ]
        answered = fed(talk, to_client, chance, to_server=False)
        assert b"".join(piece.data for piece in answered) == to_client
        named = [(piece.data[3], piece.request.number) for piece in answered if piece.request]
        assert named == [(HEADERS, 1), (DATA, 1), (HEADERS, 2), (HEADERS, 3), (DATA, 3), (DATA, 4)]


def fed(talk: Conversation, data: bytes, chance: random.Random, *, to_server: bool) -> list[Piece]:
    """In pieces of any size."""
    pieces: list[Piece] = []
    while data:
        size = chance.choice((1, 2, 9, 30, 1000))
        pieces += talk.requests(data[:size]) if to_server else talk.answers(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\0" * 20, PREFACE + b"\xff" * 40])
def test_what_is_neither_passes_as_it_is(data: bytes) -> None:
    """TLS, and nonsense that begins well: no byte is kept back for good."""
    talk = conversation("etcd+grpc")
    assert b"".join(piece.data for piece in talk.requests(data) + talk.requests(b"\r\n\r\n")) == data + b"\r\n\r\n"
    assert b"".join(piece.data for piece in talk.answers(data)) == data


def test_one_proxy_serves_both_transports(singles: dict[str, Cluster]) -> None:
    """Each connection says itself what it speaks: faults and counts find the requests of either."""
    cluster = singles[GRPC]
    with FaultProxy(cluster.endpoints[0], "etcd") as proxy:
        address = proxied(cluster, proxy)
        for url, paths in (
            (address, ("/etcdserverpb.KV/Txn", "/etcdserverpb.Lease/LeaseKeepAlive")),
            (address.replace("etcd+grpc", "etcd"), ("/v3/kv/txn", "/v3/lease/keepalive")),
        ):
            with tenure.connect(url, ttl=20) as client:
                client.lock("warm").acquire().release()
                before = proxy.requests
                hold = client.lock("a").acquire()
                hold.renew()
                hold.renew()
                assert hold.release() is True
                after = proxy.requests
                assert [after[path] - before[path] for path in paths] == [2, 2]
