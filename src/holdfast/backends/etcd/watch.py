"""Watches: all of a client's watches on one socket, served by one thread.

A watch here is one-shot: its signal is set by the first event, or when the watch ends for any reason
(compaction, a refused request): law 11 makes its owner look. A connection that breaks is opened again
and every watch resumed from its own start revision, so nothing is missed.

What carries them, a WebSocket or one long POST, is streams.py's business.
"""

from __future__ import annotations

import collections
import itertools
import logging
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from websockets.exceptions import WebSocketException

from holdfast.backends.etcd.session import Session
from holdfast.backends.etcd.streams import PostStream, Stream, WebSocketStream, pending
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.lease import Surroundings
from holdfast.limits import RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX
from holdfast.signals import Signal

_log = logging.getLogger("holdfast")
_DIAL_SECONDS: Final = 2.0
_PROBE_AFTER: Final = 5.0
_PROBE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Watching:
    """What to watch: keys (base64, as requests carry them), from which revision, for which events."""

    key: str
    range_end: str | None
    start_revision: int
    deletes_only: bool
    signal: Signal


class Watcher:
    """The watches of one client. Its thread starts with the first watch."""

    def __init__(self, session: Session, around: Surroundings, probe: Callable[[float], None]) -> None:
        self._session = session
        self._clock = around.clock
        self._probe = probe
        self._ids = itertools.count(1)
        self._guard = threading.RLock()  # guards everything below
        self._wanted: dict[int, Watching] = {}
        self._outbox: collections.deque[dict[str, Any]] = collections.deque()
        self._reconnect = False
        self._token = ""  # the stream's, where there is a user; only its thread knows it
        self._closing = Signal()
        self._thread: threading.Thread | None = None
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self.connections = 0

    @property
    def watches(self) -> int:
        return len(self._wanted)

    def add(self, watching: Watching) -> Callable[[], None]:
        """Start a watch; returns at once. The returned function stops it."""
        watch_id = next(self._ids)
        with self._guard:
            if self._closing.is_set():
                watching.signal.set()
                return lambda: None
            self._wanted[watch_id] = watching
            self._outbox.append(_create(watch_id, watching))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    del self._wanted[watch_id]
                    raise StoreUnavailable(f"no thread can be started to watch etcd: {error}") from error
                self._thread = thread
        self._ring()
        return lambda: self._drop(watch_id)

    def reconnect(self) -> None:
        """The session has moved to another endpoint: follow."""
        self._reconnect = True
        self._ring()

    def close(self) -> None:
        with self._guard:
            self._closing.set()
            thread = self._thread
            signals = [w.signal for w in self._wanted.values()]
            self._wanted.clear()
        self._ring()
        for signal in signals:
            signal.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_DIAL_SECONDS + _PROBE_SECONDS)
        self._bell.close()
        self._ear.close()

    def _drop(self, watch_id: int) -> None:
        with self._guard:
            if self._wanted.pop(watch_id, None) is None:
                return
            self._outbox.append({"cancel_request": {"watch_id": watch_id}})
        # No ring: the server learns of it with the next message, and until then an event of it is ignored.

    def _ring(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:
            pass  # full: it rings already; closed: nobody listens

    def _run(self) -> None:
        pause = RETRY_PAUSE_FIRST
        while not self._closing.is_set():
            if not self._wanted:
                self._hear(None)  # no end: a watch, or close(), rings
                continue
            try:
                stream, endpoint = self._open()
            except StoreError as error:
                # Refusals too: holds and waits have deadlines of their own, this thread does not.
                _log.debug("the watch could not be opened: %s", error)
                self._clock.wait(self._closing, self._clock.now() + pause)
                pause = min(pause * 2, RETRY_PAUSE_MAX)
                self._wake_all()
                continue
            opened = self._clock.now()
            try:
                self._serve(stream)
            except (OSError, EOFError, ValueError, WebSocketException) as error:
                if not self._closing.is_set():
                    self._session.move_on(endpoint, f"the watch broke: {error or type(error).__name__}")
                    self._wake_all()
                    if self._clock.now() - opened < RETRY_PAUSE_MAX:  # it opens and breaks: don't spin
                        self._clock.wait(self._closing, self._clock.now() + pause)
                        pause = min(pause * 2, RETRY_PAUSE_MAX)
            finally:
                stream.sock.close()
            if self._clock.now() - opened >= RETRY_PAUSE_MAX:
                pause = RETRY_PAUSE_FIRST

    def _wake_all(self) -> None:
        """The watches broke. Opened anew they would go on where they were, but not on a store that went back
        meanwhile, and not where no watch can be opened at all: everybody looks (law 11)."""
        with self._guard:
            signals = [watching.signal for watching in self._wanted.values()]
        for signal in signals:
            signal.set()

    def _open(self) -> tuple[Stream, tuple[str, int]]:
        with self._guard:
            self._reconnect = False
            self._outbox.clear()
            creates = [_create(i, w) for i, w in self._wanted.items()]
        sock, endpoint = self._session.dial(_DIAL_SECONDS)
        try:
            stream = self._handshake(sock, endpoint, creates)
        except (OSError, EOFError, ValueError, WebSocketException) as error:
            sock.close()
            raise self._session.failed(endpoint, OSError(str(error))) from error
        except BaseException:
            sock.close()
            raise
        self.connections += 1
        return stream, endpoint

    def _handshake(self, sock: socket.socket, endpoint: tuple[str, int], creates: list[dict[str, Any]]) -> Stream:
        if self._session.needs_user:
            self._token = self._session.token(self._clock.now() + _DIAL_SECONDS)
            return PostStream(sock, endpoint, self._token, creates)
        stream = WebSocketStream(sock, endpoint)
        for create in creates:
            stream.send(create)
        return stream

    def _serve(self, stream: Stream) -> None:
        """Until it breaks, or has to be opened anew."""
        pinged = False
        while not self._closing.is_set():
            ready = self._hear(stream.sock, _PROBE_SECONDS if pinged else _PROBE_AFTER)
            if self._reconnect or not self._send(stream):
                return
            if stream.sock in ready:
                pinged = False
                for message in stream.receive():
                    self._take(message)
            elif not ready and pinged:
                raise OSError("no answer to a ping")
            elif not ready and self._wanted:
                # Silence. The path may have died without a word; and a member that is cut off from its peers
                # answers, but has nothing to tell for ever: ask for the quorum.
                pinged = stream.ping()
                self._probe_quietly()

    def _hear(self, sock: socket.socket | None, seconds: float | None = None) -> list[socket.socket]:
        """What has something to read; the bell is answered here."""
        if sock is not None and pending(sock):
            return [sock]
        ears = [self._ear] if sock is None else [self._ear, sock]
        ready = _readable(ears, seconds)
        if self._ear in ready:
            self._ear.recv(4096)
        return ready

    def _send(self, stream: Stream) -> bool:
        """Pass on what was added and dropped; False where that takes a new stream."""
        while True:
            with self._guard:
                if not self._outbox:
                    return True
                request = self._outbox.popleft()
                if not stream.takes_more:
                    if "create_request" in request:
                        return False
                    continue
            stream.send(request)

    def _take(self, message: Any) -> None:
        if "error" in message:
            if "auth" in str(message["error"]):
                self._session.forget_token(self._token)
            raise OSError(f"the server ended the watches: {message['error']}")
        result = message.get("result") or {}
        if result.get("created") and not result.get("canceled"):
            self._check_position(result)
        if result.get("events") or result.get("canceled"):
            with self._guard:
                watching = self._wanted.get(int(result.get("watch_id", 0)))
            if watching is None:
                if result.get("created"):  # refused without saying which: a stale token, on newer servers
                    self._session.forget_token(self._token)
                    raise OSError(f"the server refused a watch: {result.get('cancel_reason', 'no reason given')}")
                return
            if result.get("canceled") and not result.get("compact_revision"):
                # refused, for want of permission perhaps: looking and watching again at once would be a spin
                self._clock.schedule(self._clock.now() + RETRY_PAUSE_MAX, watching.signal.set)
            else:
                watching.signal.set()

    def _check_position(self, result: Any) -> None:
        """A server that is behind the revision to watch from is late, or went back: its owner has to look, soon."""
        with self._guard:
            watching = self._wanted.get(int(result.get("watch_id", 0)))
        if watching is None:
            return
        if int(result.get("header", {}).get("revision", 0)) < watching.start_revision - 1:
            self._clock.schedule(self._clock.now() + RETRY_PAUSE_MAX, watching.signal.set)

    def _probe_quietly(self) -> None:
        try:
            self._probe(self._clock.now() + _PROBE_SECONDS)
        except StoreError as error:
            _log.debug("the watch's endpoint does not reach its quorum: %s", error)


def _create(watch_id: int, watching: Watching) -> dict[str, Any]:
    request: dict[str, Any] = {
        "key": watching.key,
        "start_revision": watching.start_revision,
        "watch_id": watch_id,
    }
    if watching.range_end is not None:
        request["range_end"] = watching.range_end
    if watching.deletes_only:
        request["filters"] = ["NOPUT"]
    return {"create_request": request}


def _readable(socks: list[socket.socket], seconds: float | None) -> list[socket.socket]:
    """select() without its limit of 1,024 descriptors."""
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in socks}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(None if seconds is None else seconds * 1000)]
