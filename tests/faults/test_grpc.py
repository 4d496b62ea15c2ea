"""What is gRPC's own: streams that end, connections that are given notice, servers that speak it badly or not at all.

What it has in common with the gateway is tested with the gateway: all of tests/conformance, and the tests here that
have `etcd+grpc` among their kinds. Forks and signals are in test_grpc_process.py.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenure
from tenure import Compare, Put, StoreRefused, StoreUnavailable, TenureError
from tenure._backends.etcd.grpc.connection import GrpcConnection
from tenure._core.base.limits import COMMIT_BYTES_MAX
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied
from tests.faults.test_known_bugs_holder import entered
from tests.faults.transports import GRPC, over, wait_until_renewed
from tests.reference import etcd_messages
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, etcd_counters, etcdctl

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = 0, 1, 3, 4, 5, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8


def backend(client: tenure.Client) -> Any:
    """What the client's statistics tell of it."""
    return client.statistics()["backend"]


def started(cluster: Cluster, method: str) -> float:
    """How many calls of this method the server has seen begin."""
    return etcd_counters(cluster.members[0].metrics_endpoint).get(f"started:{method}", 0.0)


def test_client_has_one_keep_alive_stream_and_one_watch_stream(singles: dict[str, Cluster]) -> None:
    """Law 10: four leases, a dozen waiters and many renewals are a stream of each kind, as the server counts them."""
    cluster = singles[GRPC]
    before = {method: started(cluster, method) for method in ("LeaseKeepAlive", "Watch")}
    with tenure.connect(cluster.url("streams"), ttl=20) as client, ThreadPoolExecutor(12) as pool:
        holds = [client.lock(f"kept-{ttl}", ttl=ttl).acquire() for ttl in (20.0, 21.0, 22.0, 23.0)]
        waiting = [pool.submit(_take_a_turn, client, "kept-20.0") for _ in range(12)]
        assert entered(client, 16)
        for _ in range(25):
            for hold in holds:
                hold.renew()
        assert eventually(lambda: backend(client)["watches"] >= 12)
        assert {method: started(cluster, method) - count for method, count in before.items()} == {
            "LeaseKeepAlive": 1,
            "Watch": 1,
        }
        for hold in holds:
            hold.release()
        for future in waiting:
            assert future.result(30.0) is True
        assert backend(client)["watch_connections"] == 1


def test_threads_that_renew_at_once_share_one_stream(singles: dict[str, Cluster]) -> None:
    """Law 10: they take turns."""
    cluster = singles[GRPC]
    before = started(cluster, "LeaseKeepAlive")
    with tenure.connect(cluster.url("shared"), ttl=60, timeout=60) as client, ThreadPoolExecutor(8) as pool:
        holds = [client.lock(f"shared-{ttl}", ttl=ttl).acquire() for ttl in (60.0, 61.0, 62.0, 63.0)]

        def renew(number: int) -> None:
            for _ in range(50):
                holds[number % len(holds)].renew()

        list(pool.map(renew, range(8)))
        assert started(cluster, "LeaseKeepAlive") - before == 1
        for hold in holds:
            hold.release()


def test_renewal_whose_answer_is_lost_keeps_nobody_else_from_renewing(singles: dict[str, Cluster]) -> None:
    """One waits for an answer that does not come, for as long as its request may take; the others are renewed."""
    cluster = singles[GRPC]
    with FaultProxy(cluster.endpoints[0], "etcd+grpc") as proxy, ThreadPoolExecutor() as pool:
        with tenure.connect(proxied(cluster, proxy), ttl=30, timeout=28) as client:
            slow, quick = client.lock("a").acquire(), client.lock("b", ttl=6.0).acquire()
            slow.renew()
            answer = proxy.hold_answer(lambda method, path, message: path.endswith("/LeaseKeepAlive"))
            renewing = pool.submit(slow.renew)
            assert answer.arrived.wait(10)
            wait_until_renewed(quick, 3)
            quick.check()
            assert not renewing.done()
            answer.release()
            assert renewing.result(10) > 0
            assert quick.release() is True


def _take_a_turn(client: tenure.Client, name: str) -> bool:
    return client.lock(name).acquire(timeout=30.0).release()


def test_gateway_need_not_be_there(provider: Provider) -> None:
    """etcd with --enable-grpc-gateway=false is reached: requests, renewals, watches."""
    cluster = over(provider.etcd(EtcdSpec(gateway=False)), GRPC)
    try:
        with tenure.connect(cluster.url("x"), ttl=10) as client, ThreadPoolExecutor() as pool:
            hold = client.lock("a").acquire(timeout=10)
            waiting = pool.submit(client.lock("a").acquire, 20.0)
            assert entered(client, 2)
            assert hold.renew() > 0
            assert hold.release() is True
            assert waiting.result(10.0).release() is True
    finally:
        cluster.close()


def test_commit_and_answer_larger_than_every_window_get_through(singles: dict[str, Cluster]) -> None:
    """HTTP/2 lets 64 KiB through at first, in frames of 16: what is longer waits for leave, and comes back whole."""
    with tenure.connect(singles[GRPC].url("large"), ttl=20) as client:
        hold = client.lock("a").acquire()
        size = COMMIT_BYTES_MAX // 4 - 1024
        pages = {f"page-{number}": bytes([number]) * size for number in range(4)}
        for _ in range(3):  # windows that are not widened again are used up
            versions = [hold.store.get(name) for name in pages]
            compares = [Compare(name, kept.version if kept else 0) for name, kept in zip(pages, versions, strict=True)]
            hold.store.commit(*compares, *(Put(name, page) for name, page in pages.items()))
            for name, page in pages.items():
                record = hold.store.get(name)
                assert record is not None
                assert record.value == page
        for name in pages:
            hold.store.delete(name)
        assert hold.release() is True


def test_idle_connection_that_the_server_has_closed_costs_nobody_a_request(singles: dict[str, Cluster]) -> None:
    """Seen before anything is sent on it: even a commit, which is sent once, has a fate that is known."""
    cluster = singles[GRPC]
    with FaultProxy(cluster.endpoints[0], "etcd+grpc") as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=20) as client:
            hold = client.lock("a").acquire()
            hold.renew()
            for number in range(5):
                proxy.reset()
                hold.store.put("k", b"%d" % number)
                proxy.reset()
                assert hold.renew() > 0
            assert proxy.requests["/etcdserverpb.KV/Txn"] == 1 + 5  # entered, and put: nothing was sent twice
            hold.store.delete("k")
            assert hold.release() is True


def test_keep_alive_stream_that_breaks_under_a_renewal_is_opened_anew(singles: dict[str, Cluster]) -> None:
    """The answer to a renewal is lost, and the stream with it: the same renewal goes on over another."""
    cluster = singles[GRPC]
    with FaultProxy(cluster.endpoints[0], "etcd+grpc") as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=20) as client:
            hold = client.lock("a").acquire()
            hold.renew()
            for lose in (proxy.lose_answer, proxy.lose_request):
                lost = lose(lambda method, path, message: path.endswith("/LeaseKeepAlive"), times=2)
                assert hold.renew() > 0
                assert lost.is_set()
            hold.check()
            assert hold.release() is True


def test_server_that_restarts_is_found_again_by_all_streams(provider: Provider) -> None:
    """Killed and started: the hold is renewed, the waiter woken, and nothing is left behind."""
    cluster = over(provider.etcd(EtcdSpec()), GRPC)
    try:
        with tenure.connect(cluster.url("x"), ttl=20) as client, ThreadPoolExecutor() as pool:
            hold = client.lock("a").acquire()
            waiting = pool.submit(client.lock("a").acquire, 40.0)
            assert entered(client, 2)
            hold.renew()
            cluster.members[0].kill()
            cluster.members[0].start()
            assert hold.renew() > 0
            assert hold.release() is True
            assert waiting.result(15.0).release() is True
            namespace = runtime_of(client).options.namespace
        assert etcdctl(cluster, "get", "--prefix", "--keys-only", namespace).stdout.strip() == ""
    finally:
        cluster.close()


class Meddler:
    """A relay to a server that can say something to the clients in the server's name."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._clients: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._clients)

    def say(self, frame: bytes) -> None:
        """To everybody; nothing else may be under way."""
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.sendall(frame)

    def __enter__(self) -> Meddler:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._all):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        for _ in range(100):
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients.append(client)
            self._all += [client, server]
            for one, other in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=_carry, args=(one, other)))
                self._threads[-1].start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + why)


def test_notice_on_connections_that_are_idle_costs_no_request(singles: dict[str, Cluster]) -> None:
    """GOAWAY: the server is about to close; the next request, a commit too, goes over a new connection."""
    cluster = singles[GRPC]
    address = cluster.url("notice")
    with Meddler(cluster.endpoints[0]) as relay:
        with tenure.connect(address.replace(cluster.endpoints[0], relay.endpoint), ttl=30) as client:
            hold = client.lock("a").acquire()
            hold.renew()
            for number in range(3):
                before = relay.connections
                relay.say(goaway(2**31 - 1))
                hold.store.put("k", b"%d" % number)
                assert hold.renew() > 0
                assert relay.connections >= before + 2
            hold.store.delete("k")
            assert hold.release() is True


@pytest.mark.parametrize("notice", [goaway(2**31 - 1), goaway(0, 11, b"too_many_pings")])
def test_notice_to_the_watch_wakes_its_waiters_and_opens_it_anew(singles: dict[str, Cluster], notice: bytes) -> None:
    """Law 11: a stream of watches that is to end is a reason to look; who waits gets its turn over the next one."""
    cluster = singles[GRPC]
    address = cluster.url("watch-notice")
    with Meddler(cluster.endpoints[0]) as relay, ThreadPoolExecutor() as pool:
        behind = address.replace(cluster.endpoints[0], relay.endpoint)
        with tenure.connect(address, ttl=30) as other, tenure.connect(behind, ttl=30) as client:
            hold = other.lock("a").acquire()
            waiting = pool.submit(client.lock("a").acquire, 40.0)
            assert entered(client, 1)
            assert eventually(lambda: backend(client)["watch_connections"] == 1)
            relay.say(notice)
            assert eventually(lambda: backend(client)["watch_connections"] == 2)
            assert not waiting.done()
            assert hold.release() is True
            assert waiting.result(10.0).release() is True


def test_watch_whose_stream_is_reset_is_opened_anew(singles: dict[str, Cluster]) -> None:
    """RST_STREAM on the stream alone, the connection lives: the same."""
    cluster = singles[GRPC]
    address = cluster.url("watch-reset")
    with Meddler(cluster.endpoints[0]) as relay, ThreadPoolExecutor() as pool:
        behind = address.replace(cluster.endpoints[0], relay.endpoint)
        with tenure.connect(address, ttl=30) as other, tenure.connect(behind, ttl=30) as client:
            hold = other.lock("a").acquire()
            waiting = pool.submit(client.lock("a").acquire, 40.0)
            assert entered(client, 1)
            assert eventually(lambda: backend(client)["watch_connections"] == 1)
            relay.say(frame(RST_STREAM, 0, 1, struct.pack(">I", 2)))
            assert eventually(lambda: backend(client)["watch_connections"] == 2)
            assert hold.release() is True
            assert waiting.result(10.0).release() is True


# Servers that are none.

HELLO = frame(SETTINGS, 0, 0)
OK = b"\x88" + b"\x0f\x10\x10application/grpc"  # :status 200, content-type


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def answered(message: bytes, trailers: bytes = literal(b"grpc-status", b"0")) -> bytes:
    prefixed = b"\0" + struct.pack(">I", len(message)) + message
    return (
        HELLO
        + frame(HEADERS, END_HEADERS, 1, OK)
        + frame(DATA, 0, 1, prefixed)
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers)
    )


def status(code: int, message: bytes) -> bytes:
    """An answer of headers alone."""
    told = literal(b"grpc-status", b"%d" % code) + literal(b"grpc-message", message)
    return HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, OK + told)


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """A server that says this to whatever it is asked, and then nothing; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            for _ in range(1000):
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                held.append(connection)
                with contextlib.suppress(OSError):
                    connection.settimeout(5.0)
                    connection.recv(65536)
                    connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            serving.join(10)
            for connection in held:
                connection.close()


BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request"
HTML = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x8d" + literal(b"content-type", b"text/html"))  # :status 404
NO_GATEWAY = b"\x08\x03503" + literal(b"content-type", b"text/plain")


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        pytest.param(BAD_REQUEST, StoreRefused, "does not speak gRPC .*400 Bad Request", id="HTTP/1.1"),
        pytest.param(b"HTTP/1.1 \xb2\xb2\xb2 x\r\n", StoreRefused, "does not speak gRPC", id="odd HTTP/1.1"),
        pytest.param(b"", StoreUnavailable, "timed out", id="nothing"),
        pytest.param(HELLO, StoreUnavailable, "timed out", id="a greeting, and nothing"),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, OK) + b"\0\0\7", StoreUnavailable, "timed out", id="half a frame"
        ),
        pytest.param(
            frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)), StoreUnavailable, "timed out", id="a window of nothing"
        ),
        pytest.param(
            frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 0)), StoreUnavailable, "timed out", id="frames of nothing"
        ),
        pytest.param(HELLO + HTML, StoreRefused, "does not speak gRPC .*text/html", id="HTTP/2 without gRPC"),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, NO_GATEWAY), StoreUnavailable, "can't answer now",
            id="a proxy that finds nobody",
        ),
        pytest.param(status(12, b"unknown service"), StoreRefused, "not as etcd: unknown service", id="no etcd"),
        pytest.param(status(14, b"etcdserver: no leader"), StoreUnavailable, "no leader", id="no leader"),
        pytest.param(status(2, b"raft%20proposal dropped"), StoreUnavailable, "raft proposal dropped", id="dropped"),
        pytest.param(status(2, b"raft: stopped"), StoreUnavailable, "raft: stopped", id="stopped"),
        pytest.param(
            status(1, b"grpc: the client connection is closing"), StoreUnavailable, "is closing", id="cancelled"
        ),
        pytest.param(status(8, b"etcdserver: too many requests"), StoreUnavailable, "too many", id="too many requests"),
        pytest.param(status(13, b"%C3%BCbel"), StoreRefused, "code 13.*übel", id="a message with percents"),
        pytest.param(
            HELLO + frame(RST_STREAM, 0, 1, struct.pack(">I", 7)), StoreUnavailable, "reset the stream", id="reset"
        ),
        pytest.param(HELLO + goaway(0, 11, b"calm down"), StoreUnavailable, "goes away: calm down", id="goaway"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x16" * 3, StoreUnavailable, "not HTTP/2", id="nonsense"),
        pytest.param(HELLO + b"\xff\xff\xff\0\0\0\0\0\1", StoreUnavailable, "not HTTP/2", id="a frame of 16 MiB"),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff" * 9), StoreUnavailable, "headers", id="headers that are none"
        ),
        pytest.param(
            HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, b"8 bytes!"), StoreUnavailable, "don't go on",
            id="headers that don't go on",
        ),
        pytest.param(
            HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, b"\0" * 16_000) * 5, StoreUnavailable,
            "without an end", id="headers without an end",
        ),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, b"\x20" + OK) + frame(HEADERS, END_HEADERS | END_STREAM, 1),
            StoreRefused, "does not speak gRPC", id="trailers of nothing",
        ),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, OK + b"\0\x0bgrpc-status\x7f\x89\x26" + b"9" * 5000),
            StoreRefused, "does not speak gRPC", id="a status of 5000 digits",
        ),
        pytest.param(
            HELLO + frame(DATA, PADDED, 1, b"\xff"), StoreUnavailable, "more padding", id="more padding than bytes"
        ),
        pytest.param(HELLO + frame(PUSH_PROMISE, END_HEADERS, 1), StoreUnavailable, "pushes", id="a push"),
        pytest.param(
            HELLO + frame(PING, 0, 0, b"8 bytes!") * 5000, StoreUnavailable, "more answers", id="a flood of pings"
        ),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, OK) + frame(DATA, 0, 1, b"\1\0\0\0\1x")
            + frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"grpc-status", b"0")),
            StoreUnavailable, "compressed", id="compressed",
        ),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, OK) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff")
            + frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"grpc-status", b"0")),
            StoreUnavailable, "more than", id="four gigabytes",
        ),
        pytest.param(status(0, b""), StoreUnavailable, "0 messages", id="well, but without a message"),
        pytest.param(answered(b""), StoreRefused, "without a TTL", id="an empty message"),
        pytest.param(answered(b"\x1a\xff"), StoreRefused, "not as etcd", id="a message cut short"),
    ],
)  # fmt: skip
def test_server_that_answers_badly_is_an_error_of_the_tree_in_time(
    answer: bytes, error: type[TenureError], match: str
) -> None:
    """Whatever comes back, it ends within the caller's time, with one error that says what it was."""
    with saying(answer) as address:
        began = time.monotonic()
        with tenure.connect(f"etcd+grpc://{address}/x", timeout=0.5) as client:
            with pytest.raises(error, match=match) as caught:
                client.lock("a").acquire(timeout=0.5)
            assert type(caught.value) is error
            assert time.monotonic() - began < 4.5, "not in its time: 5 s is that of a client that sets none"


def test_connection_to_a_stranger_is_not_used_again() -> None:
    """It keeps the connection open; whoever asks next is told the same, and not kept waiting."""
    with saying(BAD_REQUEST) as address, tenure.connect(f"etcd+grpc://{address}/x", timeout=5) as client:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreRefused, match="does not speak gRPC"):
                client.lock("a").acquire(timeout=20.0)
            assert time.monotonic() - began < 4.5, "kept waiting: 5 s is what a request may take"


def frame_by_frame(server: socket.socket, frames: Iterator[bytes]) -> int:
    """Take one client, hear its request, and say this, a frame at a time, until it hangs up; how many it got."""
    said = 0
    with server.accept()[0] as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        with contextlib.suppress(OSError):
            for data in frames:
                connection.sendall(data)
                said += 1
    return said


@pytest.mark.parametrize(
    "nothing", [frame(SETTINGS, 1, 0), frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"), frame(11, 0, 0), b"\0"]
)
def test_server_that_says_nothing_without_end_is_not_heard_for_longer_than_the_deadline(nothing: bytes) -> None:
    """Law 8: as fast as it can, or a byte now and then: it is the clock that counts."""

    def without_end() -> Iterator[bytes]:
        yield HELLO
        while True:
            if len(nothing) > 1:
                yield nothing * 1000
            else:
                time.sleep(0.02)
                yield nothing

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        talking = pool.submit(frame_by_frame, server, without_end())
        connection = GrpcConnection(server.getsockname()[:2], None, 5.0)
        began = time.monotonic()
        try:
            with pytest.raises(TimeoutError):
                connection.exchange("/etcdserverpb.Lease/LeaseGrant", b"", None, 0.5)
        finally:
            connection.close()
        assert time.monotonic() - began < 4.5, "not in its time: 5 s is the connection's own"
        assert talking.result(10) > 1


def test_idle_connection_to_a_server_that_talks_without_end_is_not_good() -> None:
    """Looking whether it is takes no longer than that."""
    said = iter([answered(b"x"), *[frame(SETTINGS, 1, 0) * 10_000] * 10_000])
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        talking = pool.submit(frame_by_frame, server, said)
        connection = GrpcConnection(server.getsockname()[:2], None, 5.0)
        try:
            assert connection.exchange("/etcdserverpb.Lease/LeaseGrant", b"", None, 10.0).content == b"x"
            began = time.monotonic()
            assert eventually(lambda: not connection.still_good())
            assert time.monotonic() - began < 5.0
        finally:
            connection.close()
        assert talking.result(10) > 1


def test_renewal_is_not_proven_by_an_answer_that_came_before_it() -> None:
    """Law 2: two answers to one renewal; the second proves nothing of the next."""
    kept = etcd_messages().LeaseKeepAliveResponse(ID=7, TTL=5).SerializeToString()
    prefixed = b"\0" + struct.pack(">I", len(kept)) + kept
    said = HELLO + frame(HEADERS, END_HEADERS, 1, OK) + frame(DATA, 0, 1, prefixed)
    more, over = threading.Event(), threading.Event()

    def twice() -> Iterator[bytes]:
        yield said
        more.wait(10)
        yield frame(DATA, 0, 1, prefixed)
        over.wait(10)  # it does not hang up

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        talking = pool.submit(frame_by_frame, server, twice())
        connection = GrpcConnection(server.getsockname()[:2], None, 5.0)
        try:
            reply = connection.exchange("/etcdserverpb.Lease/LeaseKeepAlive", b"\0" * 5, None, 10.0)
            assert reply.content == prefixed
            assert connection.still_good()
            more.set()
            assert eventually(lambda: not connection.still_good(), 5.0)
        finally:
            over.set()
            connection.close()
        talking.result(10)


def test_answer_in_the_smallest_pieces_is_read_whole() -> None:
    """Frames, headers and messages end where they say, not where a receive or a frame does; padding is no content."""
    message = etcd_messages().LeaseGrantResponse(TTL=7).SerializeToString()
    prefixed = b"\0" + struct.pack(">I", len(message)) + message
    block = OK + literal(b"x", b"y")
    pieces = (
        HELLO
        + frame(PING, 0, 0, b"8 bytes!")
        + frame(HEADERS, 0, 1, block[:5])
        + b"".join(frame(CONTINUATION, 0, 1, bytes([byte])) for byte in block[5:-1])
        + frame(CONTINUATION, END_HEADERS, 1, block[-1:])
        + b"".join(frame(DATA, PADDED, 1, bytes([2, byte, 0, 0])) for byte in prefixed)
        + frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, b"\x01" + literal(b"grpc-status", b"0") + b"\0")
    )
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        asked = pool.submit(_trickle, server, pieces)
        connection = GrpcConnection(server.getsockname()[:2], None, 5.0)
        try:
            reply = connection.exchange("/etcdserverpb.Lease/LeaseGrant", b"", None, 10.0)
            assert (reply.content, reply.refusal) == (message, None)
            assert connection.reusable
        finally:
            connection.close()
        asked.result(10)


def _trickle(server: socket.socket, data: bytes) -> None:
    with server.accept()[0] as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        for byte in data:
            connection.sendall(bytes([byte]))
        connection.recv(65536)
