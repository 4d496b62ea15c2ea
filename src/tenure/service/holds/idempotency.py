"""Idempotency keys within this process: a repeated call joins the wait of the first, or finds its hold.

A key is known from the first call until a fixed time later, whatever became of its hold. Where nothing was granted it
is free again at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tenure._core.base.clock import Clock
from tenure._core.delegation import KeyReused

Outcome = TypeVar("Outcome")
KEYS_MAX: Final = 20_000
"""Keys of one tenant that are known at one time: beyond it its oldest are forgotten early."""


@dataclass(slots=True, eq=False)
class _KnownCall(Generic[Outcome]):
    request: str
    forget_at: float
    task: asyncio.Task[Outcome | None] | None
    """None once any caller has been given the outcome."""
    waiting: int = 0
    hold_id: str = ""
    """Set then: all that is kept of the outcome."""


class IdempotentCalls(Generic[Outcome]):
    """The calls of one event loop by their idempotency keys. Of each only digests and the hold's id are kept."""

    def __init__(self, clock: Clock, remembers_seconds: float, hold_id: Callable[[Outcome], str]) -> None:
        self._clock = clock
        self._remembers_seconds = remembers_seconds
        self._hold_id = hold_id
        # by tenant and the key's digest, in the order in which they are to be forgotten
        self._known: defaultdict[str, dict[str, _KnownCall[Outcome]]] = defaultdict(dict)
        self._undoing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    async def run(
        self,
        tenant: str,
        key: str,
        request: str,
        acquire: Callable[[], Coroutine[Any, Any, Outcome | None]],
        find: Callable[[str], Awaitable[Outcome]],
        undo: Callable[[Outcome], Coroutine[Any, Any, None]],
        give_up: float,
    ) -> Outcome | None:
        """Run `acquire` once for the key, and return its outcome; later calls get it by `find`, from the hold's id.

        `key` and `request` are digests. `undo` is run where an outcome came and no caller is left to have it. Raises
        KeyReused.
        """
        while True:
            calls = self._known[tenant]
            known = self._look_up(calls, key, request, acquire)
            if known.task is None:
                return await find(known.hold_id)
            outcome = await self._join(calls, key, known, known.task, undo)
            if outcome is not None or self._clock.now() >= give_up:
                return outcome  # else a joined call ended that waited for a shorter time than this one may

    def _look_up(
        self,
        calls: dict[str, _KnownCall[Outcome]],
        key: str,
        request: str,
        acquire: Callable[[], Coroutine[Any, Any, Outcome | None]],
    ) -> _KnownCall[Outcome]:
        now = self._clock.now()
        _forget(calls, now)
        known = calls.get(key)
        if known is None:
            # A task of its own, so that it outlives a first caller that hangs up while others have joined.
            task = asyncio.get_running_loop().create_task(acquire())
            known = calls[key] = _KnownCall(request, now + self._remembers_seconds, task)
        elif known.request != request:
            raise KeyReused("this idempotency key stands for another request; use a new key for a new one")
        return known

    async def _join(
        self,
        calls: dict[str, _KnownCall[Outcome]],
        key: str,
        known: _KnownCall[Outcome],
        task: asyncio.Task[Outcome | None],
        undo: Callable[[Outcome], Coroutine[Any, Any, None]],
    ) -> Outcome | None:
        known.waiting += 1
        try:
            outcome = await asyncio.shield(task)
        except asyncio.CancelledError:
            if known.waiting == 1 and known.task is not None:  # the last caller has gone
                _drop(calls, key, known)
                self._leave_nothing(task, undo)
            raise
        except BaseException:
            _drop(calls, key, known)
            raise
        finally:
            known.waiting -= 1
        if outcome is None:
            _drop(calls, key, known)
        else:
            known.task, known.hold_id = None, self._hold_id(outcome)
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


def _drop(calls: dict[str, _KnownCall[Outcome]], key: str, known: _KnownCall[Outcome]) -> None:
    if calls.get(key) is known:  # else dropped before, and the key is a later call's by now
        del calls[key]


def _forget(calls: dict[str, _KnownCall[Outcome]], now: float) -> None:
    while calls:
        key, oldest = next(iter(calls.items()))
        if oldest.forget_at > now and len(calls) < KEYS_MAX:
            return
        del calls[key]
