"""What most unit tests start from: one virtual clock, one memory store of their own, clients of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import tenure
from tenure import aio
from tenure._backends import memory
from tenure._backends.memory import MemoryBackend, MemoryFaults
from tenure._core.base.clock import VirtualClock
from tenure._core.runtime import runtime_of
from tenure.events import Event

PATIENCE_SECONDS = 20.0
"""How long, in real time, a test waits for another thread before it calls it hung."""

Outcome = TypeVar("Outcome")
_numbers = itertools.count(1)


class Rig:
    """A clock that moves only by `clock.advance`, a store nobody else uses, and every event that was told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.name = f"unit-{next(_numbers)}"
        self.store = memory.store(self.name, self.clock)
        self.events: list[Event] = []
        self._told = threading.Condition()
        self._clients: list[tenure.Client] = []

    def client(self, **options: Any) -> tenure.Client:
        """A blocking client, closed when the test is over."""
        client = tenure.connect(f"memory://{self.name}", clock=self.clock, **options)
        client.subscribe(self._hear)
        self._clients.append(client)
        return client

    def aclient(self, **options: Any) -> aio.Client:
        """An asyncio client; the test closes it."""
        client = aio.connect(f"memory://{self.name}", clock=self.clock, **options)
        client.subscribe(self._hear)
        return client

    def faults(self, client: tenure.Client | aio.Client) -> MemoryFaults:
        """What can go wrong between `client` and the store."""
        backend = runtime_of(client)._backend
        assert isinstance(backend, MemoryBackend)
        return backend.faults

    @property
    def tickets(self) -> int:
        """How many tickets stand in all lines of the store."""
        return sum(len(line) for line in self.store.lines.values())

    def heard(self, event: str) -> list[Event]:
        """All events of this kind so far."""
        return [e for e in self.events if e.event == event]

    def await_event(self, event: str, times: int = 1) -> None:
        """Block until `event` was told `times` times."""
        with self._told:
            came = self._told.wait_for(lambda: len(self.heard(event)) >= times, PATIENCE_SECONDS)
        if not came:
            raise AssertionError(f"{event!r} was not told {times} times: {[e.event for e in self.events]}")

    def close(self) -> None:
        for client in self._clients:
            self.faults(client).cut_off = False  # in virtual time nobody would wait for a silent store
            client.close()

    def _hear(self, event: Event) -> None:
        with self._told:
            self.events.append(event)
            self._told.notify_all()


class Background:
    """A call on a thread of its own; `result()` gives its outcome, or fails the test when it hangs."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-background", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._call()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def joined(self, seconds: float) -> bool:
        """Give the call a moment of real time; has it ended?"""
        self._thread.join(seconds)
        return self.ended

    def result(self, timeout: float = PATIENCE_SECONDS) -> Any:
        """What the call returned or raised."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise AssertionError("the call hangs")
        if self._error is not None:
            raise self._error
        return self._outcome


def reached(event: threading.Event) -> None:
    """Wait for something another thread does; a test that would wait for ever fails instead."""
    if not event.wait(PATIENCE_SECONDS):
        raise AssertionError("another thread did not come to the expected point")
