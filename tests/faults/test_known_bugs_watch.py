"""Known bugs about news that does not come, comes too early, or is looked for in the wrong place.

The numbers are those of tests/README.md. What a bug of this kind costs is a wake-up: a waiter that sleeps on
although its turn has come. So every test ends by taking the turn within a bound.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import tenure
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied
from tests.faults.transports import ALL, ETCD, RANGE, EtcdKind, count, enters
from tests.servers import Cluster, FaultProxy, etcdctl

_CREATE, _SYNC, _LISTS = 15, 9, (8, 12)
"""ZooKeeper's codes: create2 (a ticket), sync, getChildren and getChildren2."""


@ETCD
def test_etcd_watch_from_a_compacted_revision_is_a_reason_to_look(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """Bug 14: compaction overtakes a watch on its way: refused, it wakes its waiter, who gets its turn."""
    cluster = singles[kind]
    with FaultProxy(cluster.endpoints[0], kind) as proxy:
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(direct, ttl=20) as holder, tenure.connect(behind, ttl=20) as waiter:
            waiter.lock("warm").acquire().release()
            hold = holder.lock("a").acquire()
            with ThreadPoolExecutor() as pool:
                answer = proxy.hold_answer(enters)  # the watch begins at what it says
                waiting = pool.submit(waiter.lock("a").acquire, 30.0)
                assert answer.arrived.wait(10.0)
                _compact(cluster)
                before = count(proxy.requests, RANGE)
                answer.release()
                # 5 s is when it would look because nothing was heard
                assert eventually(lambda: count(proxy.requests, RANGE) > before, 4.0), "the refused watch woke nobody"
                assert not waiting.done()
                hold.release()
                assert waiting.result(10.0).release() is True
            namespace = runtime_of(waiter).options.namespace
            assert etcdctl(cluster, "get", "--prefix", "--keys-only", f"{namespace}/a/").stdout.strip() == ""


def _compact(cluster: Cluster) -> None:
    """Nothing can be watched from before now: the last of a few revisions is what is kept."""
    told = [etcdctl(cluster, "put", "noise", str(number), "-w", "fields").stdout for number in range(3)]
    revision = re.findall(r'"Revision" : (\d+)', told[-1])[0]
    done = etcdctl(cluster, "compact", revision)
    assert done.returncode == 0, done.stderr
    etcdctl(cluster, "del", "noise")


def test_zookeeper_retry_of_a_create_syncs_before_it_looks_for_its_node(singles: dict[str, Cluster]) -> None:
    """Bug 19, peers' 17: the answer to the create is lost: one node, found on a server made to catch up first."""
    cluster = singles["zookeeper"]
    heard: list[int] = []

    def listen(opcode: int, frame: bytes) -> bool:
        if opcode == _CREATE or (opcode in (_SYNC, *_LISTS) and b"/one-node" in frame):
            heard.append(opcode)
        return False

    with FaultProxy(cluster.endpoints[0], "zookeeper") as proxy:
        with tenure.connect(proxied(cluster, proxy), ttl=20) as client:
            client.lock("warm").acquire().release()
            client.lock("one-node").acquire().release()  # its parent is there, so that one create is one try
            proxy.lose_request(listen)
            lost = proxy.lose_answer(lambda opcode, frame: opcode == _CREATE)
            hold = client.lock("one-node").acquire(timeout=10)
            assert lost.is_set()
            assert heard.count(_CREATE) == 1, "the retry made a second node"
            lists = [at for at, opcode in enumerate(heard) if opcode in _LISTS]
            assert lists[0] == heard.index(_CREATE) + 1, "sent along with the create, and lost with it"
            assert heard[lists[1] - 1] == _SYNC, "it looked for its node without a sync before"
            leader = client.election("one-node").leader()
            assert leader is not None
            assert leader.token == hold.token
            assert hold.release() is True
            assert client.election("one-node").leader() is None


@ALL
def test_hand_overs_under_reconnects_lose_no_wake_up(singles: dict[str, Cluster], kind: str) -> None:
    """Bug 27: tickets come and go while watches are set anew and while nobody is connected: every waiter is woken."""
    cluster, turns = singles[kind], 40 if kind == "zookeeper" else 15
    with FaultProxy(cluster.endpoints[0], kind) as proxy:  # type: ignore[arg-type]  # one of the two kinds
        behind = proxied(cluster, proxy)
        direct = behind.replace(proxy.endpoint, cluster.endpoints[0])
        with tenure.connect(direct, ttl=20) as steady, tenure.connect(behind, ttl=20) as shaken:
            tokens: list[int] = []
            through: list[int] = []
            shaken_times: list[int] = []

            def work(client: tenure.Client) -> None:
                done = 0
                while done < turns or len(shaken_times) < 5:  # fewer would not set the scene
                    with client.lock("a").acquire(timeout=10.0) as hold:
                        tokens.append(hold.token)
                    if client is shaken:
                        through.append(hold.token)
                    done += 1

            done = threading.Event()
            with ThreadPoolExecutor() as pool:
                working = [pool.submit(work, client) for client in (steady, shaken, steady, shaken)]
                shaking = pool.submit(_shake, proxy, done, through, shaken_times)
                try:
                    for future in working:
                        future.result(60.0)
                finally:
                    done.set()
                shaking.result()
        assert len(tokens) >= 4 * turns
        assert tokens == sorted(set(tokens))


def _shake(proxy: FaultProxy, done: threading.Event, through: list[int], times: list[int]) -> None:
    """Break all connections again and again, for a moment each; not before somebody got `through` since the last."""
    seen = 0
    while not done.wait(0.05):
        if len(through) == seen:
            continue
        seen = len(through)
        if len(times) % 2:
            proxy.reset()
        else:
            proxy.refuse()
            done.wait(0.03)
            proxy.heal()
        times.append(len(times))
