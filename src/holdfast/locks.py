"""Waiting for a lock until a moment, so that it is given back whatever a signal handler raises.

The interpreter looks for signals after every call. Between `lock.acquire(timeout=…)` and the `try` that follows it an
interrupt finds the lock taken and nobody to give it back: the next thread waits for it for ever. So:

    taken: list[bool] = []
    try:
        if not take(lock.acquire, seconds, taken):
            raise …
        …
    finally:
        if taken and taken[0]:  # no call before the release
            lock.release()
"""

from __future__ import annotations

from collections.abc import Callable


def take(acquire: Callable[[bool, float], bool], seconds: float, taken: list[bool]) -> bool:
    """Wait for a lock for at most `seconds`; whether it was had is written into `taken`, too."""
    taken.extend(map(acquire, (True,), (max(0.0, seconds),)))  # one call takes it and writes that down
    return taken[-1]
