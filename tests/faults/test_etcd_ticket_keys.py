"""Keys of tickets that have gone: they stay in etcd's index until somebody compacts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import tenure
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.servers import Cluster, etcdctl, etcdctl_popen

from .test_faults import url
from .transports import ETCD, EtcdKind


@ETCD
def test_etcd_tickets_that_come_and_go_leave_few_keys_in_its_index(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """A line does not get slower with each ticket that ever stood in it: one takes the key of another that has gone."""
    cluster, turns, threads = singles[kind], 25, 4
    with tenure.connect(url(cluster), ttl=30) as client:
        client.lock("warm").acquire().release()
        prefix = f"{runtime_of(client).options.namespace}/a/"
        begun = runtime_of(client)._backend._wire._history.revision  # type: ignore[attr-defined]

        def take_turns(_: int) -> None:
            for _ in range(turns):
                client.lock("a").acquire(timeout=30).release()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(take_turns, range(threads)))
        watching = etcdctl_popen(cluster, "watch", "--prefix", prefix, f"--rev={begun + 1}")
        try:
            assert watching.stdout is not None
            lines = [watching.stdout.readline().strip() for _ in range(2 * turns * threads * 3)]
        finally:
            watching.kill()
            watching.communicate()
    keys = {key for event, key in pairwise(lines) if event in ("PUT", "DELETE")}
    assert len(keys) <= 2 * threads
    assert all(key.startswith(prefix) for key in keys)


@ETCD
def test_etcd_strangers_key_at_the_place_of_a_ticket_is_stood_behind(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """It is a ticket of the line like any other; ours takes another place, and has its turn when that has gone."""
    cluster = singles[kind]
    with tenure.connect(url(cluster), ttl=30) as client:
        lease_id = client.lock("warm").acquire().lease_id
        key = f"{runtime_of(client).options.namespace}/a/{lease_id}-0-0"
        assert etcdctl(cluster, "put", key, "a stranger's").returncode == 0
        assert client.lock("a").try_acquire() is None
        assert etcdctl(cluster, "del", key).returncode == 0
        assert client.lock("a").acquire(timeout=10).release() is True


@ETCD
def test_etcd_audit_never_deletes_the_ticket_of_whoever_came_to_the_place_meanwhile(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Laws 1 and 5: listed with one ticket at it, deleted with the next one there: two would hold one lock."""
    cluster = singles[kind]
    address = url(cluster)
    with tenure.connect(address, ttl=30) as client, tenure.connect(address, ttl=30) as other:
        first = client.lock("a").acquire()
        second: list[tenure.Hold] = []
        gone: list[bool] = []
        lease = next(iter(runtime_of(client)._leases.values()))
        wire = lease._wire  # type: ignore[attr-defined]  # etcd's
        list_keys, delete = wire.life, wire.delete

        def listed_and_then_given_up(*asked: Any, **how: Any) -> Any:
            told = list_keys(*asked, **how)
            if not second:
                first.release()
            return told

        def taken_and_then_deleted(*asked: Any) -> Any:
            if not second:
                second.append(client.lock("a").acquire())
            gone.append(delete(*asked))
            return gone[-1]

        wire.life, wire.delete = listed_and_then_given_up, taken_and_then_deleted
        lease._audit.doubt(lease._number, lease.ttl)  # type: ignore[attr-defined]  # etcd's
        assert eventually(lambda: bool(gone))
        assert other.lock("a").try_acquire() is None
        second[0].check()
        assert second[0].release() is True
