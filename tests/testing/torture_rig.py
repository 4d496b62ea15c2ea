"""A rig of three lines for tests of the torture: servers that somebody else owns, and no network to break."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from tenure._core.lease import Mode
from tenure.testing.history.event import from_line
from tests.servers import Cluster, FaultProxy
from tests.verify.torture.nemeses.kinds import Backends
from tests.verify.torture.parts import FaultLog, Need, Network, Rig, Worker, Workers


class NoNetwork:
    """A network in which nothing can be broken."""

    def cut(self, sender: str, receiver: str) -> None:
        raise NotImplementedError

    def reset(self, one: str, other: str) -> None:
        raise NotImplementedError

    def lose(self, place: str, share: float) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        """Do nothing: the network is whole."""

    def layer(self) -> Network:
        return self


class PlainRig:
    """A rig whose places all reach the cluster directly. Closing it leaves the cluster alone."""

    has: frozenset[Need] = frozenset()
    proxies: Mapping[tuple[str, str], FaultProxy] = {}

    def __init__(self, cluster: Cluster, clients: int = 5, url: str = "") -> None:
        self.cluster = cluster
        self.clients: Sequence[str] = [f"client-{number}" for number in range(clients)]
        self._url = url or cluster.url()

    @property
    def network(self) -> Network:
        return NoNetwork()

    @property
    def truth_url(self) -> str:
        return self.cluster.url()

    def url(self, place: str) -> str:
        return self._url

    def reached(self, place: str) -> Sequence[str]:
        return ()

    def command(self, place: str) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Do nothing: the servers are the test's."""


class StopWriters:
    """Three workers stand still beyond their time to live, each right after it has read what it is going to write."""

    name = "stop"
    backends: Backends = ("etcd", "zookeeper")
    needs: frozenset[Need] = frozenset()

    def __init__(self, directory: Path) -> None:
        self._history = directory / "store.jsonl"

    def strike(self, rig: Rig, workers: Workers, fault_log: FaultLog, random: Random, seconds: float) -> None:
        end = time.monotonic() + seconds
        stopped: list[Worker] = []
        try:
            while time.monotonic() < end:
                worker = self._about_to_write(workers, stopped) if len(stopped) < 3 else None
                if worker is not None:
                    worker.stop()
                    stopped.append(worker)
                    fault_log.count(self.name)
                time.sleep(0.005)
        finally:
            for worker in stopped:
                worker.resume()

    def _about_to_write(self, workers: Workers, stopped: list[Worker]) -> Worker | None:
        """The worker that the fenced store heard last, if it has read, and alone."""
        lines = self._history.read_bytes().splitlines()
        last = from_line(lines[-1]) if lines else None
        if last is None or last.operation != "read" or last.mode is not Mode.EXCLUSIVE:
            return None
        return next((w for w in workers.all if w.name == last.client and w not in stopped), None)
