"""Server-sent events: their text, and what all streams have in common."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.sidecar.exchange import Stream
from holdfast.sidecar.feeds import Listener
from holdfast.sidecar.routes import Call

if TYPE_CHECKING:
    from holdfast.sidecar.service import Service

KEEP_ALIVE: Final = b": still here\n\n"


def event(name: str, told: Any) -> bytes:
    """One event. JSON is one line, so nothing in it can end the event."""
    return f"event: {name}\ndata: {json.dumps(told)}\n\n".encode()


async def begun(events: AsyncIterator[bytes]) -> Stream:
    """A stream whose first event is there: what goes wrong until then is raised, and told as a problem."""
    return Stream(await anext(events), events)


@asynccontextmanager
async def living(service: Service, call: Call, listener: Listener[Any]) -> AsyncIterator[Callable[[], bool]]:
    """Whether the stream goes on: not when its client has hung up, its token was taken back, or the service ends.

    The listener is woken by the first and the last; the second is seen at the next event or sign of life.
    """
    over = asyncio.create_task(call.request.hung_up())
    over.add_done_callback(lambda _: listener.wake())
    try:
        with call.usage.streaming(), service.drain.tells(listener.wake):
            yield lambda: not (over.done() or service.drain.begun) and service.admits(call.caller)
    finally:
        over.cancel()
        await asyncio.gather(over, return_exceptions=True)
