"""The service as its users have it: the program on a socket, and a client that holds every answer to the document."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs

from tenure.service.api.openapi import ALL, document
from tests.cli.program import PATIENCE_SECONDS, PROGRAM, environment

TTL = 20


class Service:
    """A running service."""

    def __init__(self, process: subprocess.Popen[bytes], urls: list[str], log: Path) -> None:
        self.process = process
        self.urls = urls
        self._log = log

    @property
    def url(self) -> str:
        """The URL at which it listens first."""
        return self.urls[0]

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of its log, all of them JSON."""
        return [json.loads(line) for line in self.log_text.splitlines()]

    @property
    def log_text(self) -> str:
        """The same as it was written."""
        return self._log.read_text()

    def user(self, token: str | None = None, url: str | None = None, **options: Any) -> User:
        """A client of it."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return User(httpx.Client(base_url=url or self.url, headers=headers, timeout=PATIENCE_SECONDS, **options))

    def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        return self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()


class User:
    """A user of the service. Each of its answers is checked against the OpenAPI document."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def __enter__(self) -> User:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request; its answer is checked."""
        answer = self.http.request(method, path, **options)
        check(method, path, answer)
        return answer

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.request("GET", path, params=query)

    def acquire(
        self, resource: str, owner: str = "me", key: str | None = None, timeout: float = PATIENCE_SECONDS, **fields: Any
    ) -> httpx.Response:
        body = {"resource": resource, "ownerId": owner, "ttlSeconds": TTL, **fields}
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.request("POST", "/v1/locks/acquire", json=body, headers=headers, timeout=timeout)

    def held(self, resource: str, owner: str = "me", **fields: Any) -> dict[str, Any]:
        """A hold that is granted."""
        answer = self.acquire(resource, owner, **fields)
        assert answer.status_code == 200, answer.text
        reply: dict[str, Any] = answer.json()
        assert reply["acquired"] is True, reply
        return reply

    def renew(self, hold: str, timeout: float = PATIENCE_SECONDS) -> httpx.Response:
        return self.request("POST", f"/v1/locks/{hold}/renew", timeout=timeout)

    def release(self, hold: str, timeout: float = PATIENCE_SECONDS) -> httpx.Response:
        return self.request("DELETE", f"/v1/locks/{hold}", timeout=timeout)

    def line(self, name: str) -> Any:
        answer = self.get(f"/v1/resources/{quote(name, safe='')}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def force(self, name: str, token: str, reason: str = "stuck", **fields: Any) -> httpx.Response:
        body = {"token": token, "reason": reason, **fields}
        return self.request("POST", f"/v1/resources/{quote(name, safe='')}/release", json=body)

    @contextmanager
    def events(self, path: str, **query: Any) -> Iterator[Events]:
        """A stream of events."""
        with self.http.stream("GET", path, params=query) as answer:
            if answer.status_code != 200:
                answer.read()
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == "text/event-stream"
            yield Events(answer)


class Events:
    """The events of one stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, Any]:
        """The next event: its name and what it says. Raises StopIteration at the end of the stream."""
        name = ""
        while True:
            line = next(self._lines)
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))

    def until(self, wanted: Any) -> tuple[str, Any]:
        """Return the first event for which `wanted(name, reply)`."""
        while True:
            name, reply = self.next()
            if wanted(name, reply):
                return name, reply

    def ends(self) -> bool:
        """Reads on to the end of the stream."""
        for _ in self._lines:
            pass
        return True


def check(method: str, path: str, answer: httpx.Response) -> None:
    """Check that the document has this answer for that request."""
    assert answer.status_code != 500, answer.text
    kind = answer.headers.get("content-type", "")
    if answer.status_code >= 400 and kind == "application/problem+json":
        reply = answer.json()
        _schema("Problem").validate(reply)
        assert reply["status"] == answer.status_code
        assert reply["type"] == f"urn:tenure:{reply['code']}"
        if answer.status_code in (429, 503):
            assert int(answer.headers["retry-after"]) >= 1
        return
    operation = _operation(method, path)
    assert str(answer.status_code) in operation["responses"], (method, path, answer.status_code, answer.text)
    content = operation["responses"][str(answer.status_code)]["content"]
    assert kind.partition(";")[0] in content, (kind, content.keys())
    if kind == "application/json":
        _schema(content[kind]["schema"]["$ref"].rpartition("/")[2]).validate(answer.json())


@cache
def _schema(name: str) -> Any:
    components = {"schemas": document()["components"]["schemas"]}
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": components})


def _operation(method: str, path: str) -> dict[str, Any]:
    route, _ = ALL.find(method, tuple(path.partition("?")[0][1:].split("/")))
    operation: dict[str, Any] = document()["paths"][route.path][route.method.lower()]
    return operation


@dataclass(frozen=True)
class Token:
    """Make a line of a file of tokens."""

    token: str
    name: str
    tenant: str
    scopes: str = "acquire,read,elect"
    until: str = ""

    @property
    def line(self) -> str:
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        return f"{self.name} {self.tenant} {self.scopes} {digest} {self.until}\n"


def write_tokens(path: Path, *tokens: Token) -> Path:
    """A file of these tokens, in place of what was there, as Kubernetes does it: by a rename."""
    fresh = path.with_suffix(".new")
    fresh.write_text("# name tenant scopes sha256\n" + "".join(token.line for token in tokens))
    fresh.rename(path)
    return path


@contextmanager
def serving(
    url: str, directory: Path, *arguments: str, stderr: int | None = None, through: Sequence[str] = ()
) -> Iterator[Service]:
    """The program, until the end of the block; it has to end well then.

    Its log goes to a file, or to `stderr`; it is executed by the command `through`, where there is one.
    """
    number = len(list(directory.glob("*.log")))
    log = directory / f"service-{number}.log"
    listen = () if "--listen" in arguments else ("--listen", "0")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*through, *PROGRAM, "serve", *listen, *arguments],
            stdout=subprocess.PIPE,
            stderr=stream if stderr is None else stderr,
            env=environment({"TENURE_URL": url}),
        )
    service = Service(process, [], log)
    try:
        probed = sum(option in arguments for option in ("--health-port", "--metrics-port"))
        service.urls += _urls(service, max(1, arguments.count("--listen")) + probed)
        yield service
        if process.poll() is None:
            assert service.stop() == 0, service.log_text
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert "Traceback" not in service.log_text, service.log_text


def refused(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program where it must not start."""
    return subprocess.run(
        [*PROGRAM, "serve", *arguments],
        capture_output=True,
        text=True,
        env=environment({"TENURE_URL": url}),
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def _urls(service: Service, count: int) -> list[str]:
    """The first lines of its standard output."""
    assert service.process.stdout is not None
    out, got, until = service.process.stdout.fileno(), b"", time.monotonic() + PATIENCE_SECONDS
    while got.count(b"\n") < count:
        readable, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
        part = os.read(out, 65536) if readable else b""
        assert part, f"it did not start: {service.log_text}"
        got += part
    return got.decode().splitlines()


def trusting(ca: Path, *certificate: Path) -> ssl.SSLContext:
    """A client's settings: whom it trusts, and what it shows."""
    context = ssl.create_default_context(cafile=str(ca))
    if certificate:
        context.load_cert_chain(*map(str, certificate))
    return context
