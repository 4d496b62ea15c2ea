"""The hooks of httpx: what they send, what they never send, and what they make of a refusal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.errors import FenceMismatch, GuardBusy, InvalidOption, LeaseLost, StaleToken, UsageError
from tenure.fencing._fence import Fence, line_name
from tenure.fencing.http import afence_requests, afenced, araise_for_fencing, fence_requests, fenced, raise_for_fencing

LINE = line_name("billing", "ledger")
A, B = Fence(LINE, 33), Fence(LINE, 34)
Result = TypeVar("Result")


def run(main: Awaitable[Result], seconds: float = 30.0) -> Result:
    """A loop of its own for each test; nothing waits for ever."""
    return asyncio.run(asyncio.wait_for(_finished(main), seconds))


async def _finished(main: Awaitable[Result]) -> Result:
    return await main


@dataclass
class Bare:
    """A hold of which only the fence matters, or what is left of it."""

    fence: Fence = A
    left: float = 60.0
    lost: bool = False

    def remaining(self) -> float:
        return self.left

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("told by the test")


class Wire:
    """A transport that notes what is sent, and answers as told."""

    def __init__(self, response: Callable[[], httpx.Response] = lambda: httpx.Response(200)) -> None:
        self.requests: list[httpx.Request] = []
        self._response = response
        self.transport = httpx.MockTransport(self._serve)

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._response()


def timeouts(request: httpx.Request) -> dict[str, float]:
    found: dict[str, float] = request.extensions["timeout"]
    return found


def test_hook_sends_the_fence_and_clips_every_time_out_to_what_remains() -> None:
    """No phase of a request may last longer than the hold is proven."""
    wire = Wire()
    hold = Bare(left=2.5)
    timeout = httpx.Timeout(None, connect=1.0, read=60.0)
    with httpx.Client(transport=wire.transport, event_hooks=fenced(hold), timeout=timeout) as client:
        client.post("http://ledger/")
        hold.left = 0.5
        client.get("http://ledger/", timeout=None)
    assert [request.headers["Fencing-Token"] for request in wire.requests] == [str(A), str(A)]
    assert timeouts(wire.requests[0]) == {"connect": 1.0, "read": 2.5, "write": 2.5, "pool": 2.5}
    assert set(timeouts(wire.requests[1]).values()) == {0.5}


@given(
    st.floats(0.001, 1e6),
    st.dictionaries(st.sampled_from(["connect", "read", "write", "pool"]), st.none() | st.floats(0, 1e9)),
)
def test_clipped_time_out_is_never_above_remaining_nor_above_what_was_asked(
    left: float, asked: dict[str, float | None]
) -> None:
    """For each phase the smaller of the two, also where httpx was told to wait for ever."""
    request = httpx.Request("POST", "http://ledger/", extensions={"timeout": asked, "other": "kept"})
    fence_requests(Bare(left=left))(request)
    clipped = timeouts(request)
    assert set(clipped) == {"connect", "read", "write", "pool"}
    for phase, seconds in clipped.items():
        limit = asked.get(phase)
        assert seconds == (left if limit is None else min(left, limit))
    assert request.extensions["other"] == "kept"


@pytest.mark.parametrize("hold", [Bare(lost=True), Bare(left=0.0)], ids=["lost", "nothing left"])
def test_hold_that_is_lost_sends_nothing(hold: Bare) -> None:
    """LeaseLost before the first byte, on both of httpx's clients."""
    wire = Wire()
    with httpx.Client(transport=wire.transport, event_hooks=fenced(hold)) as client, pytest.raises(LeaseLost):
        client.post("http://ledger/")

    async def main() -> None:
        async with httpx.AsyncClient(transport=wire.transport, event_hooks=afenced(hold)) as client:
            with pytest.raises(LeaseLost):
                await client.post("http://ledger/")

    run(main())
    assert wire.requests == []


def test_real_hold_is_fenced_until_it_is_released(world: Any) -> None:
    """The hook reads a real hold's facts, and never more than its time to live."""
    hold = world.client(owner="me", ttl=60).lock("ledger").acquire(timeout=10)
    wire = Wire()
    with httpx.Client(transport=wire.transport, event_hooks=fenced(hold), timeout=None) as client:
        client.post("http://ledger/")
        assert wire.requests[0].headers["fencing-token"] == str(hold.fence)
        assert all(0 < seconds <= hold.ttl for seconds in timeouts(wire.requests[0]).values())
        hold.release()
        with pytest.raises(LeaseLost):
            client.post("http://ledger/")
    assert len(wire.requests) == 1


def test_asyncio_hold_is_fenced_with_either_of_httpxs_clients() -> None:
    """Only facts are read, so the hook of a blocking client takes it as well."""
    wire = Wire()

    async def main() -> None:
        async with (
            tenure.aio.connect("memory://fenced/ns") as client,
            client.lock("ledger") as hold,
            httpx.AsyncClient(transport=wire.transport, event_hooks={"request": [afence_requests(hold)]}) as there,
        ):
            await there.post("http://ledger/")
            await asyncio.to_thread(post_blocking, wire, hold)
            assert [request.headers["fencing-token"] for request in wire.requests] == [str(hold.fence)] * 2

    run(main())


def post_blocking(wire: Wire, hold: tenure.aio.Hold) -> None:
    with httpx.Client(transport=wire.transport, event_hooks=fenced(hold)) as client:
        client.post("http://ledger/")


def test_redirect_is_fenced_anew() -> None:
    """Each hop is a request of its own: it is checked and clipped by what remains then."""
    hold = Bare(left=4.0)
    hops = iter([302, 200])

    def response() -> httpx.Response:
        hold.left = 1.0
        return httpx.Response(next(hops), headers={"location": "/there"})

    wire = Wire(response)
    with httpx.Client(transport=wire.transport, event_hooks=fenced(hold), follow_redirects=True, timeout=9) as client:
        client.get("http://ledger/")
    assert [timeouts(request)["read"] for request in wire.requests] == [4.0, 1.0]


def test_asyncios_hooks_on_a_blocking_client_fence_all_the_same() -> None:
    """It awaits nothing: what its hooks do not do at once is never done, and nobody is told."""
    wire = Wire()
    hold = Bare(left=2.5)
    with httpx.Client(transport=wire.transport, event_hooks=afenced(hold), timeout=None) as client:
        assert client.post("http://ledger/").status_code == 200
        hold.lost = True
        with pytest.raises(LeaseLost):
            client.post("http://ledger/")
    (request,) = wire.requests
    assert request.headers["Fencing-Token"] == str(A)
    assert set(timeouts(request).values()) == {2.5}


# Where the fence may go.


def moved(to: str) -> Callable[[], httpx.Response]:
    """Answers the first request with a redirect, and all others with 200."""
    answers = iter([httpx.Response(307, headers={"location": to})])
    return lambda: next(answers, httpx.Response(200))


ELSEWHERE = ["http://elsewhere/", "https://ledger/", "http://ledger:8080/", "http://ledger.elsewhere/", "//elsewhere/"]


@pytest.mark.parametrize("there", ELSEWHERE)
def test_redirect_to_another_origin_does_not_get_the_fence(there: str) -> None:
    """Whoever has it may depose everybody. The write is not sent without it, either, on neither of httpx's clients."""
    wire = Wire(moved(there))
    with httpx.Client(transport=wire.transport, event_hooks=fenced(Bare()), follow_redirects=True) as client:
        with pytest.raises(UsageError, match="origins="):
            client.post("http://ledger/")
    assert [request.url.host for request in wire.requests] == ["ledger"]
    other = Wire(moved(there))

    async def main() -> None:
        hooks = afenced(Bare())
        async with httpx.AsyncClient(transport=other.transport, event_hooks=hooks, follow_redirects=True) as client:
            with pytest.raises(UsageError, match="origins="):
                await client.post("http://ledger/")

    run(main())
    assert len(other.requests) == 1


def test_redirect_within_the_origin_gets_the_fence() -> None:
    """However its usual port and the case of its host are written."""
    wire = Wire(moved("http://LEDGER:80/there"))
    with httpx.Client(transport=wire.transport, event_hooks=fenced(Bare()), follow_redirects=True) as client:
        client.post("http://ledger/")
    assert [request.headers["fencing-token"] for request in wire.requests] == [str(A), str(A)]


def test_request_of_ones_own_to_another_origin_is_not_sent() -> None:
    """The origin of the first request is that of the hook, and no secret of the second's URL is told."""
    wire = Wire()
    with httpx.Client(transport=wire.transport, base_url="http://ledger", event_hooks=fenced(Bare())) as client:
        client.get("/")
        with pytest.raises(UsageError, match=r"http://ledger\b.*https://invoices:8443\b") as caught:
            client.get("https://user:secret@invoices:8443/path?secret")
        assert "secret" not in str(caught.value)
        client.get("/")
    assert len(wire.requests) == 2


def test_origins_that_are_named_get_the_fence_and_no_others() -> None:
    """Also where the first request goes elsewhere, and however they are written."""
    wire = Wire(moved("https://invoices:8443/there"))
    hooks = fenced(Bare(), origins=("HTTP://Ledger:80/", "https://invoices:8443", "http://[::1]:8080"))
    with httpx.Client(transport=wire.transport, event_hooks=hooks, follow_redirects=True) as client:
        with pytest.raises(UsageError):
            client.post("http://elsewhere/")
        client.post("http://ledger/")
        client.post("http://[::1]:8080/")
        with pytest.raises(UsageError):
            client.post("https://invoices/")
    assert [request.url.host for request in wire.requests] == ["ledger", "invoices", "::1"]


NO_ORIGINS: list[Any] = [
    "http://ledger",
    (),
    ("ledger",),
    ("ledger:8080",),
    ("//ledger",),
    ("ftp://ledger",),
    ("https://",),
    ("https://ledger/path",),
    ("https://ledger?query",),
    ("https://user:secret@ledger",),
    ("https://ledger:port-secret",),
    (None,),
]


@pytest.mark.parametrize("origins", NO_ORIGINS, ids=str)
def test_origins_that_are_none_are_refused_when_made(origins: Any) -> None:
    """Not at the first request, and without showing what may be a password."""
    for make in (fenced, afenced, fence_requests, afence_requests):
        with pytest.raises(InvalidOption) as caught:
            make(Bare(), origins=origins)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("header", ["", "no good", "f\u00e9nce", None])
def test_hook_with_a_header_that_is_none_is_refused_when_made(header: Any) -> None:
    """Not at the first request."""
    for make in (fenced, afenced, fence_requests, afence_requests):
        with pytest.raises(InvalidOption):
            make(Bare(), header=header)


def test_header_of_another_name_is_sent_under_that_name() -> None:
    """Both sides must be told."""
    wire = Wire()
    with httpx.Client(transport=wire.transport, event_hooks=fenced(Bare(), header="X-Lease")) as client:
        client.get("http://ledger/")
    assert wire.requests[0].headers["x-lease"] == str(A)


def refusals() -> list[Any]:
    stale = {"type": "urn:tenure:stale-token", "detail": "d", "offered": str(A), "seen": str(B)}
    return [
        pytest.param(409, stale, StaleToken, id="stale"),
        pytest.param(409, {"type": "urn:tenure:other-line", "detail": "d"}, FenceMismatch, id="other line"),
        pytest.param(503, {"type": "urn:tenure:guard-busy", "detail": "d"}, GuardBusy, id="busy"),
    ]


@pytest.mark.parametrize(("status", "problem", "error"), refusals())
def test_refusal_of_ours_becomes_its_error_in_both_clients(status: int, problem: Any, error: type[Exception]) -> None:
    """As a hook, where the body has not been read yet, and called on a response that was."""
    headers = {"content-type": "application/problem+json; charset=utf-8"}
    response = httpx.Response(status, headers=headers, json=problem)
    with pytest.raises(error, match="d"):
        raise_for_fencing(response)
    with pytest.raises(error, match="d"):
        run(araise_for_fencing(response))

    def streamed() -> httpx.Response:
        return httpx.Response(status, headers=headers, stream=Slowly(json.dumps(problem).encode()))

    wire = Wire(streamed)
    with httpx.Client(transport=wire.transport, event_hooks=fenced(Bare())) as client, pytest.raises(error):
        client.post("http://ledger/")

    async def main() -> None:
        async with httpx.AsyncClient(transport=wire.transport, event_hooks=afenced(Bare())) as client:
            with pytest.raises(error):
                await client.post("http://ledger/")

    run(main())
    with httpx.Client(transport=wire.transport, event_hooks=afenced(Bare())) as client, pytest.raises(error):
        client.post("http://ledger/")  # asyncio's hooks, which nobody awaits here


class Slowly(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that has not been read when the hook is called."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    async def __aiter__(self) -> Any:
        yield self._body


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "application/problem+json", b'{"type": "urn:tenure:stale-token"}'),
        (409, "application/json", b'{"type": "urn:tenure:stale-token"}'),
        (409, "application/problem+json", b'{"type": "about:blank", "detail": "edit conflict"}'),
        (409, "application/problem+json", b'["urn:tenure:stale-token"]'),
        (409, "application/problem+json", b"not JSON"),
        (409, "application/problem+json", b"\xff\xfe\xfd"),
        (409, "application/problem+json", b"[" * 100_000),
        (409, "application/problem+json", b'{"type": ["urn:tenure:stale-token"]}'),
        (503, "application/problem+json", b'{"type": "urn:tenure:guard-unavailable"}'),
        (428, "application/problem+json", b'{"type": "urn:tenure:fence-required"}'),
        (409, "", b""),
    ],
)
def test_response_that_is_no_refusal_of_ours_is_left_alone(status: int, kind: str, body: bytes) -> None:
    """Another API's 409 is another API's matter."""
    response = httpx.Response(status, headers={"content-type": kind}, content=body)
    raise_for_fencing(response)
    run(araise_for_fencing(response))


def test_problem_without_its_members_is_a_stale_token_all_the_same() -> None:
    """Something in between may have dropped what it did not know."""
    body = {"type": "urn:tenure:stale-token"}
    response = httpx.Response(409, headers={"content-type": "application/problem+json"}, json=body)
    with pytest.raises(StaleToken) as caught:
        raise_for_fencing(response)
    assert (caught.value.offered, caught.value.seen) == ("", "")


@pytest.mark.parametrize(
    "told",
    [b"", b"urn:tenure:stale-token", b"{", b"[]", b"[" * 5_000, b'{"type": null}', b'{"type": "other"}', b"\xe9"],
)
def test_header_that_tells_no_refusal_of_ours_is_left_alone(told: bytes) -> None:
    """A header may say anything."""
    raise_for_fencing(httpx.Response(409, headers={b"fencing-problem": told}))


def test_refusal_in_the_header_alone_counts_only_where_it_is_one() -> None:
    """An answer that succeeded is no refusal, whatever its headers are called."""
    headers = {"fencing-problem": json.dumps({"type": "urn:tenure:stale-token"})}
    raise_for_fencing(httpx.Response(200, headers=headers))
    for body in (b"", b"<h1>Conflict</h1>", b'{"type": "about:blank"}'):  # a gateway may have its own
        with pytest.raises(StaleToken):
            raise_for_fencing(httpx.Response(409, headers=headers, content=body))


def test_importing_the_module_imports_neither_httpx_nor_a_framework() -> None:
    """The server's side needs no client, and the other way round."""
    program = (
        "import tenure.fencing.http, sys; print([m for m in ('httpx', 'starlette', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
