"""Ctrl-C, or a signal handler that raises, in the midst of a request."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import tenure
from tenure._backends.zookeeper.handler import KazooHandler
from tenure._core.runtime import runtime_of
from tenure.testing.servers import Cluster, Provider, ZooKeeperSpec


class Interrupting:
    """A socket that passes everything on; within its next send Ctrl-C is pressed, once."""

    def __init__(self, plug: object) -> None:
        self._plug = plug
        self._pressed = False

    def send(self, data: bytes) -> int:
        """Sent, and interrupted."""
        sent: int = self._plug.send(data)  # type: ignore[attr-defined]  # a socket
        if not self._pressed:
            self._pressed = True
            raise KeyboardInterrupt
        return sent

    def __getattr__(self, name: str) -> object:
        return getattr(self._plug, name)


def test_interrupt_while_a_request_to_zookeeper_is_sent_is_raised_and_costs_no_lease(
    singles: dict[str, Cluster],
) -> None:
    """kazoo takes whatever is raised while it wakes its thread for the end of the session; the interrupt was gone."""
    with tenure.connect(singles["zookeeper"].url("interrupts"), ttl=5, timeout=2) as client:
        kept = client.lock("kept").acquire(timeout=5)
        lease = next(iter(runtime_of(client)._leases.values()))
        kazoo = lease._connection._client  # type: ignore[attr-defined]  # ZooKeeper's
        kazoo._connection._write_sock = Interrupting(kazoo._connection._write_sock)
        with pytest.raises(KeyboardInterrupt):
            client.lock("other").acquire(timeout=5)
        kept.check()
        client.lock("other").acquire(timeout=5).release()  # what the interrupted one left behind was withdrawn


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


@pytest.mark.parametrize("started", [0, 1])  # it has two
@pytest.mark.parametrize(
    ("error", "told"), [(Interrupted, Interrupted), (RuntimeError, tenure.StoreUnavailable)], ids=["ctrl-c", "thread"]
)
def test_connecting_to_zookeeper_that_was_broken_off_half_way_is_begun_again(
    singles: dict[str, Cluster],
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    told: type[BaseException],
    started: int,
) -> None:
    """Interrupted, or without a thread, after so many of kazoo's threads: that costs one call, not the client."""
    spawn, spawned = KazooHandler.spawn, list[object]()

    def break_off(handler: KazooHandler, *given: object) -> object:
        spawned.append(given)
        if len(spawned) == started + 1:
            raise error("told by the test")
        return spawn(handler, *given)

    monkeypatch.setattr(KazooHandler, "spawn", break_off)
    with tenure.connect(singles["zookeeper"].url("half-way"), ttl=5, timeout=2) as client:
        with pytest.raises(told):
            client.lock("a").acquire(timeout=5)
        client.lock("a").acquire(timeout=5).release()


def test_close_that_is_interrupted_at_a_silent_zookeeper_ends_the_session_all_the_same(provider: Provider) -> None:
    """A session that nobody ends is kept alive by kazoo for the life of the process, and its ticket blocks the line."""
    cluster = provider.zookeeper(ZooKeeperSpec())
    try:
        client = tenure.connect(cluster.url("closed"), ttl=4, timeout=5)
        with tenure.connect(cluster.url("closed"), ttl=4, timeout=5) as other:
            other.lock("x").acquire().release()
            client.lock("x").acquire()
            cluster.members[0].pause()
            ctrl_c = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
            ctrl_c.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    client.close()
            finally:
                ctrl_c.join()
                cluster.members[0].resume()
            client.close()
            other.lock("x").acquire(timeout=20).release()
    finally:
        cluster.close()


def test_many_calls_while_zookeeper_is_away_come_back_in_time_and_so_does_close(provider: Provider) -> None:
    """kazoo wakes its thread through a pipe that nobody empties then: whoever wrote the 280th byte waited for ever."""
    cluster = provider.zookeeper(ZooKeeperSpec())
    try:
        client = tenure.connect(cluster.url("away"), ttl=10, timeout=2)
        client.lock("warm").acquire().release()
        cluster.members[0].kill()
        with ThreadPoolExecutor(40) as pool:
            began = time.monotonic()
            outcomes = [pool.submit(_refused, client, f"n{number}") for number in range(400)]
            assert all(outcome.result(60) for outcome in outcomes)
            assert time.monotonic() - began < 40  # ten rounds, of which each may take a second
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < 8
    finally:
        cluster.close()


def _refused(client: tenure.Client, name: str) -> bool:
    began = time.monotonic()
    try:
        client.lock(name).acquire(timeout=0.5)
    except tenure.StoreError:
        return time.monotonic() - began < 4
    return False
