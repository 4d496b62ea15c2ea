"""The end of the service, as those who wait in it hear of it."""

from __future__ import annotations

import asyncio
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

    @contextmanager
    def cancels(self) -> Iterator[None]:
        """While inside, the running task is cancelled when the end begins; that leaves as what whoever waits is told.

        Raises Problem.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("this needs a running task")
        before, ended = task.cancelling(), False

        def end() -> None:
            nonlocal ended
            ended = task.cancel()

        self._told[end] = end
        try:
            yield
        except asyncio.CancelledError:
            if ended and task.cancelling() <= before + 1:  # nobody else has cancelled it
                raise draining() from None
            raise
        finally:
            del self._told[end]
            if ended:  # also where it became something else on its way out
                task.uncancel()

    def begin(self) -> None:
        """Tell all who wait; whoever comes from now on looks at `begun`. Idempotent."""
        self.begun = True
        for call in list(self._told.values()):
            call()


def draining() -> Problem:
    """What whoever waits is told then."""
    return later(Code.DRAINING, "this service is shutting down; nothing was acquired. Ask again, or another replica")
