"""Channels: what clients wait for, told on one stream each.

A client opens a stream, and then registers waits for it: of tickets to change, or of any line below a prefix. Each
wait is a signal of the store's, and is told once: "look". A wait that can't be kept is told at once: to wake early is
always right, to be missed never. With the stream all of its waits go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.sidecar.bounds import WAITS_OF_STREAM_MAX
from holdfast.sidecar.problems import Code, Problem
from holdfast.sidecar.tenants import Tenant
from holdfast.signals import Signal

_TOLD_AT_ONCE_MAX: Final = 1000


class Channel:
    """One stream and its waits. For the event loop; signals may be set by any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waits: dict[int, Signal | None] = {}
        self._news: list[int] = []
        self.over = False
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waits)

    def wait_for(self, number: int, signal: Signal) -> None:
        """Tell `number` when the signal is set."""
        if self.over or number in self._waits or len(self._waits) >= WAITS_OF_STREAM_MAX:
            signal.close()
            self.tell(number)
            return
        self._waits[number] = signal
        signal.add_callback(lambda: self._soon(number))

    def drop(self, number: int) -> None:
        """Nobody waits for it any more."""
        signal = self._waits.pop(number, None)
        if signal is not None:
            signal.close()

    def tell(self, number: int) -> None:
        """Whoever waits for it has to look."""
        self.drop(number)
        self._news.append(number)
        self._woken.set()

    def wake(self) -> None:
        """Let `news` return."""
        self._woken.set()

    async def news(self, seconds: float) -> list[int]:
        """What is to be told; nothing where nothing comes in so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return []
        told, self._news = self._news[:_TOLD_AT_ONCE_MAX], self._news[_TOLD_AT_ONCE_MAX:]
        if not self._news:
            self._woken.clear()
        return told

    def close(self) -> None:
        """Give back everything."""
        self.over = True
        for number in list(self._waits):
            self.drop(number)

    def _soon(self, number: int) -> None:
        try:
            self._loop.call_soon_threadsafe(self._fired, number)
        except RuntimeError:  # the loop has ended, and the service with it
            return

    def _fired(self, number: int) -> None:
        if number in self._waits:
            self.tell(number)


class Channels:
    """Those of one replica, by tenant and by the name that the client made."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Channel] = {}

    @contextmanager
    def opened(self, tenant: Tenant, name: str) -> Iterator[Channel]:
        """While its stream is open."""
        key, channel = (tenant.name, name), Channel()
        before, self._open[key] = self._open.get(key), channel
        if before is not None:  # a second stream of that name: the first is one that nobody reads
            before.close()
            before.wake()
        try:
            yield channel
        finally:
            channel.close()
            if self._open.get(key) is channel:
                del self._open[key]

    def find(self, tenant: Tenant, name: str) -> Channel:
        """Raises Problem."""
        channel = self._open.get((tenant.name, name))
        if channel is None:
            raise Problem(Code.UNKNOWN_STREAM, "this stream is not open here; open another, and look again")
        return channel
