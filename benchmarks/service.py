"""`tenure serve`: a cycle through it next to the library's own, and what its waiters cost.

What a client in another language would do is done by the leanest one there can be: requests that were written before
the clock starts, over one connection. The service runs in a process of its own; on few processors it takes turns with
client and store.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.contestants import STORE_NAMES
from benchmarks.contestants.ours import label, url
from benchmarks.contestants.place import OPEN_TTL, Door
from benchmarks.findings import Findings, Floor, Section, at_most
from benchmarks.ground import Ground, Servers
from benchmarks.measure import Results, blocking, interleave
from benchmarks.report import milliseconds, table

_STORES: Final = ("etcd", "zookeeper")
_REQUESTS: Final = "service, by requests"
_THIN: Final = "service, by the thin client"
_TTL: Final = 60
_WAITERS: Final = 2000
_MEGABYTES_MAX: Final = 200.0
_SETTLES_SECONDS: Final = 120.0
_RECEIVE_BYTES: Final = 64 * 1024
_PAGE_MEGABYTES: Final = os.sysconf("SC_PAGE_SIZE") / 1e6


def run(ground: Ground) -> Findings:
    """The part `service`."""
    sections: list[Section] = []
    floors: list[Floor] = []
    with ExitStack() as stack:
        servers = ground.servers(stack)
        for store in _STORES:
            results = _cycles(ground, servers, store)
            sections.append(Section(f"Cycle through the service: {STORE_NAMES[store]}", _table(results, store)))
            ours = results.ratio(_REQUESTS, _library(store))
            floors.append(at_most(f"{STORE_NAMES[store]} cycle through the service / library", 1.6, ours))
        waiters = max(ground.effort.waiters // 5, 100)
        ground.tell(f"service: {waiters} waiters")
        megabytes, lines = _waiters(servers, waiters)
        sections.append(Section(f"{waiters:,} requests that wait at the service", lines))
        if waiters == _WAITERS:
            floors.append(at_most(f"memory of the service with {_WAITERS:,} waiters, MB", _MEGABYTES_MAX, megabytes))
    return Findings(sections, floors)


class Served:
    """One service, until the stack is closed."""

    def __init__(self, servers: Servers, store: str, stack: ExitStack) -> None:
        command = [sys.executable, "-m", "tenure.cli", "serve", "--listen", "0", "--no-access-log"]
        environment = {**os.environ, "TENURE_URL": url(store, servers.endpoint(store))}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        stack.callback(self._end)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        host, _, port = self.url.removeprefix("http://").rstrip("/").rpartition(":")
        self.endpoint = host, int(port)

    @property
    def megabytes(self) -> float:
        """Resident."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * _PAGE_MEGABYTES

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/task"))

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


class Lean:
    """One connection to it."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self.sock = socket.create_connection(endpoint, 30.0)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A request."""
        self.sock.sendall(_request(method, path, body))

    def answer(self) -> Any:  # Any: JSON
        """What came back; only 200 is expected."""
        raw = b""
        while True:
            head, found, body = raw.partition(b"\r\n\r\n")
            if found:
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                if len(body) >= length:
                    break
            raw += self.sock.recv(_RECEIVE_BYTES)
        if b" 200 " not in head[:20]:
            raise RuntimeError(f"the service answered {raw[:300]!r}")
        return json.loads(body)


def _request(method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def _library(store: str) -> str:
    return label("lock", scheme=store)


def _cycles(ground: Ground, servers: Servers, store: str) -> Results:
    from benchmarks.contestants import ours

    with ExitStack() as stack:
        served = Served(servers, store, stack)
        lean = Lean(served.endpoint)
        stack.callback(lean.sock.close)
        wish = {"resource": "by-requests", "ownerId": "bench", "ttlSeconds": _TTL}
        acquire = _request("POST", "/v1/locks/acquire", wish)
        before, after = _request("DELETE", "/v1/locks/ID").split(b"ID")

        def by_requests() -> None:
            lean.sock.sendall(acquire)
            lean.sock.sendall(before + lean.answer()["leaseId"].encode() + after)
            lean.answer()

        host, port = served.endpoint
        place = ours.opening(store, "lock")(Door(servers.endpoint(store), "library", OPEN_TTL, stack))()
        thin = ours.opening("http", "lock")(Door(f"{host}:{port}", "thin", _TTL, stack))()

        def by_library() -> None:
            place.enter()
            place.leave()

        def by_thin_client() -> None:
            thin.enter()
            thin.leave()

        blocks = {
            _library(store): blocking(by_library),
            _REQUESTS: blocking(by_requests),
            _THIN: blocking(by_thin_client),
        }
        tell = ground.tell
        return interleave(blocks, ground.effort.cycles, ground.shuffler, lambda told: tell(f"service, {store}: {told}"))


def _table(results: Results, store: str) -> list[str]:
    library = _library(store)
    rows = [
        (name, str(results.ratio(name, library)), milliseconds(results.median(name)), milliseconds(results.p99(name)))
        for name in results.by_speed
    ]
    return table(("", f"/ {library}", "p50 ms", "p99 ms"), rows)


def _waiters(servers: Servers, number: int) -> tuple[float, list[str]]:
    """On etcd, in one line: memory, threads, and the time until the one at its front has its turn."""
    with ExitStack() as stack:
        served = Served(servers, "etcd", stack)
        wish = {"resource": "parked", "ownerId": "bench", "ttlSeconds": _TTL}
        holder = Lean(served.endpoint)
        stack.callback(holder.sock.close)
        holder.send("POST", "/v1/locks/acquire", wish)
        held = holder.answer()
        alone, threads = served.megabytes, served.threads
        parked = []
        for _ in range(number):
            parked.append(Lean(served.endpoint))
            stack.callback(parked[-1].sock.close)
            parked[-1].send("POST", "/v1/locks/acquire", {**wish, "waitSeconds": 600})
        _all_wait(holder, number)
        full, threads_full = served.megabytes, served.threads
        began = time.perf_counter()
        holder.send("DELETE", f"/v1/locks/{held['leaseId']}")
        holder.answer()
        token = _first_answered(parked).answer()["fencingToken"]
        took = time.perf_counter() - began
        if int(token) <= int(held["fencingToken"]):
            raise RuntimeError("the token did not grow")
    rows = [
        ("memory, MB", f"{alone:.0f}", f"{full:.0f}"),
        ("threads", str(threads), str(threads_full)),
    ]
    lines = [*table(("", "with one hold", "and the waiters"), rows), ""]
    lines.append(f"From the holder's release to the answer to who stood first: {took * 1000:.1f} ms.")
    return full, lines


def _first_answered(parked: Sequence[Lean]) -> Lean:
    """Whose turn has come: they were taken in as they came through, and that need not be the order of their sending."""
    poll = select.poll()
    by_number = {lean.sock.fileno(): lean for lean in parked}
    for number in by_number:
        poll.register(number, select.POLLIN)
    ready = poll.poll(_SETTLES_SECONDS * 1000)
    if not ready:
        raise RuntimeError(f"nobody had a turn within {_SETTLES_SECONDS:g} s of the release")
    return by_number[ready[0][0]]


def _all_wait(asker: Lean, number: int) -> None:
    until = time.monotonic() + _SETTLES_SECONDS
    while time.monotonic() < until:
        asker.send("GET", "/v1/locks?prefix=parked")
        lines = asker.answer()["lines"]
        if lines and lines[0]["waiterCount"] == number:
            return
        time.sleep(0.5)
    raise RuntimeError(f"not all of {number} requests came to wait within {_SETTLES_SECONDS:g} s")
