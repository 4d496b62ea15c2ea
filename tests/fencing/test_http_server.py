"""Fences through a real server and a real parser: the whole way over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from tenure.errors import StaleToken
from tenure.fencing.http import App, FencingMiddleware, afenced, fenced

from .conftest import Rivals
from .test_http import framework, raises_stale, stage
from .test_http_client import A, B, Bare, run


@contextmanager
def served(app: App) -> Iterator[str]:
    """uvicorn in a thread, on a port of its own. It listens before it runs: nobody has to wait for it."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="uvicorn")
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(15)
        listener.close()
        assert not thread.is_alive()


def test_real_server_write_in_flight_is_waited_for_and_the_stale_holder_refused(rivals: Rivals) -> None:
    """The whole way over HTTP: A's write is under way, A is deposed, B waits and sees it, A is refused."""
    ledger, app = stage(rivals.first.fence.line)

    async def main(base: str) -> None:
        hooks = afenced(rivals.first)
        async with (
            httpx.AsyncClient(base_url=base, timeout=10) as control,
            httpx.AsyncClient(base_url=base, timeout=10, event_hooks=hooks) as a,
            httpx.AsyncClient(base_url=base, timeout=10) as b,
        ):
            first = asyncio.create_task(a.post("/slow", content="A"))
            await control.get("/control/begun")
            second = await asyncio.to_thread(rivals.depose)
            b.event_hooks = afenced(second)
            waiting = asyncio.create_task(b.post("/", content="B"))
            await control.get(f"/control/claimed/{second.token}")
            with pytest.raises(StaleToken) as caught:
                await a.post("/", content="A again")
            assert (caught.value.offered, caught.value.seen) == (str(rivals.first.fence), str(second.fence))
            assert (await control.post("/", content="nobody")).status_code == 428
            assert not waiting.done()
            await control.get("/control/go")
            assert (await first).status_code == 200
            assert (await waiting).json() == {"saw": ["A"], "fence": str(second.fence)}

    with served(app) as address:
        run(main(f"http://{address}"))
    assert ledger.entries == ["A", "B"]
    assert not app._traffic


def test_real_server_client_that_hangs_up_is_waited_for_while_its_handler_runs() -> None:
    """This server does not cancel: the handler can still write, so the next holder waits for it."""
    ledger, app = stage()

    async def main(address: str) -> None:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=10) as client:
            host, port = address.split(":")
            gone = http.client.HTTPConnection(host, int(port), timeout=10)
            await asyncio.to_thread(gone.request, "POST", "/slow", b"A", {"Fencing-Token": str(A)})
            await client.get("/control/begun")
            gone.close()
            waiting = asyncio.create_task(client.post("/", content="B", headers={"Fencing-Token": str(B)}))
            await client.get(f"/control/claimed/{B.token}")
            assert ledger.calls == 3  # the slow one and the two of control
            assert not waiting.done()
            await client.get("/control/go")
            assert (await waiting).json()["saw"] == ["A"]

    with served(app) as address:
        run(main(address))
    assert ledger.entries == ["A", "B"]
    assert not app._traffic


def test_real_server_deposed_holder_gets_its_409_from_inside_a_framework_and_for_a_head() -> None:
    """With a blocking client: a 500 that was sent before, and an answer without a body, both say who is stale."""
    _, app = stage()
    inside = FencingMiddleware(framework(raises_stale(A, answered=False)), line=A.line)
    with served(inside) as address, httpx.Client(base_url=f"http://{address}", event_hooks=fenced(Bare())) as client:
        with pytest.raises(StaleToken) as caught:
            client.post("/", content="A")
        assert (caught.value.offered, caught.value.seen) == (str(A), str(B))
    with served(app) as address, httpx.Client(base_url=f"http://{address}", event_hooks=fenced(Bare())) as client:
        assert httpx.head(f"http://{address}/", headers={"Fencing-Token": str(B)}).status_code == 200
        with pytest.raises(StaleToken) as caught:
            client.head("/")
        assert (caught.value.offered, caught.value.seen) == (str(A), str(B))


def exchange(address: str, request: bytes) -> bytes:
    """The first line that the server answers to these very bytes, and what follows until it closes."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answered = b""
        while piece := connection.recv(65536):
            answered += piece
    return answered


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"", 428),
        (b"Fencing-Token:\r\n", 400),
        (b"Fencing-Token: \xe9\r\n", 400),
        (b"Fencing-Token: " + b"3" * 30_000 + b"\r\n", 400),
        (b"Fencing-Token: %b\r\nfencing-token: %b\r\n" % (str(A).encode(), str(A).encode()), 400),
        (b"FENCING-TOKEN: %b\r\n" % str(A).encode(), 200),
    ],
    ids=["none", "empty", "latin-1", "30 kB", "twice", "upper case"],
)
def test_real_server_hostile_header_is_answered(headers: bytes, status: int) -> None:
    """What reaches the middleware through a real parser is answered the same way, the body unread."""
    _, app = stage()
    with served(app) as address:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n" + headers + b"\r\n"
        assert exchange(address, head + b"abc").startswith(b"HTTP/1.1 %d " % status)


def test_real_server_websocket_is_denied_with_the_problem() -> None:
    """The handshake ends in a 403 that says why."""
    _, app = stage()
    with served(app) as address:
        answered = exchange(
            address,
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Fencing-Token: " + str(A).encode() + b"\r\n\r\n",
        )
    assert answered.startswith(b"HTTP/1.1 403 ")
    assert b"urn:tenure:websocket-refused" in answered
