"""Reuse of a kept HTTP connection."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tenure._transport.http import HttpConnection
from tenure.testing.servers.certificates import make_tls_files

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=["plain", "tls"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[HttpConnection, socket.socket]]:
    """A connection after its first exchange, and the server's end of it."""
    theirs = ours = None
    if request.param == "tls":
        files = make_tls_files(tmp_path, mutual=False)
        ours, theirs = ssl.create_default_context(cafile=str(files.ca)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        theirs.load_cert_chain(files.server_cert, files.server_key)

    def serve() -> socket.socket:
        accepted, _ = server.accept()
        end = accepted if theirs is None else theirs.wrap_socket(accepted, server_side=True)
        end.recv(65536)
        end.sendall(ANSWER)
        return end

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        serving = pool.submit(serve)
        connection = HttpConnection(("localhost", server.getsockname()[1]), ours, 10.0)
        try:
            assert connection.exchange("/", b"{}", None, 10.0).content == b"{}"
            with serving.result(10.0) as end:
                yield connection, end
        finally:
            connection.close()


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_idle_connection_is_good_and_looking_costs_microseconds(ends: tuple[HttpConnection, socket.socket]) -> None:
    """Also over TLS, whose server sends what the client keeps for its next handshake."""
    connection, _ = ends
    began = time.perf_counter()
    assert all(connection.still_good() for _ in range(1000))
    print(f"looking at an idle connection takes {1000 * (time.perf_counter() - began):.1f} µs")


def test_connection_that_the_server_has_closed_is_not_good(ends: tuple[HttpConnection, socket.socket]) -> None:
    """It was idle for too long, there: what is sent over it would be lost, or done and not answered."""
    connection, end = ends
    end.close()
    _until(lambda: not connection.still_good())


@pytest.mark.parametrize("said", [ANSWER, b"H"])
def test_connection_with_an_answer_that_nobody_asked_for_is_not_good(
    said: bytes, ends: tuple[HttpConnection, socket.socket]
) -> None:
    """It would be taken for that to the next request."""
    connection, end = ends
    end.sendall(said)
    _until(lambda: not connection.still_good())


def test_connection_whose_answer_came_with_more_is_not_good() -> None:
    """What is behind an answer would be taken for the next one's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with closing(HttpConnection(server.getsockname()[:2], None, 10.0)) as connection, server.accept()[0] as end:
            end.sendall(ANSWER + b"more")
            assert connection.exchange("/", b"{}", None, 10.0).content == b"{}"
            assert not connection.still_good()
