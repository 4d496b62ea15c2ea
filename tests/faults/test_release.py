"""What `release()` says of a ticket when the store says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.protocol.serialization import Delete

import tenure
from tenure._backends.zookeeper.connection import ZooKeeperSession
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.delegation import Delegated, Delegation
from tenure._core.lease import Entry, LeaseState, Reach
from tenure._core.runtime import runtime_of
from tenure.testing.servers import Cluster, EtcdSpec, FaultProxy, Provider, ZooKeeperSpec, start
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import leases, proxied
from tests.faults.transports import ALL, ETCD, EtcdKind, leaves, over
from tests.servers import etcdctl


@ALL
def test_release_at_a_silent_store_does_not_say_that_the_ticket_was_gone(provider: Provider, kind: str) -> None:
    """False is for a ticket that is known to be gone, and the lease's own deadline says nothing of the sort."""
    cluster = over(start(provider, ZooKeeperSpec() if kind == "zookeeper" else EtcdSpec()), kind)
    options: dict[str, Any] = {"tick": 0.2} if kind == "zookeeper" else {}
    try:
        with tenure.connect(cluster.url(), ttl=2.0, timeout=5.0, **options) as client:
            hold = client.lock("a").acquire(timeout=5)
            cluster.members[0].pause()
            try:
                with pytest.raises(tenure.StoreUnavailable):
                    hold.release()
            finally:
                cluster.members[0].resume()
    finally:
        cluster.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it is kazoo's, and the point
def test_release_while_kazoo_itself_comes_to_an_end_does_not_say_that_the_ticket_was_gone(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread can fail (answers out of order, seen under torture): our belief ends, the store knows nothing."""
    with tenure.connect(singles["zookeeper"].url("failed"), ttl=2.0, timeout=5.0, tick=0.2) as client:
        hold = client.lock("a").acquire(timeout=5)
        lease: Any = next(iter(runtime_of(client)._leases.values()))
        kazoo = lease._connection._client
        read = kazoo._connection._read_socket

        def failing(seconds: float) -> Any:
            if any(isinstance(request, Delete) for request, _, _ in kazoo._pending):
                raise RuntimeError("answers out of order")
            return read(seconds)

        monkeypatch.setattr(kazoo._connection, "_read_socket", failing)
        with pytest.raises(tenure.StoreUnavailable):
            hold.release()
        assert "the store says" not in lease._belief.reason


def test_zookeeper_close_sends_removals_before_it_asks(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a ticket of a client that closes does not wait for what that asks the server besides."""
    sent: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        plain = getattr(ZooKeeperSession, name)

        def note(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():  # heartbeats are the clock's thread's
                sent.append(name)
            return plain(*given, **named)

        return note

    for name in ("delete", "sync", "children"):
        monkeypatch.setattr(ZooKeeperSession, name, noted(name))
    with tenure.connect(singles["zookeeper"].url("close-order"), ttl=10) as client:
        client.lock("a").acquire()
        del sent[:]
    assert sent[:2] == ["delete", "sync"]


@ETCD
def test_release_that_is_answered_only_after_its_lease_has_ended_does_not_claim_the_removal(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """The first try was lost, the store ended the lease, the next try found nothing: that was not our doing."""
    cluster = singles[kind]
    with (
        FaultProxy(cluster.endpoints[0], kind) as proxy,
        tenure.connect(proxied(cluster, proxy), ttl=2, timeout=30) as client,
        ThreadPoolExecutor() as pool,
    ):
        hold = client.lock("a").acquire()
        lost = _lose_removals(proxy)
        released = pool.submit(hold.release)
        assert lost.wait(10.0)
        assert etcdctl(cluster, "lease", "revoke", hold.lease_id).returncode == 0
        assert eventually(lambda: hold._lease.state is LeaseState.LOST)
        proxy.forget()
        assert released.result(30.0) is False


@ETCD
def test_release_of_a_hold_in_others_hands_that_is_answered_late_does_not_claim_the_removal(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """The same, where nobody here renews its lease: it ran out while the release was tried."""
    cluster = singles[kind]
    with (
        FaultProxy(cluster.endpoints[0], kind) as proxy,
        tenure.connect(proxied(cluster, proxy)) as client,
        ThreadPoolExecutor() as pool,
    ):
        delegation = runtime_of(client).delegation()
        assert delegation is not None
        hold = _entrusted(delegation, Entry("a", "me", reach=Reach.AHEAD))
        proven = delegation.renew(hold, SYSTEM_CLOCK.now() + 10.0)
        assert proven is not None
        lost = _lose_removals(proxy)
        released = pool.submit(delegation.release, hold, SYSTEM_CLOCK.now() + 60.0)
        assert lost.wait(10.0)
        assert eventually(lambda: f"{int(hold.lease_id, 16):016x}" not in leases(cluster), 30.0)
        proxy.forget()
        assert released.result(60.0) is False
        assert SYSTEM_CLOCK.now() > proven.deadline


@ETCD
def test_ticket_on_a_lease_of_its_own_that_ends_while_it_leaves_is_not_said_to_have_been_removed(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """As for the client's shared lease."""
    cluster = singles[kind]
    with (
        FaultProxy(cluster.endpoints[0], kind) as proxy,
        tenure.connect(proxied(cluster, proxy)) as client,
        ThreadPoolExecutor() as pool,
    ):
        delegation, entry = runtime_of(client).delegation(), Entry("a", "me", reach=Reach.AHEAD)
        assert delegation is not None
        lease = delegation.open(2.0, None)
        ticket = lease.enter(entry, SYSTEM_CLOCK.now() + 10.0).find(entry.id)
        assert ticket is not None
        lost = _lose_removals(proxy)
        left = pool.submit(lease.leave, ticket, SYSTEM_CLOCK.now() + 60.0)
        assert lost.wait(10.0)
        assert etcdctl(cluster, "lease", "revoke", lease.id).returncode == 0
        assert eventually(lambda: lease.state is LeaseState.LOST, 30.0)
        proxy.forget()
        assert left.result(60.0) is False


def _lose_removals(proxy: FaultProxy) -> threading.Event:
    """Until the proxy forgets it. The event is set once one was lost."""
    first = proxy.lose_request(leaves)
    proxy.lose_request(leaves, times=10_000)
    return first


def _entrusted(delegation: Delegation, entry: Entry) -> Delegated:
    lease = delegation.open(2.0, None)
    ticket = lease.enter(entry, SYSTEM_CLOCK.now() + 10.0).find(entry.id)
    assert ticket is not None
    return lease.delegate(ticket)
