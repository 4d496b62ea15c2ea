"""Operators on real servers: killed between removal and record, and what strangers and administrators leave behind."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

import tenure
from tenure import NoSuchTicket, StoreRefused
from tenure._admin.protocol import RecordKind, StoredRecord, record_name
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied, url
from tests.faults.transports import ALL, ETCD, EtcdKind, all_transports, over
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, ZooKeeperSpec, etcdctl, etcdctl_popen

TRIES = 100
_ADD_WATCH = 106
MODULES = {
    "etcd": "tenure._backends.etcd.admin",
    "etcd+grpc": "tenure._backends.etcd.admin",
    "zookeeper": "tenure._backends.zookeeper.admin",
}


@pytest.fixture
def ways(singles: dict[str, Cluster]) -> dict[str, Cluster]:
    return all_transports(singles)


# It forks for each order, so that a try costs no start of an interpreter; itself it has no threads and no client. A
# child waits to be killed.
NURSERY = """
import os, signal, sys, tenure
address = sys.argv[1]
tenure.connect(address).close()  # all is imported
for order in sys.stdin:
    name, token = order.split()
    child = os.fork()
    if child == 0:
        operator = tenure.connect(address, ttl=5, owner="victim").operator()
        operator.line(name)
        print("ready", os.getpid(), flush=True)
        operator.force_release(name, token=int(token), reason="to be killed", actor="victim")
        print("done", os.getpid(), flush=True)
        signal.pause()
    os.waitpid(child, 0)
    print("over", child, flush=True)
"""


@contextmanager
def nursery(address: str) -> Iterator[Any]:
    command = [sys.executable, "-c", NURSERY, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: Any, order: str) -> int:
    """Have somebody forced out by a child that is about to; its pid."""
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    while (said := process.stdout.readline().split())[0] != "ready":
        pass  # what is left to be read of the one before
    return int(said[1])


def rest(pid: int) -> None:
    """Wait until the killed child is no more."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.0005)


@ALL
@pytest.mark.timeout(300)
def test_operator_killed_at_any_moment_leaves_record_and_removal_or_neither(
    ways: dict[str, Cluster], kind: str
) -> None:
    """SIGKILL at a random moment of a force release, a hundred times: no removal without a record, nor the reverse."""
    address = url(ways[kind])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice, seen = random.Random(seed), Counter[bool]()
    with nursery(address) as process, tenure.connect(address, ttl=30) as client:
        operator = client.operator()
        for number in range(4 * TRIES):
            if number % TRIES == 0:
                if min(seen[True], seen[False]) >= 3:
                    break
                # not the longest: a disk that stood still for a moment would have a hundred tries wait as long as that
                usual = statistics.median(undisturbed(process, client, f"whole-{number + n}") for n in range(5))
            hold = client.lock(f"try-{number}").acquire()
            pid = tell(process, f"{hold.resource} {hold.token}")
            moment = time.monotonic() + dice.uniform(0.0, 1.5 * usual)
            while time.monotonic() < moment:
                pass  # a sleep is coarser than what is to be hit
            os.kill(pid, signal.SIGKILL)
            rest(pid)
            # Removal and record come together, perhaps only now: what was sent may still be carried out.
            gone = operator.line(hold.resource).tickets == ()
            recorded = operator.audit(hold.resource) != ()
            if recorded and not gone:
                gone = operator.line(hold.resource).tickets == ()
            assert gone is recorded, f"try {number} of seed {seed}"
            seen[gone] += 1
            assert hold.release() is False or not gone
    assert min(seen[True], seen[False]) >= 3, f"{seen} of seed {seed}: the moments did not hit"


def undisturbed(process: Any, client: tenure.Client, name: str) -> float:
    """How long a force release takes that nobody kills."""
    hold = client.lock(name).acquire()
    pid = tell(process, f"{name} {hold.token}")
    started = time.monotonic()
    assert process.stdout.readline().split()[0] == "done"
    took = time.monotonic() - started
    os.kill(pid, signal.SIGKILL)
    rest(pid)
    assert len(client.operator().audit(name)) == 1
    return took


@ALL
def test_pages_that_cut_lines_anywhere_show_each_line_whole_and_once(
    ways: dict[str, Cluster], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pages over long lines, nested namespaces, notes and strangers' keys: nothing twice, nothing missing."""
    address = url(ways[kind])
    names = ["a", "a-1", "a!", "a.b", "b", "ü", "z", "%a", "a/b", "aa"]
    with tenure.connect(address, ttl=30) as client, tenure.connect(nested(address), ttl=30) as below:
        holds = [client.semaphore(name, limit=50).acquire() for name in names for _ in range(1 + 12 * (name == "a-1"))]
        holds += [below.lock(f"nested-{number}").acquire() for number in range(9)]
        verbs = runtime_of(client).admin()
        notes = [StoredRecord(RecordKind.JOURNAL, f"n{n}", record_name(n, "x"), "text") for n in range(1, 10)]
        verbs.write(notes, SYSTEM_CLOCK.now() + 5.0)
        if kind != "zookeeper":
            for key in ("a", "a-1", "a-2", "zz"):  # no tickets: they stand in no line
                etcdctl(ways[kind], "put", f"{runtime_of(client).namespace}/{key}", "stray")
        for size in (1, 2, 3, 5, 7, 500):
            monkeypatch.setattr(f"{MODULES[kind]}.PAGE_KEYS", size)
            found = [(line.name, len(line.holders)) for line in client.operator().lines()]
            lines = Counter(hold.resource for hold in holds[:-9])
            assert sorted(found) == sorted(lines.items()), f"pages of {size}"
            assert sorted(line.name for line in client.operator().lines("a")) == sorted(n for n in names if n[0] == "a")
            assert len(verbs.browse(RecordKind.JOURNAL, "", SYSTEM_CLOCK.now() + 5.0)) == 9
        if kind != "zookeeper":
            etcdctl(ways[kind], "del", "--prefix", f"{runtime_of(client).namespace}/")


def nested(address: str) -> str:
    """The same store, a namespace below."""
    path, question, query = address.partition("?")
    return f"{path}/b{question}{query}"


@ETCD
def test_etcdctls_tickets_and_orphans_are_seen_and_can_be_forced_out(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """Strangers' tickets are exclusive ones of an unknown owner; one that hangs on no lease says that it will stay."""
    cluster = singles["etcd"]
    with tenure.connect(url(over(cluster, kind)), ttl=10) as client:
        namespace, operator = runtime_of(client).namespace, client.operator()
        with etcdctl_popen(cluster, "lock", f"{namespace}/theirs") as program:
            try:
                assert eventually(lambda: operator.line("theirs").tickets != ())
                (ticket,) = operator.line("theirs").tickets
                assert (ticket.owner, ticket.holds, ticket.orphaned) == (None, True, False)
                assert ticket.left is not None
                record = operator.force_release("theirs", token=ticket.token, reason="left over", actor="alice")
                assert (record.holder, operator.line("theirs").tickets) == (None, ())
            finally:
                program.kill()
        etcdctl(cluster, "put", f"{namespace}/orphan/abc", "by hand")
        (line,) = operator.lines("orphan")
        assert line.tickets[0].orphaned
        assert operator.line("orphan").tickets[0].orphaned
        assert client.lock("orphan").try_acquire() is None
        operator.force_release("orphan", token=line.tickets[0].token, reason="nobody's", actor="alice")
        assert client.lock("orphan").acquire(timeout=5).release() is True


def test_kazoos_tickets_and_orphans_are_seen_and_can_be_forced_out(singles: dict[str, Cluster]) -> None:
    """The same on ZooKeeper: kazoo's Lock, and a node that is not ephemeral."""
    cluster = singles["zookeeper"]
    kazoo = KazooClient(cluster.endpoints[0], timeout=10.0)
    kazoo.start()
    try:
        with tenure.connect(url(cluster), ttl=10) as client:
            namespace, operator = runtime_of(client).namespace, client.operator()
            assert kazoo.Lock(f"/{namespace}/theirs", "them", extra_lock_patterns=["-lock-"]).acquire(timeout=10)
            (ticket,) = operator.line("theirs").tickets
            assert (ticket.owner, ticket.value, ticket.holds, ticket.orphaned) == (None, "them", True, False)
            operator.force_release("theirs", token=ticket.token, reason="left over", actor="alice")
            assert client.lock("theirs").acquire(timeout=5).release() is True
            kazoo.create(f"/{namespace}/orphan/x-lock-", b"by hand", sequence=True, makepath=True)
            (line,) = operator.lines("orphan")
            assert line.tickets[0].orphaned
            operator.force_release("orphan", token=line.tickets[0].token, reason="nobody's", actor="alice")
            assert client.lock("orphan").acquire(timeout=5).release() is True
    finally:
        kazoo.stop()
        kazoo.close()


@ETCD
def test_store_without_space_refuses_a_force_release_and_nothing_is_removed(provider: Provider, kind: EtcdKind) -> None:
    """No removal without a record, also where there is no room for one."""
    cluster = over(provider.etcd(EtcdSpec(quota_bytes=16 * 1024 * 1024)), kind)
    try:
        with tenure.connect(url(cluster), ttl=60) as client:
            operator, hold = client.operator(), client.lock("a").acquire()
            for number in range(400):
                if etcdctl(cluster, "put", f"filler/{number}", "x" * 120_000).returncode != 0:
                    break
            with pytest.raises(StoreRefused, match="space"):
                operator.force_release("a", token=hold.token, reason="stuck", actor="alice")
            stands = etcdctl(
                cluster, "get", "--prefix", "--print-value-only", f"{runtime_of(client).namespace}/"
            ).stdout
            assert len(stands.splitlines()) == 1
            assert hold.id in stands
            hold.renew()
            hold.check()
            assert hold.release() is True
    finally:
        cluster.close()


@ETCD
def test_operator_of_a_store_with_users_looks_watches_and_forces(provider: Provider, kind: EtcdKind) -> None:
    """All verbs with a token: there every new watch takes a new stream over the gateway."""
    cluster = over(provider.etcd(EtcdSpec(auth=("root", "word"))), kind)
    try:
        with tenure.connect(cluster.url("users"), ttl=20, timeout=10) as client:
            operator = client.operator()
            snapshots = iter(operator.watch())
            assert next(snapshots) == ()
            hold = client.lock("a").acquire(timeout=10)
            assert [line.name for line in next(snapshots)] == ["a"]
            operator.force_release("a", token=hold.token, reason="stuck", actor="alice")
            assert next(snapshots) == ()
            assert hold.lost.wait(10.0)
            with pytest.raises(NoSuchTicket):
                operator.force_release("a", token=hold.token, reason="again", actor="alice")
    finally:
        cluster.close()


@ALL
def test_watch_survives_that_its_store_is_away_for_a_while(kind: str, provider: Provider) -> None:
    """The server is killed and comes back: the watch shows what has changed since."""
    cluster = provider.zookeeper(ZooKeeperSpec()) if kind == "zookeeper" else over(provider.etcd(EtcdSpec()), kind)
    try:
        address = url(cluster)
        with tenure.connect(address, ttl=30) as watcher, tenure.connect(address, ttl=30) as client:
            kept = client.lock("kept").acquire()
            snapshots = iter(watcher.operator().watch())
            assert [line.name for line in next(snapshots)] == ["kept"]
            member = cluster.members[0]
            member.kill()
            member.start()
            client.lock("new").acquire(timeout=30)
            assert {line.name for line in next(snapshots)} == {"kept", "new"}
            kept.release()
            assert [line.name for line in next(snapshots)] == ["new"]
    finally:
        cluster.close()


def test_zookeeper_recursive_watch_is_set_once_however_many_wait(singles: dict[str, Cluster]) -> None:
    """Law 10: watchers of one client share one watch, over all of its changes; and holds have none of it."""
    cluster = singles["zookeeper"]
    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=20) as client:
            operator = client.operator()
            views = [iter(operator.watch(prefix)) for prefix in ("a", "b", "")]
            assert [next(view) for view in views] == [(), (), ()]
            for _ in range(3):
                with client.lock("b1"):
                    assert [line.name for line in next(views[1])] == ["b1"]
                    assert [line.name for line in next(views[2])] == ["b1"]
                assert (next(views[1]), next(views[2])) == ((), ())
            assert proxy.requests[_ADD_WATCH] == 1


def test_zookeeper_ticket_that_was_forced_out_is_forgotten_with_its_hold(singles: dict[str, Cluster]) -> None:
    """Law 12: else its line counts as used, and is left to stand, for as long as its session does."""
    address = singles["zookeeper"].url(f"forced-{time.monotonic_ns():x}", tick=0.2)
    with tenure.connect(address, ttl=20) as client, tenure.connect(address, ttl=20) as other:
        hold = client.lock("a").acquire()
        lease: Any = next(iter(runtime_of(client)._leases.values()))
        assert len(lease._sweeper._nodes) == 1
        other.operator().force_release("a", token=hold.token, reason="a test", actor="a test")
        assert hold.lost.wait(20.0)
        assert eventually(lambda: not lease._sweeper._nodes)
        assert eventually(lambda: not lease._sweeper._lines)
