"""Watches: all of a client's watches on one socket, served by one thread.

A watch here is one-shot: its signal is set by the first event, or when the watch ends for any reason
(compaction, a refused request): law 11 makes its owner look. A connection that breaks is opened again
and every watch resumed from its own start revision, so nothing is missed.

An urgent watch begins with the next event (`WatchRequest.catch_up`): etcd serves one that begins
in the past, be it by one revision, every 0.1 s until it has caught up, and in a line that moves most would begin so.

What carries them is the transport's business.
"""

from __future__ import annotations

import collections
import itertools
import logging
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tenure._backends.etcd.requests import WatchMessage, WatchRequest
from tenure._core.base.limits import RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext
from tenure._transport.session import ConnectionPool
from tenure.errors import StoreError, StoreUnavailable

_log = logging.getLogger("tenure")
_DIAL_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 5.0
"""Time for which a server may answer none of the watches that it was asked for."""


class WatchRefused(Exception):
    """The server took the stream, but not a watch on it. Never leaves the watcher."""


class WatchConnection(Protocol):
    """An open connection that carries watches. What it raises when it broke is an OSError, EOFError or ValueError."""

    @property
    def sock(self) -> socket.socket: ...

    @property
    def takes_more(self) -> bool:
        """True where watches can be added while it is open. On others, every watch begins at its start revision."""

    @property
    def silence_seconds(self) -> float:
        """The longest silence before the server is asked for a sign of life."""

    def create(self, watch_id: int, watch: WatchRequest) -> None: ...

    def cancel(self, watch_id: int) -> None: ...

    def ping(self) -> bool:
        """Ask the other end for a sign of life; False where the stream has no way to."""

    def receive(self) -> list[WatchMessage]:
        """Return messages that have arrived; blocks only while one is on its way."""


class OpensStreams(Protocol):
    """The part of a transport that the watcher needs."""

    def open_stream(
        self, sock: socket.socket, endpoint: tuple[str, int], token: str | None, watches: Mapping[int, WatchRequest]
    ) -> WatchConnection:
        """Open a stream over `sock` with these watches. Raises as a stream does."""


class Watcher:
    """The watches of one client. Its thread starts with the first watch."""

    def __init__(
        self,
        session: ConnectionPool[Any],  # Any: whatever is spoken
        context: BackendContext,
        opener: OpensStreams,
        probe: Callable[[float], None],
    ) -> None:
        self._session = session
        self._opener = opener
        self._clock = context.clock
        self._probe = probe
        self._ids = itertools.count(1)
        self._guard = threading.RLock()  # guards everything below
        self._wanted: dict[int, WatchRequest] = {}
        self._outbox: collections.deque[tuple[int, WatchRequest | None]] = collections.deque()  # None: cancel it
        self._reconnect = False
        self._token: str | None = None  # the stream's, where there is a user; only its thread knows it
        self._unanswered: set[int] = set()  # watches that the server has said nothing of yet; its thread's, too
        self._answered_at = 0.0
        self._closing = Signal()
        self._thread: threading.Thread | None = None
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self.connections = 0

    @property
    def watches(self) -> int:
        return len(self._wanted)

    def add(self, watch: WatchRequest) -> Callable[[], None]:
        """Start a watch; returns at once. The returned function stops it."""
        watch_id = next(self._ids)
        with self._guard:
            if self._closing.is_set():
                watch.signal.set()
                return lambda: None
            self._wanted[watch_id] = watch
            self._outbox.append((watch_id, watch))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tenure-watch", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    del self._wanted[watch_id]
                    raise StoreUnavailable(f"no thread can be started to watch etcd: {error}") from error
                self._thread = thread
        self._ring()
        return _StopWatch(self, watch_id)

    def reconnect(self) -> None:
        """Follow the connection pool to another endpoint."""
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

    def drop(self, watch_id: int) -> None:
        """End a watch that nobody wants any more."""
        with self._guard:
            if self._wanted.pop(watch_id, None) is None:
                return
            self._outbox.append((watch_id, None))
        # No ring: the server learns of it with the next message, and until then an event of it is ignored.

    def _ring(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:
            pass  # full: it rings already; closed: nobody listens

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._watch()
            except Exception:  # a bug of ours: whoever waits would wait for ever if this thread ended by it
                _log.exception("watching etcd failed; it begins anew")
                self._clock.wait(self._closing, self._clock.now() + jittered(RETRY_PAUSE_MAX))

    def _watch(self) -> None:
        """Keep a stream open, and serve it, until the client is closed."""
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
                self._clock.wait(self._closing, self._clock.now() + jittered(pause))
                pause = min(pause * 2, RETRY_PAUSE_MAX)
                self._wake_all()
                continue
            opened = self._clock.now()
            try:
                self._serve(stream)
            except Exception as error:  # those of a stream, and whatever an answer that nobody thought of may raise
                if not self._closing.is_set():
                    self._broken(endpoint, error)
                    if self._clock.now() - opened < RETRY_PAUSE_MAX:  # it opens and breaks: don't spin
                        self._clock.wait(self._closing, self._clock.now() + jittered(pause))
                        pause = min(pause * 2, RETRY_PAUSE_MAX)
            finally:
                stream.sock.close()
            if self._clock.now() - opened >= RETRY_PAUSE_MAX:
                pause = RETRY_PAUSE_FIRST

    def _broken(self, endpoint: tuple[str, int], error: Exception) -> None:
        refused = isinstance(error, WatchRefused)
        if self._token is not None and (refused or "auth" in str(error)):
            self._session.forget_token(self._token)
        if not refused:
            self._session.move_on(endpoint, f"the watch broke: {error or type(error).__name__}")
        self._wake_all()

    def _wake_all(self) -> None:
        """Set all signals, as the watches broke: everybody looks (law 11). Opened anew they would go on, but not on a
        store that went back meanwhile, and not where no watch can be opened at all."""
        with self._guard:
            signals = [watch.signal for watch in self._wanted.values()]
        for signal in signals:
            signal.set()

    def _open(self) -> tuple[WatchConnection, tuple[str, int]]:
        with self._guard:
            self._reconnect = False
            self._outbox.clear()
            watches = dict(self._wanted)
        sock, endpoint = self._session.dial(_DIAL_SECONDS)
        try:
            self._token = self._session.token(self._clock.now() + _DIAL_SECONDS) if self._session.needs_user else None
            stream = self._opener.open_stream(sock, endpoint, self._token, watches)
        except (OSError, EOFError, ValueError) as error:
            sock.close()
            raise self._session.failed(endpoint, OSError(str(error))) from error
        except BaseException:
            sock.close()
            raise
        self.connections += 1
        self._unanswered, self._answered_at = set(watches), self._clock.now()
        return stream, endpoint

    def _serve(self, stream: WatchConnection) -> None:
        """Serve the stream until it breaks, or has to be opened anew."""
        pinged, heard_at = False, self._clock.now()
        while not self._closing.is_set():
            if self._unanswered and self._clock.now() > self._answered_at + _ANSWER_SECONDS:
                raise OSError(f"the server has not answered {len(self._unanswered)} of the watches it was asked for")
            patience = _PROBE_SECONDS if pinged else stream.silence_seconds
            ready = self._hear(stream.sock, max(0.0, heard_at + patience - self._clock.now()))
            if self._reconnect or not self._send(stream):
                return
            if stream.sock in ready:
                pinged, heard_at = False, self._clock.now()
                for message in stream.receive():
                    self._take(message, from_now=stream.takes_more)
            elif self._clock.now() < heard_at + patience:
                continue  # it was the bell: what we ask for is no sign of life of who should answer
            elif pinged:
                raise OSError("no answer to a ping")
            else:
                # Silence. The path may have died without a word; and a member that is cut off from its peers
                # answers, but sends no event for ever: ask for the quorum.
                if self._wanted:
                    pinged = stream.ping()
                    self._probe_quietly()
                heard_at = self._clock.now()

    def _hear(self, sock: socket.socket | None, seconds: float | None = None) -> list[socket.socket]:
        """Wait for something to read, and return the sockets that have it; the bell is answered here."""
        if sock is not None and _pending(sock):
            return [sock]
        ears = [self._ear] if sock is None else [self._ear, sock]
        ready = _readable(ears, seconds)
        if self._ear in ready:
            self._ear.recv(4096)
        return ready

    def _send(self, stream: WatchConnection) -> bool:
        """Send added and dropped watches; False where that takes a new stream."""
        while True:
            with self._guard:
                if not self._outbox:
                    return True
                watch_id, watch = self._outbox.popleft()
            if watch is None:
                stream.cancel(watch_id)
            elif stream.takes_more:
                if not self._unanswered:
                    self._answered_at = self._clock.now()
                self._unanswered.add(watch_id)
                stream.create(watch_id, watch)
            else:
                return False

    def _take(self, message: WatchMessage, *, from_now: bool) -> None:
        if message.watch_id in self._unanswered:
            self._unanswered.discard(message.watch_id)
            self._answered_at = self._clock.now()
        with self._guard:
            watch = self._wanted.get(message.watch_id)
        if watch is None:
            if message.created and message.canceled:  # refused without saying which: a stale token, on newer servers
                raise WatchRefused(f"the server refused a watch: {message.reason or 'no reason given'}")
            return
        if message.canceled and not message.compact_revision:
            if message.created and self._session.has_another_token(self._token):
                raise WatchRefused(f"the server refused a watch: {message.reason or 'no reason given'}")
            # Refused, for want of permission perhaps: looking and watching again at once would be a spin. If it is for
            # a stale token, the look gets a new one.
            self._clock.schedule(self._clock.now() + jittered(RETRY_PAUSE_MAX), watch.signal.set)
        elif message.events or message.canceled:
            watch.signal.set()
        elif message.created and message.revision < watch.start_revision - 1:
            # A server that is behind the revision to watch from is late, or went back: its owner has to look, soon.
            self._clock.schedule(self._clock.now() + jittered(RETRY_PAUSE_MAX), watch.signal.set)
        elif message.created and from_now and watch.catch_up is not None and message.revision >= watch.start_revision:
            watch.catch_up()

    def _probe_quietly(self) -> None:
        try:
            self._probe(self._clock.now() + _PROBE_SECONDS)
        except StoreError as error:
            _log.debug("the watch's endpoint does not reach its quorum: %s", error)


def _pending(sock: socket.socket) -> int:
    """Count bytes that are decrypted already, and that poll() can't see."""
    pending = getattr(sock, "pending", None)
    return int(pending()) if pending is not None else 0


class _StopWatch:
    """Callback that ends a watch. A class with slots, as there is one for each hold."""

    __slots__ = ("_watch_id", "_watcher")

    def __init__(self, watcher: Watcher, watch_id: int) -> None:
        self._watcher = watcher
        self._watch_id = watch_id

    def __call__(self) -> None:
        self._watcher.drop(self._watch_id)


def _readable(socks: list[socket.socket], seconds: float | None) -> list[socket.socket]:
    """Wait like select(), without its limit of 1,024 descriptors."""
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in socks}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(None if seconds is None else seconds * 1000)]
