"""What a contestant is: a place to enter and to leave, on one server, under a name that contenders share.

A contestant opens its client once per process, and from it as many places as there are contenders. What is timed is
entering and leaving alone, each as the library's manual shows it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeAlias

OPEN_TTL: Final = 3600.0
"""etcd3gw and tooz leave a lease behind with every cycle. Expiring during the run, they would burden everybody's."""
SEATS: Final = 3
_CALL_SECONDS: Final = 120.0


class Place(Protocol):
    """Where one contender waits for its turn. One turn at a time."""

    def enter(self) -> int | None:
        """Wait for it; its token, where the library has one."""

    def leave(self) -> object: ...


class AsyncPlace(Protocol):
    """The same, for a task."""

    def enter(self) -> Awaitable[int | None]: ...
    def leave(self) -> Awaitable[object]: ...


@dataclass(frozen=True)
class Door:
    """What to open: the server's `host:port`, the name, the TTL in seconds. What it opened closes with `stack`."""

    endpoint: str
    name: str
    ttl: float
    stack: ExitStack


Opener: TypeAlias = Callable[[Door], Callable[[], Place]]
AsyncOpener: TypeAlias = Callable[[Door], Callable[[], AsyncPlace]]


@dataclass(frozen=True)
class Blocking:
    """A contestant in Python whose calls block."""

    name: str
    store: str
    open: Opener
    recipe: str = "lock"
    contends: bool = True
    """Can it wait for its turn, and is it worth watching while it does?"""
    leads: bool = False
    """Does it take part in take-over?"""
    package: str | None = None
    missing: Callable[[], str | None] = lambda: None

    def absent(self) -> str | None:
        if self.package is not None and find_spec(self.package) is None:
            return f"the package {self.package} is not installed: `pip install -e '.[bench]'`"
        return self.missing()


@dataclass(frozen=True)
class Tasked:
    """A contestant in Python whose calls are awaited."""

    name: str
    store: str
    open: AsyncOpener
    recipe: str = "lock"
    contends: bool = True
    leads: bool = False
    missing: Callable[[], str | None] = lambda: None

    def absent(self) -> str | None:
        return self.missing()


@dataclass(frozen=True)
class Program:
    """A contestant in another language: a harness program that speaks the protocol of players.py."""

    name: str
    store: str
    command: Callable[[], list[str]]
    """The program's own words, before those of the protocol. Raises Missing."""
    word: str
    """What the harness calls this recipe."""
    recipe: str = "lock"
    contends: bool = True
    leads: bool = False

    def absent(self) -> str | None:
        try:
            self.command()
        except Missing as missing:
            return str(missing)
        return None


Contestant: TypeAlias = Blocking | Tasked | Program


class Missing(Exception):
    """A contestant can't be had; the sentence says how to get it."""


class Loop:
    """An event loop on a thread of its own, for tasks that blocking code wants done. Closes with its stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="benchmark-loop", daemon=True)
        thread.start()
        stack.callback(self._loop.close)
        stack.callback(thread.join, _CALL_SECONDS)
        stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:  # Any: whatever the work comes to
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)


def require(done: object) -> None:
    """What is timed must have been done: an uncontended lock was acquired, a row was written."""
    if not done:
        raise RuntimeError("it was not acquired or not written: what was timed is not a cycle")
