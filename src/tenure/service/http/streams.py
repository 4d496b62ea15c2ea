"""Streams of server-sent events: their text, their end, and the feeds behind them.

A feed is one watch at the store for all streams that want the same: the store is watched once. It keeps the newest item
only. Listeners are woken, and look: a slow one skips the items between, and delays no other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tenure._core.base.limits import RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure.errors import ClientClosed, TenureError
from tenure.service.http.request import EventStream
from tenure.service.http.routing import RouteCall

if TYPE_CHECKING:
    from tenure.service.service import Service

KEEP_ALIVE: Final = b": still here\n\n"


def event(name: str, data: Any) -> bytes:
    """Format one event. JSON is one line, so nothing in it can end the event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def begun(events: AsyncIterator[bytes]) -> EventStream:
    """Return a stream with its first event: an error before that is raised, and answered as a problem."""
    return EventStream(await anext(events), events)


@asynccontextmanager
async def living(service: Service, call: RouteCall, wake: Callable[[], None]) -> AsyncIterator[Callable[[], bool]]:
    """Yield a test whether the stream goes on: its client is there, its token is good, the service does not end.

    `wake` is called when the client hangs up and when the service ends; a token that was taken back is noticed at the
    next event or sign of life.
    """
    over = asyncio.create_task(call.request.hung_up())
    over.add_done_callback(lambda _: wake())
    try:
        with service.shutdown.calls(wake):
            yield lambda: not (over.done() or service.shutdown.begun) and service.admits(call.caller)
    finally:
        over.cancel()
        await asyncio.gather(over, return_exceptions=True)


Item = TypeVar("Item")
_log = logging.getLogger("tenure.service")


class FeedListener(Generic[Item]):
    """The end of a feed at one stream: woken when there may be news."""

    def __init__(self, feed: Feed[Item]) -> None:
        self._feed = feed
        self._news = asyncio.Event()
        if feed.known:
            self._news.set()

    @property
    def known(self) -> bool:
        """True once an item has come."""
        return self._feed.known

    @property
    def newest(self) -> Item:
        """The newest item. To be read only after `wait` returned True."""
        return self._feed.newest[0]

    def wake(self) -> None:
        """Let `wait` return, as there may be news."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for news, at most `seconds`; True where there may be some."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Feed(Generic[Item]):
    """A watch at the store, and its listeners."""

    def __init__(self, source: Callable[[], AsyncIterator[Item]]) -> None:
        self._source = source
        self.newest: list[Item] = []  # one, once there is any
        self.listeners: set[FeedListener[Item]] = set()
        self.task: asyncio.Task[None] = asyncio.create_task(self._run())

    @property
    def known(self) -> bool:
        """True once an item has come."""
        return bool(self.newest)

    async def _run(self) -> None:
        while True:  # ends with its last listener, who cancels it, or with the client
            try:
                items: Any = self._source()  # an async generator: closed here, so that its watch is closed
                async with aclosing(items):
                    async for item in items:
                        self.newest[:] = [item]
                        for listener in self.listeners:
                            listener.wake()
                return
            except ClientClosed:
                return
            except TenureError as error:  # the first look failed, or the store refused: either may pass
                _log.warning("a watch could not be kept up, and is begun again: %s", error)
                await asyncio.sleep(jittered(RETRY_PAUSE_MAX))


class Feeds(Generic[Item]):
    """Feeds by name; each lives as long as it has a listener."""

    def __init__(self, source: Callable[[str], AsyncIterator[Item]]) -> None:
        self._source = source
        self._feeds: dict[str, Feed[Item]] = {}

    @contextmanager
    def listening(self, name: str) -> Iterator[FeedListener[Item]]:
        """Listen to the feed of that name, and begin it where there is none."""
        feed = self._feeds.get(name)
        if feed is None:
            feed = self._feeds[name] = Feed(lambda: self._source(name))
        listener = FeedListener(feed)
        feed.listeners.add(listener)
        try:
            yield listener
        finally:
            feed.listeners.discard(listener)
            if not feed.listeners:
                del self._feeds[name]
                feed.task.cancel()
