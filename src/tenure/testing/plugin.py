"""Fixtures for pytest, there as soon as tenure is installed (`-p no:tenure` turns them off).

    tenure_world       a World: memory, virtual time, faults; a ticket or lease that is left behind fails the test
    tenure_history     a recorder; what it has at the end of the test is judged, and a broken law fails the test
    tenure_etcd        the URL of a real etcd, with a namespace of the test's own
    tenure_zookeeper   the URL of a real ZooKeeper, likewise

A real server is started when the first test asks for it and stopped at the end of the session. One that is not
installed fails the tests that ask for it, with the sentence on how to get it; none is skipped. Whoever uses none of
these pays for the import of `tenure` alone: no store's client, no server's tool.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from tenure.testing.history.history import MemoryRecorder
    from tenure.testing.servers import NativeProvider, ServersMissing
    from tenure.testing.world.world import World


@pytest.fixture
def tenure_world() -> Iterator[World]:
    """A tenure.testing.World: clients of a store in memory, virtual time, faults on demand.

    The test fails if it leaves a ticket in a line, or if a lease outlives its clients: set `tolerates_left` where
    it is meant to.
    """
    from tenure.testing.world.world import World

    world = World()
    try:
        yield world
    finally:
        standing = world.standing()
        world.close()
    left = [*standing, *(what for what in world.left() if what not in standing)]
    if left and not world.tolerates_left:
        pytest.fail(f"left behind: {', '.join(left)}. Release it, or set tenure_world.tolerates_left", pytrace=False)


@pytest.fixture
def tenure_history(request: pytest.FixtureRequest) -> Iterator[MemoryRecorder]:
    """A recorder for `tenure.testing.history.record(client, tenure_history, name=…)`.

    Its history is judged at the end of the test, by every property it has something to say about. On the clock of
    `tenure_world` where the test has one.
    """
    from tenure.testing.history.history import MemoryRecorder

    if "tenure_world" in request.fixturenames:
        recorder = MemoryRecorder(request.getfixturevalue("tenure_world").clock.now)
    else:
        recorder = MemoryRecorder()
    yield recorder
    _judge(recorder)


def _judge(recorder: MemoryRecorder) -> None:
    from tenure.testing.history.report import check_history
    from tenure.testing.history.verdicts import Outcome

    history = recorder.history()
    if not len(history):
        pytest.fail("nothing was recorded: use recorded(client, tenure_history, name=…)", pytrace=False)
    report = check_history(history)
    if report.outcome is Outcome.FAILED:
        pytest.fail(str(report), pytrace=False)


@pytest.fixture(scope="session")
def _tenure_servers() -> Iterator[NativeProvider]:
    """Starts servers; stops them all at the end of the session."""
    from tenure.testing.servers import NativeProvider

    provider = NativeProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def _tenure_etcd_server(_tenure_servers: NativeProvider) -> str:
    from tenure.testing.servers import EtcdSpec, ServersMissing

    try:
        return _tenure_servers.etcd(EtcdSpec()).endpoints[0]
    except ServersMissing as missing:
        _fail(missing)


@pytest.fixture(scope="session")
def _tenure_zookeeper_server(_tenure_servers: NativeProvider) -> str:
    from tenure.testing.servers import ServersMissing, ZooKeeperSpec

    spec = ZooKeeperSpec()
    try:
        return f"{_tenure_servers.zookeeper(spec).endpoints[0]}?tick={spec.tick_ms / 1000}"
    except ServersMissing as missing:
        _fail(missing)


@pytest.fixture
def tenure_etcd(_tenure_etcd_server: str) -> str:
    """The URL of a real etcd of this session, with a namespace nobody else uses."""
    return _url("etcd", _tenure_etcd_server)


@pytest.fixture
def tenure_zookeeper(_tenure_zookeeper_server: str) -> str:
    """The URL of a real ZooKeeper of this session, with a namespace nobody else uses."""
    return _url("zookeeper", _tenure_zookeeper_server)


def _url(scheme: str, server: str) -> str:
    endpoint, mark, options = server.partition("?")
    return f"{scheme}://{endpoint}/test-{secrets.token_hex(6)}{mark}{options}"


def _fail(missing: ServersMissing) -> NoReturn:
    """Fail in the words of the server's own starter, without a traceback through it."""
    pytest.fail(str(missing), pytrace=False)
