"""Helper threads: a few daemons that carry out what is submitted.

Not `concurrent.futures.ThreadPoolExecutor`: its locks are not re-entrant, so a signal handler that
releases a hold while the main thread is inside `submit` would hang; and its threads hold up the end of
the interpreter. `SimpleQueue.put` may be called from anywhere.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from holdfast.errors import ClientClosed, StoreUnavailable


class Helpers:
    """At most `most` threads, started when there is work for them."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    @property
    def crowded(self) -> bool:
        """Is there more to do than threads to do it?"""
        return self._unfinished > len(self._threads)

    @property
    def idle(self) -> bool:
        """Is there nothing to do?"""
        return not self._unfinished

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` soon. Raises ClientClosed after `close`, StoreUnavailable without a thread for it."""
        future: Future[Any] = Future()
        with self._guard:
            if self._closed:
                raise ClientClosed("the client is closed")
            self._unfinished += 1
            self._work.put((future, work))
            if self._unfinished > len(self._threads) < self._most:
                try:
                    self._start_one()
                except StoreUnavailable:
                    future.cancel()  # whoever is told so gives it up: no later thread may carry it out
                    raise
            # A signal handler may have closed us since the check above: its `None`s then stand before this work.
            if self._closed and future.cancel():
                raise ClientClosed("the client is closed")
        return future

    def _start_one(self) -> None:
        """One thread more. A signal handler may do the same at any line of this: the bound is checked last."""
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        if len(self._threads) > self._most:
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
            with self._guard:  # before it is told: whoever waits for it may come with more at once
                self._unfinished -= 1
            if failure is not None:
                future.set_exception(failure)
            elif wanted:
                future.set_result(outcome)
            del future, work, item, outcome, failure  # nothing must live on here while the thread waits


def _outcome_of(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What it returned, or what it raised: that is carried over to whoever waits for it."""
    try:
        return work(), None
    except BaseException as failure:
        return None, failure
