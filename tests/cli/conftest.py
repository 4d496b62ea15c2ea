"""Where the command line is tried: a namespace of the test's own, on each store and over each way to it."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

import holdfast
from tests.faults.ways import all_ways
from tests.servers import Cluster

KINDS = ("etcd", "etcd+grpc", "zookeeper")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """A namespace where nobody was before. A test that needs two stores only is marked `stores`."""
    options = {"tick": 0.2} if request.param == "zookeeper" else {}
    return all_ways(singles)[request.param].url(f"cli-{uuid.uuid4().hex}", **options)


@pytest.fixture(autouse=True, scope="session")
def hang_ups_are_heard() -> Iterator[None]:
    """Also where the suite itself was started with nohup: programs would inherit that they ignore SIGHUP."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    """Somebody who holds things there, and keeps a journal."""
    with holdfast.connect(url, ttl=20, owner="worker-1", journal=True) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[holdfast.Client]:
    """Somebody else, without a journal."""
    with holdfast.connect(url, ttl=20, owner="worker-2") as client:
        yield client
