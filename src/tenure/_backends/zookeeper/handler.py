"""Changes to kazoo: connections and waits of our own, interruptible requests, and a log without passwords."""

from __future__ import annotations

import atexit
import logging
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.handlers.threading import _STOP, AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import (
    Auth,
    Connect,
    Create2,
    Transaction,
    int_struct,
    long_struct,
    reply_header_struct,
)
from kazoo.protocol.states import KeeperState

from tenure._core.base.options import Options
from tenure._transport.session import tls_context

log = logging.getLogger("tenure.kazoo")
_ADMISSION_SECONDS_FIRST: Final = 1.0


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """ZooKeeper's createContainer, which kazoo has no request for: like create2, with another code."""

    type = 19


class Multi(Transaction):  # type: ignore[misc]  # kazoo has no types
    """kazoo's transaction, with its zxid after the outcomes: the answer has a created node's stat nowhere else."""

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        zxid = long_struct.unpack_from(answer, offset - reply_header_struct.size + int_struct.size)[0]
        return [*super().deserialize(answer, offset), zxid]


class KazooConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, but that its requests are numbered on from one connection to the next, a missing answer costs
    only the connection, and a server that does not let us in does not cost the session.

    kazoo begins at 1 each time. ZooKeeper pairs what its leader decided with who asked by session and number alone: a
    request of the connection before, carried out late, is taken for one of the same number on this one, which is then
    answered with what it did not ask, or never.

    It may also leave out an answer where its leader stood still. kazoo's thread ends there, and the session with it.

    A server that is just starting may take a connection and never answer on it. kazoo waits for the whole time to live,
    divided by the number of servers. Here the first wait is short, and each after one in vain is twice as long, so that
    a server that is slow may finish.

    `admitted` is called with the server's answer, which kazoo keeps to itself: session and negotiated time-out.
    """

    _number = 0
    _admission_seconds = _ADMISSION_SECONDS_FIRST

    def __init__(self, client: KazooClient, admitted: Callable[[Any], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self._admitted = admitted

    @property
    def _xid(self) -> int:
        return self._number

    @_xid.setter
    def _xid(self, number: int | None) -> None:
        self._number = number or self._number

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(min(timeout, self._admission_seconds), request, xid)
        except KazooTimeoutError:
            self._admission_seconds *= 2
            raise
        self._admission_seconds = _ADMISSION_SECONDS_FIRST
        self._admitted(answer[0])
        return answer

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        awaited = self.client._pending
        if not awaited or awaited[0][2] != header.xid:
            raise ConnectionDropped(f"answer {header.xid} came out of turn: the fate of what was asked is not known")
        return super()._read_response(header, buffer, offset)


class TenureKazooClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, but that whoever asks is never kept waiting, and may be interrupted.

    Its own `_call` blocks once some 280 requests are queued for a server that is away, and takes whatever is raised
    while it wakes its thread, a KeyboardInterrupt as well, for the end of the connection.
    """

    def __init__(self, admitted: Callable[[Any], None], **options: Any) -> None:
        super().__init__(**options)
        self._connection = KazooConnection(self, admitted)

    def _call(self, request: Any, answer: Any) -> bool | None:
        if self._state in _OVER:
            answer.set_exception(_OVER[self._state]())
            return False
        if len(self._queue) >= _QUEUED_MAX:
            answer.set_exception(ConnectionLoss(f"{_QUEUED_MAX} requests wait for a connection already"))
            return False
        try:
            self._queue.append((request, answer))
        finally:  # a byte for each request, also of one who is interrupted: without it each later one goes out late
            self._wake(answer)
        return None

    def _wake(self, answer: Any) -> None:
        try:
            self._connection._write_sock.send(b"\0")
        except (OSError, AttributeError):  # closed meanwhile; AttributeError: there is none any more
            answer.set_exception(ConnectionClosedError("Connection has been closed"))


_QUEUED_MAX: Final = 128
"""Limit of requests that wait for a connection; the rest of kazoo's pipe is for threads that come at once."""
_OVER: Final = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}


class Pending(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """kazoo's pending answer, with a callback at once: kazoo's own go by way of another thread."""

    _callback: Callable[[], None] | None = None

    def tell(self, callback: Callable[[], None]) -> None:
        """Call `callback` once it is there, on kazoo's thread, or now if it is: it must not block."""
        with self._condition:
            if not self.ready():
                self._callback = callback
                return
        callback()

    def _do_callbacks(self) -> None:
        super()._do_callbacks()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, one fewer, with connections of our own making.

    They leave time to try the next server, verify the server's name, and close what fails half-way.
    """

    _running: bool

    def __init__(
        self, options: Options, connect_seconds: float, failed: Callable[[tuple[str, int], Exception], None]
    ) -> None:
        super().__init__()
        self._tls = tls_context(options) if options.tls else None
        self._connect_seconds = connect_seconds
        self._failed = failed
        self._guard = threading.RLock()  # guards the two below
        self._newest: socket.socket | None = None
        self._cut = False

    def start(self) -> None:
        """Start a single thread for answers and watches: kazoo has one for each, and nothing of ours blocks in them."""
        with self._state_change:
            if not self._running:
                self._workers.append(self._create_thread_worker(self.completion_queue))
                self._running = True
                atexit.register(self.stop)

    def async_result(self) -> Pending:
        """Make the pending answer of one request."""
        return Pending(self)

    def dispatch_callback(self, callback: Any) -> None:
        """Queue the callback of a watch."""
        self.completion_queue.put(lambda: callback.func(*callback.args))

    def dismiss(self) -> None:
        """End the handler's thread once it has done what it was given. Like `stop`, but waits for nobody."""
        self.completion_queue.put(_STOP)

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,  # kazoo's TLS settings: ours are in the context
    ) -> socket.socket:
        try:
            sock = self._connected(address, hostname, min(timeout or self._connect_seconds, self._connect_seconds))
        except OSError as error:
            self._failed(address, error)
            raise
        with self._guard:
            self._newest = sock
            if self._cut:
                break_off(sock)
        return sock

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Make the sockets by which requests wake kazoo's thread: (its end, theirs). Theirs never blocks."""
        its, theirs = super().create_socket_pair()
        theirs.setblocking(False)
        return its, theirs

    def cut(self) -> None:
        """Send the server nothing more, on this connection or a later one."""
        with self._guard:
            self._cut = True
            if self._newest is not None:
                break_off(self._newest)

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets. kazoo's own makes and closes an epoll object at every wait, several per request."""
        poll = select.poll()
        by_number = {}
        for things, event in ((rlist, select.POLLIN), (wlist, select.POLLOUT)):
            for thing in things:
                number = thing if isinstance(thing, int) else thing.fileno()
                if number < 0:
                    raise ValueError("a closed socket can't be waited for")
                by_number[number] = thing
                poll.register(number, event)
        ready = [by_number[number] for number, _ in poll.poll(None if timeout is None else max(0.0, timeout) * 1000)]
        return [t for t in rlist if t in ready], [t for t in wlist if t in ready], []

    def _connected(self, address: tuple[str, int], hostname: str | None, timeout: float) -> socket.socket:
        sock = socket.create_connection(address, timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=hostname)
        except BaseException:
            sock.close()
            raise


def break_off(sock: socket.socket) -> None:
    """End the conversation, not the socket: it is kazoo's to close."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it broke by itself


class NoCredentials(logging.Filter):
    """kazoo logs its requests at DEBUG, and one of them carries the password."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and any(isinstance(arg, Auth) for arg in record.args))


log.addFilter(NoCredentials())
log.setLevel(logging.ERROR)  # it warns at every failed attempt; tenure emits one event
