"""The image of tenure: programs under a hold, each in a container that is cut off, stopped and removed like a pod."""

from __future__ import annotations

import datetime
import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tenure.testing.conformance import eventually
from tests.servers import Cluster
from tests.servers.containers import container_of
from tests.servers.networks import make_network

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.networks import Network

IMAGE = "tenure:local"
LOST = 76
TTL = 4
SECONDS = 40.0
PORTS = {"etcd": 2379, "zookeeper": 2381}
_numbers = itertools.count(1)


class Crew:
    """Containers with tenure in them, in a network with one server."""

    def __init__(self, cluster: Cluster, undo: ExitStack) -> None:
        self._undo = undo
        self._server = container_of(cluster.members[0])
        self.network: Network = make_network(undo)._unwrap_network
        self.network.connect(self._server, aliases=["store"])
        undo.callback(self.network.disconnect, self._server)
        query = "?tick=0.2" if cluster.kind == "zookeeper" else ""
        namespace = f"image-{next(_numbers)}-{time.monotonic_ns():x}"
        self.url = f"{cluster.kind}://store:{PORTS[cluster.kind]}/{namespace}{query}"

    def start(self, *command: str) -> Container:
        """`tenure COMMAND` in a container that may do nothing else."""
        options: dict[str, Any] = {
            "environment": {"TENURE_URL": self.url},
            "network": self.network.name,
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "labels": {"org.testcontainers": "true"},
        }
        container = self._server.client.containers.run(IMAGE, list(command), detach=True, **options)
        self._undo.callback(container.remove, force=True)
        return container

    def cut(self, container: Container) -> None:
        """Take its network away, without a word to it."""
        self.network.disconnect(container)


@pytest.fixture(params=["etcd", "zookeeper"])
def crew(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> Iterator[Crew]:
    """A network of the test's own, with a store in it."""
    with ExitStack() as undo:
        yield Crew(singles[request.param], undo)


def said(container: Container, word: str) -> list[float]:
    """The times at which docker heard the container say it, in seconds of this machine's clock."""
    lines = [line.partition(" ") for line in container.logs(timestamps=True).decode().splitlines()]
    return [_seconds(at) for at, _, text in lines if word in text]


def wait_until_said(container: Container, word: str, seconds: float = SECONDS) -> None:
    """Fails with all that the container said."""
    assert eventually(lambda: bool(said(container, word)), seconds), container.logs().decode()


def _seconds(stamp: str) -> float:
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def test_program_whose_network_is_taken_is_dead_before_its_successor_begins(crew: Crew) -> None:
    """`tenure run` in a container without its network: its program falls silent, and then the next one starts."""
    program = ["--", "sh", "-c", "while :; do echo beat; sleep 0.1; done"]
    first = crew.start("run", "job", f"--ttl={TTL}", *program)
    wait_until_said(first, "beat")
    second = crew.start("run", "job", f"--ttl={TTL}", *program)
    crew.cut(first)
    wait_until_said(second, "beat")
    assert first.wait(timeout=SECONDS)["StatusCode"] == LOST
    assert said(first, "beat")[-1] < said(second, "beat")[0]


def test_program_that_is_stopped_hands_over_at_once(crew: Crew) -> None:
    """`docker stop` (SIGTERM, as from the kubelet) releases: the next one needs not wait for a TTL of minutes."""
    program = ["--", "sh", "-c", "echo began; exec sleep 600"]
    first = crew.start("run", "job", "--ttl=40", *program)
    wait_until_said(first, "began")
    second = crew.start("run", "job", "--ttl=40", *program)
    first.stop(timeout=20)
    first.reload()
    assert first.attrs["State"]["ExitCode"] == 128 + signal.SIGTERM, "it did not hear, and was killed"
    wait_until_said(second, "began", 30.0)


def test_image_runs_as_nobody_and_brings_no_tools(singles: dict[str, Cluster]) -> None:
    """The image has no root, nothing to build with, nothing writable."""
    docker = container_of(singles["etcd"].members[0]).client
    look = "id -u; command -v pip gcc apt git; python3 -c 'import pip' 2>&1 | tail -1; touch /opt/tenure/x 2>&1; :"
    told = docker.containers.run(IMAGE, ["-c", look], entrypoint="sh", remove=True).decode().splitlines()
    assert told[0] == "65532"
    assert "No module named 'pip'" in told[1]
    assert "Permission denied" in told[2]
    assert len(told) == 3
