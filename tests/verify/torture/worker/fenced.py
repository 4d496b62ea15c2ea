"""A worker's way to the fenced store: one connection per actor, of either face. A failure leaves open what happened."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from typing import Any, Final, Protocol

_ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the fenced store: what became of a request, and what is there now."""

    accepted: bool
    basis: int
    count: int


class Store(Protocol):
    """The store, to one actor. `ask` returns an Answer, or an awaitable of one. Raises OSError, ValueError."""

    def ask(self, request: dict[str, Any]) -> Any: ...  # Any: depends on the face
    def close(self) -> None: ...


class BlockingStore:
    """A connection to the fenced store for threads."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_SECONDS)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")

    def ask(self, request: dict[str, Any]) -> Answer:
        self._socket.sendall(_line(request))
        return _answer(self._answers.readline())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class AsyncStore:
    """A connection to the fenced store for tasks. Connects at the first request."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: dict[str, Any]) -> Answer:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(self._path)
            reader, writer = self._streams
            writer.write(_line(request))
            return _answer(await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS))
        except BaseException:  # cancelled in the midst of it: the answer that comes is not the next request's
            self.close()
            raise

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _answer(line: bytes) -> Answer:
    if not line:
        raise ConnectionError("the fenced store hung up")
    return Answer(**json.loads(line))
