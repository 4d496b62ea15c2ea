"""Faults on real servers, each of which has fooled some lock library: docs/properties.md says where they are listed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import AcquireTimeout, HoldState, LeaseLost, StoreError, StoreUnavailable
from tenure._backends.etcd.requests import LeaseGone, Life
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.transports import ALL, BOTH, ETCD, EtcdKind, enters, over, wait_until_renewed
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, ZooKeeperSpec, etcd_restore, etcdctl, zk_four_letter


def url(cluster: Cluster, **options: object) -> str:
    extra = {"tick": 0.2} if cluster.kind == "zookeeper" else {}
    return cluster.url(f"faults-{time.monotonic_ns():x}", **(extra | options))


def proxied(cluster: Cluster, proxy: FaultProxy, **options: object) -> str:
    """The cluster's URL with one member behind a proxy and the others left out."""
    whole = url(cluster, **options)
    return whole.replace(",".join(cluster.endpoints), proxy.endpoint)


HOLDER = """
import sys, time, tenure
client = tenure.connect(sys.argv[1], ttl=float(sys.argv[2]))
hold = client.lock("a").acquire()
print("held", hold.token, flush=True)
for line in sys.stdin:
    try:
        hold.check()
        print("still held", flush=True)
    except tenure.LeaseLost:
        print("lost", flush=True)
"""


@pytest.fixture
def holder() -> Iterator[Any]:
    """Starts programs that hold lock `a`; kills what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def start(address: str, ttl: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, address, str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@BOTH
def test_stopped_process_finds_out_on_its_first_check(singles: dict[str, Cluster], holder: Any, kind: str) -> None:
    """SIGSTOP for twice the TTL, then SIGCONT: the very first check() raises; no network, thread or callback needed."""
    address = url(singles[kind])
    process = holder(address, 1.5)
    assert process.stdout.readline().startswith("held")
    os.kill(process.pid, signal.SIGSTOP)
    with tenure.connect(address, ttl=10) as client:
        successor = client.lock("a").acquire(timeout=20)
        time.sleep(0.5)
        process.stdin.write("check\n")  # it waits in the pipe, so check() is the first thing that runs
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "lost\n"
        assert successor.release() is True


@BOTH
def test_killed_holder_is_followed_after_its_ttl(singles: dict[str, Cluster], holder: Any, kind: str) -> None:
    """A crash gives up by TTL: the waiter holds within TTL and the store's own slack."""
    address = url(singles[kind])
    process = holder(address, 2.0)
    token = int(process.stdout.readline().split()[1])
    with tenure.connect(address, ttl=10) as client:
        process.kill()
        started = time.monotonic()
        with client.lock("a").acquire(timeout=20) as hold:
            assert time.monotonic() - started < 2.0 + 3.0 + 3.0  # the store's slack, and a busy machine's
            assert hold.token > token


@ALL
def test_leader_of_the_store_is_killed_under_a_hold(triples: dict[str, Cluster], kind: str) -> None:
    """The store elects a new leader within the TTL: the hold survives, and works go on."""
    cluster = triples[kind]
    with tenure.connect(url(cluster), ttl=10) as client:
        hold = client.lock("a").acquire()
        leader = cluster.leader()
        leader.kill()
        try:
            with ThreadPoolExecutor() as pool:
                other = pool.submit(client.lock("b").acquire, 20.0)
                other.result().release()
            hold.renew()
            hold.check()
        finally:
            leader.start()
        assert hold.release() is True


@ALL
def test_clients_own_member_hangs(triples: dict[str, Cluster], kind: str) -> None:
    """The member the client talks to is stopped: the client moves on before its lease ends, and its watches too."""
    cluster = triples[kind]
    address = url(cluster)
    with tenure.connect(address, ttl=20) as client:
        hold = client.lock("a").acquire()
        mine = member_of(cluster, client)
        elsewhere = ",".join(endpoint for endpoint in cluster.endpoints if endpoint != mine.endpoint)
        steady = address.replace(",".join(cluster.endpoints), elsewhere)  # whose own member does not hang
        with tenure.connect(steady, ttl=30) as other, ThreadPoolExecutor() as pool:
            theirs = other.lock("b").acquire()
            waiting = pool.submit(client.lock("b").acquire, 60.0)
            assert eventually(lambda: client.statistics()["events"].get("entered") == 2)  # type: ignore[attr-defined]
            mine.pause()
            try:
                wait_until_renewed(hold, 1)  # elsewhere
                hold.check()
                theirs_released = pool.submit(theirs.release)
                waiting.result(30).release()
                theirs_released.result(30)
            finally:
                mine.resume()
        hold.check()
        assert hold.release() is True


def member_of(cluster: Cluster, client: tenure.Client) -> Any:
    """The member that serves this client now."""
    if cluster.kind == "etcd":
        endpoint = client.statistics()["backend"]["endpoint"]  # type: ignore[index]
    else:
        lease = next(iter(runtime_of(client)._leases.values()))
        host, port = lease._connection._client._connection._socket.getpeername()[:2]  # type: ignore[attr-defined]
        endpoint = f"{host}:{port}"
    return next(member for member in cluster.members if member.endpoint == endpoint)


@ALL
def test_all_answers_lost_until_the_deadline_leave_no_ticket(singles: dict[str, Cluster], kind: str) -> None:
    """Bug 17: an acquire that never got an answer must not become the owner later."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]
        address = proxied(cluster, proxy, timeout=1.0)
        with tenure.connect(address, ttl=30) as client:
            client.lock("a").acquire().release()  # its line is there: the answer that is lost is that of a ticket
            proxy.lose_answer(_enters_zookeeper if kind == "zookeeper" else enters, times=100)
            with pytest.raises((StoreUnavailable, AcquireTimeout)):
                client.lock("a").acquire(timeout=1.0)
            proxy.forget()
            direct = tenure.connect(address.replace(proxy.endpoint, cluster.endpoints[0]), ttl=10)
            with direct, direct.lock("a").acquire(timeout=5.0) as hold:
                time.sleep(0.3)
                hold.check()


def _enters_zookeeper(opcode: int, frame: bytes) -> bool:
    return opcode in (15, 12)  # create2; and getChildren2, by which a retry looks whether it is there


def test_zookeeper_follower_cut_off_from_its_leader_proves_nothing(provider: Provider) -> None:
    """Bug 24: it goes on answering pings and reads; the hold must end before the leader gives the lock away.

    The follower's links to its peers run through proxies; its clients reach it directly.
    """
    cluster = provider.zookeeper(ZooKeeperSpec(size=3))
    follower = cluster.members[0]  # the lowest id, so that it doesn't lead after its restart
    proxies = _peer_links_through_proxies(follower)
    try:
        assert follower is not cluster.leader()
        address = url(cluster)
        cut_off = address.replace(",".join(cluster.endpoints), follower.endpoint)
        rest = address.replace(",".join(cluster.endpoints), ",".join(m.endpoint for m in cluster.members[1:]))
        with tenure.connect(rest, ttl=10) as other, tenure.connect(cut_off, ttl=2) as client:
            hold = client.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(other.lock("a").acquire, 30.0)
                for proxy in proxies:
                    proxy.blackhole()
                given = waiting.done()
                while hold.state is not HoldState.LOST:
                    assert not given, "two holders"
                    time.sleep(0.001)
                    given = waiting.done()  # before the state is read
                assert waiting.result().token > hold.token
    finally:
        for proxy in proxies:
            proxy.close()
        cluster.close()


def _peer_links_through_proxies(member: Any) -> list[FaultProxy]:
    """Restart `member` with its way to the others' quorum ports through proxies."""
    proxies: list[FaultProxy] = []
    config: Path = member._machine.directory / "zoo.cfg"

    def through(match: re.Match[str]) -> str:
        proxies.append(FaultProxy(f"{match[2]}:{match[3]}", "raw"))
        return f"{match[1]}{proxies[-1].endpoint}:{match[4]}"

    member.kill()
    config.write_text(re.sub(r"^(server\.[23]=)([^:]+):(\d+):(\d+)", through, config.read_text(), flags=re.MULTILINE))
    member.start()
    assert len(proxies) == 2
    return proxies


def test_etcd_token_is_the_create_revision_under_noise(singles: dict[str, Cluster]) -> None:
    """Bug 31: other writes between do not make the token anything else than the ticket's create revision."""
    cluster = singles["etcd"]
    with tenure.connect(url(cluster), ttl=10) as client:
        prefix = runtime_of(client).options.namespace
        for number in range(3):
            etcdctl(cluster, "put", f"noise-{number}", "x")
            with client.election("e", value="v").campaign() as hold:
                etcdctl(cluster, "put", f"noise-{number}", "y")
                hold.amend("w")
                told = etcdctl(cluster, "get", "--prefix", f"{prefix}/e/", "-w", "fields").stdout
                assert int(re.findall(r'"CreateRevision" : (\d+)', told)[0]) == hold.token
        etcdctl(cluster, "del", "--prefix", "noise-")


@ETCD
def test_etcd_watch_created_late_does_not_miss_the_release(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """Bug 13: the release happens while the watch's creation is still on its way."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        address = proxied(cluster, proxy)
        direct = address.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(address, ttl=10) as waiter, tenure.connect(direct, ttl=10) as holder:
            waiter.lock("warm").acquire().release()
            hold = holder.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                proxy.delay(to_server=0.2)
                waiting = pool.submit(waiter.lock("a").acquire, 15.0)
                assert eventually(lambda: waiter.statistics()["events"].get("entered") == 2)  # type: ignore[attr-defined]
                hold.release()
                assert waiting.result(10).release() is True


@ETCD
def test_etcd_compaction_while_waiting_wakes_and_orphans_nobody(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """Bug 14: a watch that compaction ends is a reason to look; every waiter gets its turn, none is left behind."""
    cluster = singles[kind]
    address = url(cluster)
    with tenure.connect(address, ttl=20) as client, FaultProxy(cluster.endpoints[0], kind) as proxy:
        waiter = tenure.connect(address.replace(cluster.endpoints[0], proxy.endpoint), ttl=20)
        with waiter, ThreadPoolExecutor() as pool:
            hold = client.lock("a").acquire()
            waiting = [pool.submit(waiter.lock("a").acquire, 60.0) for _ in range(3)]
            assert eventually(lambda: waiter.statistics()["events"].get("entered") == 3)  # type: ignore[attr-defined]
            for number in range(3):
                proxy.reset()
                out = etcdctl(cluster, "put", "noise", str(number), "-w", "fields").stdout
                etcdctl(cluster, "compact", re.findall(r'"Revision" : (\d+)', out)[0])
            hold.release()
            for _ in range(3):
                assert eventually(lambda: any(f.done() for f in waiting), 30.0)
                done = next(f for f in waiting if f.done())
                waiting.remove(done)
                assert done.result().release() is True
        etcdctl(cluster, "del", "noise")


@BOTH
def test_blocking_callback_stalls_nothing(singles: dict[str, Cluster], kind: str) -> None:
    """Bug 25: a user's callback that blocks for three renewals does not keep the lease from being renewed."""
    with tenure.connect(url(singles[kind]), ttl=6) as client:
        hold = client.lock("a").acquire()
        entered, leave = threading.Event(), threading.Event()

        def block(state: HoldState) -> None:
            entered.set()
            leave.wait(60)

        first = client.lock("b").acquire()
        first.on_change(block)
        first.release()
        assert entered.wait(5)
        wait_until_renewed(hold, 3)
        hold.check()
        leave.set()
        assert hold.release() is True


def test_zookeeper_dying_sessions_node_is_not_taken_for_mine(singles: dict[str, Cluster]) -> None:
    """Bugs 20, 26: after the session is lost the old hold stays lost; a new acquire waits for the old node to go."""
    cluster = singles["zookeeper"]
    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy:
        address = proxied(cluster, proxy)
        with tenure.connect(address, ttl=2) as client:
            hold = client.lock("a").acquire()
            proxy.blackhole()
            assert hold.lost.wait(5)
            proxy.heal()
            again = client.lock("a").acquire(timeout=20)
            assert again.token > hold.token
            assert again.lease_id != hold.lease_id
            assert hold.state is HoldState.LOST
            assert hold.release() is False
            again.check()
            again.release()


def test_zookeeper_reconnecting_twice_in_a_moment_keeps_one_holder(singles: dict[str, Cluster]) -> None:
    """Bug 28: connections that break in quick succession lose nothing and admit nobody twice."""
    cluster = singles["zookeeper"]
    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=6) as client:
            hold = client.lock("a").acquire()
            for _ in range(6):
                proxy.reset()
                time.sleep(0.05)
            assert client.lock("a").try_acquire() is None
            hold.renew()
            hold.check()
            assert hold.release() is True


def test_zookeeper_busy_client_in_a_black_hole_stops_believing(singles: dict[str, Cluster]) -> None:
    """Bugs 22, 23: requests that are sent into nothing must not keep the belief alive."""
    cluster = singles["zookeeper"]
    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy:
        with tenure.connect(proxied(cluster, proxy, timeout=0.3), ttl=2) as client:
            hold = client.lock("a").acquire()
            proxy.blackhole()
            started = time.monotonic()
            while (looked_at := time.monotonic()) and hold.state is not HoldState.LOST:
                assert looked_at - started <= 2.0, "believed for longer than what was proven"
                with pytest.raises((StoreError, LeaseLost, AcquireTimeout)):
                    client.lock("b").acquire(timeout=0.1)
            proxy.heal()


@ETCD
def test_etcd_keepalives_answers_delayed_do_not_stretch_the_belief(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """Bug 6: the deadline counts from before the send, so late answers are worth less."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=5) as client:
            hold = client.lock("a").acquire()
            proxy.delay(to_client=0.8)
            remaining = hold.renew()
            assert remaining <= hold.ttl - 0.8
            proxy.blackhole()
            left = hold.remaining()
            ends = time.monotonic() + left
            while (looked_at := time.monotonic()) and hold.state is not HoldState.LOST:
                assert looked_at <= ends, "an answer that was late has stretched it"
                time.sleep(0.01)
            assert hold.lost.wait(5)
            proxy.heal()


@ETCD
def test_etcd_grant_that_is_answered_late_proves_from_before_it_was_sent(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Law 2: the store may have begun the lease when it was asked for; the ticket's answer proves nothing."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy, tenure.connect(proxied(cluster, proxy), ttl=6) as client:
        client.operator().line("a")  # connected
        proxy.delay(to_client=0.7)
        hold = client.lock("a").acquire()
        assert hold.remaining() <= hold.ttl - 2 * 0.7  # the answers to the grant, and to the ticket
        proxy.heal()


@ETCD
def test_etcd_isolated_member_does_not_hold_up_its_waiter(provider: Provider, kind: EtcdKind) -> None:
    """Bug 15: a watch on a member without a leader stays silent; the client goes elsewhere by itself."""
    cluster = over(provider.etcd(EtcdSpec(size=3)), kind)
    try:
        address = url(cluster)
        mine = cluster.followers()[0]
        others = [m for m in cluster.members if m is not mine]
        reordered = address.replace(",".join(cluster.endpoints), ",".join(m.endpoint for m in (mine, *others)))
        elsewhere = address.replace(",".join(cluster.endpoints), ",".join(m.endpoint for m in others))
        with tenure.connect(elsewhere, ttl=60) as other, tenure.connect(reordered, ttl=6) as client:
            hold = other.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(client.lock("a").acquire, 60.0)
                assert eventually(lambda: client.statistics()["events"].get("entered") == 1)  # type: ignore[attr-defined]
                mine.pause()
                time.sleep(1.0)
                hold.release()
                assert waiting.result(20).release() is True
                mine.resume()
    finally:
        cluster.close()


@ETCD
def test_etcd_restored_store_stops_the_client(provider: Provider, tmp_path: Path, kind: EtcdKind) -> None:
    """Bug 43: a store restored from a snapshot would hand out lower tokens: StoreWentBack instead."""
    cluster = over(provider.etcd(EtcdSpec()), kind)
    member = cluster.members[0]
    try:
        with tenure.connect(url(cluster), ttl=5) as client:
            client.lock("a").acquire().release()
            snapshot = tmp_path / "snapshot.db"
            etcdctl(cluster, "snapshot", "save", str(snapshot))
            for _ in range(20):
                high = client.lock("a").acquire()
                high.release()
            member.kill()
            etcd_restore(cluster, member, snapshot)
            member.start()
            with pytest.raises((tenure.StoreWentBack, LeaseLost)) as caught:
                for _ in range(3):
                    client.lock("a").acquire(timeout=10).release()
            if caught.type is LeaseLost:  # the lease of the other history is gone; the next try says why
                with pytest.raises(tenure.StoreWentBack):
                    client.lock("a").acquire(timeout=10)
            with pytest.raises(tenure.StoreWentBack):
                client.lock("other").try_acquire()
    finally:
        cluster.close()


FOR_PEOPLE = {
    "_backends/zookeeper/codec.py": "created_at",
    "_backends/memory/server.py": "created_at",
    "_admin/protocol.py": "what operators read, and created_at on etcd",
    "cli/doctor/endpoint.py": "the days that a certificate has left",
    "cli/commands/watch.py": "when a line of the screen was written",
    "service/log.py": "when a line of the log was written",
    "service/auth/tokens.py": "the date until which a token is good: nothing about holds",
    "service/api/locks.py": "expiresAt, beside remainingSeconds",
}
"""Where the wall clock is read, and what for."""


def test_wall_clock_plays_no_part() -> None:
    """Bug 38: nothing in the library that decides about holds reads the wall clock."""
    source = Path(tenure.__file__).parent
    testing = source / "testing"  # compares servers' logs, stamped so, with its own time; makes certificates
    readers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if not path.is_relative_to(testing) and re.search(r"time\.time\(\)|datetime\.now", path.read_text())
    }
    assert readers == set(FOR_PEOPLE)


@pytest.mark.timeout(600)  # a minute alone
def test_ten_thousand_failed_tries_leave_the_leases_flat(singles: dict[str, Cluster]) -> None:
    """Bug 48, and defect 2 of other libraries: no lease or session per try, on either store."""
    for kind, alive in (("etcd", leases), ("zookeeper", sessions)):
        cluster = singles[kind]
        with tenure.connect(url(cluster), ttl=30) as client:
            hold = client.lock("a").acquire()
            before = alive(cluster)
            for _ in range(10_000):
                assert client.lock("a").try_acquire() is None
            assert alive(cluster) <= before  # others' may run out meanwhile
            assert hold.release() is True


def leases(cluster: Cluster) -> set[str]:
    """By their ids."""
    return set(etcdctl(cluster, "lease", "list").stdout.splitlines()[1:])


def sessions(cluster: Cluster) -> set[str]:
    """By their ids."""
    return set(re.findall("sid=[0-9a-fx]+", zk_four_letter(cluster.members[0].metrics_endpoint, "cons")))


@pytest.mark.timeout(600)  # a minute alone
@BOTH
def test_ten_thousand_names_leave_nothing(singles: dict[str, Cluster], kind: str) -> None:
    """Law 12: taking and releasing thousands of different names once leaves no key, node or lease."""
    cluster = singles[kind]
    address = url(cluster)
    with tenure.connect(address, ttl=30) as client:
        for number in range(10_000):
            client.lock(f"name-{number}").acquire().release()
        namespace = runtime_of(client).options.namespace
    if kind == "etcd":
        assert etcdctl(cluster, "get", "--prefix", "--keys-only", namespace).stdout.strip() == ""
    else:
        assert eventually(lambda: namespace not in zk_four_letter(cluster.members[0].metrics_endpoint, "wchp"))
        assert eventually(lambda: _znodes(cluster, namespace) == 0, 30.0)


def _znodes(cluster: Cluster, namespace: str) -> int:
    from tests.conformance.store_worlds import Admin, _tree

    with Admin(cluster.endpoints[0]) as zk:
        return len(_tree(zk, f"/{namespace}"))


@ETCD
def test_etcd_enter_that_is_carried_out_late_blocks_nobody_for_long(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """A lost try of `enter` may put its key long after its ticket was given up: the lease's own list shows it."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy, tenure.connect(proxied(cluster, proxy), ttl=3) as client:
        kept = client.lock("kept").acquire()
        proxy.lose_answer(enters)
        client.lock("a").acquire().release()
        key = f"{runtime_of(client).options.namespace}/a/{kept.lease_id}-0-0"  # where the lost try put it
        time.sleep(1.5)
        done = etcdctl(cluster, "put", f"--lease={kept.lease_id}", key, "late")  # what a stopped member would do
        assert done.returncode == 0, done.stderr
        assert client.lock("a").acquire(timeout=10).release() is True
        kept.check()
        assert kept.release() is True


@ETCD
def test_etcd_member_that_does_not_know_the_lease_ends_no_look_after_its_keys(
    singles: dict[str, Cluster], kind: EtcdKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deposed leader, or one that has just come back, says of a lease that lives that there is none: ask again."""
    cluster, denied = singles[kind], threading.Event()
    with FaultProxy(cluster.endpoints[0], kind) as proxy, tenure.connect(proxied(cluster, proxy), ttl=3) as client:
        kept = client.lock("kept").acquire()
        wire = kept._lease._wire  # type: ignore[attr-defined]
        life = wire.life

        def unknown_at_first(number: int, until: float, *, keys: bool = False) -> Life:
            if keys and not denied.is_set():
                denied.set()
                raise LeaseGone(f"lease {number:x} is not known")
            found: Life = life(number, until, keys=keys)
            return found

        monkeypatch.setattr(wire, "life", unknown_at_first)
        proxy.lose_answer(enters)
        client.lock("a").acquire().release()
        assert denied.wait(10.0), "nobody looked: the scene was not set"
        key = f"{runtime_of(client).options.namespace}/a/{kept.lease_id}-0-0"
        assert etcdctl(cluster, "put", f"--lease={kept.lease_id}", key, "late").returncode == 0
        assert client.lock("a").acquire(timeout=10).release() is True
        kept.check()
        assert kept.release() is True


@ETCD
def test_etcd_enter_carried_out_late_after_its_ticket_was_removed_and_its_turn_timed_out_blocks_nobody_for_long(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Somebody removed the ticket while it waited: nothing was there to withdraw, but what comes late is seen to."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(behind, ttl=3) as client, tenure.connect(direct, ttl=20) as other:
            lease_id = client.lock("warm").acquire().lease_id
            held = other.lock("a").acquire()
            proxy.lose_answer(enters)
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(client.lock("a").acquire, 1.5)
                key = f"{runtime_of(client).options.namespace}/a/{lease_id}-0-0"
                assert eventually(lambda: etcdctl(cluster, "del", key).stdout.strip() == "1")
                with pytest.raises(AcquireTimeout):
                    waiting.result()
            assert etcdctl(cluster, "put", f"--lease={lease_id}", key, "late").returncode == 0
            assert held.release() is True
            assert other.lock("a").acquire(timeout=10).release() is True


@ETCD
def test_etcd_restored_without_my_ticket_ends_my_belief(provider: Provider, tmp_path: Path, kind: EtcdKind) -> None:
    """The store comes back with my lease but without my ticket: the hold ends although keep-alives are answered."""
    cluster = over(provider.etcd(EtcdSpec()), kind)
    member = cluster.members[0]
    try:
        with tenure.connect(url(cluster), ttl=30) as client:
            client.lock("warm").acquire().release()
            snapshot = tmp_path / "snapshot.db"
            etcdctl(cluster, "snapshot", "save", str(snapshot))
            for _ in range(3):
                client.lock("warm").acquire().release()
            hold = client.lock("a").acquire()
            time.sleep(0.5)
            member.kill()
            etcd_restore(cluster, member, snapshot)
            member.start()
            assert hold.lost.wait(15.0)
    finally:
        cluster.close()


@ETCD
def test_etcd_watch_whose_path_died_in_silence_is_noticed(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """The watch's connection swallows everything, others work: a ping goes unanswered, and the waiter is woken."""
    cluster = singles[kind]
    with WatchMuffler(cluster.endpoints[0]) as relay:
        direct = url(cluster)
        address = direct.replace(cluster.endpoints[0], relay.endpoint)
        with tenure.connect(address, ttl=60) as waiter, tenure.connect(direct, ttl=60) as holder:
            hold = holder.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(waiter.lock("a").acquire, 60.0)
                assert eventually(lambda: waiter.statistics()["backend"]["watches"] == 1)  # type: ignore[index]
                assert eventually(lambda: relay.watches == 1)
                time.sleep(0.3)
                relay.muffle()
                hold.release()
                assert waiting.result(30.0).release() is True


class WatchMuffler:
    """A relay that can make the connections that carry watches swallow everything, and no others."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._muffled: set[int] = set()
        self._watching: set[int] = set()
        self._socks: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    @property
    def watches(self) -> int:
        return len(self._watching)

    def muffle(self) -> None:
        """From now on, for those there are."""
        self._muffled |= self._watching

    def __enter__(self) -> WatchMuffler:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._server, *self._socks):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        for number in range(100):
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._socks += [client, server]
            for one, other in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._carry, args=(number, one, other)))
                self._threads[-1].start()

    def _carry(self, number: int, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                if b"Upgrade: websocket" in data or b"/etcdserverpb.Watch/Watch" in data:
                    self._watching.add(number)
                if number not in self._muffled:
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return
