"""What `release()` says of a ticket when the store says nothing."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing.servers import EtcdSpec, Provider, ZooKeeperSpec, start


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
