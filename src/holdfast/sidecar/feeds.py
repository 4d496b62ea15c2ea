"""What comes from one watch at the store, for all streams that want the same: the store is watched once.

A feed keeps the newest item only. Listeners are woken, and look: who is slow skips what came between, and costs nobody
anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Generic, TypeVar

from holdfast.errors import ClientClosed, HoldfastError
from holdfast.limits import RETRY_PAUSE_MAX

Item = TypeVar("Item")
_log = logging.getLogger("holdfast.sidecar")


class Listener(Generic[Item]):
    """One who listens to a feed."""

    def __init__(self, feed: Feed[Item]) -> None:
        self._feed = feed
        self._news = asyncio.Event()
        if feed.known:
            self._news.set()

    @property
    def known(self) -> bool:
        """Has anything come yet?"""
        return self._feed.known

    @property
    def newest(self) -> Item:
        """The newest item. Only after `wait` was True."""
        return self._feed.newest[0]

    def wake(self) -> None:
        """Let `wait` return: there may be news."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for news, at most so long; True where there may be some."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Feed(Generic[Item]):
    """One watch, and who listens."""

    def __init__(self, source: Callable[[], AsyncIterator[Item]]) -> None:
        self._source = source
        self.newest: list[Item] = []  # one, once there is any
        self.listeners: set[Listener[Item]] = set()
        self.task = asyncio.create_task(self._run())

    @property
    def known(self) -> bool:
        """Has anything come yet?"""
        return bool(self.newest)

    async def _run(self) -> None:
        while True:  # ends with its last listener, who cancels it, or with the client
            try:
                items: Any = self._source()  # an async generator: it is closed, so that its watch is
                async with aclosing(items):
                    async for item in items:
                        self.newest[:] = [item]
                        for listener in self.listeners:
                            listener.wake()
                return
            except ClientClosed:
                return
            except HoldfastError as error:  # the first look failed, or the store refused: it may mend
                _log.warning("a watch could not be kept up, and is begun again: %s", error)
                await asyncio.sleep(RETRY_PAUSE_MAX)


class Feeds(Generic[Item]):
    """Feeds by what they are of; each lives as long as somebody listens."""

    def __init__(self, source: Callable[[str], AsyncIterator[Item]]) -> None:
        self._source = source
        self._feeds: dict[str, Feed[Item]] = {}

    @contextmanager
    def listening(self, what: str) -> Iterator[Listener[Item]]:
        """Listen to the feed of `what`."""
        feed = self._feeds.get(what)
        if feed is None:
            feed = self._feeds[what] = Feed(lambda: self._source(what))
        listener = Listener(feed)
        feed.listeners.add(listener)
        try:
            yield listener
        finally:
            feed.listeners.discard(listener)
            if not feed.listeners:
                del self._feeds[what]
                feed.task.cancel()
