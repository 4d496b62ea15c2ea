"""What `release()` says of a ticket when the store says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.serialization import Delete

import holdfast
from holdfast.testing.servers import Cluster, EtcdSpec, Provider, ZooKeeperSpec, start


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_release_at_a_silent_store_does_not_say_that_the_ticket_was_gone(provider: Provider, kind: str) -> None:
    """False is for a ticket that is known to be gone, and the lease's own deadline says nothing of the sort."""
    cluster = start(provider, EtcdSpec() if kind == "etcd" else ZooKeeperSpec())
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
