"""Fixtures of the command line's tests: a namespace of the test's own, on each store and over each way to it."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

import tenure
from tests.faults.transports import all_transports
from tests.servers import Cluster

KINDS = ("etcd", "etcd+grpc", "zookeeper")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before. A test that needs two stores only is marked `stores`."""
    options = {"tick": 0.2} if request.param == "zookeeper" else {}
    return all_transports(singles)[request.param].url(f"cli-{uuid.uuid4().hex}", **options)


@pytest.fixture(autouse=True, scope="session")
def hang_ups_are_heard() -> Iterator[None]:
    """Hear SIGHUP where the suite itself was started with nohup, too: programs would inherit that they ignore it."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def client(url: str) -> Iterator[tenure.Client]:
    """A client that holds things there, and keeps a journal."""
    with tenure.connect(url, ttl=20, owner="worker-1", journal=True) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[tenure.Client]:
    """Another client, without a journal."""
    with tenure.connect(url, ttl=20, owner="worker-2") as client:
        yield client
