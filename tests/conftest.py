"""What every test may ask for: real servers, shared by the run, and a check that nothing is left behind.

`--servers=native|containers|external|auto` says who runs etcd and ZooKeeper; the databases are always processes of the
run's own. A server that is missing fails the run with a sentence on how to get it; no test is ever skipped for want of
one.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import (
    PROVIDER_NAMES,
    Cluster,
    DatabaseServer,
    EtcdSpec,
    MariaDB,
    PostgreSQL,
    Provider,
    Redis,
    ZooKeeperSpec,
    choose,
    start_database,
    start_together,
)

pytest_plugins = ["pytester", "tests.distribution"]

_THREADS_MAY_STAY = ("tenure-timers", "servers-spawner")  # one per process each; the first ends when no timer is left
_THREADS_GO_WITHIN = 8.0


# How long one example takes says what else the machine does: no time is part of any property.
settings.register_profile(
    "untimed",
    settings(),
    deadline=None,
    suppress_health_check={*settings().suppress_health_check, HealthCheck.too_slow},
)
settings.load_profile("untimed")

# A run that was started in the background ignores Ctrl-C, and would hand that on to the programs it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--servers", choices=PROVIDER_NAMES, default="native", help="who runs etcd and ZooKeeper")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """tests/containers needs Docker, which a machine may be without: it is run by itself, by tests/containers/run."""
    if collection_path == Path(__file__).parent / "containers":
        return bool(config.getoption("--servers") != "containers") or None
    return None


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """Makes clusters; closes them all at the end of the run."""
    chosen = choose(request.config.getoption("--servers"))
    yield chosen
    chosen.close()


@pytest.fixture(scope="session")
def singles(provider: Provider) -> dict[str, Cluster]:
    """One etcd and one ZooKeeper, started together and shared by the run. Nobody may break them."""
    etcd, zookeeper = start_together(provider, EtcdSpec(), ZooKeeperSpec())
    return {"etcd": etcd, "zookeeper": zookeeper}


@pytest.fixture(scope="session")
def triples(provider: Provider) -> dict[str, Cluster]:
    """Three members of each, shared by the run. Who breaks one mends it."""
    etcd, zookeeper = start_together(provider, EtcdSpec(size=3), ZooKeeperSpec(size=3))
    return {"etcd": etcd, "zookeeper": zookeeper}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    """A PostgreSQL shared by the run, with whatever tables other tests made. Who breaks it mends it."""
    with closing(start_database(PostgreSQL())) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A MariaDB shared by the run, with whatever tables other tests made. Who breaks it mends it."""
    with closing(start_database(MariaDB())) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[DatabaseServer]:
    """A Redis shared by the run, with whatever keys other tests left. Who breaks it mends it."""
    with closing(start_database(Redis())) as server:
        yield server


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Every thread a test started ends with it."""
    before = set(threading.enumerate())
    yield
    give_up = time.monotonic() + _THREADS_GO_WITHIN
    while left := _ours(set(threading.enumerate()) - before):
        if time.monotonic() > give_up:
            pytest.fail(f"threads left behind: {[thread.name for thread in left]}")
        left[0].join(0.05)


def _ours(threads: set[threading.Thread]) -> list[threading.Thread]:
    return [t for t in threads if t.is_alive() and not t.name.startswith(_THREADS_MAY_STAY)]
