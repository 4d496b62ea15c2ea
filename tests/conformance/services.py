"""Services between thin clients and stores, one per store and run, and a look into what they have lent.

Started as a program of its own: `python -m tests.conformance.services` is `tenure serve`, and tells on demand by
which session of ZooKeeper a lease lives, as nobody but that session itself could end it there, and how many syncs it
has sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenure._backends.zookeeper.connection import ZooKeeperSession
from tenure._core.base.limits import VALUE_BYTES_MAX
from tenure._core.runtime import Runtime
from tests.cli.program import PATIENCE_SECONDS, environment
from tests.servers import Cluster

_SYNCS = "syncs"
_AS_THE_LIBRARY = ("--value-bytes", str(VALUE_BYTES_MAX), "--write-rate", "1e9")


class RunningService:
    """A service, and its namespace at the store."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.namespace = f"service-{uuid.uuid4().hex}"
        options = {"tick": 0.2} if kind == "zookeeper" else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.services", "serve", "--listen", "0", *_AS_THE_LIBRARY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment({"TENURE_URL": cluster.url(self.namespace, **options)}),
        )
        self.url = self._line()
        self.endpoint = self.url.removeprefix("http://").rstrip("/")

    def session(self, lease_id: str) -> tuple[int, bytes]:
        """The session behind that lease."""
        number, password = json.loads(self._told(lease_id))
        return number, bytes.fromhex(password)

    def syncs(self) -> int:
        """The number of syncs that it has sent to ZooKeeper."""
        return int(self._told(_SYNCS))

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.terminate()
        assert self.process.wait(PATIENCE_SECONDS) == 0
        self.process.stdin.close()
        self.process.stdout.close()

    def _told(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the service did not start, or has ended"
        return line


@contextmanager
def services(clusters: dict[str, Cluster]) -> Iterator[dict[str, RunningService]]:
    """Services, one on each store."""
    with contextlib.ExitStack() as stack:
        running = {}
        for kind in ("etcd", "zookeeper"):
            running[kind] = RunningService(clusters[kind], kind)
            stack.callback(running[kind].close)
        yield running


def _main() -> int:
    from tenure.cli import main

    lent: list[Any] = []
    right = Runtime.open_lease

    def open_lease(self: Runtime, ttl: float, lock_delay: float) -> Any:
        lent.append(right(self, ttl, lock_delay))
        return lent[-1]

    Runtime.open_lease = open_lease  # type: ignore[method-assign]  # only to know what was lent

    synced: list[str] = []
    right_sync = ZooKeeperSession.sync

    def sync(self: ZooKeeperSession, path: str) -> Any:
        synced.append(path)
        return right_sync(self, path)

    ZooKeeperSession.sync = sync  # type: ignore[method-assign]  # only to count them

    def answer() -> None:
        for line in sys.stdin:
            os.write(1, f"{tell(line.strip())}\n".encode())

    def tell(question: str) -> str:
        if question == _SYNCS:
            return str(len(synced))
        lease = next(lease for lease in lent if lease.id == question)
        number, password = lease._connection._client.client_id
        return json.dumps([number, password.hex()])

    threading.Thread(target=answer, daemon=True).start()
    return main()


if __name__ == "__main__":
    sys.exit(_main())
