"""Faults of one answer: what a test arms, and the handle it gets. The proxy decides when they meet their request."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from holdfast.testing.servers.framing import Request

Match: TypeAlias = Callable[..., bool]  # (method, path, body or message) for etcd, (opcode, frame) for zookeeper


class Held:
    """An answer on its way that waits. Later bytes of the same connection wait behind it, as on a real wire."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.arrived = threading.Event()
        self._loop = loop
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let it pass. Idempotent; before the answer has come, it will not be held."""
        with contextlib.suppress(RuntimeError):  # the proxy is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._released.set)

    async def wait_released(self) -> None:
        """No bound: the test decides, and closing the proxy ends the wait by cancelling it."""
        await self._released.wait()


class Fate(Enum):
    LOSE_ANSWER = "lose answer"
    LOSE_REQUEST = "lose request"
    SWALLOW_REQUEST = "swallow request"
    HOLD_ANSWER = "hold answer"


@dataclass
class Rule:
    """A fault armed for the next `left` matching requests, of which `unfired` are still to hit their target."""

    fate: Fate
    match: Match
    left: int
    unfired: int
    held: Held
    done: threading.Event = field(default_factory=threading.Event)

    def take(self, request: Request) -> bool:
        """Whether this request is ours; it then uses up one of `left`."""
        if not self.match(*request.arguments):
            return False
        self.left -= 1
        return True

    def fire(self) -> None:
        self.unfired -= 1
        if self.unfired == 0:
            self.done.set()
