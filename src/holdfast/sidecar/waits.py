"""The calls that wait, so that closing can end them: with ClientClosed, told apart from a caller that hung up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from holdfast.errors import ClientClosed

CLOSING: Final = "the service is shutting down; ask another replica"


class Waits:
    """For one event loop."""

    def __init__(self) -> None:
        self._dismissed: dict[asyncio.Task[Any], bool] = {}  # of every task that waits: have we cancelled it?
        self._nobody = asyncio.Event()  # set when the last one has ended

    def __len__(self) -> int:
        return len(self._dismissed)

    @contextmanager
    def one(self) -> Iterator[None]:
        """The running task waits in this block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("this needs a running task")
        before = task.cancelling()
        self._dismissed[task] = False
        try:
            yield
        except asyncio.CancelledError:
            if self._dismissed[task] and task.uncancel() <= before:
                raise ClientClosed(CLOSING) from None
            raise
        finally:
            del self._dismissed[task]
            if not self._dismissed:
                self._nobody.set()

    async def end(self, seconds: float) -> None:
        """End them all; wait at most `seconds` until they have."""
        self._nobody.clear()
        for task in self._dismissed:
            self._dismissed[task] = True
            task.cancel(CLOSING)
        if self._dismissed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nobody.wait(), seconds)
