"""The counter over HTTP, in a process of its own: `python -m tests.fencing.torture.counter_server SOCKET LINE`.

It reads, waits, and writes: what two requests do at once, one of them loses. Without LINE there is no middleware.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from typing import Any, Final

import uvicorn

from tenure.fencing.http import App, FencingMiddleware, Receive, Scope, Send, fence_of

from .resources.http import ALL_PATH, PATH

_PAUSE_SECONDS: Final = 0.01
_LONG_PAUSE_SECONDS: Final = 0.25  # time enough for another holder to come meanwhile
_LONG_SHARE: Final = 0.4


class Counter:
    """An ASGI app that protects nothing by itself."""

    def __init__(self) -> None:
        self._count = 0
        self._elements: tuple[str, ...] = ()
        self._journal: list[list[Any]] = []  # Any: what JSON has

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: dict[str, Any] = {"count": self._count}
        if scope["method"] == "PUT":
            await self._add(fence_of(scope), json.loads(await _body(receive)))
        elif scope["path"] == ALL_PATH:
            answer |= {"elements": self._elements, "journal": self._journal}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _add(self, fence: Any, told: dict[str, Any]) -> None:
        elements = self._elements
        await asyncio.sleep(
            random.random() * (_LONG_PAUSE_SECONDS if random.random() < _LONG_SHARE else _PAUSE_SECONDS)
        )
        token = told["token"] if fence is None else fence.token
        self._count, self._elements = told["count"], (*elements, told["element"])
        self._journal.append([told["count"], token, told["element"]])


async def _body(receive: Receive) -> bytes:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


def main(descriptor: str, line: str = "") -> None:
    """Serve until a signal ends it."""
    app: App = Counter()
    if line:
        app = FencingMiddleware(app, line=lambda scope: line if scope["path"] == PATH else None)
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(descriptor))])


if __name__ == "__main__":
    main(*sys.argv[1:])
