"""Waiting for a store in one of two ways: a thread blocks, a lane yields its thread to others.

A lane runs on the thread of an event loop, which must not block. Code that is about to wait asks here in which of the
two it runs; in a thread that costs one call. Lanes are made in drivers/greenlets.py, which this module does not import.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

Outcome = TypeVar("Outcome")


class YieldingLane(Protocol):
    """Lane as seen from the code that runs in it: it waits, and leaves the thread to others meanwhile."""

    def moment(self) -> float:
        """Seconds for which the code may keep the thread waiting before it yields: hardly any, or 0.0."""

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        """Wait until `sock` has something to read; False where that took longer than `seconds`."""

    def called(self, start: Callable[[Callable[[], None]], object], seconds: float | None = None) -> bool:
        """Call `start` with a function, and wait until that is called, from any thread; False after `seconds`."""

    def elsewhere(self, call: Callable[[], Outcome], seconds: float) -> Outcome:
        """Run `call`, which may block, on a worker. Raises StoreUnavailable where no worker begins it in time."""


def _nowhere() -> YieldingLane | None:
    return None


_here: Callable[[], YieldingLane | None] = _nowhere


def lane() -> YieldingLane | None:
    """The lane that the caller runs in; None in a thread."""
    return _here()


def elsewhere(call: Callable[[], Outcome], seconds: float) -> Outcome:
    """Run `call` where it may block: on a worker if the caller is in a lane, else right here."""
    here = _here()
    return call() if here is None else here.elsewhere(call, seconds)


def set_finder(here: Callable[[], YieldingLane | None]) -> None:
    """Set the function that finds the lane of the caller."""
    global _here
    _here = here
