"""Waiting for changes over one stream: one thread and one socket, however many wait.

Waits are registered by requests, many in one, for the stream that is open; what comes of them comes on the stream. A
stream that ends or can't be opened sets all signals: whoever waits looks again (law 11), and registers again.
"""

from __future__ import annotations

import collections
import itertools
import json
import logging
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tenure._backends.service.calls import Calls, LeaseIsOver
from tenure._core.base.limits import RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext
from tenure._transport.http import LineStream
from tenure._transport.remote import Json
from tenure.errors import StoreUnavailable, TenureError

_DIAL_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 25.0
"""Limit of silence; the service gives a sign of life every ten seconds."""
_AT_ONCE_MAX: Final = 100
_BYTES_MAX: Final = 64 * 1024
"""Limit of the waits in one request, unless a single one has more. The service takes 128 KiB in all."""
_DROPPED_MAX: Final = 200
"""Number of dropped waits at which the service hears of them, even if there is nothing else to say."""
_log = logging.getLogger("tenure")


class _PendingWait(NamedTuple):
    signal: Signal
    kind: str
    body: Json
    body_bytes: int
    registered: Signal


class Changes:
    """The waits of one client. Its thread starts with the first one."""

    def __init__(self, calls: Calls, context: BackendContext) -> None:
        self._calls = calls
        self._clock = context.clock
        self._numbers = itertools.count(1)
        self._guard = threading.RLock()  # guards everything below
        self._waits: dict[int, _PendingWait] = {}
        self._new: collections.deque[int] = collections.deque()
        self._dropped: list[int] = []
        self._moved = False
        self._thread: threading.Thread | None = None
        self._closing = Signal()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self.streams = 0
        calls.session.on_move = self._follow

    @property
    def waits(self) -> int:
        return len(self._waits)

    def wait_for(self, signal: Signal, body: Json) -> Callable[[], None]:
        """Set `signal` when the tickets in `body` change; returns at once. The returned function ends the wait."""
        return self._add(signal, "tickets", body)[0]

    def watch(self, signal: Signal, prefix: str, until: float) -> Callable[[], None]:
        """Set `signal` when a line below `prefix` changes, from now on."""
        stop, registered = self._add(signal, "prefixes", {"prefix": prefix})
        if not self._clock.wait(registered, until):
            stop()
            raise StoreUnavailable("the service did not take the watch in time")
        return stop

    def close(self) -> None:
        with self._guard:
            self._closing.set()
            thread = self._thread
        self._ring()
        self._wake(self._take_all())
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * _DIAL_SECONDS)
        self._bell.close()
        self._ear.close()

    def drop(self, number: int) -> None:
        """End a wait that nobody needs any more."""
        with self._guard:
            if self._waits.pop(number, None) is None:
                return
            self._dropped.append(number)
            full = len(self._dropped) >= _DROPPED_MAX
        if full:  # else the service hears of it with what is next
            self._ring()

    def _add(self, signal: Signal, kind: str, body: Json) -> tuple[Callable[[], None], Signal]:
        number, registered = next(self._numbers), Signal()
        body = {"wait": number, **body}
        wait = _PendingWait(signal, kind, body, len(json.dumps(body, separators=(",", ":"))), registered)
        with self._guard:
            if self._closing.is_set():
                signal.set()
                registered.set()
                return (lambda: None), registered
            self._waits[number] = wait
            self._new.append(number)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tenure-changes", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    del self._waits[number]
                    raise StoreUnavailable(f"no thread can be started to hear from the service: {error}") from error
                self._thread = thread
        self._ring()
        return _StopWait(self, number), registered

    def _follow(self) -> None:
        """Follow the connection pool to another endpoint."""
        self._moved = True
        self._ring()

    def _ring(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:
            pass  # full: it rings already; closed: nobody listens

    def _run(self) -> None:
        pause = RETRY_PAUSE_FIRST
        while not self._closing.is_set():
            if not self._waits:
                self._hear(None, None)  # no end: a wait, or close(), rings
                continue
            opened = self._clock.now()
            try:
                self._serve()
            except (OSError, EOFError, ValueError, KeyError, TypeError, TenureError, LeaseIsOver) as error:
                _log.debug("the stream of changes ended: %s", error or type(error).__name__)
            self._wake(self._take_all())
            if self._clock.now() - opened >= RETRY_PAUSE_MAX:
                pause = RETRY_PAUSE_FIRST
            else:  # it opens and breaks, or does not open: don't spin
                self._clock.wait(self._closing, self._clock.now() + jittered(pause))
                pause = min(pause * 2, RETRY_PAUSE_MAX)

    def _serve(self) -> None:
        """Open a stream and serve it until it breaks."""
        self._moved = False
        name = secrets.token_hex(16)
        sock, endpoint = self._calls.session.dial(_DIAL_SECONDS)
        try:
            try:
                stream = LineStream(sock, endpoint, f"/v1/streams/{name}/events", b"{}", self._calls.token)
                self._await_opening(stream)
            except (OSError, EOFError, ValueError) as error:
                raise self._calls.session.failed(endpoint, OSError(str(error))) from error
            self.streams += 1
            self._listen(stream, name)
        finally:
            sock.close()

    def _await_opening(self, stream: LineStream) -> None:
        stream.sock.settimeout(_DIAL_SECONDS)
        while not any(line.startswith(b"event: open") for line in stream.receive()):
            pass
        stream.sock.settimeout(_SILENCE_SECONDS)

    def _listen(self, stream: LineStream, name: str) -> None:
        heard_at = self._clock.now()
        while not self._closing.is_set():
            self._register(name)
            left = heard_at + _SILENCE_SECONDS - self._clock.now()
            if stream.sock in self._hear(stream.sock, max(0.0, left)):
                heard_at = self._clock.now()
                self._take(stream.receive())
            elif left <= 0:
                raise OSError("the service has fallen silent")
            if self._moved:
                raise OSError("the session has moved to another endpoint")

    def _hear(self, sock: socket.socket | None, seconds: float | None) -> list[socket.socket]:
        """Wait for something to read, and return the sockets that have it; the bell is answered here."""
        pending = getattr(sock, "pending", None)
        if sock is not None and pending is not None and pending():  # decrypted already, where poll() can't see it
            return [sock]
        by_number = {each.fileno(): each for each in (self._ear, sock) if each is not None}
        poll = select.poll()
        for number in by_number:
            poll.register(number, select.POLLIN)
        ready = [by_number[number] for number, _ in poll.poll(None if seconds is None else seconds * 1000)]
        if self._ear in ready:
            self._ear.recv(4096)
        return ready

    def _register(self, name: str) -> None:
        """Register new waits with the service, and drop those that nobody needs any more."""
        while True:
            with self._guard:
                waits = self._next_waits()
                due = waits or len(self._dropped) >= _DROPPED_MAX
                dropped, self._dropped = (
                    (self._dropped[:_DROPPED_MAX], self._dropped[_DROPPED_MAX:]) if due else ([], self._dropped)
                )
            if not due:
                return
            body: Json = {"streamId": name, "drop": dropped}
            for kind in ("tickets", "prefixes"):
                body[kind] = [wait.body for wait in waits if wait.kind == kind]
            self._calls.ask("/v1/waits", body, self._clock.now() + _DIAL_SECONDS)
            for wait in waits:
                wait.registered.set()

    def _next_waits(self) -> list[_PendingWait]:
        """Take the oldest new waits that one request can carry, without those that were dropped."""
        waits: list[_PendingWait] = []
        room = _BYTES_MAX
        while self._new and len(waits) < _AT_ONCE_MAX:
            wait = self._waits.get(self._new[0])
            if wait is not None:
                room -= wait.body_bytes
                if waits and room < 0:
                    break
                waits.append(wait)
            self._new.popleft()
        return waits

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.startswith(b"data: "):
                for number in json.loads(line[len(b"data: ") :]).get("waits", ()):
                    with self._guard:
                        wait = self._waits.pop(number, None)
                    if wait is not None:
                        wait.signal.set()

    def _take_all(self) -> list[_PendingWait]:
        with self._guard:
            waits, self._waits = list(self._waits.values()), {}
            self._new.clear()
            self._dropped.clear()
        return waits

    def _wake(self, waits: Iterable[_PendingWait]) -> None:
        for wait in waits:
            wait.signal.set()
            wait.registered.set()


class _StopWait:
    """Callback that ends a wait. A class with slots, as there is one for each hold."""

    __slots__ = ("_changes", "_number")

    def __init__(self, changes: Changes, number: int) -> None:
        self._changes = changes
        self._number = number

    def __call__(self) -> None:
        self._changes.drop(self._number)
