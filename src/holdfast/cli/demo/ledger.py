"""The protected resource: a ledger that takes a line only with a token as high as any it has seen.

That is the whole of fencing, and it is the ledger's own doing: it knows no election, no leader and no
store. It lives in the demo's process; workers reach it through a socket on loopback. In your own system
this is a column and a condition in the UPDATE, or an If-Match in the request.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

_HOST = "127.0.0.1"
_EXCHANGE_SECONDS = 5.0
_LINE_BYTES_MAX = 4096
_SHUTDOWN_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """One line somebody wants to write."""

    who: str
    token: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ledger did with a line. `highest` is the highest token it had seen before."""

    accepted: bool
    highest: int


class Ledger:
    """Lines in the order they were taken, and those that were refused."""

    def __init__(self) -> None:
        self._guard = threading.Lock()  # guards both lists; looking and writing are one step
        self._lines: list[Line] = []
        self._refused: list[tuple[Line, int]] = []

    def write(self, line: Line) -> Verdict:
        """Take the line unless its token is older than one already seen."""
        with self._guard:
            highest = max((known.token for known in self._lines), default=0)
            if line.token < highest:
                self._refused.append((line, highest))
                return Verdict(False, highest)
            self._lines.append(line)
            return Verdict(True, highest)

    @property
    def lines(self) -> tuple[Line, ...]:
        """What was taken."""
        with self._guard:
            return tuple(self._lines)

    @property
    def refused(self) -> tuple[tuple[Line, int], ...]:
        """What was refused, each with the highest token seen before it."""
        with self._guard:
            return tuple(self._refused)


class _Server(socketserver.ThreadingTCPServer):
    """A thread per exchange: a writer that is stopped in the middle of one keeps no other waiting."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, ledger: Ledger) -> None:
        super().__init__((_HOST, 0), _Exchange)
        self.ledger = ledger

    def handle_error(self, request: object, client_address: object) -> None:
        """A writer that died or stopped half-way: it gets no verdict, and the ledger no line."""


class _Exchange(socketserver.StreamRequestHandler):
    timeout = _EXCHANGE_SECONDS

    def handle(self) -> None:
        if not isinstance(self.server, _Server):
            raise TypeError(f"an exchange belongs to a ledger's server, not to {self.server!r}")
        verdict = self.server.ledger.write(Line(**json.loads(self.rfile.readline(_LINE_BYTES_MAX))))
        self.wfile.write(json.dumps(asdict(verdict)).encode() + b"\n")


@contextmanager
def serving(ledger: Ledger) -> Iterator[int]:
    """Let other processes write to `ledger`; the port."""
    with _Server(ledger) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_LOOK_SECONDS,), name="demo-ledger")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def write(port: int, line: Line) -> Verdict:
    """Ask the ledger on that port to take a line. Raises OSError."""
    with socket.create_connection((_HOST, port), _EXCHANGE_SECONDS) as connection, connection.makefile("rwb") as stream:
        stream.write(json.dumps(asdict(line)).encode() + b"\n")
        stream.flush()
        return Verdict(**json.loads(stream.readline(_LINE_BYTES_MAX)))
