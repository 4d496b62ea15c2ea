"""Idempotency keys within this process: a repeated call joins the wait of the first, or finds its hold.

A key is known from the first call until a fixed time later, whatever became of its hold. Where nothing was granted it
is free again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tenure._core.base.clock import Clock
from tenure._core.delegation import KeyReused

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")
KEYS_MAX: Final = 100_000
"""Keys that are known at one time: beyond it the oldest are forgotten early."""


@dataclass(slots=True, eq=False)
class _KnownCall(Generic[Request, Outcome]):
    request: Request
    forget_at: float
    task: asyncio.Task[Outcome | None]
    waiting: int = 0
    delivered: bool = False
    """True once any caller has been given the outcome."""


class IdempotentCalls(Generic[Request, Outcome]):
    """The calls of one event loop by their idempotency keys."""

    def __init__(self, clock: Clock, remembers_seconds: float) -> None:
        self._clock = clock
        self._remembers_seconds = remembers_seconds
        self._known: dict[str, _KnownCall[Request, Outcome]] = {}  # in the order in which they are to be forgotten
        self._undoing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._known)

    async def run(
        self,
        key: str,
        request: Request,
        acquire: Callable[[], Coroutine[Any, Any, Outcome | None]],
        find: Callable[[Outcome], Awaitable[Outcome]],
        undo: Callable[[Outcome], Coroutine[Any, Any, None]],
        give_up: float,
    ) -> Outcome | None:
        """Run `acquire` once for the key, and return its outcome; later calls get it by `find`.

        `undo` is run where an outcome came and no caller is left to have it. Raises KeyReused.
        """
        while True:
            known = self._look_up(key, request, acquire)
            if known.delivered:
                return await find(known.task.result())  # type: ignore[arg-type]  # delivered: it is not None
            outcome = await self._join(key, known, undo)
            if outcome is not None or self._clock.now() >= give_up:
                return outcome  # else a joined call ended that waited for a shorter time than this one may

    def _look_up(
        self, key: str, request: Request, acquire: Callable[[], Coroutine[Any, Any, Outcome | None]]
    ) -> _KnownCall[Request, Outcome]:
        now = self._clock.now()
        self._forget(now)
        known = self._known.get(key)
        if known is None:
            # A task of its own, so that it outlives a first caller that hangs up while others have joined.
            task = asyncio.get_running_loop().create_task(acquire())
            known = self._known[key] = _KnownCall(request, now + self._remembers_seconds, task)
        elif known.request != request:
            raise KeyReused("this idempotency key stands for another request; use a new key for a new one")
        return known

    async def _join(
        self, key: str, known: _KnownCall[Request, Outcome], undo: Callable[[Outcome], Coroutine[Any, Any, None]]
    ) -> Outcome | None:
        known.waiting += 1
        try:
            outcome = await asyncio.shield(known.task)
        except asyncio.CancelledError:
            if known.waiting == 1 and not known.delivered:  # the last caller has gone
                self._drop(key, known)
                self._leave_nothing(known.task, undo)
            raise
        except BaseException:
            self._drop(key, known)
            raise
        finally:
            known.waiting -= 1
        if outcome is None:
            self._drop(key, known)
        else:
            known.delivered = True
        return outcome

    def _leave_nothing(
        self, task: asyncio.Task[Outcome | None], undo: Callable[[Outcome], Coroutine[Any, Any, None]]
    ) -> None:
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None and (outcome := task.result()) is not None:
            undoing = asyncio.get_running_loop().create_task(undo(outcome))
            self._undoing.add(undoing)  # the loop itself keeps only a weak reference to a task
            undoing.add_done_callback(self._undoing.discard)

    def _drop(self, key: str, known: _KnownCall[Request, Outcome]) -> None:
        if self._known.get(key) is known:  # else dropped before, and the key is a later call's by now
            del self._known[key]

    def _forget(self, now: float) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if oldest.forget_at > now and len(self._known) < KEYS_MAX:
                return
            del self._known[key]
