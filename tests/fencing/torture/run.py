"""One run: ground, crew, nemesis, and then what is there."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.fence import line_name
from tests.servers import Cluster

from . import check, stores
from .check import Contents, Deed, Figures
from .crew import Crew, launch, tail_of
from .events import Event
from .nemesis import Nemesis
from .resources import Ground
from .resources.file import FileGround
from .resources.http import HTTPGround
from .resources.redis import RedisGround
from .resources.sql import SQLGround
from .resources.store import StoreGround
from .worker import LOCK, Plan

WORKERS: Final = 8
TTL: Final = 1.0
SECONDS: Final = float(os.environ.get("HOLDFAST_TORTURE_SECONDS", "8"))
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
    """What is to be run, and where."""

    kind: str
    guarded: bool
    seconds: float
    cluster: Cluster
    directory: Path
    fixture: Callable[[str], Any]
    """pytest's way to ask for a server. Any: of several types."""
    seed: str = field(default_factory=lambda: os.environ.get("HOLDFAST_TORTURE_SEED", secrets.token_hex(4)))
    namespace: str = field(default_factory=lambda: f"torture-{secrets.token_hex(4)}")

    def __str__(self) -> str:
        what = "guarded" if self.guarded else "control"
        return f"{self.kind}, {what}, {self.seconds:g} s, HOLDFAST_TORTURE_SEED={self.seed}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it."""

    violations: list[str]
    figures: Figures


def torture(trial: Trial) -> Verdict:
    """Run it. Raises Unexpected, and AssertionError where something is left in the store."""
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
        ground = undo.enter_context(_ground(trial, store))
        url, directory = trial.cluster.url(trial.namespace), str(trial.directory)
        plan = Plan("", trial.kind, ground.address, url, TTL, trial.guarded, trial.seed, directory)
        crew = undo.enter_context(closing(Crew(plan, WORKERS)))
        crew.wait_ready()
        nemesis = Nemesis(crew, store, ttl=TTL, seed=trial.seed)
        nemesis.rage(trial.seconds)
        crew.end()
        events, contents = crew.events(), ground.contents()
        _wait_empty(store, trial.namespace)
    return events, contents, nemesis.deeds


def _show_errors(directory: Path) -> None:
    """What the children complained about; pytest shows it where the test fails."""
    for path in sorted(directory.glob("*.stderr")):
        if told := tail_of(path):
            print(f"--- {path.name}\n{told}")


def _wait_empty(store: stores.Store, namespace: str) -> None:
    """Nothing of the lock is left. The tickets of the killed go by their TTL, on ZooKeeper nodes after them."""
    give_up = time.monotonic() + _EMPTY_SECONDS
    while left := store.under(namespace):
        if time.monotonic() > give_up:
            raise AssertionError(f"left in the store: {left}")
        time.sleep(0.05)


@contextmanager
def _ground(trial: Trial, store: stores.Store) -> Iterator[Ground]:
    """The resource of this kind, empty."""
    with ExitStack() as undo:
        ground: Ground
        match trial.kind:
            case "postgresql" | "mariadb":
                ground = SQLGround(trial.fixture(trial.kind).url())
            case "sqlite":
                ground = SQLGround(f"sqlite:///{trial.directory / 'torture.db'}")
            case "redis":
                ground = RedisGround(trial.fixture("redis_server").url())
            case "file":
                ground = FileGround(str(trial.directory / "torture.json"))
            case "http":
                line = line_name(trial.namespace, LOCK) if trial.guarded else ""
                ground = HTTPGround(undo.enter_context(_served(line, trial.directory)))
            case _:
                ground = StoreGround(trial.cluster.url(f"{trial.namespace}-data"), store)
        undo.callback(ground.close)
        yield ground


@contextmanager
def _served(line: str, directory: Path) -> Iterator[str]:
    """The counter's address, in a child process. It listens before it runs: nobody has to wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        errors = directory / "counter_server.stderr"
        server = launch("tests.fencing.torture.counter_server", str(number), line, errors=errors, descriptors=[number])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.terminate()
            server.wait(_END_SECONDS)
