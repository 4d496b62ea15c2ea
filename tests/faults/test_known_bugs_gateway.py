"""Known bugs of etcd's JSON gateway: answers in pieces, without their point, or empty (bugs 9 and 47).

The numbers are those of tests/README.md. A real etcd carries every request out; what is put in its place is the
answer alone, as gateways of other versions have been seen to give it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

import tenure
from tenure import HoldState, LeaseLost, StoreRefused, StoreUnavailable
from tenure._transport.http import HttpConnection, JsonResponse
from tenure._transport.session import ConnectionPool
from tests.faults.test_faults import url
from tests.servers import Cluster


class Gateway:
    """What the next requests of one path are answered with, once they were carried out."""

    def __init__(self) -> None:
        self.path = ""
        self.content: bytes | None = None
        self.replaced = 0

    def answer(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content

    def right_again(self) -> None:
        self.content = None


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """Every client of this test talks to etcd through it."""
    made, right = Gateway(), ConnectionPool.ask

    def ask(self: ConnectionPool[JsonResponse], path: str, body: bytes, until: float) -> JsonResponse:
        answer = right(self, path, body, until)
        if made.content is None or not path.endswith(made.path):
            return answer
        made.replaced += 1
        return JsonResponse(200, "OK", made.content)

    monkeypatch.setattr(ConnectionPool, "ask", ask)
    return made


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}', StoreUnavailable),
        (b"{}", StoreRefused),
        (b"", StoreRefused),
        (b"<html>", StoreRefused),
        (b'{"result":{"header":{"revision":"9"},"ID":"1","TTL":"soon"}}', StoreRefused),
    ],
)
def test_etcd_keep_alive_that_is_no_answer_neither_proves_nor_ends_the_lease(
    singles: dict[str, Cluster], gateway: Gateway, content: bytes, error: type[Exception]
) -> None:
    """Bug 47: what comes back with 200 is not what was asked for: an error of the tree, and the clock decides on."""
    with tenure.connect(url(singles["etcd"]), ttl=20) as client:
        hold = client.lock("a").acquire()
        before = hold.remaining()
        gateway.answer("/v3/lease/keepalive", content)
        with pytest.raises(error):
            hold.renew()
        assert gateway.replaced > 0
        assert hold.state is HoldState.HELD
        assert hold.remaining() <= before
        gateway.right_again()
        assert hold.renew() > 0
        assert hold.release() is True


def test_etcd_keep_alive_without_a_ttl_ends_the_hold(singles: dict[str, Cluster], gateway: Gateway) -> None:
    """Bug 9: the gateway leaves a zero out, so a dead lease is answered without any TTL: lost, and no KeyError."""
    with tenure.connect(url(singles["etcd"]), ttl=20) as client:
        hold = client.lock("a").acquire()
        gateway.answer("/v3/lease/keepalive", b'{"result":{"header":{"revision":"9"},"ID":"1"}}')
        with pytest.raises(LeaseLost):
            hold.renew()
        assert hold.state is HoldState.LOST
        gateway.right_again()
        client.lock("a").acquire(timeout=25).release()


@pytest.mark.parametrize("content", [b"{}", b"", b'{"header":{}}'])
def test_etcd_transaction_with_an_empty_answer_is_no_hold_and_leaves_no_ticket(
    singles: dict[str, Cluster], gateway: Gateway, content: bytes
) -> None:
    """Bug 47 (etcd #20332): it was carried out, and nothing was said: refused, and the ticket it left is removed."""
    with tenure.connect(url(singles["etcd"]), ttl=60) as client, tenure.connect(url(singles["etcd"])) as other:
        client.lock("warm").acquire().release()
        gateway.answer("/v3/kv/txn", content)
        with pytest.raises((tenure.StoreError, LeaseLost)):
            client.lock("a").acquire(timeout=2.0)
        assert gateway.replaced > 0
        gateway.right_again()
        assert client.lock("a").acquire(timeout=10.0).release() is True
        assert other.lock("a").acquire(timeout=10.0).release() is True


@pytest.mark.parametrize(
    ("message", "code"),
    [("raft proposal dropped", 2), ("raft: stopped", 2), ("grpc: the client connection is closing", 1)],
)
def test_etcd_that_gives_up_what_it_was_asked_for_is_asked_again(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, message: str, code: int
) -> None:
    """A leader that has just gone, a member that stops: with codes that could mean anything. No refusal."""
    dropped = JsonResponse(500, "Internal Server Error", b'{"error":"%s","code":%d}' % (message.encode(), code))
    answers, right = [dropped], ConnectionPool._send

    def exchange(
        self: ConnectionPool[JsonResponse], path: str, body: bytes, token: str | None, until: float
    ) -> JsonResponse:
        return answers.pop() if path == "/v3/kv/txn" and answers else right(self, path, body, token, until)

    with tenure.connect(url(singles["etcd"])) as client:
        monkeypatch.setattr(ConnectionPool, "_send", exchange)
        assert client.lock("a").acquire(timeout=10.0).release() is True
    assert not answers


@pytest.fixture
def trickle() -> Iterator[tuple[str, int]]:
    """A server that answers two requests of one connection in chunks of three bytes, sent byte by byte."""
    content = b'{"result":{"header":{"revision":"7"},"ID":"1","TTL":"5"}}\n'
    chunks = [content[at : at + 3] for at in range(0, len(content), 3)]
    body = b"".join(b"%x;x=y\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + body

    def serve(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(2):
                connection.recv(65536)
                for byte in answer:
                    connection.sendall(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, args=(server,))
        serving.start()
        yield server.getsockname()[:2]
        serving.join(10)


def test_etcd_keep_alive_in_small_pieces_is_read_whole(trickle: tuple[str, int]) -> None:
    """Bug 47 (etcd #8237): a keep-alive comes in chunks; their edges mean nothing, and the next answer is whole."""
    connection = HttpConnection(trickle, None, 5.0)
    try:
        for _ in range(2):
            told = connection.exchange("/v3/lease/keepalive", b'{"ID":"1"}', None, 5.0).json()
            assert told["result"]["TTL"] == "5"
            assert connection.reusable
    finally:
        connection.close()
