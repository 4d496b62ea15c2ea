"""Known bugs of three members that do not agree: a leader that stands still, a member cut off from its peers.

The numbers are those of tests/README.md. A disk that is slow, and a member that reaches nobody, are made with strace,
which holds system calls of one process up or refuses them: no network or disk of the machine is touched.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import tenure
from tenure import LeaseLost, StaleToken, StoreUnavailable
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import url
from tests.faults.test_known_bugs_holder import entered
from tests.faults.transports import ALL, ETCD, EtcdKind, over
from tests.servers import Cluster, EtcdSpec, FaultProxy, Member, Provider, etcd_counters


@contextlib.contextmanager
def system_calls(member: Member, injection: str) -> Iterator[None]:
    """`injection` (see strace) happens to the member's system calls, from the first line of the block to its end."""
    program = shutil.which("strace")
    assert program is not None, "strace is not installed, and this test needs it"
    call = injection.partition(":")[0]
    tracer = subprocess.Popen(
        [program, "-f", "-p", str(member.pid), "-e", f"trace={call}", "-e", f"inject={injection}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert tracer.stderr is not None
    draining = ThreadPoolExecutor(1)  # whatever it says more must not fill the pipe
    try:
        told = tracer.stderr.readline()
        assert "attached" in told, told
        draining.submit(tracer.stderr.read)
        yield
    finally:
        tracer.terminate()  # it lets go of the process, and of what it held up
        tracer.wait(10)
        draining.shutdown()
        tracer.stderr.close()


def elsewhere(cluster: Cluster, address: str, *members: Member) -> str:
    """The URL with these members only, in this order."""
    return address.replace(",".join(cluster.endpoints), ",".join(member.endpoint for member in members))


def test_etcd_lease_ended_early_by_a_leader_that_stood_still_writes_nothing_more(provider: Provider) -> None:
    """Bug 11 (etcd #15247): the store may end a lease that was just renewed. What was written since stays.

    No clock of the client's can know; the guard does, and the holder hears of it as of any removal.
    """
    cluster = provider.etcd(EtcdSpec(size=3))
    try:
        address = elsewhere(cluster, url(cluster), *cluster.followers())
        with tenure.connect(address, ttl=5) as client, tenure.connect(address, ttl=30) as other:
            hold = client.lock("a").acquire()
            hold.store.put("ledger", b"first")
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(other.lock("a").acquire, 60.0)
                assert entered(other, 1)
                with system_calls(cluster.leader(), "fdatasync:delay_enter=60000000"):
                    ends = time.monotonic() + 9.0  # longer than the TTL
                    while time.monotonic() < ends:
                        with contextlib.suppress(StoreUnavailable):
                            hold.store.put("ledger", b"first")  # it writes, so the leader has something to sync
                        time.sleep(0.1)
                _renew_until_somebody_else_holds(hold, waiting, 4.0)
                if waiting.done():
                    second = waiting.result()
                    second.store.put("ledger", b"second")
                    with pytest.raises((StaleToken, LeaseLost)):
                        hold.store.put("ledger", b"first, late")
                    assert hold.lost.wait(5.0)
                else:  # a server without the bug
                    second = hold
                    second.store.put("ledger", b"second")
                record = second.store.get("ledger")
                assert record is not None
                assert record.value == b"second"
                second.store.delete("ledger")
                assert second.release() is True
                if second is hold:
                    waiting.result(10.0).release()
    finally:
        cluster.close()


def _renew_until_somebody_else_holds(hold: tenure.Hold, waiting: Future[tenure.Hold], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not waiting.done() and time.monotonic() < ends:
        with contextlib.suppress(LeaseLost, StoreUnavailable):
            hold.renew()


@ETCD
def test_etcd_member_cut_off_from_its_peers_keeps_no_waiter_asleep(provider: Provider, kind: EtcdKind) -> None:
    """Bug 15: it answers pings and tells nothing. Its client asks for the quorum after a while, and goes on."""
    cluster = over(provider.etcd(EtcdSpec(size=3)), kind)
    proxies = [FaultProxy(_peer_of(member), "raw") for member in cluster.members]
    try:
        _meet_through(cluster, proxies)
        mine = cluster.followers()[0]
        others = [member for member in cluster.members if member is not mine]
        address = url(cluster)
        with (
            tenure.connect(elsewhere(cluster, address, *others), ttl=60) as other,
            tenure.connect(elsewhere(cluster, address, mine, *others), ttl=60) as client,  # renews every 20 s
        ):
            hold = other.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(client.lock("a").acquire, 60.0)
                assert entered(client, 1)
                assert eventually(lambda: client.statistics()["backend"]["watch_connections"] == 1)  # type: ignore[index]
                with system_calls(mine, "connect:error=ECONNREFUSED"):
                    for proxy, member in zip(proxies, cluster.members, strict=True):
                        (proxy.refuse if member is mine else proxy.reset)()
                    assert eventually(lambda: _has_no_leader(cluster, mine)), "not cut off: the scene was not set"
                    assert hold.release() is True
                    assert waiting.result(14.0).release() is True
                for proxy in proxies:
                    proxy.heal()
    finally:
        cluster.close()
        for proxy in proxies:
            proxy.close()


def _peer_of(member: Member) -> str:
    command: list[str] = member._machine.command  # type: ignore[attr-defined]  # a process, here
    return next(word for word in command if word.startswith("--listen-peer-urls=")).rpartition("/")[2]


def _meet_through(cluster: Cluster, proxies: list[FaultProxy]) -> None:
    """Begin anew, with a proxy in front of each member that the others know it by."""
    known_by = {_peer_of(member): proxy.endpoint for member, proxy in zip(cluster.members, proxies, strict=True)}
    for member in cluster.members:
        member.kill()
        machine: Any = member._machine
        shutil.rmtree(machine.directory / "data")
        for at, word in enumerate(machine.command):
            if word.startswith(("--initial-advertise-peer-urls=", "--initial-cluster=")):
                for peer, endpoint in known_by.items():
                    word = word.replace(peer, endpoint)
                machine.command[at] = word
    cluster.start_all()


def _has_no_leader(cluster: Cluster, member: Member) -> bool:
    return etcd_counters(member.metrics_endpoint).get("etcd_server_has_leader") == 0.0


@ALL
@pytest.mark.parametrize("role", ["follower", "leader"])
def test_member_without_a_quorum_is_not_believed(triples: dict[str, Cluster], kind: str, role: str) -> None:
    """Bug 45: what one member knows by itself is nothing to decide by: no leader is told, no lock is had.

    Its peers are stopped, so all it could answer with is its own copy.
    """
    cluster = triples[kind]
    mine = cluster.leader() if role == "leader" else cluster.followers()[0]
    others = [member for member in cluster.members if member is not mine]
    address = url(cluster, timeout=1.0)
    with (
        tenure.connect(elsewhere(cluster, address, *others), ttl=30) as other,
        tenure.connect(elsewhere(cluster, address, mine), ttl=30) as client,
    ):
        client.lock("warm").acquire().release()
        leading = other.election("e", value="them").campaign().acquire()
        assert client.election("e").leader() is not None
        for member in others:
            member.pause()
        try:
            with pytest.raises(StoreUnavailable):
                client.election("e").leader()
            with pytest.raises(StoreUnavailable):
                client.lock("free").try_acquire()
        finally:
            for member in others:
                member.resume()
        cluster.wait_ready()
        assert eventually(lambda: _leader_of(client) == leading.token, 20.0)
        assert leading.release() is True


def _leader_of(client: tenure.Client) -> int | None:
    try:
        leader = client.election("e").leader()
    except StoreUnavailable:
        return None
    return None if leader is None else leader.token


@ALL
def test_tokens_grow_over_a_change_of_leader(triples: dict[str, Cluster], kind: str) -> None:
    """Bug 30: another leader counts on: on ZooKeeper in the next epoch, whose counter begins at zero again."""
    cluster = triples[kind]
    with tenure.connect(url(cluster), ttl=20) as client:
        with client.lock("a") as before:
            pass
        leader = cluster.leader()
        leader.kill()
        try:
            with client.lock("a").acquire(timeout=20.0) as after:
                assert after.token > before.token
                if kind == "zookeeper":
                    assert after.token >> 32 > before.token >> 32, "no election: the scene was not set"
        finally:
            leader.start()
