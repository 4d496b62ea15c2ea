"""Fences over HTTP: who reaches the app, who waits, who is refused, and what is never sent."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import (
    FenceMismatch,
    GuardBusy,
    InvalidFence,
    InvalidOption,
    StaleToken,
    StoreRefused,
    StoreUnavailable,
    TenureError,
)
from tenure.fencing._fence import Fence, admit, line_name
from tenure.fencing.http import (
    App,
    FencingMiddleware,
    Guard,
    Message,
    ProcessGuard,
    Receive,
    Scope,
    Send,
    afenced,
    fence_of,
    middleware,
    raise_for_fencing,
    traffic,
)

from .conftest import Rivals
from .test_http_client import LINE, A, B, Bare, run

if TYPE_CHECKING:
    from tenure.fencing.redis import AsyncRedisGuard

    def fits(guard: AsyncRedisGuard) -> Guard:
        """Proof for mypy: the guard that several processes share has the shape the middleware asks for."""
        return guard


C = Fence(LINE, 35)
IDS = tuple(f"{number:020x}" for number in range(6))


# The stage.


class Ledger:
    """The app: a POST appends what it brings and tells what stood there before. `/slow` begins and waits for `go`."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.fences: list[Fence | None] = []
        self.calls = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.claimed: dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        self.fences.append(fence_of(scope))
        body = await body_of(receive)
        if scope["path"] == "/slow":
            self.begun.set()
            await self.go.wait()
        await self._obey(scope["path"])
        saw = list(self.entries)
        if scope["method"] == "POST":
            self.entries.append(body.decode())
        await answer(send, {"saw": saw, "fence": str(fence_of(scope))})

    async def _obey(self, path: str) -> None:
        """Do what a test in another thread asks for, unfenced."""
        if path == "/control/begun":
            await self.begun.wait()
        elif path == "/control/go":
            self.go.set()
        elif path.startswith("/control/claimed/"):
            await self.claimed[int(path.rpartition("/")[2])].wait()


class Told:
    """A guard that tells when a token was claimed; or another guard behind it does the work."""

    def __init__(self, claimed: dict[int, asyncio.Event], guard: Guard | None = None) -> None:
        self._claimed = claimed
        self._guard: Guard = guard or ProcessGuard()

    async def claim(self, fence: Fence, resource: str | None = None) -> str:
        await self._guard.claim(fence)
        self._claimed[fence.token].set()
        return "any answer will do"


class Far:
    """A guard on the other side of a network: claims and answers travel, and overtake each other."""

    def __init__(self, travel: Callable[[Fence], Awaitable[None]]) -> None:
        self._near = ProcessGuard()
        self._travel = travel

    async def claim(self, fence: Fence) -> None:
        try:
            await self._near.claim(fence)
        finally:
            await self._travel(fence)


class Broken:
    """A guard that raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def claim(self, fence: Fence) -> None:
        raise self._error


async def body_of(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def answer(send: Send, content: object) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


@dataclass
class Answer:
    """The answer that an ASGI server was told to send."""

    messages: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.messages[0]["headers"])

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers[b"content-type"] == b"application/problem+json"
        assert int(self.headers[b"content-length"]) == len(self.messages[1]["body"])
        problem: dict[str, Any] = json.loads(self.messages[1]["body"])
        assert problem["status"] == self.status
        assert set(problem) - {"offered", "seen"} == {"type", "title", "status", "detail"}
        return problem

    @property
    def type(self) -> str:
        return str(self.problem["type"])


def scope_of(*headers: tuple[bytes, bytes], method: str = "POST", path: str = "/", kind: str = "http") -> Scope:
    asgi = {"version": "3.0", "spec_version": "2.4"}
    return {"type": kind, "asgi": asgi, "method": method, "path": path, "headers": list(headers)}


def sent(fence: object) -> tuple[bytes, bytes]:
    return b"fencing-token", str(fence).encode("latin-1")


async def call(app: App, *headers: tuple[bytes, bytes], body: bytes = b"raw", **scope: Any) -> Answer:
    """Send one request as a server would bring it, every byte under the test's thumb."""
    told = Answer()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        told.messages.append(message)

    await app(scope_of(*headers, **scope), receive, send)
    return told


def visitor(app: App, hold: Any) -> httpx.AsyncClient:
    """The holder's own client. Any: a hold of either face, a fake, or a bare fence."""
    held = Bare(hold) if isinstance(hold, Fence) else hold
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://ledger", event_hooks=afenced(held))


def stage(line: str = LINE, **options: Any) -> tuple[Ledger, FencingMiddleware]:
    """The app behind the middleware; under /control nothing is protected."""
    ledger = Ledger()
    options.setdefault("guard", Told(ledger.claimed))

    def protects(scope: Scope) -> str | None:
        return None if scope["path"].startswith("/control/") else line

    return ledger, FencingMiddleware(ledger, line=protects, **options)


# Two holders, on every store.


def test_deposed_holder_that_resumes_gets_409_and_the_second_ones_data_stays(rivals: Rivals) -> None:
    """A stopped past its TTL, B writes, A resumes: StaleToken names both tokens, and nothing of A is written."""
    ledger, app = stage(rivals.first.fence.line)
    second = rivals.depose()

    async def main() -> None:
        async with visitor(app, rivals.first) as a, visitor(app, second) as b:
            assert (await b.post("/", content="B")).status_code == 200
            rivals.resume()
            with pytest.raises(StaleToken) as caught:
                await a.post("/", content="A")
            assert caught.value.offered == str(rivals.first.fence)
            assert caught.value.seen == str(second.fence)
            assert str(rivals.first.token) in str(caught.value)
            assert str(second.token) in str(caught.value)

    run(main())
    assert ledger.entries == ["B"]
    assert ledger.fences == [second.fence]


def test_write_in_flight_is_waited_for_and_the_second_holder_sees_it(rivals: Rivals) -> None:
    """A's handler has begun when B comes: B waits for its end and reads A's data; A's second request is refused."""
    ledger, app = stage(rivals.first.fence.line)

    async def main() -> None:
        async with visitor(app, rivals.first) as a, visitor(app, None) as b:
            first = asyncio.create_task(a.post("/slow", content="A"))
            await ledger.begun.wait()
            second = await asyncio.to_thread(rivals.depose)
            b.event_hooks = afenced(second)
            waiting = asyncio.create_task(b.post("/", content="B"))
            await ledger.claimed[second.token].wait()
            with pytest.raises(StaleToken):
                await a.post("/", content="A again")
            assert ledger.calls == 1
            assert not waiting.done()
            ledger.go.set()
            assert (await first).status_code == 200
            assert (await waiting).json() == {"saw": ["A"], "fence": str(second.fence)}

    run(main())
    assert ledger.entries == ["A", "B"]


def test_holder_that_only_read_has_the_older_ones_late_write_refused(rivals: Rivals) -> None:
    """Reads register too: what B has read, A can't change any more."""
    ledger, app = stage(rivals.first.fence.line)

    async def main() -> None:
        async with visitor(app, rivals.first) as a, visitor(app, None) as b:
            assert (await a.post("/", content="A")).status_code == 200
            b.event_hooks = afenced(await asyncio.to_thread(rivals.depose))
            assert (await b.get("/")).json()["saw"] == ["A"]
            with pytest.raises(StaleToken):
                await a.post("/", content="A late")
            with pytest.raises(StaleToken):
                await a.get("/")

    run(main())
    assert ledger.entries == ["A"]


def test_retried_write_of_the_second_holder_is_accepted(rivals: Rivals) -> None:
    """The same fence again is no stale one."""
    ledger, app = stage(rivals.first.fence.line)
    second = rivals.depose()

    async def main() -> None:
        async with visitor(app, second) as b:
            for _ in range(2):
                assert (await b.post("/", content="B")).status_code == 200

    run(main())
    assert ledger.entries == ["B", "B"]


def test_dead_seat_holder_is_refused_after_a_newer_seat_and_its_co_holder_is_not(world: Any) -> None:
    """Seats run side by side in any order of tokens; one that died before the newest was admitted is refused."""
    clients = [world.client(owner=owner, ttl=60) for owner in "abc"]
    seats = [client.semaphore("seats", limit=2) for client in clients]
    dead, alive = seats[0].acquire(timeout=10), seats[1].acquire(timeout=10)
    ledger, app = stage(dead.fence.line)

    async def main() -> None:
        async with visitor(app, dead) as a, visitor(app, alive) as b, visitor(app, None) as c:
            first = asyncio.create_task(a.post("/slow", content="a"))
            await ledger.begun.wait()
            assert (await b.post("/", content="b")).status_code == 200  # beside it, though younger
            assert (await a.post("/", content="a")).status_code == 200  # beside it, though older
            ledger.go.set()
            await first
            world.cut(clients[0])
            world.expire(dead)
            c.event_hooks = afenced(await asyncio.to_thread(seats[2].acquire, 20))
            assert (await c.post("/", content="c")).status_code == 200
            with pytest.raises(StaleToken):
                await a.post("/", content="a late")
            assert (await b.post("/", content="b")).status_code == 200

    run(main())
    assert ledger.entries == ["b", "a", "a", "c", "b"]
    world.heal(clients[0])


# Who needs a fence, and what is one.


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "PATCH", "DELETE", "post", "Delete", "MKCOL", "MOVE", "LOCK", "PURGE", "QUERY", "get", ""]
)
def test_write_without_a_fence_is_428_however_its_method_is_written(method: str) -> None:
    """What is not known to read may write; and there are frameworks that take "post" for POST."""
    ledger, app = stage()
    told = run(call(app, method=method))
    assert (told.status, told.type) == (428, "urn:tenure:fence-required")
    assert LINE in told.problem["detail"]
    assert told.headers[b"cache-control"] == b"no-store"
    assert ledger.calls == 0


@pytest.mark.parametrize(
    ("method", "status"), [("LOCK", 428), ("lock", 428), ("PUT", 428), ("POST", 200), ("GET", 200)]
)
def test_methods_that_are_named_need_a_fence_and_no_others(method: str, status: int) -> None:
    """Whoever knows better says so, in any case of letters."""
    _, app = stage(methods=("put", "Lock"))
    assert run(call(app, method=method)).status == status


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_read_without_a_fence_passes_and_with_one_claims(method: str) -> None:
    """Whoever only looks needs none; whoever will write afterwards claims with the look."""
    ledger, app = stage()
    assert run(call(app, method=method)).status == 200
    assert run(call(app, sent(B), method=method)).status == 200
    assert ledger.fences == [None, B]
    assert run(call(app, sent(A))).status == 409


def test_unprotected_request_passes_as_it_came() -> None:
    """Where the line is None nothing is looked at, not even a header that is no fence."""
    ledger, app = stage()
    told = run(call(app, sent("nonsense"), path="/control/open"))
    assert told.status == 200
    assert ledger.fences == [None]


def test_line_may_be_one_name_for_everything() -> None:
    """The plain form, and the app finds the fence in its scope."""
    ledger = Ledger()
    app = FencingMiddleware(ledger, line=LINE)
    told = run(call(app, sent(A)))
    assert json.loads(told.messages[1]["body"]) == {"saw": [], "fence": str(A)}
    assert run(call(app)).status == 428


def test_scope_of_the_server_is_not_written_to() -> None:
    """ASGI: a middleware that adds to the scope does so in a copy."""
    _, app = stage()
    scope = scope_of(sent(A))

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        pass

    run(app(scope, receive, send))
    assert fence_of(scope) is None


HOSTILE = {
    "empty": [b""],
    "blank": [b" "],
    "no fence": [b"33"],
    "100 kB of digits": [b"0." + b"3" * 100_000],
    "100 kB of ids": [b"0.33" + b".00000000000000000001" * 5_000 + b"@billing/ledger"],
    "100 kB of a line": [b"0.33@billing/" + b"x" * 100_000],
    "a NUL": [b"0.33@billing/ledger\x00"],
    "a line feed": [b"0.33@billing/ledger\n"],
    "latin-1": [b"0.33@billing/l\xe9dger"],
    "utf-8": ["0.33@billing/l\u00e9dger".encode()],
    "digits of another script": ["0.\u0663\u0663@billing/ledger".encode()],
    "every byte": [bytes(range(256))],
    "twice": [str(A).encode(), str(A).encode()],
    "twice, the second worthless": [str(A).encode(), b""],
    "joined by a proxy": [f"{A}, {A}".encode()],
    "token 0": [b"0.0@billing/ledger"],
    "token beyond 63 bits": [b"0.9223372036854775808@billing/ledger"],
    "incarnation beyond 31 bits": [b"2147483648.33@billing/ledger"],
    "a padded token": [b"0.033@billing/ledger"],
    "ids in upper case": [b"0.33.0000000000000000000A@billing/ledger"],
    "quoted": [b'"0.33@billing/ledger"'],
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_header_that_is_no_fence_is_400(what: str, method: str) -> None:
    """Never a 500, never the app; a read that brings nonsense is told as well."""
    ledger, app = stage()
    told = run(call(app, *((b"fencing-token", value) for value in HOSTILE[what]), method=method))
    assert (told.status, told.type) == (400, "urn:tenure:invalid-fence")
    assert len(told.messages[1]["body"]) < 1000
    assert ledger.calls == 0


@given(st.binary(max_size=200))
def test_header_of_any_bytes_is_answered_400_or_names_a_fence(value: bytes) -> None:
    """The parse is the only gate: what passes is the text of a fence of this line."""
    ledger, app = stage()
    told = run(call(app, (b"fencing-token", value)))
    assert told.status in (200, 400, 409)
    assert (ledger.calls == 1) == (told.status == 200)


def test_header_is_found_in_any_case_and_under_another_name() -> None:
    """Case means nothing in a header's name, on the side of the request and on that of the option."""
    _, app = stage()
    assert run(call(app, (b"Fencing-TOKEN", str(A).encode()))).status == 200
    _, app = stage(header="X-Lease")
    assert run(call(app, (b"x-lease", str(A).encode()))).status == 200
    assert run(call(app, sent(B))).status == 428


def test_fence_of_another_line_is_409_and_names_both() -> None:
    """A token of another lock says nothing here, however high it is."""
    ledger, app = stage()
    other = Fence(line_name("billing", "invoices"), 99)
    told = run(call(app, sent(other)))
    assert (told.status, told.type) == (409, "urn:tenure:other-line")
    assert LINE in told.problem["detail"]
    assert other.line in told.problem["detail"]
    assert ledger.calls == 0


def test_stale_fence_is_409_with_both_fences() -> None:
    """The problem carries what a client needs to make the error of it."""
    ledger, app = stage()
    assert run(call(app, sent(B))).status == 200
    told = run(call(app, sent(A)))
    assert (told.status, told.type) == (409, "urn:tenure:stale-token")
    assert (told.problem["offered"], told.problem["seen"]) == (str(A), str(B))
    assert ledger.calls == 1


def test_raised_incarnation_is_younger_than_any_token_of_a_lower_one() -> None:
    """After a restored store the operator raises it: small tokens count, and the old ones are refused."""
    _, app = stage()
    restored = Fence(LINE, 2, incarnation=1)
    assert run(call(app, sent(B))).status == 200
    assert run(call(app, sent(restored))).status == 200
    told = run(call(app, sent(C)))
    assert told.status == 409
    assert "incarnation" in told.problem["detail"]


def test_lines_do_not_know_each_other() -> None:
    """A high token on one resource refuses nothing on the next."""
    ledger = Ledger()
    app = FencingMiddleware(ledger, line=lambda scope: line_name("billing", scope["path"][1:]))
    assert run(call(app, sent(Fence(line_name("billing", "one"), 99)), path="/one")).status == 200
    assert run(call(app, sent(Fence(line_name("billing", "two"), 1)), path="/two")).status == 200
    assert run(call(app, sent(Fence(line_name("billing", "one"), 99)), path="/two")).status == 409


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (InvalidFence, {"line": "ledger"}),
        (InvalidOption, {"line": LINE, "header": "Fencing Token"}),
        (InvalidOption, {"line": LINE, "header": "F\u00e9nce"}),
        (InvalidOption, {"line": LINE, "header": ""}),
        (InvalidOption, {"line": LINE, "methods": "POST"}),
        (InvalidOption, {"line": LINE, "drain_seconds": -1}),
        (InvalidOption, {"line": LINE, "drain_seconds": float("nan")}),
    ],
)
def test_option_that_would_protect_nothing_is_refused_at_start_up(error: type, options: dict[str, Any]) -> None:
    """A mistake in the set-up is told before the first request."""
    with pytest.raises(error):
        FencingMiddleware(Ledger(), **options)


def test_line_function_that_returns_no_line_is_the_servers_mistake() -> None:
    """It is raised to the server, and not told to the client as if its fence were wrong."""
    ledger = Ledger()
    app = FencingMiddleware(ledger, line=lambda scope: "ledger")
    with pytest.raises(InvalidFence, match="line_name"):
        run(call(app, sent(A)))
    assert ledger.calls == 0


# Claim, drain, app.


def test_drain_that_takes_too_long_is_503_and_the_app_never_saw_it() -> None:
    """Bounded: B gets Retry-After, A is still refused, and B passes once A has ended."""
    ledger, app = stage(drain_seconds=0.05)

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(A), path="/slow"))
        await ledger.begun.wait()
        told = await call(app, sent(B))
        assert (told.status, told.type) == (503, "urn:tenure:guard-busy")
        assert int(told.headers[b"retry-after"]) >= 1
        async with visitor(app, B) as b:
            with pytest.raises(GuardBusy):
                await b.post("/")
        assert (await call(app, sent(A))).status == 409
        assert ledger.calls == 1
        ledger.go.set()
        assert (await slow).status == 200
        assert (await call(app, sent(B))).status == 200

    run(main())
    assert not app._traffic


def test_requests_of_one_fence_run_side_by_side() -> None:
    """A holder's own requests are its own business."""
    ledger, app = stage(drain_seconds=0.0)

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(A), path="/slow"))
        await ledger.begun.wait()
        assert (await call(app, sent(A))).status == 200
        ledger.go.set()
        assert (await slow).status == 200

    run(main())


def test_fence_with_two_requests_of_which_one_fails_is_waited_for_and_then_forgotten() -> None:
    """The count is exact: neither too low while one still runs, nor too high for ever."""
    ledger, app = stage()

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(A), path="/slow"))
        await ledger.begun.wait()
        with pytest.raises(UnicodeDecodeError):
            await call(app, sent(A), body=b"\xff")
        waiting = asyncio.create_task(call(app, sent(B)))
        await ledger.claimed[B.token].wait()
        assert not waiting.done()
        ledger.go.set()
        assert ((await slow).status, (await waiting).status) == (200, 200)

    run(main())
    assert ledger.entries == ["raw", "raw"]


def test_co_holders_run_side_by_side_and_a_dead_one_is_waited_for() -> None:
    """Whoever was held together with the youngest is neither refused nor waited for; all others are both."""
    older, younger = Fence(LINE, 1, ids=(IDS[1],)), Fence(LINE, 2, ids=(IDS[2], IDS[1]))
    after_both = Fence(LINE, 3, ids=(IDS[3], IDS[2]))
    ledger, app = stage(drain_seconds=0.0)

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(older), path="/slow"))
        await ledger.begun.wait()
        assert (await call(app, sent(younger))).status == 200
        assert (await call(app, sent(older))).status == 200
        assert (await call(app, sent(after_both))).type == "urn:tenure:guard-busy"
        assert (await call(app, sent(older))).type == "urn:tenure:stale-token"
        ledger.go.set()
        await slow
        assert (await call(app, sent(younger))).status == 200

    run(main())


def test_waiting_request_is_refused_at_once_when_a_younger_one_claims() -> None:
    """B waits for A; C claims: B is stale now, and must not run before or after C."""
    ledger, app = stage()

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(A), path="/slow"))
        await ledger.begun.wait()
        second = asyncio.create_task(call(app, sent(B)))
        await ledger.claimed[B.token].wait()
        third = asyncio.create_task(call(app, sent(C)))
        assert (await second).problem["seen"] == str(C)
        assert not third.done()
        ledger.go.set()
        assert ((await slow).status, (await third).status) == (200, 200)

    run(main())
    assert ledger.fences == [A, C]


@pytest.mark.parametrize("younger", [B, Fence(LINE, 2, incarnation=1)], ids=["token", "incarnation"])
def test_claim_whose_answer_was_overtaken_is_refused(younger: Fence) -> None:
    """A remote guard admitted A, then B; B's answer arrives first and B writes. A's must not pass any more."""
    answers: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
    asked: dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def travel(fence: Fence) -> None:
        asked[fence.token].set()
        await answers[fence.token].wait()

    ledger, app = stage(guard=Far(travel))

    async def main() -> None:
        first = asyncio.create_task(call(app, sent(A)))
        await asked[A.token].wait()
        second = asyncio.create_task(call(app, sent(younger)))
        await asked[younger.token].wait()
        answers[younger.token].set()
        assert (await second).status == 200
        answers[A.token].set()
        assert (await first).problem["seen"] == str(younger)

    run(main())
    assert ledger.fences == [younger]
    assert not app._traffic


def test_older_claim_under_way_does_not_hold_up_a_younger_request() -> None:
    """Requests of A that hang at the guard are no writers: B does not wait for them."""
    asked = asyncio.Event()

    async def travel(fence: Fence) -> None:
        if fence == A:
            asked.set()
            await asyncio.Event().wait()  # its end is the test's cancellation

    ledger, app = stage(guard=Far(travel), drain_seconds=0.0)

    async def main() -> None:
        hanging = asyncio.create_task(call(app, sent(A)))
        await asked.wait()
        assert (await call(app, sent(B))).status == 200
        hanging.cancel()
        await asyncio.wait([hanging])

    run(main())
    assert ledger.fences == [B]
    assert not app._traffic


@pytest.mark.parametrize("where", ["in the app", "in the drain", "at the guard"])
def test_client_that_hangs_up_leaves_nothing_in_flight(where: str) -> None:
    """A server that cancels: whoever comes next finds the line free."""
    stuck = asyncio.Event()
    at_guard = asyncio.Event()

    async def travel(fence: Fence) -> None:
        if where == "at the guard" and fence == B:
            at_guard.set()
            await stuck.wait()

    ledger = Ledger()
    app = FencingMiddleware(ledger, line=LINE, guard=Told(ledger.claimed, Far(travel)), drain_seconds=5.0)

    async def main() -> None:
        slow = asyncio.create_task(call(app, sent(A), path="/slow"))
        await ledger.begun.wait()
        leaving = slow
        if where != "in the app":
            leaving = asyncio.create_task(call(app, sent(B)))
            await (at_guard if where == "at the guard" else ledger.claimed[B.token]).wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        ledger.go.set()
        await asyncio.wait([slow])
        assert not app._traffic
        assert (await call(app, sent(C))).status == 200

    run(main())
    assert ledger.fences == [A, C]


def test_app_that_raises_is_heard_and_leaves_nothing_in_flight() -> None:
    """Its error is the server's to see, and the next holder does not wait for it."""

    async def raising(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError("the app's own")

    app = FencingMiddleware(raising, line=LINE, drain_seconds=0.0)
    with pytest.raises(ZeroDivisionError):
        run(call(app, sent(A)))
    with pytest.raises(ZeroDivisionError):
        run(call(app, sent(B)))
    assert not app._traffic


def raises_stale(fence: Fence, *, answered: bool) -> App:
    """An app whose database has seen a younger fence."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if answered:
            await answer(send, "too early")
        admit(Fence(fence.line, fence.token + 1), fence)

    return app


def test_stale_token_from_the_apps_database_is_answered_like_our_own() -> None:
    """The database's guard knows what other processes have seen; the client gets one kind of 409."""
    app = FencingMiddleware(raises_stale(A, answered=False), line=LINE)
    told = run(call(app, sent(A)))
    assert (told.status, told.problem["offered"], told.problem["seen"]) == (409, str(A), str(B))


@pytest.mark.parametrize(("fence", "answered"), [(A, True), (Fence("billing/other", 5), False)])
def test_stale_token_that_is_the_apps_own_trouble_is_not_told_to_the_client(fence: Fence, answered: bool) -> None:
    """Of another fence, or after the answer has begun: it is raised to the server."""
    app = FencingMiddleware(raises_stale(fence, answered=answered), line=LINE)
    with pytest.raises(StaleToken):
        run(call(app, sent(A)))
    assert not app._traffic


def failure(status: int = 500, **more: Any) -> list[Message]:
    """An answer in one piece, as frameworks send one."""
    headers = [(b"content-type", b"text/plain")]
    return [
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": b"Internal Server Error", **more},
    ]


def framework(inner: App, *answer: Message) -> App:
    """A framework that does as Starlette's outermost handler: it answers 500, and raises the error again for the
    server's log.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await inner(scope, receive, send)
        except Exception:
            for message in answer or failure():
                await send(message)
            raise

    return app


async def told_and_raised(app: App) -> tuple[list[Message], Exception | None]:
    """The answer that a server is told to send for a write of A, and the error that it hears afterwards."""
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"raw"}

    async def send(message: Message) -> None:
        told.append(message)

    try:
        await app(scope_of(sent(A)), receive, send)
    except Exception as error:
        return told, error
    return told, None


def test_stale_token_from_inside_a_framework_is_409_though_its_500_was_sent_before() -> None:
    """Only the error that follows the 500 says what it was about."""
    app = FencingMiddleware(framework(raises_stale(A, answered=False)), line=LINE)
    told = run(call(app, sent(A)))
    assert (told.status, told.type, len(told.messages)) == (409, "urn:tenure:stale-token", 2)
    assert (told.problem["offered"], told.problem["seen"]) == (str(A), str(B))
    assert not app._traffic


async def divides_by_zero(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError("the app's own")


@pytest.mark.parametrize(
    ("inner", "error"),
    [(divides_by_zero, ZeroDivisionError), (raises_stale(Fence("billing/other", 5), answered=False), StaleToken)],
    ids=["another error", "of another fence"],
)
def test_500_of_a_framework_that_has_its_own_reasons_is_sent_as_it_is(inner: App, error: type[Exception]) -> None:
    """It was held back for a moment, and nothing of it is lost; the server hears the error as well."""
    told, raised = run(told_and_raised(FencingMiddleware(framework(inner), line=LINE)))
    assert told == failure()
    assert isinstance(raised, error)


@pytest.mark.parametrize(
    "answer",
    [
        failure(403),
        [*failure(500, more_body=True), *failure()[1:]],
        [*failure(), {"type": "http.response.trailers", "headers": []}],
    ],
    ids=["below 500", "in pieces", "with trailers"],
)
def test_answer_that_is_under_way_is_not_taken_back(answer: list[Message]) -> None:
    """Whatever comes afterwards: a client that has read the half of it can't be told another one."""
    app = FencingMiddleware(framework(raises_stale(A, answered=False), *answer), line=LINE)
    told, raised = run(told_and_raised(app))
    assert told == answer
    assert isinstance(raised, StaleToken)


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_answer_of_an_app_that_raises_nothing_passes_whole_and_in_order(status: int) -> None:
    """A 500 is an answer like any other where no error follows it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in failure(status):
            await send(message)

    assert run(told_and_raised(FencingMiddleware(app, line=LINE))) == (failure(status), None)


def test_500_does_not_wait_for_an_app_that_waits_for_its_client_to_go() -> None:
    """The client waits for the answer: both would wait for ever."""
    told: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in failure():
            await send(message)
        await receive()

    async def receive() -> Message:
        assert told == failure()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        told.append(message)

    run(FencingMiddleware(app, line=LINE)(scope_of(sent(A)), receive, send))
    assert told == failure()


def test_500_that_is_streamed_while_another_task_receives_keeps_its_order() -> None:
    """The start that was held back is on its way, behind a server that takes its time: no piece may overtake it."""
    told: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        start, body = failure()
        await send(start)
        listening = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await send({**body, "more_body": True})
        await send(body)
        await listening

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            for _ in range(5):
                await asyncio.sleep(0)
        told.append(message)

    run(FencingMiddleware(app, line=LINE)(scope_of(sent(A)), receive, send))
    start, body = failure()
    assert told == [start, {**body, "more_body": True}, body]


def test_500_of_an_app_that_is_cancelled_afterwards_is_sent() -> None:
    """What the app has sent is sent, whichever way it ends."""
    told: list[Message] = []
    answered = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in failure():
            await send(message)
        answered.set()
        await asyncio.Event().wait()  # its end is the cancellation

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        told.append(message)

    async def main() -> None:
        serving = asyncio.ensure_future(FencingMiddleware(app, line=LINE)(scope_of(sent(A)), receive, send))
        await answered.wait()
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()

    run(main())
    assert told == failure()


# A refusal without a body.


def test_head_of_a_stale_holder_raises_like_any_other_of_its_requests() -> None:
    """The answer to a HEAD has no body: a header names both fences."""
    ledger, app = stage()

    async def main() -> None:
        async with visitor(app, A) as a, visitor(app, B) as b:
            assert (await b.head("/")).status_code == 200
            with pytest.raises(StaleToken) as caught:
                await a.head("/")
            assert (caught.value.offered, caught.value.seen) == (str(A), str(B))
            assert str(A) in str(caught.value)
            assert str(B) in str(caught.value)

    run(main())
    assert ledger.fences == [B]


@pytest.mark.parametrize("error", [FenceMismatch("of a guard"), GuardBusy("of a guard")])
def test_head_that_a_guard_refuses_raises_what_the_guard_did(error: TenureError) -> None:
    """Each refusal that a client can make an error of."""
    _, app = stage(guard=Broken(error))

    async def main() -> None:
        async with visitor(app, A) as a:
            with pytest.raises(type(error), match="refused"):
                await a.head("/")

    run(main())


@pytest.mark.parametrize(
    "seen", ['x\r\nSet-Cookie: a="b"', "x, y; z\\", "l\u00e9dger \U0001f512", "\x00\x7f\ud800", str(B), ""]
)
def test_whatever_a_guard_calls_seen_stays_inside_the_header(seen: str) -> None:
    """No line ends early, and the client reads what the guard wrote."""
    _, app = stage(guard=Broken(StaleToken("of a guard", offered=str(A), seen=seen)))
    value = run(call(app, sent(A))).headers[b"fencing-problem"]
    assert all(0x20 <= byte < 0x7F for byte in value)
    response = httpx.Response(409, headers={"fencing-problem": value.decode("ascii")})
    with pytest.raises(StaleToken) as caught:
        raise_for_fencing(response)
    assert (caught.value.offered, caught.value.seen) == (str(A), seen)


def test_header_that_would_be_too_long_says_the_type_only() -> None:
    """The refusal arrives, and the body says the rest where there is one."""
    long = Fence("billing/" + "x" * 4000, 34)
    _, app = stage(guard=Broken(StaleToken("of a guard", offered=str(A), seen=str(long))))
    told = run(call(app, sent(A)))
    assert json.loads(told.headers[b"fencing-problem"]) == {"type": "urn:tenure:stale-token"}
    assert told.problem["seen"] == str(long)


# Guards that fail, and the one that remembers here.


@pytest.mark.parametrize(
    "error", [ConnectionError("secret-host:6379"), StoreUnavailable("away"), ValueError("x"), TimeoutError()]
)
def test_guard_that_fails_is_503_logged_and_nothing_passes(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Fail closed: no word from the guard, no request to the app; the client is told nothing of its insides."""
    ledger, app = stage(guard=Broken(error))
    with caplog.at_level(logging.ERROR, "tenure"):
        told = run(call(app, sent(A)))
    assert (told.status, told.type) == (503, "urn:tenure:guard-unavailable")
    assert b"retry-after" in told.headers
    assert b"secret" not in told.messages[1]["body"]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
    assert ledger.calls == 0
    assert not app._traffic


@pytest.mark.parametrize(
    ("error", "status"),
    [(StaleToken("of a guard", offered="a", seen="b"), 409), (FenceMismatch("of a guard"), 409), (GuardBusy("b"), 503)],
)
def test_refusal_of_a_guard_is_told_in_its_words(
    error: TenureError, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It has answered: nothing failed, and nothing is logged."""
    _, app = stage(guard=Broken(error))
    told = run(call(app, sent(A)))
    assert (told.status, told.problem["detail"]) == (status, str(error))
    assert not caplog.records


def test_guard_that_never_answers_is_503(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Even a guard without a time-out of its own can't hold requests for ever."""
    monkeypatch.setattr(middleware, "_CLAIM_SECONDS", 0.02)

    async def travel(fence: Fence) -> None:
        await asyncio.Event().wait()  # its end is the middleware's time-out

    ledger, app = stage(guard=Far(travel))
    assert run(call(app, sent(A))).type == "urn:tenure:guard-unavailable"
    assert ledger.calls == 0


def test_process_guard_that_is_full_refuses_new_lines_and_forgets_none() -> None:
    """To forget a line would be to accept a stale holder of it."""
    guard = ProcessGuard(lines_max=2)
    for line in ("ns/one", "ns/two"):
        run(guard.claim(Fence(line, 5)))
    with pytest.raises(StoreRefused, match="lines_max"):
        run(guard.claim(Fence("ns/three", 1)))
    run(guard.claim(Fence("ns/two", 6)))
    with pytest.raises(StaleToken):
        run(guard.claim(Fence("ns/one", 4)))


def test_process_guard_that_is_full_is_503_at_the_middleware(caplog: pytest.LogCaptureFixture) -> None:
    """A clear failure, logged with what to do."""
    ledger, app = stage(guard=ProcessGuard(lines_max=1))
    other = FencingMiddleware(ledger, line="ns/other", guard=app._guard)
    assert run(call(app, sent(A))).status == 200
    assert run(call(other, sent(Fence("ns/other", 1)))).type == "urn:tenure:guard-unavailable"
    assert "lines_max" in caplog.text


@pytest.mark.parametrize("lines_max", [0, -1, True, 1.5])
def test_process_guard_without_room_is_no_guard(lines_max: Any) -> None:
    """A bound is a whole number above zero."""
    with pytest.raises(InvalidOption):
        ProcessGuard(lines_max=lines_max)


def test_process_guard_takes_texts_and_keeps_resources_apart() -> None:
    """The words of every guard: a fence or its text, for a resource or for its line."""
    guard = ProcessGuard()
    run(guard.claim(str(B), "one file"))
    run(guard.claim(A))
    with pytest.raises(StaleToken):
        run(guard.claim(A, resource="one file"))
    with pytest.raises(FenceMismatch):
        run(guard.claim(Fence("ns/other", 99), "one file"))
    with pytest.raises(InvalidFence):
        run(guard.claim("nonsense"))


fences = st.builds(
    Fence,
    line=st.just(LINE),
    token=st.integers(1, 5),
    incarnation=st.integers(0, 1),
    ids=st.lists(st.sampled_from(IDS), max_size=3, unique=True).map(tuple),
)


def folded(offered: list[Fence]) -> list[str]:
    """The rule by itself: what each claim is told."""
    seen, told = None, []
    for fence in offered:
        try:
            seen = admit(seen, fence)
            told.append("admitted")
        except StaleToken as error:
            told.append(str(error))
    return told


async def claims(guard: ProcessGuard, offered: list[Fence]) -> list[str]:
    told = []
    for fence in offered:
        try:
            await guard.claim(fence)
            told.append("admitted")
        except StaleToken as error:
            told.append(str(error))
    return told


@given(st.lists(fences, max_size=12))
def test_process_guard_decides_by_the_one_rule(offered: list[Fence]) -> None:
    """Any sequence of claims is answered as `admit` answers it."""
    assert run(claims(ProcessGuard(), offered)) == folded(offered)


# Many at once.


class Counter:
    """Reads, lets others run, writes. Notes who was in it together, and in which order they came."""

    def __init__(self) -> None:
        self.value = 0
        self.served = 0
        self._inside: list[int] = []
        self.overlaps = 0
        self.backwards = 0
        self._latest = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = int(dict(scope["headers"])[b"x-token"])
        self.overlaps += any(other != token for other in self._inside)
        self.backwards += token < self._latest
        self._latest = max(self._latest, token)
        self._inside.append(token)
        value = self.value
        for _ in range(3):
            await asyncio.sleep(0)
        self.value = value + 1
        self.served += 1
        self._inside.remove(token)
        await answer(send, self.value)


async def storm(app: App, dice: random.Random, number: int = 200) -> list[int]:
    """`number` requests with rising fences, arriving close upon each other and out of order; their statuses."""

    async def one(token: int) -> int:
        for _ in range(2 * token + dice.randrange(8)):
            await asyncio.sleep(0)
        return (await call(app, sent(Fence(LINE, token)), (b"x-token", str(token).encode()))).status

    return list(await asyncio.gather(*(one(token) for token in range(1, number + 1))))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_200_requests_with_rising_fences_lose_no_update(seed: int, far: bool) -> None:
    """Read, modify, write, with awaits in between: every accepted one counts, and no two holders overlap."""
    print(f"seed {seed}")
    dice = random.Random(seed)

    async def travel(fence: Fence) -> None:
        for _ in range(dice.randrange(10)):
            await asyncio.sleep(0)

    counter = Counter()
    app = FencingMiddleware(counter, line=LINE, guard=Far(travel) if far else None)
    told = run(storm(app, dice))
    assert set(told) == {200, 409}
    assert counter.value == counter.served == told.count(200) > 20
    assert (counter.overlaps, counter.backwards) == (0, 0)
    assert told[-1] == 200
    assert not app._traffic


@pytest.mark.parametrize("seed", range(5))
def test_200_requests_without_the_middleware_lose_updates(seed: int) -> None:
    """The positive control: the same storm on the bare app."""
    counter = Counter()
    told = run(storm(counter, random.Random(seed)))
    assert told.count(200) == counter.served == 200
    assert counter.value < 200
    assert counter.overlaps > 0
    assert counter.backwards > 0


@pytest.mark.parametrize("seed", range(5))
def test_claim_without_the_drain_would_lose_updates(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second control: what the drain is for."""

    async def at_once(self: object, fence: Fence) -> None:
        return None

    monkeypatch.setattr(traffic.ClaimedRequests, "drained", at_once)
    counter = Counter()
    told = run(storm(FencingMiddleware(counter, line=LINE), random.Random(seed)))
    assert counter.value < told.count(200)
    assert counter.overlaps > 0


# What is not a request.


async def knock(app: App, scope: Scope, *, first: str = "websocket.connect") -> list[Message]:
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": first}

    async def send(message: Message) -> None:
        told.append(message)

    await app(scope, receive, send)
    return told


def test_websocket_on_a_protected_line_is_closed_with_1008_fence_or_not() -> None:
    """One header can't fence what outlives the hold."""
    ledger, app = stage()
    for headers in ([], [sent(A)]):
        (message,) = run(knock(app, scope_of(*headers, kind="websocket")))
        assert (message["type"], message["code"]) == ("websocket.close", 1008)
    assert ledger.calls == 0


def test_websocket_is_refused_with_403_where_the_server_can_say_so() -> None:
    """The denial response extension carries the problem."""
    _, app = stage()
    scope = {**scope_of(sent(A), kind="websocket"), "extensions": {"websocket.http.response": {}}}
    messages = run(knock(app, scope))
    told = Answer(messages)
    assert [message["type"] for message in messages] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert (told.status, told.type) == (403, "urn:tenure:websocket-refused")


def test_websocket_that_went_away_is_told_nothing() -> None:
    """After a disconnect there is nobody to answer."""
    _, app = stage()
    assert run(knock(app, scope_of(kind="websocket"), first="websocket.disconnect")) == []


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_what_is_not_protected_passes_untouched(kind: str) -> None:
    """Lifespan always, a WebSocket where its line is None: the app gets the very scope."""
    got: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got.append(scope)

    line: Any = LINE if kind == "lifespan" else lambda scope: None
    scope = {"type": kind}
    run(knock(FencingMiddleware(app, line=line), scope))
    assert got[0] is scope
