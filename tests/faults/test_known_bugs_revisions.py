"""Known bugs about etcd's revisions: which of them is the token, and what it means when they go back.

The numbers are those of tests/README.md.
"""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import StoreWentBack
from tenure._core.runtime import runtime_of
from tenure._transport.session import ConnectionPool
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import proxied, url
from tests.faults.transports import ETCD, EtcdKind, enters, over
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, etcdctl


@ETCD
def test_etcd_token_is_the_create_revision_however_it_was_come_by(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """Bug 31: after a wait, after a lost answer, after an amendment, while others write: of no later revision."""
    cluster, stop = singles[kind], threading.Event()
    with FaultProxy(cluster.endpoints[0], kind) as proxy, ThreadPoolExecutor() as pool:
        with tenure.connect(proxied(cluster, proxy), ttl=20) as client:
            space = runtime_of(client).options.namespace
            others = pool.submit(_write_on, cluster, stop)
            try:
                first = client.lock("a").acquire()
                waiting = pool.submit(client.lock("a").acquire, 20.0)
                assert eventually(lambda: _created(cluster, f"{space}/a/") != [first.token])
                first.release()
                with waiting.result() as waited:
                    assert _created(cluster, f"{space}/a/") == [waited.token]
                lost = proxy.lose_answer(enters)
                with client.lock("b").acquire(timeout=10.0) as retried:
                    assert lost.is_set()
                    assert _created(cluster, f"{space}/b/") == [retried.token]
                with client.election("c", value="v").campaign() as leading:
                    leading.amend("w")
                    leader = client.election("c").leader()
                    assert leader is not None
                    assert [leader.token] == [leading.token] == _created(cluster, f"{space}/c/")
            finally:
                stop.set()
            assert others.result() >= 10, "hardly a write: the scene was not set"


def _write_on(cluster: Cluster, stop: threading.Event) -> int:
    """Other locks are taken and released; how often."""
    times = 0
    with tenure.connect(url(cluster), ttl=20) as client:
        while not stop.is_set():
            client.lock("noise").acquire().release()
            times += 1
    return times


def _created(cluster: Cluster, prefix: str) -> list[int]:
    """The revisions in which the keys were created, as etcd says."""
    told = json.loads(etcdctl(cluster, "get", "--prefix", prefix, "-w", "json").stdout)
    return [kv["create_revision"] for kv in told.get("kvs", [])]


@ETCD
def test_etcd_revision_that_went_back_stops_the_client(provider: Provider, tmp_path: Path, kind: EtcdKind) -> None:
    """Bug 44 (etcd #17780): the same cluster, counting again what it has counted: this client gets no token any more.

    A crash in a compaction does it rarely; here the server gets its data of a moment ago.
    """
    cluster = over(provider.etcd(EtcdSpec()), kind)
    member = cluster.members[0]
    data: Path = member._machine.directory / "data"  # type: ignore[attr-defined]  # a process, here
    try:
        with tenure.connect(cluster.url("back"), ttl=30) as client:
            client.lock("a").acquire().release()
            member.kill()
            shutil.copytree(data, tmp_path / "past")
            member.start()
            for _ in range(30):
                client.lock("a").acquire(timeout=10.0).release()
            member.kill()
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "past", data)
            member.start()
            with pytest.raises(StoreWentBack, match="went back to revision"):
                client.lock("a").acquire(timeout=10.0)
            with pytest.raises(StoreWentBack):
                client.lock("other").try_acquire()
    finally:
        cluster.close()


@ETCD
def test_etcd_answer_from_the_past_is_not_believed(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, kind: EtcdKind
) -> None:
    """Bug 46 (etcd #20418): a member that stood still answers with what it knew before: it is asked again."""
    right, answers, replayed = ConnectionPool.ask, list[Any](), list[Any]()

    def ask(self: ConnectionPool[Any], path: str, body: bytes, until: float) -> Any:  # Any: of either transport
        if replayed:
            return replayed.pop()
        answers.append(right(self, path, body, until))
        return answers[-1]

    with tenure.connect(url(singles[kind]), ttl=20) as client:
        with client.election("e", value="old").campaign():
            monkeypatch.setattr(ConnectionPool, "ask", ask)
            leader = client.election("e").leader()
            assert leader is not None
            assert leader.value == "old"
            past = answers[-1]
        with client.election("e", value="new").campaign():
            replayed.append(past)
            leader = client.election("e").leader()
            assert not replayed, "nothing was answered from the past: the scene was not set"
            assert leader is not None
            assert leader.value == "new"
        replayed.append(past)
        assert client.election("e").leader() is None
