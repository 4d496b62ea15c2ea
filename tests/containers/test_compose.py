"""deploy/compose/up, as its reader runs it: one command, and the page's curl lines work, with a member less, too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.testing.servers.processes import free_port, give_back

ROOT = Path(__file__).parent.parent.parent
UP = ROOT / "deploy" / "compose" / "up"
README = (ROOT / "deploy" / "README.md").read_text()
CURLS = re.findall(r"^curl .*?(?<!\\)$", README, flags=re.DOTALL | re.MULTILINE)
UP_SECONDS = 400


@dataclass
class Composed:
    """The services that deploy/compose/up started."""

    store: str
    url: str
    environment: dict[str, str]

    def compose(self, *words: str) -> str:
        """docker compose with its project and file."""
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        command = ["docker", "compose"] if plugin else ["docker-compose"]
        return subprocess.run(
            [*command, "--file", ROOT / "deploy" / "compose" / f"{self.store}.yaml", *words],
            env=self.environment, capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip

    def curl(self, line: str, **words: str) -> Any:
        """Run a line of the page here and return its output. Any: JSON."""
        for word, meant in {"http://127.0.0.1:8700": self.url, **words}.items():
            line = line.replace(word, meant)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)


@pytest.fixture(params=["etcd", "zookeeper"])
def composed(request: pytest.FixtureRequest) -> Iterator[Composed]:
    """Up, and down again with all that it made."""
    port = free_port()
    project = f"tenure-test-{os.getpid()}-{time.monotonic_ns():x}"
    environment = os.environ | {"TENURE_PORT": str(port), "COMPOSE_PROJECT_NAME": project}
    for image in ("TENURE", "TENURE_ETCD", "TENURE_ZOOKEEPER"):
        environment[f"{image}_IMAGE"] = f"{image.lower().replace('_', '-')}:local"
    made = Composed(request.param, f"http://127.0.0.1:{port}", environment)
    try:
        up = subprocess.run(
            [UP, made.store], env=environment, capture_output=True, text=True, timeout=UP_SECONDS, check=False
        )
        assert up.returncode == 0, up.stderr
        assert up.stdout == f"{made.url}\n"
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5")
        give_back(port)


@pytest.mark.timeout(UP_SECONDS + 200)
def test_service_comes_up_and_answers_and_goes_on_without_a_member(composed: Composed) -> None:
    """Acquire, list and release by the page's own lines; and once more when a member has been killed."""
    acquire, listed, release = CURLS
    kept = composed.curl(acquire)
    assert kept["acquired"] is True
    assert composed.curl(acquire.replace("worker-1", "worker-2"))["acquired"] is False
    assert "billing-close" in json.dumps(composed.curl(listed))
    assert composed.curl(release, LEASE_ID=kept["leaseId"])["released"] is True

    composed.compose("kill", f"{composed.store}-1")
    give_up = time.monotonic() + 60
    while not (again := composed.curl(acquire)).get("acquired"):  # until the service has found another member
        assert time.monotonic() < give_up, again
    assert int(again["fencingToken"]) > int(kept["fencingToken"])
