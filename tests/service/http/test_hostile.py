"""Hostile or broken clients: refused, in bounded time and memory, while the others are served on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tenure.service import limits
from tenure.service.auth.tokens import check_host
from tenure.service.http.problems import Problem
from tenure.service.http.request import HttpRequest, Message
from tests.cli.program import PATIENCE_SECONDS, eventually
from tests.service.http.conftest import BILLING
from tests.service.http.program import Service, User, serving

BODY = {"resource": "x", "ownerId": "me", "ttlSeconds": 5}


@contextmanager
def wire(service: Service) -> Iterator[socket.socket]:
    """A bare connection."""
    where = urlsplit(service.url)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 0), timeout=PATIENCE_SECONDS) as sock:
        yield sock


def answer_to(service: Service, *parts: bytes) -> bytes:
    """Return all bytes until the service ends the connection."""
    with wire(service) as sock:
        for part in parts:
            sock.sendall(part)
        return everything(sock)


def everything(sock: socket.socket) -> bytes:
    got = b""
    try:
        while part := sock.recv(65536):
            got += part
    except ConnectionResetError:  # it did not read all that was sent
        pass
    return got


def code_of(answer: bytes) -> str:
    """The code of the problem in it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    code: str = json.loads(body)["code"]
    return code


def post(body: bytes, *headers: str, path: str = "/v1/locks/acquire") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b"null", "must be a JSON object, not null"),
        (b'"x"', "must be a JSON object, not a string"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"a":' * 20_000, "nested too deeply"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"resource": "a", "resource": "b"}', "comes twice"),
        (b'{"ttlSeconds": NaN}', "NaN is no JSON number"),
        (b'{"ttlSeconds": -Infinity}', "no JSON number"),
        (b'{"ttlSeconds": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\x00" * 100, "not JSON"),
    ],
)
def test_body_that_is_no_json_is_400(user: User, body: bytes, says: str) -> None:
    """The refusal is one sentence that says what the body is instead."""
    answer = user.request("POST", "/v1/locks/acquire", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-request")
    assert says in answer.json()["detail"]


def test_half_a_surrogate_pair_is_400(user: User) -> None:
    """JSON can write what UTF-8 can't."""
    body = b'{"resource": "\\ud800", "ownerId": "me", "ttlSeconds": 5}'
    answer = user.request("POST", "/v1/locks/acquire", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_body_that_a_web_page_could_send_unasked_is_415(user: User, kind: str | None) -> None:
    """Only application/json is taken: a web page of another origin can't send that to localhost unasked."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = user.request("POST", "/v1/locks/acquire", content=json.dumps(BODY), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-type")


@pytest.mark.parametrize("token", [None, BILLING.token])
def test_page_of_another_site_is_refused_whatever_it_asks_for(
    open_service: Service, guarded_service: Service, token: str | None
) -> None:
    """A browser says where a page is from; only the way to the dashboard, a link, is open."""
    with (open_service if token is None else guarded_service).user(token) as user:
        for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
            headers = {"Sec-Fetch-Site": site}
            answer = user.request("GET", "/v1/locks", headers=headers)
            assert answer.status_code == status, site
            assert status == 200 or answer.json()["code"] == "forbidden-site"
            assert user.request("GET", "/openapi.json", headers=headers).status_code == status, site
            assert user.http.get("/ui/", headers=headers).status_code == 200


def test_service_with_tokens_answers_to_no_other_name(guarded_service: Service) -> None:
    """A token does not make a name of somebody else's ours."""
    with guarded_service.user(BILLING.token) as user:
        answer = user.request("GET", "/v1/locks", headers={"Host": "evil.example"})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden-host")
        assert user.http.get("/ui/", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("at", "host", "fits"),
    [
        ("10.0.0.5", "10.0.0.5:8700", True),
        ("10.0.0.5", "10.0.0.6:8700", False),
        ("::ffff:10.0.0.5", "10.0.0.5", True),
        ("fd00::5", "[fd00:0::5]:8700", True),
        ("10.0.0.5", "locks.example.com", False),
    ],
)
def test_address_at_which_a_request_came_is_a_name_of_the_service(at: str, host: str, fits: bool) -> None:
    """Also where it listens at every address of the machine: a page can't give a name of its own the look of one."""

    async def nothing() -> Message:
        raise AssertionError("no body is asked for")

    headers = [(b"host", host.encode())]
    scope = {"method": "GET", "headers": headers, "client": ("10.0.0.9", 1), "server": (at, 8700)}
    with nullcontext() if fits else pytest.raises(Problem):
        check_host(HttpRequest(scope, nothing), frozenset())


def test_service_without_tokens_answers_to_no_other_name(user: User) -> None:
    """A name that a web page has for 127.0.0.1 (DNS rebinding) is not ours."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1"):
        answer = user.request("GET", "/v1/locks", headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden-host"), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "127.1.2.3:9"):
        assert user.request("GET", "/v1/locks", headers={"Host": host}).status_code == 200, host


def test_body_may_be_as_big_as_its_route_takes(user: User) -> None:
    """A commit and a list of waits may be bigger than others: beyond its own limit each is 413."""
    kind = {"Content-Type": "application/json"}
    for path, maximum in (
        ("/v1/locks/acquire", limits.BODY_BYTES_MAX),
        ("/v1/leases/x/renew", limits.BODY_BYTES_MAX),
        ("/v1/leases/x/commit", limits.COMMIT_BODY_BYTES_MAX),
        ("/v1/waits", limits.WAITS_BODY_BYTES_MAX),
    ):
        for size, is_too_large in ((maximum, False), (maximum + 1, True)):
            answer = user.request("POST", path, content=b"{}".ljust(size), headers=kind)
            assert (answer.status_code == 413) is is_too_large, (path, size, answer.text)


def test_huge_body_is_413_before_it_is_read(open_service: Service) -> None:
    """Announced: refused at once, and not asked for. Not announced: refused as soon as it is too much."""
    announced = b"Content-Length: 10000000000"
    head = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    got = answer_to(open_service, head + announced + b"\r\nExpect: 100-continue\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413")
    assert b"100 Continue" not in got
    with wire(open_service) as sock:
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            for _ in range(200):
                sock.sendall(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass
        got = everything(sock)
    assert got == b"" or code_of(got) == "too-large"


def test_huge_head_is_431(open_service: Service) -> None:
    """The limit counts for a head in one piece, and for one in many."""
    long = b"X-Long: " + b"a" * 40_000
    assert code_of(answer_to(open_service, b"GET /healthz HTTP/1.1\r\n", long, b"\r\n\r\n")) == "head-too-large"
    many = b"".join(b"X-%d: b\r\n" % number for number in range(5000))
    assert code_of(answer_to(open_service, b"GET /healthz HTTP/1.1\r\n", many, b"\r\n")) == "head-too-large"
    assert code_of(answer_to(open_service, b"GET /" + b"a" * 40_000)) == "head-too-large"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/locks/acquire HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/locks/acquire HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/locks/acquire HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/locks/acquire HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(open_service: Service, user: User, sent: bytes) -> None:
    """A problem document and the end of the connection, or just the end of it; the others are served on."""
    with wire(open_service) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        got = everything(sock)
    assert got == b"" or got.startswith((b"HTTP/1.1 4",)), got
    assert user.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "/v1",
        "/v1/",
        "/v1//locks",
        "/v1/locks/",
        "/v1/locks/../../healthz",
        "/v1/resources/",
        "/v1/resources//why",
        "/v1/resources/a/b",
        "/healthz/",
        "/HEALTHZ",
        "/%68ealthz%2f",
        "/v1/resources/%",
        "/v1/resources/%zz",
        "/v1/resources/%ff",
        "/v1/resources/%c0%ae",
        "/v1/resources/%00",
        "/v1/locks?limit=1&limit=2",
        "/v1/locks?limit",
        "/v1/locks?prefix=%ff",
        "/v1/locks?" + "&".join(f"a{n}=1" for n in range(200)),
    ],
)
def test_path_tricks_are_answered_with_a_problem(open_service: Service, path: str) -> None:
    """404, 400, and never a 5xx."""
    got = answer_to(open_service, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert code_of(got) in ("not-found", "bad-request", "invalid-field"), got


def test_wrong_method_is_405_and_says_which_are_right(user: User) -> None:
    """The refusal has an Allow header."""
    answer = user.http.put("/v1/locks")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    answer = user.http.get("/v1/locks/acquire")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert user.http.head("/healthz").status_code == 200
    assert user.http.head("/v1/events").status_code == 200


def test_header_that_comes_twice_is_400(open_service: Service) -> None:
    """Which of two tokens or keys counts is not guessed."""
    body = json.dumps(BODY).encode()
    kind = "Content-Type: application/json"
    got = answer_to(open_service, post(body, kind, "Idempotency-Key: a", "Idempotency-Key: b"))
    assert code_of(got) == "bad-request"
    got = answer_to(open_service, post(body, kind, "Idempotency-Key: "))
    assert code_of(got) == "invalid-field"
    got = answer_to(open_service, post(body, kind, "Idempotency-Key: " + "k" * 300))
    assert code_of(got) == "invalid-field"


def test_slow_clients_are_cut_off_and_others_served_meanwhile(open_service: Service, user: User) -> None:
    """A head or a body that trickles in, and a connection that says nothing, end after ten seconds."""
    began = time.monotonic()
    with wire(open_service) as silent, wire(open_service) as head, wire(open_service) as body:
        head.sendall(b"GET /healthz HTTP/1.1\r\n")
        body.sendall(post(json.dumps(BODY).encode(), "Content-Type: application/json")[:-5])
        for byte in b"X-Slow":
            head.sendall(bytes([byte]))
            assert user.get("/healthz").status_code == 200
        assert everything(silent) == b""
        assert code_of(everything(head)) == "too-slow"
        assert code_of(everything(body)) == "too-slow"
    assert time.monotonic() - began >= limits.HEAD_SECONDS - 1


def test_reader_that_does_not_read_holds_up_nobody(url: str, name: str, tmp_path: Path) -> None:
    """The service goes on, and ends well."""
    with serving(url, tmp_path) as service, service.user() as user, wire(service) as sock:
        sock.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = user.held(name)
        assert user.release(reply["leaseId"]).status_code == 200


def test_pipelined_requests_are_answered_in_order(open_service: Service) -> None:
    """Two in one piece; the second ends the connection."""
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    second = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    got = answer_to(open_service, first + second)
    assert got.index(b"healthy") < got.index(b"not-found")


@pytest.mark.parametrize(
    ("revision", "code"), [(2**63, "invalid-field"), (2**63 - 1, "invalid-field"), (2**63 - 2, "unknown-stream")]
)
def test_wait_from_a_revision_that_no_store_can_come_to_is_400(user: User, revision: int, code: str) -> None:
    """Waits share one watch at the store, and it would begin after the last number that a store can count to."""
    wait = {"wait": 1, "leaseId": "l", "resource": "a", "revision": str(revision), "tickets": [], "anyChange": True}
    answer = user.request("POST", "/v1/waits", json={"streamId": "s" * 16, "tickets": [wait]})
    assert answer.json()["code"] == code


def test_limits_of_a_tenant_are_429_with_retry_after(url: str, tmp_path: Path, name: str) -> None:
    """Holds, waiting requests, and requests a second."""
    with serving(url, tmp_path, "--holds", "3", "--waiting", "2") as service, service.user() as user:
        held = [user.held(f"{name}-{number}") for number in range(3)]
        answer = user.acquire(f"{name}-more")
        assert (answer.status_code, answer.json()["code"]) == (429, "too-many-holds")
        user.release(held.pop()["leaseId"])
        user.release(user.held(f"{name}-more")["leaseId"])
        user.release(held.pop()["leaseId"])
        user.release(held.pop()["leaseId"])
    with serving(url, tmp_path, "--waiting", "1") as service, service.user() as user:
        reply = user.held(name)
        with wire(service) as sock:
            sock.sendall(
                post(
                    json.dumps({**BODY, "resource": name, "waitSeconds": 60}).encode(), "Content-Type: application/json"
                )
            )
            eventually(lambda: user.line(name)["waiterCount"] == 1)
            answer = user.acquire(name, waitSeconds=1)
            assert (answer.status_code, answer.json()["code"]) == (429, "too-many-waiting")
        eventually(lambda: user.acquire(name).status_code == 409)
        user.release(reply["leaseId"])
    with serving(url, tmp_path, "--rate", "5") as service, service.user() as user:
        codes = [user.get("/v1/locks").status_code for _ in range(100)]
        assert set(codes) == {200, 429}
        assert user.get("/healthz").status_code == 200


def test_who_asks_too_often_loses_no_hold_for_it(url: str, tmp_path: Path, name: str) -> None:
    """Renewals, and what gives up, have room of their own; and that has an end, too."""
    with serving(url, tmp_path, "--rate", "5") as service, service.user() as user:
        reply = user.held(name)
        opened = user.request("POST", "/v1/leases", json={"nonce": "n" * 16, "ttlSeconds": 20})
        lease = f"/v1/leases/{opened.json()['leaseId']}"
        entry = {"resource": f"{name}-b", "ownerId": "me", "ticketId": "t"}
        assert user.request("POST", f"{lease}/enter", json=entry).status_code == 200
        assert any(user.get("/v1/locks").status_code == 429 for _ in range(1000))
        assert user.renew(reply["leaseId"]).status_code == 200
        assert user.release(reply["leaseId"]).status_code == 200
        for verb, body in (
            ("renew", {}),
            ("abandon", {**entry, "ticketId": "another"}),
            ("leave", {"resource": f"{name}-b", "ticketId": "t"}),
            ("close", {}),
        ):
            assert (verb, user.request("POST", f"{lease}/{verb}", json=body).status_code) == (verb, 200)
        assert any(user.renew(reply["leaseId"]).status_code == 429 for _ in range(1000))
