"""What a wait leaves behind in the client, and in kazoo's: nothing, however it ended."""

from __future__ import annotations

from typing import Any

from kazoo.security import make_digest_acl

import tenure
from tenure._core.lease import Entry
from tenure._core.runtime import runtime_of
from tenure.testing.servers import Cluster
from tests.conformance.store_worlds import eventually

WAIT = 20.0


def lease_of(client: tenure.Client) -> Any:
    client.lock("warm").acquire(WAIT).release()
    return next(iter(runtime_of(client)._leases.values()))


def until(client: tenure.Client) -> float:
    return runtime_of(client).clock.now() + WAIT


def watched(lease: Any) -> int:
    """By us, and by kazoo, which would keep a watch on a node that never comes until its session ends."""
    return int(lease.watches) + sum(map(len, lease._connection._client._data_watchers.values()))


def test_watch_of_a_ticket_that_was_gone_by_then_is_not_kept(singles: dict[str, Cluster]) -> None:
    """It left between the look and the watch. Found by half an hour of mixed work: memory grew with every such wait."""
    with tenure.connect(singles["zookeeper"].url("late"), ttl=20) as client:
        lease = lease_of(client)
        first, second = Entry("a", "x"), Entry("a", "x")
        ahead = lease.enter(first, until(client)).find(first.id)
        line = lease.enter(second, until(client))
        lease.leave(ahead, until(client))
        signal = lease.wait_change(line, (ahead,), amendments=False)
        assert signal.wait(WAIT)
        signal.close()
        assert eventually(lambda: watched(lease) == 0)
        lease.leave(line.find(second.id), until(client))


def test_watch_that_told_of_its_event_is_not_kept(singles: dict[str, Cluster]) -> None:
    """The usual way: the ticket leaves while it is watched."""
    with tenure.connect(singles["zookeeper"].url("told"), ttl=20) as client:
        lease = lease_of(client)
        first, second = Entry("a", "x"), Entry("a", "x")
        ahead = lease.enter(first, until(client)).find(first.id)
        line = lease.enter(second, until(client))
        signal = lease.wait_change(line, (ahead,), amendments=False)
        assert eventually(lambda: watched(lease) == 2)
        lease.leave(ahead, until(client))
        assert signal.wait(WAIT)
        signal.close()
        assert eventually(lambda: watched(lease) == 0)
        lease.leave(line.find(second.id), until(client))


def test_ticket_that_only_its_owner_may_read_is_watched_all_the_same(singles: dict[str, Cluster]) -> None:
    """Another library's, with an ACL of its own in our line. Newer servers tell others nothing of such a node."""
    cluster = singles["zookeeper"]
    with tenure.connect(cluster.url("guarded"), ttl=20) as client:
        lease = lease_of(client)
        first, second = Entry("a", "x"), Entry("a", "x")
        ahead = lease.enter(first, until(client)).find(first.id)
        kazoo = lease._connection._client
        kazoo.set_acls(ahead.key, [make_digest_acl("somebody", "else", all=True)])
        line = lease.enter(second, until(client))
        signal = lease.wait_change(line, (ahead,), amendments=False)
        assert not signal.wait(0.3), "nothing has changed: whoever waits must not spin"
        lease.leave(ahead, until(client))
        assert signal.wait(WAIT)
        signal.close()
        lease.leave(line.find(second.id), until(client))
