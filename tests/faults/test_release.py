"""What `release()` says of a ticket when the store says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.serialization import Delete

import holdfast
from holdfast.backends.zookeeper.connection import Connection
from holdfast.testing.servers import Cluster, EtcdSpec, Provider, ZooKeeperSpec, start
from tests.faults.ways import ALL, over


@ALL
def test_release_at_a_silent_store_does_not_say_that_the_ticket_was_gone(provider: Provider, kind: str) -> None:
    """False is for a ticket that is known to be gone, and the lease's own deadline says nothing of the sort."""
    cluster = over(start(provider, ZooKeeperSpec() if kind == "zookeeper" else EtcdSpec()), kind)
    options: dict[str, Any] = {"tick": 0.2} if kind == "zookeeper" else {}
    try:
        with holdfast.connect(cluster.url(), ttl=2.0, timeout=5.0, **options) as client:
            hold = client.lock("a").acquire(timeout=5)
            cluster.members[0].pause()
            try:
                with pytest.raises(holdfast.StoreUnavailable):
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
    with holdfast.connect(singles["zookeeper"].url("failed"), ttl=2.0, timeout=5.0, tick=0.2) as client:
        hold = client.lock("a").acquire(timeout=5)
        lease: Any = next(iter(client._house._leases.values()))
        kazoo = lease._connection._client
        read = kazoo._connection._read_socket

        def failing(seconds: float) -> Any:
            if any(isinstance(request, Delete) for request, _, _ in kazoo._pending):
                raise RuntimeError("answers out of order")
            return read(seconds)

        monkeypatch.setattr(kazoo._connection, "_read_socket", failing)
        with pytest.raises(holdfast.StoreUnavailable):
            hold.release()
        assert "the store says" not in lease._belief.reason


def test_zookeeper_close_sends_removals_before_it_asks(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a ticket of a client that closes does not wait for what that asks the server besides."""
    sent: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        plain = getattr(Connection, name)

        def note(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():  # heartbeats are the clock's thread's
                sent.append(name)
            return plain(*given, **named)

        return note

    for name in ("delete", "sync", "children"):
        monkeypatch.setattr(Connection, name, noted(name))
    with holdfast.connect(singles["zookeeper"].url("close-order"), ttl=10) as client:
        client.lock("a").acquire()
        del sent[:]
    assert sent[:2] == ["delete", "sync"]
