"""Threads and forks: helper threads, waiting for a lock, telling a forked child from its parent; the caller's line.

`Helpers` are a few daemons that carry out what is submitted. Not `concurrent.futures.ThreadPoolExecutor`: its locks
are not re-entrant, so a signal handler that releases a hold while the main thread is inside `submit` would hang; and
its threads hold up the end of the interpreter. `SimpleQueue.put` may be called from anywhere.

`take` waits for a lock until a moment. The interpreter looks for signals after every call. Between
`lock.acquire(timeout=…)` and the `try` that follows it an interrupt finds the lock taken and nobody to give it back:
the next thread waits for it for ever. So:

    taken: list[bool] = []
    try:
        if not take(lock.acquire, seconds, taken):
            raise …
        …
    finally:
        if taken and taken[0]:  # no call before the release
            lock.release()

`generation` is another number in every forked child. After a fork the child's holds are dead, and the clients that were
used (law 14); the parent's sockets, leases and tickets are untouched by what the child does, because it refuses before
it takes a lock or writes a byte.

`place` finds the line of the user's program that called, for what is warned of.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tenure.errors import ClientClosed, ForkedClient, StoreUnavailable

_generation = 0


class Helpers:
    """Helper threads of one client: at most `maximum`, started when there is work for them."""

    def __init__(self, name: str, maximum: int) -> None:
        self._name = name
        self._maximum = maximum
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    @property
    def crowded(self) -> bool:
        """True where there is more to do than threads to do it."""
        return self._unfinished > len(self._threads)

    @property
    def idle(self) -> bool:
        """True where there is nothing to do."""
        return not self._unfinished

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` soon. Raises ClientClosed after `close`, StoreUnavailable without a thread for it."""
        future: Future[Any] = Future()
        with self._guard:
            if self._closed:
                raise ClientClosed("the client is closed")
            self._unfinished += 1
            self._work.put((future, work))
            if self._unfinished > len(self._threads) < self._maximum:
                try:
                    self._start_one()
                except StoreUnavailable:
                    future.cancel()  # the caller gives it up on this error: no later thread may carry it out
                    raise
            # A signal handler may have closed us since the check above: its `None`s then stand before this work.
            if self._closed and future.cancel():
                raise ClientClosed("the client is closed")
        return future

    def _start_one(self) -> None:
        """Start one more thread."""
        # A signal handler may do the same at any line of this: so the bound is checked after the list has grown.
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        if len(self._threads) > self._maximum:
            self._threads.remove(thread)
            return
        try:
            thread.start()
        except RuntimeError:  # the process may have no more threads: those there are do the work, or the next try
            self._threads.remove(thread)
            if not self._threads:
                raise StoreUnavailable("no helper thread can be started: the process has too many") from None
        if self._closed:
            self._work.put(None)

    def close(self, seconds: float) -> None:
        """Take no more work, finish what was taken, wait for that at most `seconds`. Idempotent."""
        with self._guard:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._work.put(None)
            started = [t for t in self._threads if t.ident is not None]
            threads = [t for t in started if t is not threading.current_thread()]
        give_up = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            wanted = future.set_running_or_notify_cancel()
            outcome, failure = _outcome_of(work) if wanted else (None, None)
            with self._guard:  # before the outcome is out: whoever waits for it may come with more at once
                self._unfinished -= 1
            if failure is not None:
                future.set_exception(failure)
            elif wanted:
                future.set_result(outcome)
            del future, work, item, outcome, failure  # nothing must live on here while the thread waits


def _outcome_of(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Value that `work` returned, or the error it raised, to be carried over to whoever waits for it."""
    try:
        return work(), None
    except BaseException as failure:
        return None, failure


def take(acquire: Callable[[bool, float], bool], seconds: float, taken: list[bool]) -> bool:
    """Wait for a lock for at most `seconds`; whether it was had is written into `taken`, too."""
    taken.extend(map(acquire, (True,), (max(0.0, seconds),)))  # one call takes it and writes that down
    return taken[-1]


def _count() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count)


def place() -> tuple[str, int]:
    """File and line of the innermost caller outside of tenure."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("tenure._", "tenure.aio")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def warn(message: str, category: type[Warning]) -> None:
    """Warn of what the innermost caller outside of tenure does."""
    warnings.warn_explicit(message, category, *place())


def generation() -> int:
    """A number that is another one in every forked child."""
    return _generation


def refuse_child(born: int, subject: str) -> None:
    """Raise ForkedClient where `subject`, made in generation `born`, is used in a child."""
    if born != _generation:
        raise ForkedClient(
            f"{subject} belongs to the process that this one was forked from, and can't be used here. "
            "The parent still has it. Connect again in the child (a client with after_fork='reconnect' does so by "
            "itself); what is to be held there is acquired again."
        )
