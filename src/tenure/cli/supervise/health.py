"""Probes over HTTP: /healthz, /readyz and /leader.

/healthz  200 while this process does its work, leading or waiting; a store that is away does not make it ill
/readyz   200 while it leads and CMD runs, else 503
/leader   who leads, as the store's quorum says at this moment, as JSON; 503 when the store does not say
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import tenure
from tenure.cli.supervise.inbox import SupervisorInbox
from tenure.errors import InvalidOption, TenureError

_ANSWER_SECONDS: Final = 2.0
_CLIENT_SECONDS: Final = 5.0
_OK: Final = 200
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503


class Health:
    """The server of probes. It listens from the moment it is made; raises InvalidOption where it can't."""

    def __init__(self, at: tuple[str, int], election: tenure.Election, inbox: SupervisorInbox) -> None:
        self._election = election
        self._inbox = inbox
        self._running = False
        health = self

        class ProbeHandler(BaseHTTPRequestHandler):
            """A request."""

            timeout = _CLIENT_SECONDS

            def do_GET(self) -> None:
                """Answer the probe."""
                code, body = health.answer(self.path.partition("?")[0])
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Log nothing: a probe every second is no news."""

        try:
            self._server = _ProbeServer(at, ProbeHandler)
        except OSError as error:
            host = f"[{at[0]}]" if ":" in at[0] else at[0]
            raise InvalidOption(f"the health port can't be opened: {host}:{at[1]}: {error.strerror}") from error
        threading.Thread(target=self._server.serve_forever, name="tenure-health", daemon=True).start()

    def set_running(self, running: bool) -> None:
        """Set whether CMD runs under the hold."""
        self._running = running

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body of the answer to a probe of `path`."""
        if path == "/healthz":
            well = self._inbox.answers(_ANSWER_SECONDS)
            return _json(_OK if well else _UNAVAILABLE, healthy=well)
        if path == "/readyz":
            return _json(_OK if self._running else _UNAVAILABLE, ready=self._running)
        if path == "/leader":
            return self._leader()
        return _json(_NOT_FOUND, error="there are /healthz, /readyz and /leader")

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _leader(self) -> tuple[int, bytes]:
        try:
            leader = self._election.leader()
        except TenureError as error:
            return _json(_UNAVAILABLE, error=str(error))
        name = self._election.resource
        if leader is None:
            return _json(_OK, name=name, leader=None, leading=False)
        who = {"value": leader.value, "owner": leader.owner, "token": str(leader.token)}
        return _json(_OK, name=name, leader=who, leading=self._running)


class _ProbeServer(ThreadingHTTPServer):
    """A server over IPv4 and IPv6: a probe comes to whichever address the machine has."""

    daemon_threads = True

    def __init__(self, at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host, port = at
        if host:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        elif socket.has_dualstack_ipv6():
            self.address_family = socket.AF_INET6
        super().__init__(at, handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's question to the DNS for this machine's name, which may take long to be answered."""
        if self.address_family == socket.AF_INET6:
            only = int(bool(self.server_address[0]))
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        socketserver.TCPServer.server_bind(self)


def _json(code: int, **facts: object) -> tuple[int, bytes]:
    return code, json.dumps(facts).encode() + b"\n"
