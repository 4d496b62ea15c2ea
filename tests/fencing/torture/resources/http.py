"""A counter in a process of its own, behind the middleware, reached over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tenure import Hold
from tenure.fencing.http import HEADER, raise_for_fencing
from tests.fencing.torture.check import Contents, Entry
from tests.fencing.torture.events import What

from . import end_of_ours

PATH = "/counter"
ALL_PATH = "/all"
_REQUEST_SECONDS = 10.0


class HTTPResource:
    """A counter behind HTTP.

    Not by `fenced(hold)`: that would refuse by belief, clip the time-outs, and hide what the server decides.
    """

    def __init__(self, address: str) -> None:
        self._client = _client(address, response=[raise_for_fencing])

    def read(self, hold: Hold) -> int:
        answer = self._client.get(PATH, headers={HEADER: str(hold.fence)}).raise_for_status()
        count: int = answer.json()["count"]
        return count

    def write(self, hold: Hold, count: int, element: str) -> None:
        body = {"count": count, "token": hold.token, "element": element}
        self._client.put(PATH, json=body, headers={HEADER: str(hold.fence)}).raise_for_status()

    def turn_over(self) -> None:
        """Nothing is left of it."""

    def end_of(self, error: Exception) -> What | None:
        if isinstance(error, httpx.TransportError):
            return What.FAIL if isinstance(error, httpx.ConnectError) else What.INFO
        return end_of_ours(error)

    def close(self) -> None:
        self._client.close()


class HTTPTarget:
    """The counter as an administrator sees it, on a path that needs no fence."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = _client(address)

    def contents(self) -> Contents:
        found = self._client.get(ALL_PATH).raise_for_status().json()
        return Contents(found["count"], frozenset(found["elements"]), tuple(Entry(*line) for line in found["journal"]))

    def close(self) -> None:
        self._client.close()


def _client(address: str, **hooks: list[Callable[..., Any]]) -> httpx.Client:  # Any: httpx's own type for them
    return httpx.Client(base_url=address, timeout=_REQUEST_SECONDS, event_hooks=hooks)
