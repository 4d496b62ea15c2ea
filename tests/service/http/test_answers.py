"""Answers as they cross the wire: whole, in order, and at once, over one connection and to whoever reads slowly."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from tenure.service.api.openapi import document
from tenure.testing.servers.certificates import make_tls_files
from tests.cli.program import PATIENCE_SECONDS
from tests.service.http.program import Service, User, serving, trusting

DOCUMENT = json.dumps(document()).encode()
HEALTH = b'{"healthy": true}'


class Wire:
    """A connection, and the bytes that come on it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file: BinaryIO = sock.makefile("rb")

    def send(self, *requests: str, last: str = "") -> None:
        """Send all requests before anything is read; the last one with more headers."""
        heads = [f"{request} HTTP/1.1\r\nHost: localhost\r\n" for request in requests]
        self.sock.sendall("\r\n".join([*heads[:-1], heads[-1] + last + "\r\n"]).encode())

    def answer(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        """The next one."""
        status = int(self.file.readline().split()[1])
        headers = {name.lower(): value for name, value in http.client.parse_headers(self.file).items()}
        body = b"" if head_only or status == 100 else self.file.read(int(headers["content-length"]))
        return status, headers, body

    def line(self) -> bytes:
        return self.file.readline()

    @property
    def at_end(self) -> bool:
        return self.file.read() == b""

    def close(self) -> None:
        self.file.close()


@contextmanager
def connected(service: Service, *, receive_bytes: int | None = None) -> Iterator[Wire]:
    url = httpx.URL(service.url)
    with socket.socket() as sock:
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(PATIENCE_SECONDS)
        sock.connect((url.host, url.port or 80))
        wire = Wire(sock)
        try:
            yield wire
        finally:
            wire.close()


def test_requests_sent_together_are_answered_in_order(open_service: Service) -> None:
    """Small and big ones, one without a body among them; the connection ends behind the one that said so."""
    with connected(open_service) as wire:
        wire.send(
            *("GET /healthz", "HEAD /openapi.json", "GET /openapi.json", "GET /nowhere", "GET /healthz"),
            last="Connection: close\r\n",
        )
        assert wire.answer()[2] == HEALTH
        status, headers, _ = wire.answer(head_only=True)
        assert (status, int(headers["content-length"])) == (200, len(DOCUMENT))
        assert wire.answer()[2] == DOCUMENT
        assert wire.answer()[0] == 404
        status, headers, body = wire.answer()
        assert (status, headers["connection"], body) == (200, "close", HEALTH)
        assert wire.at_end


def test_connection_is_kept_behind_every_kind_of_answer(open_service: Service) -> None:
    """Pipelined requests are answered one after the other, without another request to push them."""
    with connected(open_service) as wire:
        for _ in range(3):
            wire.send("HEAD /healthz")
            assert wire.answer(head_only=True)[0] == 200
            wire.send("GET /openapi.json")
            assert wire.answer()[2] == DOCUMENT
            wire.send("DELETE /healthz")
            assert wire.answer()[0] == 405
        wire.send("GET /healthz", last="Connection: close\r\n")
        assert wire.answer()[2] == HEALTH
        assert wire.at_end


def test_request_that_waits_to_be_asked_for_its_body_is(open_service: Service, name: str) -> None:
    """`Expect: 100-continue`: that comes alone, and before the answer."""
    body = json.dumps({"resource": name, "ownerId": "me", "ttlSeconds": 20}).encode()
    head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
    with connected(open_service) as wire:
        wire.send("POST /v1/locks/acquire", last=head)
        assert wire.answer()[0] == 100
        wire.sock.sendall(body)
        status, _, reply = wire.answer()
        assert (status, json.loads(reply)["acquired"]) == (200, True)
        wire.send(f"DELETE /v1/locks/{json.loads(reply)['leaseId']}")
        assert wire.answer()[0] == 200


def test_refusal_leaves_before_the_connection_ends(open_service: Service) -> None:
    """Bytes that can't be read are refused, and then nothing more is read."""
    with connected(open_service) as wire:
        wire.sock.sendall(b"this is not HTTP\r\n\r\n")
        status, headers, _ = wire.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert wire.at_end


def test_client_that_reads_slowly_gets_everything(open_service: Service) -> None:
    """More than the kernel keeps for it: what was sent waits, whole and in order."""
    count = 40
    with connected(open_service, receive_bytes=2048) as wire:
        wire.send(*["GET /openapi.json"] * count, last="Connection: close\r\n")
        assert [wire.answer()[2] for _ in range(count)] == [DOCUMENT] * count
        assert wire.at_end


def test_client_that_reads_nothing_and_goes_harms_nobody(open_service: Service, user: User) -> None:
    """A client that has gone: the answers go nowhere."""
    for _ in range(20):
        with connected(open_service, receive_bytes=2048) as wire:
            wire.send(*["GET /openapi.json"] * 20)
    assert user.get("/healthz").status_code == 200


def test_events_come_one_by_one(open_service: Service, user: User, name: str) -> None:
    """The first with its head, and each later one without another behind it."""
    with connected(open_service) as wire:
        wire.send(f"GET /v1/events?prefix={name}")
        assert b" 200 " in wire.line()
        while (line := wire.line()) != b"\r\n":  # its head
            assert line
        assert _event(wire) == ("lines", {"lines": []})
        held = user.held(name)
        kind, reply = _event(wire)
        assert (kind, reply["name"]) == ("line", name)
        user.release(held["leaseId"])
        while kind != "gone":
            kind, reply = _event(wire)
        assert reply == {"name": name}


def _event(wire: Wire) -> tuple[str, Any]:
    """The next one: its name, and what it says."""
    name = ""
    while line := wire.line():
        if line.startswith(b"event: "):
            name = line.removeprefix(b"event: ").decode().strip()
        elif line.startswith(b"data: "):
            return name, json.loads(line.removeprefix(b"data: "))
    raise EOFError("the stream has ended")


def test_answers_are_taken_for_nothing_but_what_they_say_they_are(open_service: Service) -> None:
    """`nosniff`, once in each answer, also of a page, a stream and to what is no HTTP; no HSTS without TLS."""
    for request in ("GET /healthz", "GET /nowhere", "GET /ui/", "GET /openapi.json", "GET /v1/events", "GET\x01/"):
        with connected(open_service) as wire:
            wire.send(request)
            status = wire.line()
            headers = http.client.parse_headers(wire.file)
            assert (status[:9], headers.get_all("x-content-type-options")) == (b"HTTP/1.1 ", ["nosniff"]), request
            assert "strict-transport-security" not in headers


def test_browser_that_came_by_tls_is_told_to_stay_with_it(url: str, tmp_path: Path) -> None:
    """By HSTS, and for this host alone."""
    files = make_tls_files(tmp_path / "tls", mutual=False)
    given = ("--tls-cert", str(files.server_cert), "--tls-key", str(files.server_key))
    with serving(url, tmp_path, *given) as service, service.user(verify=trusting(files.ca)) as user:
        assert user.get("/healthz").headers["strict-transport-security"] == "max-age=31536000"


def test_document_is_compressed_and_asked_for_again_only_if_changed(open_service: Service) -> None:
    """Once for all; who takes no gzip gets it plain."""
    with httpx.Client(base_url=open_service.url, timeout=PATIENCE_SECONDS) as client:
        packed = client.get("/openapi.json", headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert int(packed.headers["content-length"]) < len(DOCUMENT) // 5
        assert packed.content == DOCUMENT
        for encoding in ("identity", "gzip;q=0", "br"):
            plain = client.get("/openapi.json", headers={"Accept-Encoding": encoding})
            assert ("content-encoding" in plain.headers, plain.content) == (False, DOCUMENT)
        same = client.get("/openapi.json", headers={"If-None-Match": packed.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")


def test_probes_and_pages_take_what_others_add_to_their_address(open_service: Service) -> None:
    """Load balancers and links do; a query of the API that nobody reads is a mistake, and refused."""
    with httpx.Client(base_url=open_service.url, timeout=PATIENCE_SECONDS) as client:
        for path in (
            "/healthz?t=1",
            "/readyz?t=1&u",
            "/metrics?name[]=x",
            "/ui/?utm_source=mail",
            "/ui/main.js?1",
            "/?a",
        ):
            assert client.get(path).status_code in (200, 307), path
        assert client.get("/readyz?leader=nobody&t=1").json()["code"] == "unknown-election"
        assert client.get("/v1/locks?t=1").json()["code"] == "invalid-field"


def test_doubt_is_said_of_what_may_have_happened_and_of_no_look(tmp_path: Path) -> None:
    """A GET changes nothing, whatever becomes of it."""
    with serving("etcd://127.0.0.1:1/nowhere?timeout=0.5", tmp_path) as service, service.user() as user:
        look = user.get("/v1/locks")
        assert (look.status_code, look.json()["happened"]) == (503, "no")
        assert "unknown" not in look.json()["detail"]
