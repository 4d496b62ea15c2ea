"""The client's side: hooks by which httpx sends fences, and raises what a middleware refused."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from tenure.errors import InvalidOption, LeaseLost, UsageError
from tenure.fencing._fence import FencedHold
from tenure.fencing.http.asgi import HEADER, header_name, may_be_ours, raise_problem

if TYPE_CHECKING:
    import httpx

_PHASES: Final = ("connect", "read", "write", "pool")  # httpx has a time-out for each, and none for all


def fenced(
    hold: FencedHold, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> dict[str, list[Callable[..., Any]]]:
    """Return the hooks for `httpx.Client(event_hooks=fenced(hold))`. See fence_requests. Raises InvalidOption."""
    return {"request": [fence_requests(hold, header=header, origins=origins)], "response": [raise_for_fencing]}


def afenced(
    hold: FencedHold, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> dict[str, list[Callable[..., Any]]]:
    """Return the hooks for `httpx.AsyncClient(event_hooks=afenced(hold))`; they do on a blocking httpx.Client, too.

    See fence_requests. Raises InvalidOption.
    """
    return {"request": [afence_requests(hold, header=header, origins=origins)], "response": [araise_for_fencing]}


def fence_requests(
    hold: FencedHold, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> Callable[[httpx.Request], None]:
    """A request hook: every request carries the fence of `hold`, and none is sent once the hold is lost.

    Who has the fence may depose everybody, so it goes to one origin only, that of the hook's first request, or to
    `origins`, as in ("https://ledger.example:8443",). A request to any other, a redirect included, is not sent.

    The time-outs are clipped to `hold.remaining()`. httpx has one for each phase and for each piece it reads, and
    none for the whole: a server that trickles can outlive the hold, which is why it must check the fence.
    Raises InvalidOption. The hook raises LeaseLost, UsageError for another origin, and InvalidFence where too many
    seats are held together.
    """
    header_name(header)
    allowed = _Origins(origins)

    def fence_request(request: httpx.Request) -> None:
        _fence(request, hold, header, allowed)

    return fence_request


def afence_requests(
    hold: FencedHold, *, header: str = HEADER, origins: tuple[str, ...] | None = None
) -> Callable[[httpx.Request], Awaitable[None]]:
    """Return the request hook for httpx.AsyncClient, which awaits its hooks. `hold` may be of either face."""
    hook = fence_requests(hold, header=header, origins=origins)

    def fence_request(request: httpx.Request) -> Awaitable[None]:
        hook(request)  # at once: a blocking client awaits nothing, and would send without a fence
        return _DONE

    return fence_request


def raise_for_fencing(response: httpx.Response) -> None:
    """Raise StaleToken, FenceMismatch or GuardBusy where a middleware of ours refused with it; also a response hook.

    Every other response is left alone: `response.raise_for_status()` is still yours to call.
    """
    if may_be_ours(response):
        response.read()
        raise_problem(response)


def araise_for_fencing(response: httpx.Response) -> Awaitable[None]:
    """Raise a refusal, as a response hook of httpx.AsyncClient. Raises StaleToken, FenceMismatch, GuardBusy."""
    if hasattr(response.stream, "__aiter__"):
        return _araise_for_fencing(response)
    raise_for_fencing(response)  # of a blocking client, which awaits nothing: now or never
    return _DONE


async def _araise_for_fencing(response: httpx.Response) -> None:
    if may_be_ours(response):
        await response.aread()
        raise_problem(response)


class _Done:
    """An awaitable that is finished, and that warns of nothing where nobody awaits it, unlike a coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE: Final = _Done()


class _Origins:
    """The origins that may see the fence: the given ones, or else that of the hook's first request. Thread-safe."""

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


def _fence(request: httpx.Request, hold: FencedHold, header: str, origins: _Origins) -> None:
    remaining = hold.remaining()
    hold.check()  # after the reading: what had nothing left then is lost by now
    if remaining <= 0.0:
        raise LeaseLost("nothing proves the hold at this moment: the request was not sent")
    origins.check(request.url)
    given = request.extensions.get("timeout", {})
    clipped = {phase: _clip(given.get(phase), remaining) for phase in _PHASES}
    request.extensions = {**request.extensions, "timeout": clipped}
    request.headers[header] = str(hold.fence)


def _clip(seconds: float | None, maximum: float) -> float:
    return maximum if seconds is None else min(seconds, maximum)


def _origins(origins: tuple[str, ...]) -> frozenset[str]:
    if isinstance(origins, str) or not origins:  # its letters would be taken for origins
        raise InvalidOption('origins are one or several: write ("https://ledger.example",)')
    return frozenset(map(_given_origin, origins))


def _given_origin(given: str) -> str:
    import httpx  # who sends by it has it

    try:
        url = httpx.URL(str(given).lower())  # in capitals, "HTTP://ledger:80" would keep its port
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.raw_path != b"/" or url.fragment:
        # not shown: there may be a password in it
        raise InvalidOption("an origin is a scheme, a host and a port that is not the usual one: 'https://ledger:8443'")
    return _origin(url)


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"  # httpx leaves out the user and the usual port
