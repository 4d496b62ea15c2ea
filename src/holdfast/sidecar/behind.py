"""Events told behind the answers: whoever waits for an answer does not wait for its being counted, too."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from holdfast.events import Event, Source, Subscriber, tell


class Behind:
    """The events of a client, told on the running event loop's thread in the order in which they came.

    What happens in a task is told when that task waits or has ended. Where the loop is closed, at once.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """See events.Source. Needs a running loop."""
        return self._source.subscribe(_Queue(subscriber, asyncio.get_running_loop()))


class _Queue:
    """From any thread. It takes no lock: two who come at once have it emptied twice, and the second finds nothing."""

    def __init__(self, subscriber: Subscriber, loop: asyncio.AbstractEventLoop) -> None:
        self._subscriber = subscriber
        self._loop = loop
        self._thread = threading.get_ident()
        self._events: deque[Event] = deque()
        self._due = False  # has the loop been asked to empty it?

    def __call__(self, event: Event) -> None:
        self._events.append(event)
        if self._loop.is_closed():
            self._empty()
        elif not self._due:
            self._due = True
            self._have_it_emptied()

    def _have_it_emptied(self) -> None:
        here = threading.get_ident() == self._thread
        try:
            (self._loop.call_soon if here else self._loop.call_soon_threadsafe)(self._empty)
        except RuntimeError:  # closed just now
            self._empty()

    def _empty(self) -> None:
        self._due = False  # first: what comes from here on is found by this one, or asked for anew
        while True:
            try:
                event = self._events.popleft()
            except IndexError:
                return
            tell(self._subscriber, event)
