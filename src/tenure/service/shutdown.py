"""The end of the service: how waiting requests, streams and background tasks learn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.service.http.problems import Problem, ProblemCode, later


class Shutdown:
    """The state of one service: serving, or shutting down. Requests that wait are called back when the end begins."""

    def __init__(self) -> None:
        self.begun: bool = False
        self._callbacks: dict[object, Callable[[], object]] = {}

    @contextmanager
    def calls(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` when the end begins inside the block."""
        key = object()
        self._callbacks[key] = callback
        try:
            yield
        finally:
            del self._callbacks[key]

    @contextmanager
    def cancels(self) -> Iterator[None]:
        """Cancel the running task when the end begins inside the block; the block is left with the Problem of draining.

        Raises Problem.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("this needs a running task")
        before, ended = task.cancelling(), False

        def end() -> None:
            nonlocal ended
            ended = task.cancel()

        self._callbacks[end] = end
        try:
            yield
        except asyncio.CancelledError:
            if ended and task.cancelling() <= before + 1:  # nobody else has cancelled it
                raise draining() from None
            raise
        finally:
            del self._callbacks[end]
            if ended:  # also where the cancellation became another exception on its way out
                task.uncancel()

    def begin(self) -> None:
        """Begin the end and call all callbacks; later requests look at `begun`. Idempotent."""
        self.begun = True
        for callback in list(self._callbacks.values()):
            callback()


def draining() -> Problem:
    """Make the refusal for requests that wait or come while the service shuts down."""
    return later(
        ProblemCode.DRAINING, "this service is shutting down; nothing was acquired. Ask again, or another replica"
    )
