"""One hold per idempotency key, within this process: whoever asks again with the key joins the wait or finds the hold.

A key is known from the first call until a fixed time later, whatever became of its hold; but where nothing was granted
it is free again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from holdfast.clock import Clock
from holdfast.sidecar.errors import KeyReused

Wish = TypeVar("Wish")
Got = TypeVar("Got")
KEYS_MAX: Final = 100_000
"""Keys that are known at one time: beyond it the oldest are forgotten early."""


@dataclass(slots=True, eq=False)
class _Known(Generic[Wish, Got]):
    wish: Wish
    forget_at: float
    task: asyncio.Task[Got | None]
    waiting: int = 0
    told: bool = False
    """Has anybody been given what it got?"""


class Once(Generic[Wish, Got]):
    """For one event loop."""

    def __init__(self, clock: Clock, remembers_seconds: float) -> None:
        self._clock = clock
        self._remembers_seconds = remembers_seconds
        self._known: dict[str, _Known[Wish, Got]] = {}  # in the order in which they are to be forgotten
        self._undoing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._known)

    async def run(
        self,
        key: str,
        wish: Wish,
        acquire: Callable[[], Coroutine[Any, Any, Got | None]],
        find: Callable[[Got], Awaitable[Got]],
        undo: Callable[[Got], Coroutine[Any, Any, None]],
        give_up: float,
    ) -> Got | None:
        """What `acquire` gets, once; found again by `find`. `undo` where it got something and nobody is there any more.

        Raises KeyReused.
        """
        while True:
            known = self._look_up(key, wish, acquire)
            if known.told:
                return await find(known.task.result())  # type: ignore[arg-type]  # told: it got something
            got = await self._join(key, known, undo)
            if got is not None or self._clock.now() >= give_up:
                return got  # else somebody's wait that was shorter than mine has ended

    def _look_up(
        self, key: str, wish: Wish, acquire: Callable[[], Coroutine[Any, Any, Got | None]]
    ) -> _Known[Wish, Got]:
        now = self._clock.now()
        self._forget(now)
        known = self._known.get(key)
        if known is None:
            task = asyncio.get_running_loop().create_task(acquire())
            known = self._known[key] = _Known(wish, now + self._remembers_seconds, task)
        elif known.wish != wish:
            raise KeyReused("this idempotency key stands for another wish; use a new key for a new one")
        return known

    async def _join(
        self, key: str, known: _Known[Wish, Got], undo: Callable[[Got], Coroutine[Any, Any, None]]
    ) -> Got | None:
        known.waiting += 1
        try:
            got = await asyncio.shield(known.task)
        except asyncio.CancelledError:
            if known.waiting == 1 and not known.told:  # the last one has gone
                self._drop(key, known)
                self._leave_nothing(known.task, undo)
            raise
        except BaseException:
            self._drop(key, known)
            raise
        finally:
            known.waiting -= 1
        if got is None:
            self._drop(key, known)
        else:
            known.told = True
        return got

    def _leave_nothing(self, task: asyncio.Task[Got | None], undo: Callable[[Got], Coroutine[Any, Any, None]]) -> None:
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None and (got := task.result()) is not None:
            undoing = asyncio.get_running_loop().create_task(undo(got))
            self._undoing.add(undoing)  # the loop itself keeps no hold on a task
            undoing.add_done_callback(self._undoing.discard)

    def _drop(self, key: str, known: _Known[Wish, Got]) -> None:
        if self._known.get(key) is known:
            del self._known[key]

    def _forget(self, now: float) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if oldest.forget_at > now and len(self._known) < KEYS_MAX:
                return
            del self._known[key]
