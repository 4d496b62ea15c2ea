"""The two faces of the library, used the same way: asyncio behind a loop of its own, every call blocking."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import tenure
from tenure import aio

_WRAPPED = (aio.Client, aio.Lock, aio.Semaphore, aio.RWLock, aio.Election, aio.Hold, aio.Loss, aio.Store, aio.Operator)


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop")
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        return self.call(awaited)

    def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it on the loop, and await what it returns where that can be awaited."""

        async def called() -> Any:
            value = method(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """An object of the asyncio face whose coroutine methods block. Any: it stands for every class of the face."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop
        self._held: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return self._shown(getattr(self._inner, name))

    def __enter__(self) -> Any:
        if isinstance(self._inner, (aio.Hold, aio.Client)):
            return self
        hold = self.acquire()
        self._held.append(hold)
        return hold

    def __exit__(self, *error: Any) -> None:
        if isinstance(self._inner, (aio.Hold, aio.Client)):
            self._loop.run(self._inner.__aexit__(*error))
        else:
            self._held.pop().__exit__(*error)

    def __repr__(self) -> str:
        return repr(self._inner)

    def _shown(self, value: Any) -> Any:
        if inspect.isasyncgen(value):
            return self._iterate(value)
        if isinstance(value, _WRAPPED):
            return Blocking(value, self._loop)
        if inspect.ismethod(value):
            return lambda *args, **kwargs: self._shown(self._loop.call(value, *args, **kwargs))
        return value

    def _iterate(self, items: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run(anext(items))
            except StopAsyncIteration:
                return


class Face:
    """A way to connect, by one face: "threads", "asyncio" behind blocking calls, or "plain asyncio".

    Closes the clients it made, but for plain ones: only their own loop can.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = LoopThread() if name == "asyncio" else None
        self._clients: list[Any] = []

    def connect(self, url: str, **options: Any) -> Any:
        if self.name == "plain asyncio":
            return aio.connect(url, **options)
        if self._loop is None:
            client: Any = tenure.connect(url, **options)
        else:
            client = Blocking(aio.connect(url, **options), self._loop)
        self._clients.append(client)
        return client

    def run(self, awaitable: Any) -> Any:
        """Await it where the clients live. For what lies below the face; asyncio only."""
        if self._loop is None:
            raise RuntimeError(f"the face {self.name!r} has no loop")
        return self._loop.run(awaitable)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._loop is not None:
            self._loop.close()
