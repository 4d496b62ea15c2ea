"""The server's side: an ASGI middleware that claims, drains, and only then lets a request through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tenure._core.base import validation
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT
from tenure.errors import FenceMismatch, GuardBusy, InvalidFence, InvalidOption, StaleToken, StoreUnavailable
from tenure.fencing._fence import Fence, other_line
from tenure.fencing.http.asgi import (
    HEADER,
    REFUSALS,
    App,
    FenceRequired,
    Message,
    Receive,
    Scope,
    Send,
    SocketRefused,
    answer,
    header_name,
)
from tenure.fencing.http.traffic import ClaimedRequests, ProcessGuard

READS: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
"""The methods that need no fence, unless `methods` says which ones do."""
_SCOPE_KEY: Final = "tenure.fencing._fence"
_CLAIM_SECONDS: Final = REQUEST_TIMEOUT_DEFAULT
_log = logging.getLogger("tenure")


class Guard(Protocol):
    """A guard, as the middleware calls it: `await guard.claim(fence)` raises StaleToken for a stale one."""

    def claim(self, fence: Fence, /) -> Awaitable[object]:
        """Register the fence for its line. Raises StaleToken, FenceMismatch or GuardBusy; all else is a failure."""


class FencingMiddleware:
    """Lets a request through to the ASGI app when its fence is claimed and nothing older runs any more.

    `line` says what protects a request: `line_name(namespace, name)`, or a function of the scope that returns one, or
    None for a request that needs no fence; what the function raises, the server sees. A request must bring a fence
    unless it is one of READS, in capitals; `methods` says instead which ones must, in any case of letters. Any other
    may, and then claims as well: after a younger holder has only read, a late write of an older one is refused.
    `fence_of(scope)` is the claimed fence. Where the app raises StaleToken for that very fence before it answers (from
    its database's guard), the client gets the same 409. For this an answer of 500 or more, and no other, is held back
    until the app ends, receives or sends more.

    A younger request waits until the older ones in this process have ended, at most `drain_seconds`. Requests of
    one fence, and of those that share a hold, run side by side; one middleware object must see all of a line.
    Raises InvalidFence for a `line` that is none, and InvalidOption.
    """

    def __init__(
        self,
        app: App,
        *,
        line: str | Callable[[Scope], str | None],
        guard: Guard | None = None,
        header: str = HEADER,
        methods: tuple[str, ...] | None = None,
        drain_seconds: float = 5.0,
    ) -> None:
        if not callable(line):
            Fence(line, 1)  # refused at start-up, not for every client
        self._app = app
        self._line = line
        self._guard: Guard = ProcessGuard() if guard is None else guard
        self._header = header_name(header).lower().encode("ascii")
        self._methods = None if methods is None else _methods(methods)
        self._drain_seconds = validation.seconds(drain_seconds, "drain_seconds", minimum=0.0)
        self._traffic: dict[str, ClaimedRequests] = {}  # the lines with requests in flight, and no others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI 3 says. Raises what the app raises."""
        line = self._line_of(scope)
        if line is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await _refuse_socket(scope, receive, send)
        elif self._needs_fence(scope):
            await self._serve(line, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _line_of(self, scope: Scope) -> str | None:
        if scope["type"] not in ("http", "websocket"):
            return None
        return self._line(scope) if callable(self._line) else self._line

    def _needs_fence(self, scope: Scope) -> bool:
        if _values(scope, self._header):
            return True
        method: str = scope["method"]
        if self._methods is None:
            return method not in READS  # of what nobody has heard of (MKCOL, QUERY, "get"), nobody knows that it reads
        # upper(): servers pass the method as it came, and there are frameworks that take "post" for POST
        return method.upper() in self._methods

    async def _serve(self, line: str, scope: Scope, receive: Receive, send: Send) -> None:
        protected_by = Fence(line, 1)  # a line that is none is this server's mistake, and no answer to a client
        try:
            fence = _read(protected_by, _values(scope, self._header))
        except REFUSALS as error:
            await answer(error, send)
            return
        with self._in_flight(fence) as traffic:
            try:
                await self._claim(traffic, fence)
            except REFUSALS as error:
                await answer(error, send)
                return
            with traffic.running(fence):  # nothing suspends between the last look of `drained` and this
                await self._pass_on(fence, scope, receive, send)

    @contextmanager
    def _in_flight(self, fence: Fence) -> Iterator[ClaimedRequests]:
        """The traffic of the line. It lives while a request does, claiming ones included."""
        traffic = self._traffic.setdefault(fence.line, ClaimedRequests())
        traffic.requests += 1
        try:
            yield traffic
        finally:
            traffic.requests -= 1
            if traffic.requests == 0:
                del self._traffic[fence.line]

    async def _claim(self, traffic: ClaimedRequests, fence: Fence) -> None:
        """Claim, then drain. In the other order an older one could slip in between. Raises what is in REFUSALS."""
        await self._ask(fence)
        traffic.claimed(fence)
        try:
            async with asyncio.timeout(self._drain_seconds):
                await traffic.drained(fence)
        except TimeoutError:
            raise GuardBusy(
                f"requests of an older holder of {fence.line} did not end within {self._drain_seconds:g} s. This one "
                "was not passed on. Nothing was written. Send it again."
            ) from None

    async def _ask(self, fence: Fence) -> None:
        try:
            async with asyncio.timeout(_CLAIM_SECONDS):
                await self._guard.claim(fence)
        except (StaleToken, FenceMismatch, GuardBusy):
            raise
        except Exception as error:  # whatever the guard's store raises: without its word nothing passes
            _log.error("the guard of %s failed; a request was refused", fence.line, exc_info=error)
            raise StoreUnavailable(
                f"the guard of {fence.line} could not be asked. The request was not passed on. Nothing was written."
            ) from error

    async def _pass_on(self, fence: Fence, scope: Scope, receive: Receive, send: Send) -> None:
        held = _GuardedAnswer(receive, send)
        try:
            await self._app({**scope, _SCOPE_KEY: fence}, held.receive, held.send)
        except StaleToken as error:
            if held.begun or error.offered != str(fence):  # of another fence: the app's own trouble
                raise
            held.take_back()
            await answer(error, send)
        finally:
            await held.release()


class _GuardedAnswer:
    """The app's answer on its way out. Everything passes at once, but for a failure, which is sent in one piece.

    Frameworks send a 500 and raise the error again afterwards: only then it is known whether a 409 was meant. So the
    two messages of a 500 wait here until the app has ended.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.begun = False
        self._receive = receive
        self._send = send
        self._held: list[Message] = []
        self._in_order = asyncio.Lock()  # of what goes out: an app may receive in one task while it sends in another

    async def receive(self) -> Message:
        if self._held:  # the app may wait for its client to go, who waits for this answer
            await self.release()
        return await self._receive()

    async def send(self, message: Message) -> None:
        async with self._in_order:
            if self._may_wait(message):
                self._held.append(message)
            else:
                await self._let_go()
                self.begun = True
                await self._send(message)

    def _may_wait(self, message: Message) -> bool:
        if not self._held:
            return not self.begun and message["type"] == "http.response.start" and message["status"] >= 500
        return len(self._held) == 1 and message["type"] == "http.response.body" and not message.get("more_body")

    def take_back(self) -> None:
        self._held = []

    async def release(self) -> None:
        async with self._in_order:
            await self._let_go()

    async def _let_go(self) -> None:
        held, self._held = self._held, []
        for message in held:
            self.begun = True
            await self._send(message)


def fence_of(scope: Mapping[str, Any]) -> Fence | None:
    """The fence that was claimed for this request; None where none was needed and none was sent.

    Give it to the guard of the database in the transaction that writes: that closes the last gap.
    """
    fence: Fence | None = scope.get(_SCOPE_KEY)
    return fence


async def _refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    if (await receive())["type"] != "websocket.connect":  # it went away first
        return
    error = SocketRefused("one header can't fence a socket that outlives the hold: send requests, each with its fence")
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await answer(error, send, "websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "a WebSocket can't be fenced"})


def _read(protected_by: Fence, values: list[bytes]) -> Fence:
    """The one fence of the request, of the right line. Raises what answers the client."""
    if not values:
        raise FenceRequired(f"{protected_by.line} protects this resource: acquire it and send `str(hold.fence)` along")
    if len(values) > 1:
        raise InvalidFence(f"the header came {len(values)} times; send one fence")
    fence = Fence.parse(values[0].decode("latin-1"))
    if fence.line != protected_by.line:
        raise other_line(protected_by, fence)
    return fence


def _values(scope: Scope, header: bytes) -> list[bytes]:
    """Read a header's values; ASGI asks servers for names in lower case and does not insist."""
    return [value for name, value in scope["headers"] if name.lower() == header]


def _methods(methods: tuple[str, ...]) -> frozenset[str]:
    if isinstance(methods, str):  # its letters would be taken for methods, and nothing would be protected
        raise InvalidOption(f"methods are several: write ({methods!r},)")
    return frozenset(method.upper() for method in methods)
