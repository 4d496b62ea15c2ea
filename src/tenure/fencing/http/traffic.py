"""The youngest fence of each line, and the requests that run under one, in this process."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tenure._core.base import validation
from tenure._core.base.limits import LINES_REMEMBERED_MAX
from tenure.errors import StoreRefused
from tenure.fencing._fence import Fence, FenceLike, admit, admitted


class ProcessGuard:
    """A guard that remembers in this process, one fence per line. Thread-safe.

    A second process knows nothing of it, and a restart forgets. It remembers `lines_max` lines and refuses further
    ones with StoreRefused: to forget one would be to accept a stale holder. Raises InvalidOption.
    """

    def __init__(self, *, lines_max: int = LINES_REMEMBERED_MAX) -> None:
        self._lines_max = validation.count(lines_max, "lines_max", maximum=2**31)
        self._guard = threading.Lock()  # guards _seen: between the look and the note nobody may come
        self._seen: dict[str, Fence] = {}

    async def claim(self, fence: FenceLike, resource: str | None = None) -> None:
        """Register the fence for `resource`, or for its line: from here on no older one is accepted.

        Raises StaleToken, FenceMismatch, InvalidFence, StoreRefused.
        """
        fence = Fence.of(fence)
        key = fence.line if resource is None else resource
        with self._guard:
            if key not in self._seen and len(self._seen) >= self._lines_max:
                raise StoreRefused(
                    f"this process remembers {self._lines_max} lines and may forget none: raise `lines_max`, or use "
                    "a guard with a store"
                )
            self._seen[key] = admit(self._seen.get(key), fence)


class ClaimedRequests:
    """The requests of one line in this process, and the youngest fence that was claimed among them.

    Used on the event loop only: no `await` stands between a look at it and what is done about it.
    """

    def __init__(self) -> None:
        self.requests = 0
        self._seen: Fence | None = None
        self._running: Counter[Fence] = Counter()
        self._changed = asyncio.Event()  # one for each change: set and replaced

    def claimed(self, fence: Fence) -> None:
        """The guard has let it in. Its answer may have been overtaken by a younger one's: then StaleToken."""
        self._seen = admit(self._seen, fence)
        self._wake()

    async def drained(self, fence: Fence) -> None:
        """Return once nothing is running that is stale by now. Raises StaleToken as soon as `fence` itself is.

        Those that are still claiming need no waiting for: their next step is `claimed`, and refuses them.
        """
        while True:
            admit(self._seen, fence)
            if not any(self._is_stale(running) for running in self._running):
                return
            await self._changed.wait()  # its end is the caller's time-out

    @contextmanager
    def running(self, fence: Fence) -> Iterator[None]:
        """The app has it from here on."""
        self._running[fence] += 1
        try:
            yield
        finally:
            self._running[fence] -= 1
            if self._running[fence] == 0:
                del self._running[fence]
            self._wake()

    def _is_stale(self, fence: Fence) -> bool:
        return admitted(self._seen, fence) is None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
