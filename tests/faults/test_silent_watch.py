"""The watch's own connection dies without a word, and nothing else does: a NAT forgot it, a firewall dropped it."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tenure
from tenure import StoreRefused
from tenure._backends.etcd.requests import WatchMessage, WatchRequest
from tenure._backends.etcd.watch import Watcher
from tenure._core.base.signals import Signal
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import url
from tests.faults.test_known_bugs_holder import entered
from tests.faults.transports import ETCD, EtcdKind, over
from tests.servers import Cluster

WATCHES = (b"/v3/watch", b"/etcdserverpb.Watch/Watch")


class Forgetful:
    """A relay that can forget the connections that carry watches: they stay open, and nothing passes any more."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._socks = [self._listener]
        self._watching: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def forget_watches(self) -> int:
        """How many there are."""
        self._forgotten |= self._watching
        return len(self._forgotten)

    def __enter__(self) -> Forgetful:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._target)
                for sock in (client, server):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socks += [client, server]
                for one, other in ((client, server), (server, client)):
                    self._threads.append(threading.Thread(target=self._carry, args=(one, other, client)))
                    self._threads[-1].start()

    def _carry(self, one: socket.socket, other: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if one is client and any(path in data for path in WATCHES):
                    self._watching.add(client)
                if client not in self._forgotten:
                    other.sendall(data)
        if client not in self._forgotten:
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR)


@ETCD
def test_etcd_watch_that_died_silently_is_noticed_by_a_client_that_goes_on_adding_watches(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Law 11: whoever asks without end is no sign of life of whoever should answer."""
    cluster = singles[kind]
    address = url(cluster)
    with Forgetful(cluster.endpoints[0]) as relay, ThreadPoolExecutor() as pool:
        behind = address.replace(cluster.endpoints[0], relay.endpoint)
        with tenure.connect(address, ttl=60) as other, tenure.connect(behind, ttl=60) as client:
            held, kept = other.lock("a").acquire(), other.lock("b").acquire()
            waiting = pool.submit(client.lock("a").acquire, 40.0)
            assert entered(client, 1)
            assert eventually(lambda: client.statistics()["backend"]["watch_connections"] == 1)  # type: ignore[index]
            over = threading.Event()

            def wait_for_others() -> None:
                while not over.is_set():
                    with contextlib.suppress(tenure.AcquireTimeout, tenure.StoreUnavailable):
                        client.lock("b").acquire(timeout=0.5)

            asking = pool.submit(wait_for_others)
            try:
                assert entered(client, 3)
                assert relay.forget_watches() == 1
                assert held.release() is True
                assert waiting.result(25.0).release() is True
            finally:
                over.set()
                asking.result(10.0)
            assert kept.release() is True


@ETCD
def test_etcd_watch_that_the_server_does_not_answer_costs_nobody_a_wake_up(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """The gateway goes deaf at a request that it can't read: what was watched before is told of, and nothing since."""
    cluster, over_now = over(singles[kind], kind), threading.Event()
    with tenure.connect(url(cluster), ttl=60) as client, ThreadPoolExecutor() as pool:
        hold = client.lock("a").acquire()
        namespace = runtime_of(client).namespace.encode()
        wire = runtime_of(client)._backend._wire  # type: ignore[attr-defined]
        stops = [wire.watch(WatchRequest(namespace + b"/", namespace + b"0", 1, False, Signal()))]
        assert eventually(lambda: client.statistics()["backend"]["watch_connections"] == 1)  # type: ignore[index]

        def go_on() -> None:
            while not over_now.wait(0.2):
                with client.lock("noise"):
                    pass

        talking = pool.submit(go_on)
        stops.append(wire.watch(WatchRequest(b"x", None, 2**63, True, Signal())))
        waiting = pool.submit(client.lock("a").acquire, 40.0)
        try:
            assert eventually(lambda: len(client.operator().line("a").tickets) == 2)
            assert hold.release() is True
            assert waiting.result(25.0).release() is True
        finally:
            over_now.set()
            talking.result(10.0)
            for stop in stops:
                stop()


@ETCD
@pytest.mark.parametrize("error", [TypeError, StoreRefused, AssertionError])
def test_etcd_thread_that_hears_of_watches_lives_on_whatever_is_raised(
    singles: dict[str, Cluster], kind: EtcdKind, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that nobody thought of, or a bug of ours: it is told, and the watches begin anew."""
    cluster, take, raised = over(singles[kind], kind), Watcher._take, list[WatchMessage]()

    def fails_once(watcher: Watcher, told: WatchMessage, *, from_now: bool) -> None:
        if not raised:
            raised.append(told)
            raise error("what nobody thought of")
        take(watcher, told, from_now=from_now)

    monkeypatch.setattr(Watcher, "_take", fails_once)
    with tenure.connect(url(cluster), ttl=60) as client, ThreadPoolExecutor() as pool:
        hold = client.lock("a").acquire()
        waiting = pool.submit(client.lock("a").acquire, 40.0)
        assert entered(client, 2)
        assert hold.release() is True
        assert waiting.result(25.0).release() is True
