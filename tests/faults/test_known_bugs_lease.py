"""Known bugs about what a lease is worth: the store ends it, grants another one, or keeps tickets under it.

The numbers are those of tests/README.md. Every test breaks one thing on a real server and looks at what the
holder and the waiter believe; none looks at how the library does it.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient

import tenure
from tenure import AcquireTimeout, HoldState, LeaseLost, StoreUnavailable
from tenure._backends.etcd.wire import Wire
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import leases, proxied, sessions, url
from tests.faults.transports import ALL, BOTH, ETCD, KEEP_ALIVE, EtcdKind, wait_until_renewed
from tests.servers import Cluster, FaultProxy, etcdctl


@ALL
def test_candidate_whose_renewals_are_lost_is_told_at_once_and_is_never_elected(
    singles: dict[str, Cluster], kind: str
) -> None:
    """Bugs 1, 2, peers' 6: its lease runs out in the line: LeaseLost within the TTL, and nobody leads after the leader.

    On etcd all else still gets through, the watch on its predecessor too.
    """
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(direct, ttl=20) as first, tenure.connect(behind, ttl=2) as second:
            leading = first.election("e", value="one").campaign().acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(second.election("e", value="two").campaign().acquire)
                assert eventually(lambda: second.statistics()["events"].get("entered") == 1)  # type: ignore[attr-defined]
                if kind != "zookeeper":
                    proxy.lose_request(lambda method, path, body: path in KEEP_ALIVE, times=10_000)
                else:
                    proxy.blackhole()
                with pytest.raises(LeaseLost):
                    waiting.result(timeout=4.5)  # 5 s is what a request may take that is not answered
                leading.release()
                proxy.forget()
                proxy.heal()
            assert eventually(lambda: first.election("e").leader() is None)


def test_zookeeper_belief_is_of_the_granted_ttl_where_less_was_granted(singles: dict[str, Cluster]) -> None:
    """Bug 7: a client that asks for more than the server's longest session believes no longer than that."""
    cluster = singles["zookeeper"]
    with tenure.connect(url(cluster), ttl=100) as client, client.lock("a").acquire() as hold:
        assert hold.ttl == pytest.approx(60.0)
        assert hold.remaining() < 60.0
        assert hold.renew() < 60.0


def test_zookeeper_belief_is_cut_short_where_a_reconnect_is_granted_less(singles: dict[str, Cluster]) -> None:
    """A server with a lower maxSessionTimeout moves the session's end down: what the last one granted is void.

    Here the client asks the same server for less: the answer is the same.
    """
    cluster = singles["zookeeper"]
    with (
        FaultProxy(cluster.endpoints[0], "zookeeper") as proxy,
        tenure.connect(proxied(cluster, proxy), ttl=50) as client,
    ):
        hold = client.lock("a").acquire()
        assert hold.remaining() > 40.0
        lease: Any = next(iter(runtime_of(client)._leases.values()))
        lease._connection._client._session_timeout = 3000
        proxy.reset()
        assert eventually(lambda: hold.ttl == 3.0)
        assert eventually(lambda: hold.remaining() < 3.0)
        proxy.blackhole()
        assert hold.lost.wait(20.0)  # told by a timer, which was set for the end of what was granted first
        assert hold.state is HoldState.LOST
        proxy.heal()


@ETCD
def test_etcd_keep_alive_that_is_answered_for_a_revoked_lease_does_not_keep_the_belief(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, kind: EtcdKind
) -> None:
    """Bug 10 (etcd #20590): renewals are answered with a TTL though the lease is gone: the hold's own ticket tells."""
    cluster = singles[kind]
    monkeypatch.setattr(Wire, "keep_alive", lambda self, number, until: 30.0)
    with tenure.connect(url(cluster), ttl=30) as client:
        hold = client.lock("a").acquire()
        started = time.monotonic()
        assert etcdctl(cluster, "lease", "revoke", hold.lease_id).returncode == 0
        with pytest.raises(LeaseLost):
            while time.monotonic() - started < 10.0:  # a storm of renewals, every one of them answered
                hold.renew()
        assert hold.state is HoldState.LOST
        assert hold.release() is False


@ETCD
def test_etcd_leader_changes_delay_a_take_over_by_no_more_than_the_last_of_them(
    triples: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Bug 12: every new leader starts the TTL anew. The belief does not; the waiter outlives it and holds at last."""
    cluster, ttl = triples[kind], 5.0
    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, ",".join(cluster.endpoints))
        with tenure.connect(direct, ttl=20) as other, tenure.connect(behind, ttl=ttl) as client:
            hold = client.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(other.lock("a").acquire, 60.0)
                assert eventually(lambda: other.statistics()["events"].get("entered") == 1)  # type: ignore[attr-defined]
                proxy.blackhole()
                cut_off = moved = time.monotonic()
                while moved - cut_off <= ttl:
                    time.sleep(0.8)
                    _move_leader(cluster)
                    moved = time.monotonic()
                assert hold.state is HoldState.LOST
                assert not waiting.done(), "the store freed it early: the scene was not set"
                taken = waiting.result(2.5 * ttl)  # the moves do not add up: they are four at the least
                assert taken.token > hold.token
                assert taken.release() is True
            proxy.heal()


def _move_leader(cluster: Cluster) -> None:
    """To the next member."""
    told = json.loads(etcdctl(cluster, "endpoint", "status", "-w", "json").stdout)
    members = sorted(each["Status"]["header"]["member_id"] for each in told)
    leader = told[0]["Status"]["leader"]
    target = members[(members.index(leader) + 1) % len(members)]
    moved = etcdctl(cluster, "move-leader", f"{target:x}")
    assert moved.returncode == 0, moved.stderr


@BOTH
def test_timeout_of_a_call_is_not_the_ttl_of_the_lease(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 4: `acquire(timeout=)` is how long to wait, whatever became of the wait."""
    cluster = singles[kind]
    with tenure.connect(url(cluster), ttl=20) as client:
        with client.lock("a"), pytest.raises(AcquireTimeout):
            client.lock("a").acquire(timeout=2.0)
        with client.lock("a").acquire(timeout=4.0) as hold:
            assert hold.ttl == pytest.approx(20.0)
            assert hold.remaining() > 15.0
            if kind == "etcd":
                assert "granted with TTL(20s)" in etcdctl(cluster, "lease", "timetolive", hold.lease_id).stdout


@ALL
def test_ticket_of_an_acquire_that_heard_nothing_goes_though_its_lease_lives(
    singles: dict[str, Cluster], kind: str
) -> None:
    """Bug 17: the request arrived, its answer did not, the call failed: the ticket it left is not a holder later."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy, timeout=2.0)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with (
            ThreadPoolExecutor() as pool,
            tenure.connect(direct, ttl=60) as other,
            tenure.connect(behind, ttl=60) as client,
        ):
            kept = client.lock("kept").acquire()
            client.lock("a").acquire().release()  # the line is there
            proxy.blackhole(to_server=False)
            failing = pool.submit(client.lock("a").acquire, 2.0)
            # while it waits for its answer: the removal that follows goes unanswered, too, and may be done at once
            assert eventually(lambda: other.election("a").leader() is not None), "no ticket was put"
            with pytest.raises((StoreUnavailable, AcquireTimeout)):
                failing.result(20.0)
            proxy.heal()
            assert other.lock("a").acquire(timeout=15.0).release() is True
            kept.check()
            assert kept.release() is True


@BOTH
def test_tries_that_time_out_again_and_again_make_no_leases(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 2: a bounded wait on a held lock ends in AcquireTimeout, with one lease however often it is tried."""
    cluster, alive = singles[kind], leases if kind == "etcd" else sessions
    with tenure.connect(url(cluster), ttl=20) as client, client.lock("a"):
        before = alive(cluster)

        def time_out() -> None:
            with pytest.raises(AcquireTimeout):
                client.lock("a").acquire(timeout=2.0)

        for _ in range(2):
            with ThreadPoolExecutor() as pool:
                timing_out = [pool.submit(time_out) for _ in range(4)]
            for future in timing_out:
                future.result()
        assert alive(cluster) <= before  # others' may run out meanwhile


@ALL
def test_new_lease_of_the_client_does_not_bring_an_old_hold_back(singles: dict[str, Cluster], kind: str) -> None:
    """Peers' 3, 5: the lease is ended at the store, another hold is had: heartbeats of the old one fail for good."""
    cluster = singles[kind]
    with tenure.connect(url(cluster), ttl=3) as client:
        hold = client.lock("a").acquire()
        _end_lease(cluster, client, hold)
        assert hold.lost.wait(10.0)
        again = client.lock("a").acquire(timeout=20)
        assert again.lease_id != hold.lease_id
        assert again.renew() > 0
        assert hold.state is HoldState.LOST
        assert hold.remaining() == 0.0
        with pytest.raises(LeaseLost):
            hold.renew()
        assert hold.release() is False
        again.check()


def _end_lease(cluster: Cluster, client: tenure.Client, hold: tenure.Hold) -> None:
    """As an administrator would; on ZooKeeper by a second connection that claims the session and closes it."""
    if cluster.kind == "etcd":
        assert etcdctl(cluster, "lease", "revoke", hold.lease_id).returncode == 0
        return
    lease: Any = next(iter(runtime_of(client)._leases.values()))
    thief = KazooClient(cluster.endpoints[0], client_id=lease._connection._client.client_id, timeout=4.0)
    thief.start()
    thief.stop()
    thief.close()


def test_zookeeper_server_that_takes_a_connection_and_never_answers_does_not_cost_the_session(
    singles: dict[str, Cluster],
) -> None:
    """As one does that is just starting, now and then, on a busy machine: the next connection is tried in time."""
    cluster = singles["zookeeper"]
    with (
        FaultProxy(cluster.endpoints[0], "zookeeper") as proxy,
        tenure.connect(proxied(cluster, proxy), ttl=12) as client,
    ):
        hold = client.lock("a").acquire()
        swallowed = proxy.swallow_request(lambda opcode, frame: opcode == 0)
        proxy.reset()
        assert swallowed.wait(10.0)
        wait_until_renewed(hold, 2)
        assert hold.state is HoldState.HELD
        assert hold.release() is True
