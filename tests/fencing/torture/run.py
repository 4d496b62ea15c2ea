"""Run of the torture: target, workers, nemesis, and then what is there."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure.fencing._fence import line_name
from tests.processes import WorkerProcess, python_module, tail_of
from tests.servers import Cluster

from . import check, stores
from .check import Contents, Deed, Figures
from .events import Event
from .nemesis import Nemesis
from .resources import Target
from .resources.file import FileTarget
from .resources.http import HTTPTarget
from .resources.redis import RedisTarget
from .resources.sql import SQLTarget
from .resources.store import StoreTarget
from .worker import LOCK, Plan
from .workers import FencedWorkers

WORKERS: Final = 8
TTL: Final = 1.0
SECONDS: Final = float(os.environ.get("TENURE_TORTURE_SECONDS", "8"))
CONTROL_SECONDS: Final = 6.0
STORE_OF: Final = {
    "postgresql": "etcd",
    "mariadb": "zookeeper",
    "sqlite": "etcd",
    "redis": "zookeeper",
    "file": "etcd",
    "http": "zookeeper",
    "etcd": "etcd",
    "zookeeper": "zookeeper",
}
_EMPTY_SECONDS: Final = 10.0
_END_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The settings of a run, and its place."""

    kind: str
    guarded: bool
    seconds: float
    cluster: Cluster
    directory: Path
    fixture: Callable[[str], Any]
    """pytest's way to ask for a server. Any: of several types."""
    seed: str = field(default_factory=lambda: os.environ.get("TENURE_TORTURE_SEED", secrets.token_hex(4)))
    namespace: str = field(default_factory=lambda: f"torture-{secrets.token_hex(4)}")

    def __str__(self) -> str:
        what = "guarded" if self.guarded else "control"
        return f"{self.kind}, {what}, {self.seconds:g} s, TENURE_TORTURE_SEED={self.seed}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run."""

    violations: list[str]
    figures: Figures


def torture(trial: Trial) -> Verdict:
    """Run it. Raises ProcessFailed, and AssertionError where something is left in the store."""
    print(trial)
    try:
        events, contents, deeds = _run(trial)
    except BaseException:
        _show_errors(trial.directory)
        raise
    verdict = Verdict(check.violations(events, contents), check.figures(events, contents, deeds))
    print(verdict.figures)
    if trial.guarded and verdict.violations:
        _show_errors(trial.directory)
    return verdict


def _run(trial: Trial) -> tuple[list[Event], Contents, list[Deed]]:
    with ExitStack() as undo:
        store = undo.enter_context(closing(stores.opened(trial.cluster)))
        target = undo.enter_context(_target(trial, store))
        url, directory = trial.cluster.url(trial.namespace), str(trial.directory)
        plan = Plan("", trial.kind, target.address, url, TTL, trial.guarded, trial.seed, directory)
        workers = undo.enter_context(closing(FencedWorkers(plan, WORKERS)))
        workers.wait_ready()
        nemesis = Nemesis(workers, store, ttl=TTL, seed=trial.seed)
        nemesis.rage(trial.seconds)
        workers.end()
        events, contents = workers.events(), target.contents()
        _wait_empty(store, trial.namespace)
    return events, contents, nemesis.deeds


def _show_errors(directory: Path) -> None:
    """Print what the children complained about; pytest shows it where the test fails."""
    for path in sorted(directory.glob("*.stderr")):
        if told := tail_of(path):
            print(f"--- {path.name}\n{told}")


def _wait_empty(store: stores.Store, namespace: str) -> None:
    """Wait until nothing of the lock is left.

    The tickets of the killed go by their TTL, on ZooKeeper nodes after them.
    """
    give_up = time.monotonic() + _EMPTY_SECONDS
    while left := store.under(namespace):
        if time.monotonic() > give_up:
            raise AssertionError(f"left in the store: {left}")
        time.sleep(0.05)


@contextmanager
def _target(trial: Trial, store: stores.Store) -> Iterator[Target]:
    """The resource of this kind, empty."""
    with ExitStack() as undo:
        target: Target
        match trial.kind:
            case "postgresql" | "mariadb":
                target = SQLTarget(trial.fixture(trial.kind).url())
            case "sqlite":
                target = SQLTarget(f"sqlite:///{trial.directory / 'torture.db'}")
            case "redis":
                target = RedisTarget(trial.fixture("redis_server").url())
            case "file":
                target = FileTarget(str(trial.directory / "torture.json"))
            case "http":
                line = line_name(trial.namespace, LOCK) if trial.guarded else ""
                target = HTTPTarget(undo.enter_context(_served(line, trial.directory)))
            case _:
                target = StoreTarget(trial.cluster.url(f"{trial.namespace}-data"), store)
        undo.callback(target.close)
        yield target


@contextmanager
def _served(line: str, directory: Path) -> Iterator[str]:
    """The counter's address, in a child process. It listens before it runs: nobody has to wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        command = python_module("tests.fencing.torture.counter_server", str(number), line)
        log = directory / "counter_server.stderr"
        with WorkerProcess(command, log=log, descriptors=[number], speaks=False) as server:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.signal(signal.SIGTERM)
            server.wait(_END_SECONDS)
