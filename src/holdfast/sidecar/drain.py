"""The end of the service, as those who wait in it hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.sidecar.problems import Code, Problem, later


class Drain:
    """Has the end begun? Whoever waits is told."""

    def __init__(self) -> None:
        self.begun = False
        self._told: dict[object, Callable[[], object]] = {}

    @contextmanager
    def tells(self, call: Callable[[], object]) -> Iterator[None]:
        """While inside, `call` is called when the end begins."""
        key = object()
        self._told[key] = call
        try:
            yield
        finally:
            del self._told[key]

    def begin(self) -> None:
        """Tell all who wait; whoever comes from now on looks at `begun`. Idempotent."""
        self.begun = True
        for call in list(self._told.values()):
            call()


def draining() -> Problem:
    """What whoever waits is told then."""
    return later(Code.DRAINING, "this service is shutting down; nothing was acquired. Ask again, or another replica")
