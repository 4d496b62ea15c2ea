"""Where a call waits for a store: in a thread, which may block, or in a lane, which goes aside.

A lane is on the thread of an event loop, and that must not wait. What would wait asks here in which of the two it is.
In a thread that costs one call. Lanes are made in lanes.py; here nothing of theirs is needed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

Outcome = TypeVar("Outcome")


class Lane(Protocol):
    """What waits for one that is in it, and leaves the thread to others meanwhile."""

    def moment(self) -> float:
        """For how many seconds it may keep the thread waiting before it goes aside: hardly any, or 0.0."""

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        """Is there something to be read of it within that time?"""

    def told(self, tell: Callable[[Callable[[], None]], object], seconds: float | None = None) -> bool:
        """Hand a function to `tell`; is it called within that time, if there is one? It may be from any thread."""

    def elsewhere(self, call: Callable[[], Outcome], seconds: float) -> Outcome:
        """What `call` comes to on a worker, which may block. Raises StoreUnavailable where none begins it in time."""


def _nowhere() -> Lane | None:
    return None


_here: Callable[[], Lane | None] = _nowhere


def lane() -> Lane | None:
    """The one that the caller is in; None in a thread."""
    return _here()


def elsewhere(call: Callable[[], Outcome], seconds: float) -> Outcome:
    """What `call` comes to, where it may block: right here in a thread."""
    here = _here()
    return call() if here is None else here.elsewhere(call, seconds)


def found_by(here: Callable[[], Lane | None]) -> None:
    """How to find it, from now on."""
    global _here
    _here = here
