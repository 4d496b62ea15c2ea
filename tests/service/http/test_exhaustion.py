"""Clients that would use up memory, connections, time or the log: each is bounded, and the others are served on."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from tests.service.http.program import Service, serving
from tests.service.http.test_hostile import wire

_POURED_BYTES = 60_000_000
_GROWTH_BYTES_MAX = 20_000_000


def memory_of(service: Service) -> int:
    """Bytes that are resident."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def poured(sock: socket.socket, data: bytes, bytes_max: int = _POURED_BYTES) -> int:
    """Send the data again and again until so much is sent, or the service ends the connection; the bytes sent."""
    sent = 0
    try:
        while sent < bytes_max:
            sent += sock.send(data)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return sent


@pytest.mark.parametrize("trailers", [b"a: b\r\n" * 10_000, b"a" * 60_000], ids=["many", "one"])
def test_trailers_are_dropped_and_bounded_like_a_head(url: str, tmp_path: Path, trailers: bytes) -> None:
    """Behind a body that is read, and behind one of a request whose answer goes on: the connection ends."""
    with serving(url, tmp_path) as service:
        before = memory_of(service)
        for request in (b"POST /v1/locks/acquire", b"GET /v1/events"):
            with wire(service) as sock:
                head = b"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                sock.sendall(request + b" HTTP/1.1\r\n" + head + b"2\r\n{}\r\n0\r\n")
                sent = poured(sock, trailers)
                assert memory_of(service) - before < _GROWTH_BYTES_MAX
                assert sent < _POURED_BYTES
