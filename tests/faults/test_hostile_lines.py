"""What others may leave in a line, or answer in the place of the store: it breaks nothing."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

import tenure
from tenure._backends.zookeeper.codec import read_line
from tenure._core.lease import Mode
from tests.faults.transports import ETCD, EtcdKind, over
from tests.servers import Cluster, EtcdSpec, Provider, etcdctl


@ETCD
@pytest.mark.parametrize("value", ['{"tenure":1,"mode":[]}', "[" * 20_000, '{"tenure":1,"weight":1e999}', "\x01", ""])
def test_etcd_ticket_with_a_hostile_value_is_an_exclusive_stranger(
    singles: dict[str, Cluster], value: str, kind: EtcdKind
) -> None:
    """It is waited for like any ticket of an unknown owner, and everybody goes on when it has gone."""
    cluster = singles[kind]
    namespace = f"hostile-{time.monotonic_ns():x}"
    assert etcdctl(cluster, "put", "--", f"{namespace}/a/stranger", value).returncode == 0
    with tenure.connect(cluster.url(namespace), ttl=10) as client:
        assert client.lock("a").try_acquire() is None
        with pytest.raises(tenure.LineMismatch, match="in use as a lock"):
            client.semaphore("a", limit=2).try_acquire()
        leader = client.election("a").leader()
        assert leader is not None
        assert leader.owner is None
        etcdctl(cluster, "del", f"{namespace}/a/stranger")
        assert client.lock("a").acquire(timeout=5).release() is True


def test_zookeeper_name_with_numbers_beyond_reason_is_an_exclusive_stranger() -> None:
    """A seat of five thousand digits is nobody we know."""
    name = f"_c_{'a' * 20}-seat.{'9' * 5000}.1-lock-0000000001"
    (ticket,) = read_line("a", "/ns/a", [name])
    assert ticket.mode is Mode.EXCLUSIVE
    assert ticket.owner is None


@ETCD
def test_etcd_tls_trouble_at_one_endpoint_is_not_the_clients_end(provider: Provider, kind: EtcdKind) -> None:
    """The first endpoint hangs up on every handshake: the call goes on to the one that does not."""
    cluster = over(provider.etcd(EtcdSpec(tls="server")), kind)
    try:
        with socket.create_server(("127.0.0.1", 0)) as rude:
            hanging_up = threading.Thread(target=_hang_up, args=(rude,))
            hanging_up.start()
            address = re.sub("://", f"://127.0.0.1:{rude.getsockname()[1]},", cluster.url("x"))
            with tenure.connect(address, ttl=5) as client:
                assert client.lock("a").acquire(timeout=5).release() is True
            rude.shutdown(socket.SHUT_RDWR)
            hanging_up.join(10)
    finally:
        cluster.close()


@ETCD
def test_answer_without_a_length_is_read_to_its_end(kind: EtcdKind) -> None:
    """A proxy's bare error page is an unavailable store, and no error from outside the tree."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        serving = threading.Thread(target=_answer_503, args=(proxy,))
        serving.start()
        url = f"{kind}://127.0.0.1:{proxy.getsockname()[1]}/x"
        with tenure.connect(url, timeout=0.5) as client, pytest.raises(tenure.StoreUnavailable, match="no server"):
            client.lock("a").acquire(timeout=0.5)
        proxy.shutdown(socket.SHUT_RDWR)
        serving.join(10)


def _hang_up(server: socket.socket) -> None:
    for _ in range(100):
        try:
            server.accept()[0].close()
        except OSError:
            return


def _answer_503(server: socket.socket) -> None:
    for _ in range(200):
        try:
            connection = server.accept()[0]
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\n\r\nno server is available\n")
