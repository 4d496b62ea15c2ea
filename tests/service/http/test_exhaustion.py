"""Clients that would use up memory, connections, time or the log: each is bounded, and the others are served on."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenure.service import limits
from tenure.testing.servers.certificates import make_tls_files
from tests.cli.program import PATIENCE_SECONDS, eventually
from tests.service.http.program import Service, User, serving
from tests.service.http.test_hostile import answer_to, everything, wire

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


_FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
_ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def crowd(service: Service, address: str, number: int, stack: ExitStack) -> int:
    """Open so many connections from one address, each with a request; how many are served."""
    port = int(service.url.rpartition(":")[2])
    socks = [
        stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (address, 0)))
        for _ in range(number)
    ]
    served = 0
    for sock in socks:
        try:
            sock.sendall(_ASKED)
            served += sock.recv(4096).startswith(b"HTTP/1.1 200")
        except (ConnectionResetError, BrokenPipeError):
            pass
    return served


def test_one_address_leaves_room_for_others_and_all_leave_some_for_the_store(
    url: str, tmp_path: Path, name: str
) -> None:
    """Half of the room is for one address; the store is asked, and probes are answered, whoever comes."""
    with ExitStack() as stack:
        service = stack.enter_context(serving(url, tmp_path, "--health-port", "0", through=_FEW_DESCRIPTORS))
        user = stack.enter_context(service.user())
        assert user.get("/healthz").status_code == 200
        assert crowd(service, "127.0.0.2", 200, stack) == 96
        assert crowd(service, "127.0.0.3", 200, stack) == 95  # the user's own connection is the last one
        user.release(user.held(name)["leaseId"])
        assert "tenure_http_connections 192.0" in user.get("/metrics").text
        with service.user(url=service.urls[1]) as probe:
            assert probe.get("/readyz").status_code == 200


def test_room_is_given_back(url: str, tmp_path: Path) -> None:
    """By connections that end, and by handshakes that fail."""
    files = make_tls_files(tmp_path / "tls", mutual=False)
    given = ("--tls-cert", str(files.server_cert), "--tls-key", str(files.server_key))
    with serving(url, tmp_path, *given, through=_FEW_DESCRIPTORS) as service:
        for _ in range(200):
            assert answer_to(service, b"no TLS\r\n\r\n")[:5] in (b"", b"\x15\x03\x01\x00\x02")
    with serving(url, tmp_path, through=_FEW_DESCRIPTORS) as service:
        asked = _ASKED[:-2] + b"Connection: close\r\n\r\n"
        for _ in range(200):
            assert answer_to(service, asked).startswith(b"HTTP/1.1 200")


def test_silent_handshake_is_ended_like_a_silent_head(url: str, tmp_path: Path) -> None:
    """A connection that never says a word of TLS."""
    files = make_tls_files(tmp_path / "tls", mutual=False)
    given = ("--tls-cert", str(files.server_cert), "--tls-key", str(files.server_key))
    with serving(url, tmp_path, *given) as service, wire(service) as silent:
        began = time.monotonic()
        assert everything(silent) == b""
        assert time.monotonic() - began < 3 * limits.HANDSHAKE_SECONDS


def test_answers_that_nobody_reads_end_their_connection(url: str, tmp_path: Path) -> None:
    """In bounded memory, and in bounded time."""
    with serving(url, tmp_path, "--no-access-log") as service, wire(service) as unread:
        before = memory_of(service)
        unread.setblocking(False)
        ended = select.poll()
        ended.register(unread, select.POLLHUP)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
        began = time.monotonic()
        while not ended.poll(100):
            try:
                unread.send(asked)
            except BlockingIOError:
                pass
            assert memory_of(service) - before < _GROWTH_BYTES_MAX
            assert time.monotonic() - began < 3 * limits.SEND_SECONDS
