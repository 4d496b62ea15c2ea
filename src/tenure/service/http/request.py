"""Requests over ASGI as handlers read it, and the answers that they return: in one piece, or as a stream.

A path is cut into segments before it is decoded, because names may have slashes in them: `/v1/resources/a%2Fb` is the
line `a/b`, and nothing that a client writes there can climb out of its segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

from tenure.service.limits import BODY_BYTES_MAX, BODY_SECONDS, SEND_SECONDS

# Any: what ASGI passes around are dictionaries of anything.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Coroutine[Any, Any, Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

CONNECTION: Final = "tenure.connection"
"""The key in an ASGI scope for the connection that the request came on."""
JSON_TYPE: Final = "application/json"
EVENTS_TYPE: Final = "text/event-stream"
_QUERY_FIELDS_MAX: Final = 32


class Malformed(Exception):
    """The request can't be read; the text says why."""


class TooLarge(Exception):
    """The body has more bytes than are taken."""


class TooSlow(Exception):
    """The body did not come in time."""


class HungUp(Exception):
    """The client has gone."""


class HttpRequest:
    """A request. Header names are in lower case; path segments and query are decoded, strictly."""

    __slots__ = ("_receive", "headers", "method", "peer", "scope", "segments")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope: Scope = scope
        self.method: str = scope["method"]
        client = scope.get("client")
        self.peer: str = client[0] if client else "unix"
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.segments: tuple[str, ...] = ()
        self._receive = receive

    def read_path(self) -> tuple[str, ...]:
        """Decode the segments of the path one by one. Raises Malformed."""
        raw: bytes = self.scope["raw_path"]
        if not raw.startswith(b"/"):
            raise Malformed("the path has to begin with a slash")
        if b"%" in raw:
            self.segments = tuple(_decoded(part) if b"%" in part else _plain(part) for part in raw[1:].split(b"/"))
        else:
            self.segments = tuple(_plain(raw[1:]).split("/"))
        return self.segments

    @property
    def reads(self) -> bool:
        """True where the request changes nothing, whatever becomes of it."""
        return self.method in ("GET", "HEAD")

    def query(self, *, strict: bool = True) -> dict[str, str]:
        """Decode the fields of the query. Raises Malformed, if `strict` also for fields without a value."""
        raw: bytes = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=strict,
                errors="strict",
                max_num_fields=_QUERY_FIELDS_MAX,
            )
        except ValueError as error:
            raise Malformed("the query can't be read: write name=value, percent-encoded, joined by '&'") from error
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Malformed("a field comes twice in the query")
        return found

    def header(self, name: bytes) -> str | None:
        """Return the header of that name; None where there is none. Raises Malformed where it comes twice."""
        found = [value for key, value in self.headers if key == name]
        if len(found) > 1:
            raise Malformed(f"the header {name.decode()} comes {len(found)} times")
        return found[0].decode("latin-1") if found else None

    async def body(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """Read the whole body; to be called once. Raises TooLarge, TooSlow, HungUp, Malformed."""
        announced = self.header(b"content-length")
        if announced is not None and announced.isdecimal() and int(announced[:20]) > bytes_max:
            raise TooLarge  # before a byte of it is read, and before 100-continue asks for it
        message = self._received()
        if message is not None and not message.get("more_body"):  # all of it: a time-out would cost more
            return self._part(message, bytes_max)
        got = [b"" if message is None else self._part(message, bytes_max)]
        left = bytes_max - len(got[0])
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while message is None or message.get("more_body"):
                    message = await self._receive()
                    got.append(self._part(message, left))
                    left -= len(got[-1])
        except TimeoutError:
            raise TooSlow from None
        return b"".join(got)

    async def hung_up(self) -> None:
        """Return when the client has gone. Data beyond the body until then is dropped."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def has_hung_up(self) -> bool:
        """Say whether the client is known to have gone by now. Drops data like `hung_up`, but waits for nothing."""
        while (message := self._received()) is not None:  # ends: that is no more than was read of the connection before
            if message["type"] == "http.disconnect":
                return True
        return False

    def _received(self) -> Message | None:
        """Return the next ASGI message if it has come already; None where it has not."""
        receiving = self._receive()
        try:
            receiving.send(None)
        except StopIteration as stop:
            message: Message = stop.value
            return message
        receiving.close()
        return None

    def _part(self, message: Message, bytes_max: int) -> bytes:
        """Take the part of the body out of a message. Raises TooLarge, HungUp."""
        if message["type"] == "http.disconnect":
            raise HungUp
        part: bytes = message.get("body", b"")
        if len(part) > bytes_max:
            raise TooLarge
        return part


@dataclass(slots=True)
class HttpResponse:
    """An answer in one piece."""

    status: int
    body: bytes
    type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    """The code of a problem, for the log."""

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send the answer. With `close` the connection ends after it, and the rest of the request is not read."""
        headers = [
            (b"content-type", self.type.encode()),
            (b"content-length", b"%d" % len(self.body)),
            (b"cache-control", b"no-store"),
            *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()),
        ]
        if close:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(slots=True)
class EventStream:
    """An answer of server-sent events: the first, and as many more as come."""

    first: bytes
    rest: AsyncIterator[bytes]
    status: int = 200
    code: str | None = None

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send until there are no more, then end the connection. Raises TimeoutError where the client does not read."""
        headers = [
            (b"content-type", EVENTS_TYPE.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx would collect them
            (b"connection", b"close"),
        ]
        rest: Any = self.rest  # an async generator: closed here, so that it gives back its watch
        async with aclosing(rest):
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            await _send_soon(send, self.first)
            async for event in rest:
                await _send_soon(send, event)
        await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """Send nothing, and give back what the stream listens to."""
        rest: Any = self.rest
        await rest.aclose()


async def _send_soon(send: Send, event: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": event, "more_body": True})


def _plain(part: bytes) -> str:
    try:
        return part.decode("ascii")
    except UnicodeDecodeError:
        raise Malformed("the path has bytes in it that are not percent-encoded") from None


def _decoded(part: bytes) -> str:
    if any(not _is_hex(rest[:2]) for rest in part.split(b"%")[1:]):
        raise Malformed("the path has a '%' in it that two hexadecimal digits don't follow")
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the path is not UTF-8, percent-encoded") from None


def _is_hex(digits: bytes) -> bool:
    return len(digits) == 2 and all(digit in b"0123456789abcdefABCDEF" for digit in digits)
