"""Fences over HTTP: an ASGI middleware that refuses stale holders, and hooks by which httpx sends fences.

    server    app = FencingMiddleware(app, line=line_name("billing", "ledger"))
    client    httpx.Client(event_hooks=fenced(hold)), httpx.AsyncClient(event_hooks=afenced(hold))

What it promises. Once a request with a younger fence was claimed, reads included, no older one reaches the app, and
none that had reached it still runs when the younger one does: claim, then drain, then the app.

What it does not.
- The drain sees the requests that pass one middleware object: one process, one event loop. ProcessGuard remembers
  in this process, and a restart forgets. With several worker processes, or restarts that matter, give a guard whose
  memory is shared, or hand `fence_of(scope)` to the database's guard in the transaction that writes. Only the latter
  closes the gap between processes.
- A request ends when the app's call does. A thread or task that the app leaves running is not waited for.
- A fence is no credential: whoever may send one can depose everybody. Authenticate outside of this middleware.
- GET, HEAD, OPTIONS and TRACE pass without a fence, and so does what `methods` leaves out where it is given. Rewrite
  methods (overrides) outside of it, too.
- StaleToken from inside the app becomes a 409 only where it comes out of the app. A handler that turns it into an
  answer has answered; one that sends 500 and raises it again, as Starlette's outermost does, is no matter.
- A long-lived socket can't be fenced by one header: a WebSocket on a protected line is refused.

Refusals are problem details (RFC 9457). Nothing of a refused request was passed to the app. Their `type`s:

    urn:holdfast:fence-required      428  the header is missing
    urn:holdfast:invalid-fence       400  it is no fence, or came twice
    urn:holdfast:stale-token         409  a younger holder was seen; members `offered` and `seen` are the fences
    urn:holdfast:other-line          409  it is a fence of another line
    urn:holdfast:guard-busy          503  requests of an older holder did not end in time; Retry-After
    urn:holdfast:guard-unavailable   503  the guard failed: without its answer nothing passes; Retry-After
    urn:holdfast:websocket-refused   403  where the server can answer a WebSocket so, else it is closed with 1008

The answer to a HEAD has no body, so a header tells it as well: `Fencing-Problem: {"type": …, "offered": …, "seen": …}`.
Where the fences would make it too long it has the type only.

asyncio only. No web framework is imported, and httpx only where `origins` are given.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from holdfast import checks
from holdfast.errors import (
    FenceMismatch,
    GuardBusy,
    HoldfastError,
    InvalidFence,
    InvalidOption,
    LeaseLost,
    StaleToken,
    StoreRefused,
    StoreUnavailable,
    UsageError,
)
from holdfast.fence import Fence, admit, other_line
from holdfast.limits import LINES_REMEMBERED_MAX, REQUEST_TIMEOUT_DEFAULT

if TYPE_CHECKING:
    import httpx

# Any: what ASGI passes around are dictionaries of anything.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER: Final = "Fencing-Token"
"""The header that carries `str(hold.fence)`, unless both sides are told another."""
PROBLEM_HEADER: Final = "Fencing-Problem"
"""The header of a refusal that tells its `type`, `offered` and `seen` to those who get no body."""
READS: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
"""The methods that need no fence, unless the middleware is told which ones do."""

_SCOPE_KEY: Final = "holdfast.fence"
_CLAIM_SECONDS: Final = REQUEST_TIMEOUT_DEFAULT
_RETRY_AFTER: Final = (b"retry-after", b"1")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}\Z")
_PROBLEM_CHARACTERS_MAX: Final = 1024  # some proxies take 4 KiB for all headers together
_PHASES: Final = ("connect", "read", "write", "pool")  # httpx has a time-out for each, and none for all
_log = logging.getLogger("holdfast")


class Guard(Protocol):
    """What the middleware asks: any guard of which `await guard.claim(fence)` raises StaleToken for a stale one."""

    def claim(self, fence: Fence, /) -> Awaitable[object]:
        """Register the fence for its line. Raises StaleToken, FenceMismatch or GuardBusy; all else is a failure."""


class Held(Protocol):
    """What the hooks read of a hold, blocking or asyncio's: nothing that talks to the store."""

    @property
    def fence(self) -> Fence:
        """The token as a value."""

    def remaining(self) -> float:
        """Seconds for which the hold is still proven."""

    def check(self) -> None:
        """Raise LeaseLost when the hold can't be proven."""


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
            Fence(line, 1)  # told at start-up, not to every client
        self._app = app
        self._line = line
        self._guard: Guard = ProcessGuard() if guard is None else guard
        self._header = _header_name(header).lower().encode("ascii")
        self._methods = None if methods is None else _methods(methods)
        self._drain_seconds = checks.seconds(drain_seconds, "drain_seconds", least=0.0)
        self._traffic: dict[str, _Traffic] = {}  # the lines with requests in flight, and no others

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
        except _REFUSALS as error:
            await _answer(error, send)
            return
        with self._in_flight(fence) as traffic:
            try:
                await self._claim(traffic, fence)
            except _REFUSALS as error:
                await _answer(error, send)
                return
            with traffic.running(fence):  # nothing suspends between the last look of `drained` and this
                await self._pass_on(fence, scope, receive, send)

    @contextmanager
    def _in_flight(self, fence: Fence) -> Iterator[_Traffic]:
        """The traffic of the line. It lives while a request does, claiming ones included."""
        traffic = self._traffic.setdefault(fence.line, _Traffic())
        traffic.requests += 1
        try:
            yield traffic
        finally:
            traffic.requests -= 1
            if traffic.requests == 0:
                del self._traffic[fence.line]

    async def _claim(self, traffic: _Traffic, fence: Fence) -> None:
        """Claim, then drain. In the other order an older one could slip in between. Raises what is in _REFUSALS."""
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
        answer = _Answer(receive, send)
        try:
            await self._app({**scope, _SCOPE_KEY: fence}, answer.receive, answer.send)
        except StaleToken as error:
            if answer.begun or error.offered != str(fence):  # of another fence: the app's own trouble
                raise
            answer.take_back()
            await _answer(error, send)
        finally:
            await answer.release()


class _Answer:
    """The app's answer on its way out. Everything passes at once, but for a failure that is told in one piece.

    Frameworks send a 500 and raise the error again afterwards: only then it is known whether a 409 was meant. So the
    two messages of a 500 wait here until the app has ended.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.begun = False
        self._receive = receive
        self._send = send
        self._held: list[Message] = []

    async def receive(self) -> Message:
        await self.release()  # the app may wait for its client to go, who waits for this answer
        return await self._receive()

    async def send(self, message: Message) -> None:
        if self._may_wait(message):
            self._held.append(message)
        else:
            await self.release()
            self.begun = True
            await self._send(message)

    def _may_wait(self, message: Message) -> bool:
        if not self._held:
            return not self.begun and message["type"] == "http.response.start" and message["status"] >= 500
        return len(self._held) == 1 and message["type"] == "http.response.body" and not message.get("more_body")

    def take_back(self) -> None:
        self._held = []

    async def release(self) -> None:
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


class ProcessGuard:
    """A guard that remembers in this process, one fence per line. Thread-safe.

    A second process knows nothing of it, and a restart forgets. It remembers `lines_max` lines and refuses further
    ones with StoreRefused: to forget one would be to accept a stale holder. Raises InvalidOption.
    """

    def __init__(self, *, lines_max: int = LINES_REMEMBERED_MAX) -> None:
        self._lines_max = checks.count(lines_max, "lines_max", most=2**31)
        self._guard = threading.Lock()  # guards _seen: between the look and the note nobody may come
        self._seen: dict[str, Fence] = {}

    async def claim(self, fence: Fence | str, resource: str | None = None) -> None:
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


class _Traffic:
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
        try:
            admit(self._seen, fence)
        except StaleToken:
            return True
        return False

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


# The client's side: hooks for httpx.


def fenced(
    hold: Held, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> dict[str, list[Callable[..., Any]]]:
    """Both hooks, for `httpx.Client(event_hooks=fenced(hold))`. See fence_requests. Raises InvalidOption."""
    return {"request": [fence_requests(hold, header=header, origins=origins)], "response": [raise_for_fencing]}


def afenced(
    hold: Held, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> dict[str, list[Callable[..., Any]]]:
    """Both hooks, for `httpx.AsyncClient(event_hooks=afenced(hold))`; they do on a blocking httpx.Client, too.

    See fence_requests. Raises InvalidOption.
    """
    return {"request": [afence_requests(hold, header=header, origins=origins)], "response": [araise_for_fencing]}


def fence_requests(
    hold: Held, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> Callable[[httpx.Request], None]:
    """A request hook: every request carries the fence of `hold`, and none is sent once the hold is lost.

    Who has the fence may depose everybody, so it goes to one origin only, that of the hook's first request, or to
    `origins`, as in ("https://ledger.example:8443",). A request to any other, a redirect included, is not sent.

    The time-outs are clipped to `hold.remaining()`. httpx has one for each phase and for each piece it reads, and
    none for the whole: a server that trickles can outlive the hold, which is why it must check the fence.
    Raises InvalidOption. The hook raises LeaseLost, UsageError for another origin, and InvalidFence where too many
    seats are held together.
    """
    _header_name(header)
    allowed = _Origins(origins)

    def fence_request(request: httpx.Request) -> None:
        _fence(request, hold, header, allowed)

    return fence_request


def afence_requests(
    hold: Held, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> Callable[[httpx.Request], Awaitable[None]]:
    """The same for httpx.AsyncClient, which awaits its hooks. `hold` may be of either face."""
    hook = fence_requests(hold, header=header, origins=origins)

    def fence_request(request: httpx.Request) -> Awaitable[None]:
        hook(request)  # at once: a blocking client awaits nothing, and would send without a fence
        return _DONE

    return fence_request


def raise_for_fencing(response: httpx.Response) -> None:
    """Raise StaleToken, FenceMismatch or GuardBusy where a middleware of ours refused with it; also a response hook.

    Every other response is left alone: `response.raise_for_status()` is still yours to call.
    """
    if _may_be_ours(response):
        response.read()
        _raise_problem(response)


def araise_for_fencing(response: httpx.Response) -> Awaitable[None]:
    """The same as a response hook of httpx.AsyncClient. Raises StaleToken, FenceMismatch, GuardBusy."""
    if hasattr(response.stream, "__aiter__"):
        return _araise_for_fencing(response)
    raise_for_fencing(response)  # of a blocking client, which awaits nothing: now or never
    return _DONE


async def _araise_for_fencing(response: httpx.Response) -> None:
    if _may_be_ours(response):
        await response.aread()
        _raise_problem(response)


class _Done:
    """An awaitable that is finished, and that warns of nothing where nobody awaits it, unlike a coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE: Final = _Done()


class _Origins:
    """Where a hook may send the fence: where it was told, or else where its first request goes. Thread-safe."""

    def __init__(self, origins: tuple[str, ...] | None) -> None:
        self._guard = threading.Lock()  # guards _allowed: only one request is the first
        self._allowed = None if origins is None else _origins(origins)

    def check(self, url: httpx.URL) -> None:
        """Raise UsageError for a URL of another origin."""
        origin = _origin(url)
        with self._guard:
            if self._allowed is None:
                self._allowed = frozenset((origin,))
        if origin not in self._allowed:
            raise UsageError(
                f"the fence may go to {', '.join(sorted(self._allowed))}, and this request goes to {origin}. It was "
                "not sent. Name every origin that may see the fence in `origins=`, or make a hook for each"
            )


def _fence(request: httpx.Request, hold: Held, header: str, origins: _Origins) -> None:
    remaining = hold.remaining()
    hold.check()  # after the reading: what had nothing left then is lost by now
    if remaining <= 0.0:
        raise LeaseLost("nothing proves the hold at this moment: the request was not sent")
    origins.check(request.url)
    given = request.extensions.get("timeout", {})
    clipped = {phase: _clip(given.get(phase), remaining) for phase in _PHASES}
    request.extensions = {**request.extensions, "timeout": clipped}
    request.headers[header] = str(hold.fence)


def _clip(seconds: float | None, most: float) -> float:
    return most if seconds is None else min(seconds, most)


def _may_be_ours(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    is_problem = kind.split(";")[0].strip().lower() == "application/problem+json" or PROBLEM_HEADER in response.headers
    return is_problem and response.status_code in (409, 503)


def _raise_problem(response: httpx.Response) -> None:
    # the header's word counts: a gateway that replaced the body has no part in what the fence was told
    problem = _members(response.content) | _members(response.headers.get(PROBLEM_HEADER, ""))
    kind, offered, seen = problem.get("type"), str(problem.get("offered", "")), str(problem.get("seen", ""))
    detail = str(problem.get("detail") or f"the server refused the fence {offered}: {kind}, seen {seen or 'unknown'}")
    if kind == _STALE:
        raise StaleToken(detail, offered=offered, seen=seen)
    if kind == _OTHER_LINE:
        raise FenceMismatch(detail)
    if kind == _BUSY:
        raise GuardBusy(detail)


def _members(told: str | bytes) -> dict[str, object]:
    """Those of a JSON object; of anything else none: then it is not what its type says, so not ours."""
    try:
        problem = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


# What a refused client reads.


class _FenceRequired(UsageError):
    """The request brings no fence."""


class _SocketRefused(UsageError):
    """A WebSocket on a protected line."""


_STALE: Final = "urn:holdfast:stale-token"
_OTHER_LINE: Final = "urn:holdfast:other-line"
_BUSY: Final = "urn:holdfast:guard-busy"
_PROBLEMS: Final[Mapping[type[HoldfastError], tuple[str, int, str]]] = {
    _FenceRequired: ("urn:holdfast:fence-required", 428, "A fencing token is required"),
    InvalidFence: ("urn:holdfast:invalid-fence", 400, "Not a fencing token"),
    StaleToken: (_STALE, 409, "The fencing token is stale"),
    FenceMismatch: (_OTHER_LINE, 409, "A fencing token of another line"),
    GuardBusy: (_BUSY, 503, "An older holder's requests are still running"),
    StoreUnavailable: ("urn:holdfast:guard-unavailable", 503, "The fencing token could not be checked"),
    _SocketRefused: ("urn:holdfast:websocket-refused", 403, "A WebSocket can't be fenced"),
}
_REFUSALS: Final = tuple(_PROBLEMS)


async def _answer(error: HoldfastError, send: Send, prefix: str = "http.response") -> None:
    kind, status, title = next(told for of, told in _PROBLEMS.items() if isinstance(error, of))
    problem = {"type": kind, "title": title, "status": status, "detail": str(error)}
    if isinstance(error, StaleToken):
        problem |= {"offered": error.offered, "seen": error.seen}
    body = json.dumps(problem).encode("ascii")
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (PROBLEM_HEADER.lower().encode("ascii"), _in_header(problem).encode("ascii")),
        (b"cache-control", b"no-store"),  # RFC 6585 forbids to store a 428; no refusal is true for long
        *([_RETRY_AFTER] if status == 503 else []),
    ]
    await send({"type": f"{prefix}.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})


def _in_header(problem: Mapping[str, object]) -> str:
    """Its short form. JSON is ASCII in one line: whatever a guard or an app put into its error, no header ends here."""
    short = json.dumps({name: problem[name] for name in ("type", "offered", "seen") if name in problem})
    return short if len(short) <= _PROBLEM_CHARACTERS_MAX else json.dumps({"type": problem["type"]})


async def _refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    if (await receive())["type"] != "websocket.connect":  # it went away first
        return
    error = _SocketRefused("one header can't fence a socket that outlives the hold: send requests, each with its fence")
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _answer(error, send, "websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "a WebSocket can't be fenced"})


def _read(protected_by: Fence, values: list[bytes]) -> Fence:
    """The one fence of the request, of the right line. Raises what answers the client."""
    if not values:
        raise _FenceRequired(f"{protected_by.line} protects this resource: acquire it and send `str(hold.fence)` along")
    if len(values) > 1:
        raise InvalidFence(f"the header came {len(values)} times; send one fence")
    fence = Fence.parse(values[0].decode("latin-1"))
    if fence.line != protected_by.line:
        raise other_line(protected_by, fence)
    return fence


def _values(scope: Scope, header: bytes) -> list[bytes]:
    """What the request brings under this name; ASGI asks servers for lower case and does not insist."""
    return [value for name, value in scope["headers"] if name.lower() == header]


def _header_name(header: str) -> str:
    if not isinstance(header, str) or not _HEADER_NAME.match(header):
        raise InvalidOption(f"not the name of a header: {str(header)[:60]!r}")
    return header


def _methods(methods: tuple[str, ...]) -> frozenset[str]:
    if isinstance(methods, str):  # its letters would be taken for methods, and nothing would be protected
        raise InvalidOption(f"methods are several: write ({methods!r},)")
    return frozenset(method.upper() for method in methods)


def _origins(origins: tuple[str, ...]) -> frozenset[str]:
    if isinstance(origins, str) or not origins:  # its letters would be taken for origins
        raise InvalidOption('origins are one or several: write ("https://ledger.example",)')
    return frozenset(map(_told_origin, origins))


def _told_origin(told: str) -> str:
    import httpx  # who sends by it has it

    try:
        url = httpx.URL(str(told).lower())  # in capitals, "HTTP://ledger:80" would keep its port
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.raw_path != b"/" or url.fragment:
        # not shown: there may be a password in it
        raise InvalidOption("an origin is a scheme, a host and a port that is not the usual one: 'https://ledger:8443'")
    return _origin(url)


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"  # httpx leaves out the user and the usual port
