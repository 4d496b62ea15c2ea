"""A fenced store in a process of its own: `python -m tests.verify.torture.register --socket PATH --history FILE`.

Per resource it keeps a counter and a set of elements. To add one, a client reads, thinks, and writes what it read with
its element added: the read-modify-write that a lock is for. So a write that a stale holder is allowed to make takes
every element with it that was added since its read, and the end of the run shows which. (Seats share their resource:
they `add` to whatever is there.)

What may be done is decided by `fencing._fence.admit`, reads and claims included; `--unfenced` accepts everything, as
the positive control: it has to lose updates. Every request is written down in the order in which it was decided.

One request and one answer per line, as JSON, over a Unix socket, which no network namespace cuts off. SIGTERM ends it:
then it writes down what it kept.
"""

from __future__ import annotations

import argparse
import json
import signal
import socketserver
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenure._core.lease import Mode
from tenure.errors import FenceMismatch, StaleToken
from tenure.fencing._fence import Fence, admit
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Recorder, Records

NAME: Final = "store"
"""Whose events its own are."""


@dataclass(frozen=True, slots=True)
class State:
    """The state that one write left: its element, on top of what its writer had read."""

    number: int
    element: str
    below: State | None
    count: int


@dataclass(slots=True)
class FencedResource:
    """A resource: the youngest fence seen, and every state that a reader may have been given."""

    seen: Fence | None
    current: State
    states: dict[int, State]


class Register:
    """Decides and remembers. Thread-safe."""

    def __init__(self, records: Records, *, fenced: bool) -> None:
        self._records = records
        self._fenced = fenced
        self._guard = threading.Lock()  # guards everything below
        self._resources: dict[str, FencedResource] = {}
        self._decided = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
        """Answer one request: read, claim, write (on `basis`) or add."""
        fence = Fence.parse(request["fence"])
        with self._guard:
            resource = self._resource(request["resource"])
            accepted = self._admits(resource, fence)
            if accepted and request["operation"] in ("write", "add"):
                _put(resource, request["element"], request.get("basis"))
            self._write_down(request, fence, accepted)
            return {"accepted": accepted, "basis": resource.current.number, "count": resource.current.count}

    def conclude(self) -> None:
        """Write down what is there at the end."""
        with self._guard:
            for name, resource in self._resources.items():
                kept = _elements(resource.current)
                self._record(name, "counter", count=resource.current.count)
                self._record(name, "contents", count=len(kept))
                for element in kept:
                    self._record(name, "kept", value=element)

    def _resource(self, name: str) -> FencedResource:
        empty = State(0, "", None, 0)
        return self._resources.setdefault(name, FencedResource(None, empty, {0: empty}))

    def _admits(self, resource: FencedResource, fence: Fence) -> bool:
        if not self._fenced:
            return True
        try:
            resource.seen = admit(resource.seen, fence)
        except (StaleToken, FenceMismatch):
            return False
        return True

    def _write_down(self, request: dict[str, Any], fence: Fence, accepted: bool) -> None:
        self._decided += 1
        operation = "write" if request["operation"] == "add" else request["operation"]
        self._record(
            request["resource"],
            operation,
            client=request["client"],
            hold=request["hold"],
            mode=Mode(request["mode"]),
            token=fence.token,
            incarnation=fence.incarnation,
            accepted=accepted,
            value=request.get("element", ""),
            revision=self._decided,
        )

    def _record(self, resource: str, operation: str, *, client: str = NAME, **facts: Any) -> None:  # Any: of Event
        now = self._records.now()
        self._records.record(Event(now, client, Kind.STORE, operation, resource, **facts))


def _put(resource: FencedResource, element: str, basis: int | None) -> None:
    below = resource.current if basis is None else resource.states[basis]
    resource.current = State(len(resource.states), element, below, below.count + 1)
    resource.states[resource.current.number] = resource.current


def _elements(state: State) -> list[str]:
    found = []
    while state.below is not None:
        found.append(state.element)
        state = state.below
    return found


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False  # workers hold their connections open, and this process is about to end
    request_queue_size = 128

    def __init__(self, path: str, register: Register) -> None:
        self.register = register
        super().__init__(path, _Conversation)


class _Conversation(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.register.answer(json.loads(line))).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.torture.register", description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--history", required=True)
    parser.add_argument("--unfenced", action="store_true")
    asked = parser.parse_args(arguments)
    with Recorder(asked.history) as recorder:
        register = Register(recorder, fenced=not asked.unfenced)
        with _Server(asked.socket, register) as server:
            # shutdown waits for the loop that this very thread is in
            signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
            print("ready", flush=True)
            server.serve_forever(poll_interval=0.1)
        register.conclude()
    return 0


if __name__ == "__main__":
    sys.exit(main())
