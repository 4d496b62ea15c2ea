"""Clients that would use up memory, connections, time or the log: each is bounded, and the others are served on."""

from __future__ import annotations

import json
import os
import resource
import socket
from pathlib import Path

import pytest

from tenure.service import limits
from tests.cli.program import eventually
from tests.service.http.program import Service, User, serving
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


def flood_log(service: Service) -> None:
    """Have more logged than is kept for a reader that does not read; every request is answered."""
    line = b"GET /v1/locks?prefix=" + b"%c3%a9" * 200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    requests = 2 * limits.LOG_CHARACTERS_MAX // (200 * len("\\u00e9"))
    with wire(service) as sock:
        for _ in range(requests // 10):
            sock.sendall(line * 10)
            got = b""
            while got.count(b"HTTP/1.1 200 OK") < 10 or not got.endswith(b"}"):
                got += sock.recv(65536)


def dropped_lines(user: User) -> int:
    """The service's own count."""
    lines = user.get("/metrics").text.splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("tenure_log_lines_dropped_total "))))


def note_in(pipe: int) -> str:
    """Read the lines of a log until one is about nothing that was asked."""
    with open(pipe, closefd=False) as text:
        for line in map(json.loads, text):
            if line["logger"] != "tenure.access":
                return str(line["message"])
    pytest.fail("the log ended")


def test_log_that_nobody_reads_holds_up_nothing(url: str, tmp_path: Path) -> None:
    """Lines beyond a bound are dropped and counted, who reads on is told how many; and SIGTERM is heard."""
    ours, theirs = os.pipe()
    try:
        with serving(url, tmp_path, stderr=theirs) as service, service.user() as user:
            before = memory_of(service)
            flood_log(service)
            dropped = dropped_lines(user)
            assert dropped > 0
            assert memory_of(service) - before < _GROWTH_BYTES_MAX
            count, _, rest = note_in(ours).partition(" ")
            assert (int(count) >= dropped, rest[:29]) == (True, "lines of the log were dropped")
            user.release(user.held("a")["leaseId"])
            flood_log(service)
            eventually(lambda: dropped_lines(user) > dropped)
    finally:
        os.close(ours)
        os.close(theirs)


def test_log_whose_reader_has_gone_holds_up_nothing(url: str, tmp_path: Path) -> None:
    """Its lines are counted as dropped; a full disk is no other."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        with serving(url, tmp_path, stderr=theirs) as service, service.user() as user:
            eventually(lambda: dropped_lines(user) > 1)
    finally:
        os.close(theirs)
