"""The watch's own connection dies without a word, and nothing else does: a NAT forgot it, a firewall dropped it."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import holdfast
from tests.conformance.worlds import eventually
from tests.faults.test_faults import url
from tests.faults.test_known_bugs_holder import entered
from tests.faults.ways import ETCD, EtcdKind
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
        with holdfast.connect(address, ttl=60) as other, holdfast.connect(behind, ttl=60) as client:
            held, kept = other.lock("a").acquire(), other.lock("b").acquire()
            waiting = pool.submit(client.lock("a").acquire, 40.0)
            assert entered(client, 1)
            assert eventually(lambda: client.statistics()["backend"]["watch_connections"] == 1)  # type: ignore[index]
            over = threading.Event()

            def wait_for_others() -> None:
                while not over.is_set():
                    with contextlib.suppress(holdfast.AcquireTimeout):
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
