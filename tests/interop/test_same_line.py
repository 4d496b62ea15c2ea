"""Tests in one line with other languages: the real `etcdctl lock`, `etcdctl elect` and kazoo's Lock."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

import tenure
from tests.conformance.store_worlds import eventually
from tests.servers import Cluster, etcdctl, etcdctl_popen


@pytest.fixture
def etcd(singles: dict[str, Cluster]) -> Iterator[tuple[Cluster, tenure.Client, str]]:
    """A cluster, our client of it, and the client's namespace."""
    namespace = f"interop-{time.monotonic_ns():x}"
    with tenure.connect(singles["etcd"].url(namespace), ttl=10) as client:
        yield singles["etcd"], client, namespace


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs to end at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(10)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def line_of(program: subprocess.Popen[str]) -> str:
    """The next line the program prints."""
    assert program.stdout is not None
    return program.stdout.readline()


def entered(client: tenure.Client, count: int) -> bool:
    events = client.statistics()["events"]
    assert isinstance(events, dict)
    return bool(events.get("entered", 0) >= count)


def test_etcdctl_lock_excludes_us(etcd: Any, programs: list[Any]) -> None:
    """While etcdctl holds the name our try fails and our acquire waits; when it ends we hold, with a higher token."""
    cluster, client, namespace = etcd
    program = etcdctl_popen(cluster, "lock", f"{namespace}/name")
    programs.append(program)
    key = line_of(program).strip()
    assert key.startswith(f"{namespace}/name/")
    assert client.lock("name").try_acquire() is None
    leader = client.election("name").leader()
    assert leader is not None
    assert leader.owner is None
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("name").acquire, 20.0)
        time.sleep(0.3)
        assert not waiting.done()
        program.send_signal(signal.SIGTERM)
        hold = waiting.result()
    assert hold.token > leader.token
    assert hold.release() is True


def test_we_exclude_etcdctl_lock(etcd: Any, programs: list[Any]) -> None:
    """etcdctl waits behind our ticket, our later ticket waits behind etcdctl's: one line, in order."""
    cluster, client, namespace = etcd
    hold = client.lock("name").acquire()
    program = etcdctl_popen(cluster, "lock", f"{namespace}/name")
    programs.append(program)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(line_of(program)))
    reader.start()
    assert eventually(
        lambda: etcdctl(cluster, "get", "--prefix", "--keys-only", f"{namespace}/name/").stdout.count(namespace) == 2
    )
    with ThreadPoolExecutor() as pool:
        behind = pool.submit(client.lock("name").acquire, 30.0)
        assert eventually(lambda: entered(client, 2))
        time.sleep(0.3)
        assert got == []
        hold.release()
        reader.join(10)
        assert got
        assert got[0].startswith(namespace)
        assert not behind.done()
        program.send_signal(signal.SIGTERM)
        assert behind.result().release() is True


def test_etcdctl_elect_and_our_election_are_one(etcd: Any, programs: list[Any]) -> None:
    """etcdctl's leader is ours to read and to wait for; its listener hears of our leader."""
    cluster, client, namespace = etcd
    theirs = etcdctl_popen(cluster, "elect", f"{namespace}/e", "their-proposal")
    programs.append(theirs)
    line_of(theirs)
    leader = client.election("e").leader()
    assert leader is not None
    assert leader.value == "their-proposal"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.election("e", value="ours").campaign().acquire, 20.0)
        assert eventually(lambda: entered(client, 1))
        assert not waiting.done()
        theirs.send_signal(signal.SIGTERM)
        with waiting.result() as hold:
            listening = etcdctl_popen(cluster, "elect", "-l", f"{namespace}/e")
            programs.append(listening)
            assert hold.lease_id in line_of(listening)
            said = line_of(listening)
            assert hold.id in said
            assert "ours" in said


@pytest.fixture
def zookeeper(singles: dict[str, Cluster]) -> Iterator[tuple[Any, tenure.Client, str]]:
    """kazoo's client, ours, and the namespace."""
    cluster = singles["zookeeper"]
    namespace = f"interop-{time.monotonic_ns():x}"
    kazoo = KazooClient(cluster.endpoints[0], timeout=10.0)
    kazoo.start()
    with tenure.connect(cluster.url(namespace, tick=0.2), ttl=10) as client:
        yield kazoo, client, namespace
    kazoo.stop()
    kazoo.close()


def test_kazoo_lock_excludes_us_and_we_exclude_it(zookeeper: Any) -> None:
    """kazoo's Lock with the extra pattern stands in our line: whoever came first holds, the other waits."""
    kazoo, client, namespace = zookeeper
    theirs = kazoo.Lock(f"/{namespace}/name", "them", extra_lock_patterns=["-lock-"])
    with client.lock("name"), pytest.raises(LockTimeout):
        theirs.acquire(timeout=0.3)
    assert theirs.acquire(timeout=5)
    assert client.lock("name").try_acquire() is None
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("name").acquire, 20.0)
        time.sleep(0.3)
        assert not waiting.done()
        theirs.release()
        hold = waiting.result()
        again = pool.submit(theirs.acquire, True, 20.0)
        time.sleep(0.3)
        assert not again.done()
        hold.release()
        assert again.result() is True
    theirs.release()


def test_kazoo_lock_waits_for_our_readers(zookeeper: Any) -> None:
    """Shared tickets carry their kind in the name and still end as the pattern wants: they exclude kazoo's Lock."""
    kazoo, client, namespace = zookeeper
    theirs = kazoo.Lock(f"/{namespace}/name", "them", extra_lock_patterns=["-lock-"])
    with client.rwlock("name").read(), pytest.raises(LockTimeout):
        theirs.acquire(timeout=0.3)
    with client.semaphore("name", limit=2), pytest.raises(LockTimeout):
        theirs.acquire(timeout=0.3)
