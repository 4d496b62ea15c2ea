"""The session: lean connections, several endpoints, TLS, user tokens; whatever is spoken over them.

One endpoint is current at a time; whoever finds that it does not answer, or can't for a while, moves everybody (a
stream too) on to the next. What is spoken is the dialect's business: JSON over HTTP/1.1, or gRPC.

Every failure leaves here as an error of holdfast's tree. One `ask` is one try: retries are the
caller's, because only the caller knows what a retry means.
"""

from __future__ import annotations

import collections
import errno
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.aside import elsewhere
from holdfast.errors import ClientClosed, PermissionDenied, StoreError, StoreRefused, StoreUnavailable, TLSFailed
from holdfast.lease import Surroundings
from holdfast.limits import CONNECTIONS_MAX
from holdfast.locks import take
from holdfast.options import Endpoint, Options, is_path, shown
from holdfast.tls import PROBE_SECONDS, speaks_tls, tls_context

_IDLE_MAX: Final = 4
_ATTEMPT_LEAST: Final = 1.0
"""A try gets at least this long, if there is so much: a slow store is not to be asked ever more hastily."""
_SHARE_OF_WAITING: Final = 0.25
_SENT_AT_ONCE_BYTES: Final = 8 * 1024
"""The kernel takes so much of a request from whoever sends it, also where the other end stands still."""

_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
_AT_A_SOCKET: Final = {
    errno.ENOENT: "there is no such socket: does the service run with `--listen unix:PATH`, and is its directory here?",
    errno.ECONNREFUSED: "nobody listens on it any more: start the service again",
    errno.EAGAIN: "too many wait there to be let in: does the service stand still?",
    **dict.fromkeys(_FORBIDDEN, "it is for the service's user and group: run as that user, or in that group"),
}
"""What to do about an error at a UNIX socket, by its number."""


class StaleAuth(Exception):
    """The store does not accept the user's token (any more): ask for a new one. Never leaves the session."""


class Refusal(NamedTuple):
    """What a server said instead of what was asked for."""

    code: int | None
    """gRPC's; None where it was not etcd who spoke, or where no gRPC is spoken."""
    message: str
    status: int
    """HTTP's."""

    @property
    def of_haste(self) -> bool:
        """Did its sender ask too often? It is to slow down: moving everybody on would make them all ask again."""
        return self.code is None and self.status == 429


class Reply(Protocol):
    """What came back from an exchange."""

    @property
    def refusal(self) -> Refusal | None:
        """None where it is what was asked for."""


ReplyOf = TypeVar("ReplyOf", bound=Reply)
ReplyOfIts = TypeVar("ReplyOfIts", bound=Reply, covariant=True)


class Connection(Protocol[ReplyOfIts]):
    """A connection to one endpoint. One exchange at a time."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def reusable(self) -> bool:
        """May there be another exchange? Looked at after each."""

    def still_good(self) -> bool:
        """Is there no sign that the server has hung up meanwhile? Looked at before the next."""

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> ReplyOfIts:
        """Send one request and read its answer, within `seconds` in all. Raises OSError."""

    def close(self) -> None: ...


class Dialect(Protocol[ReplyOf]):
    """How one transport speaks."""

    @property
    def server(self) -> str:
        """What should answer at the endpoints, for messages."""

    @property
    def signs_in(self) -> bool:
        """Does a user get a token first, by `sign_in`?"""

    @property
    def alpn(self) -> str:
        """What is to be spoken, as TLS is told."""

    @property
    def goes_aside(self) -> bool:
        """Does an exchange in a lane leave its thread to others while it waits for the answer? With TLS none does."""

    @property
    def kept_apart(self) -> str:
        """The path whose requests go over a kept connection of their own; "" for none."""

    def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> Connection[ReplyOf]:
        """Raises OSError."""

    def dial(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        """A raw connection. Raises OSError."""

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        """Path and body of the request for a token."""

    def token(self, reply: ReplyOf) -> str:
        """What that was answered with; "" where it was not."""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        """What a refusal means. StaleAuth: a new token is needed; StoreUnavailable: another endpoint may do it."""


class Session(Generic[ReplyOf]):
    """Connections to one cluster. Thread-safe."""

    def __init__(self, options: Options, around: Surroundings, dialect: Dialect[ReplyOf]) -> None:
        self._options = options
        self._around = around
        self._dialect = dialect
        self._tls = tls_context(options) if options.tls else None
        if self._tls is not None:
            self._tls.set_alpn_protocols([dialect.alpn])
        self._guard = threading.RLock()  # guards _current, generation, _failing, _idle, _apart, _token and _closed
        self._current = 0
        self.generation = 0
        self._failing: set[Endpoint] = set()
        self._tls_failed: set[Endpoint] = set()  # since anybody last answered
        self._idle: collections.deque[Connection[ReplyOf]] = collections.deque()
        self._apart: collections.deque[Connection[ReplyOf]] = collections.deque()
        # One `None` per connection that may be in use. Not a semaphore: its lock is not re-entrant, and a signal
        # handler may ask the store while the main thread is about to.
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(CONNECTIONS_MAX):
            self._slots.put(None)
        self._kept_apart = threading.RLock()  # held while an exchange goes over the connection that is kept apart
        self._token: str | None = None
        self._signing_in = threading.RLock()  # held while a token is asked for
        self._closed = False
        self._answered = False
        self.goes_aside = dialect.goes_aside and self._tls is None and not self.needs_user
        self.on_move: Callable[[], None] = lambda: None

    @property
    def endpoint(self) -> Endpoint:
        """The current endpoint."""
        return self._options.endpoints[self._current]

    @property
    def needs_user(self) -> bool:
        return self._options.user is not None and self._dialect.signs_in

    def ask(self, path: str, body: bytes, until: float) -> ReplyOf:
        """One try, one answer; signed in where there is a user. Raises StoreError, and what `refused` gives."""
        if self.goes_aside and len(body) <= _SENT_AT_ONCE_BYTES:
            return self._ask(path, body, until)
        return elsewhere(lambda: self._ask(path, body, until), until - self._around.clock.now())

    def _ask(self, path: str, body: bytes, until: float) -> ReplyOf:
        if not self.needs_user:
            return self._exchange(path, body, until, None)
        token = self.token(until)
        try:
            return self._exchange(path, body, until, token)
        except StaleAuth:
            self.forget_token(token)
        try:
            return self._exchange(path, body, until, self.token(until))
        except StaleAuth as error:
            raise StoreUnavailable(f"{self._options.display} refuses a fresh token: {error}") from error

    def token(self, until: float) -> str:
        """The user's token; asked for where there is none, by one thread at a time."""
        token = self._token
        if token is not None:
            return token
        # A sign-in takes a server the better part of 0.1 s of a processor: all threads at once would keep it so busy
        # that none is answered in time.
        taken: list[bool] = []
        try:
            if not take(self._signing_in.acquire, until - self._around.clock.now(), taken):
                raise StoreUnavailable(f"{self._options.display} did not answer another thread's sign-in in time")
            return self._token or self._sign_in(until)
        finally:
            if taken and taken[0]:
                self._signing_in.release()

    def _sign_in(self, until: float) -> str:
        path, body = self._dialect.sign_in(self._options.user or "", self._options.password or "")
        token = self._dialect.token(self._exchange(path, body, until, None))
        if not token:
            raise StoreRefused(f"{self._options.display} answered a sign-in without a token")
        self._token = token
        return token

    def forget_token(self, refused: str) -> None:
        """The store does not accept it any more. A newer one stays."""
        if self._token == refused:
            self._token = None

    def has_another_token(self, than: str | None) -> bool:
        """Is what a stream was opened with no longer the user's token?"""
        return self.needs_user and self._token != than

    def move_on(self, endpoint: Endpoint, why: str) -> None:
        """`endpoint` does not answer: make the next one current, once for all who found out."""
        with self._guard:
            if self.endpoint != endpoint:
                return
            known = endpoint in self._failing
            self._failing.add(endpoint)
            self._current = (self._current + 1) % len(self._options.endpoints)
            self.generation += 1
            stale = self._take_all()
        for connection in stale:
            connection.close()
        if not known:  # told once, not at every try
            self._around.hub.emit("endpoint_failed", reason=f"{shown(endpoint)}: {why}")
        self.on_move()

    def dial(self, timeout: float) -> tuple[socket.socket, Endpoint]:
        """A raw connection to the current endpoint, for the watch. Raises StoreError."""
        endpoint = self.endpoint
        try:
            return self._dialect.dial(endpoint, self._tls, timeout), endpoint
        except OSError as error:
            raise self.failed(endpoint, error) from error

    def vouch(self) -> None:
        """Another session had an answer there: TLS and credentials are right."""
        self._answered = True

    def close(self) -> None:
        with self._guard:
            self._closed = True
        self._let_go()

    def _take_all(self) -> list[Connection[ReplyOf]]:
        """The idle connections, out of the pool. Guard held."""
        taken = [*self._idle, *self._apart]
        self._idle, self._apart = collections.deque(), collections.deque()
        return taken

    def _exchange(self, path: str, body: bytes, until: float, token: str | None) -> ReplyOf:
        if self._closed:
            raise ClientClosed("the client is closed")
        endpoint = self.endpoint
        taken: list[None] = []
        try:
            self._take_slot(taken, until)
            reply = self._on_some_connection(path, body, token, until)
        finally:
            for slot in taken:
                self._slots.put(slot)
        refusal = reply.refusal
        if refusal is not None:
            raise self._refused(refusal, endpoint)
        self._answered = True
        self._failing.discard(endpoint)
        self._tls_failed.clear()
        return reply

    def _take_slot(self, taken: list[None], until: float) -> None:
        try:
            # In one call, as locks.py says: no interrupt comes between taking it and knowing that.
            taken.extend(map(self._slots.get, (False,)))
            return
        except queue.Empty:
            pass  # wait for one

        def wait_for_one() -> None:
            taken.extend(map(self._slots.get, (True,), (self._attempt_seconds(until),)))

        try:
            elsewhere(wait_for_one, self._attempt_seconds(until))
        except queue.Empty:
            raise StoreUnavailable(
                f"no free connection to {self._options.display} in time; {CONNECTIONS_MAX} are in use"
            ) from None

    def _attempt_seconds(self, until: float) -> float:
        """This try's share of the time left: where it can be had, enough remains to try elsewhere."""
        left = until - self._around.clock.now()
        if left <= 0:
            raise StoreUnavailable(f"the deadline had passed before {self._options.display} was asked")
        return max(left / (len(self._options.endpoints) + 1), min(left, _ATTEMPT_LEAST))

    def _on_some_connection(self, path: str, body: bytes, token: str | None, until: float) -> ReplyOf:
        endpoint, fresh, alone = self.endpoint, False, list[bool]()
        try:
            if path == self._dialect.kept_apart:
                # Whoever has waited for a share of its time goes over another one: an answer that does not come must
                # keep nobody else from renewing.
                take(self._kept_apart.acquire, self._attempt_seconds(until) * _SHARE_OF_WAITING, alone)
            connection = self._idle_one(path)
            if connection is None:
                fresh = True
                connection = self._connected(endpoint, until)
            else:
                endpoint = connection.endpoint
            return self._on(connection, path, body, token, until)
        except OSError as error:
            if fresh or isinstance(error, TimeoutError):
                raise self.failed(endpoint, error) from error
            # An idle connection breaks when the server closes it just now. That says nothing about the
            # endpoint; but the request may have arrived, so whether to send it again is not decided here.
            raise StoreUnavailable(f"an idle connection to {shown(endpoint)} had been closed") from error
        finally:
            if alone and alone[0]:
                self._kept_apart.release()

    def _connected(self, endpoint: Endpoint, until: float) -> Connection[ReplyOf]:
        def connect() -> Connection[ReplyOf]:
            return self._dialect.connect(endpoint, self._tls, self._attempt_seconds(until))  # of what is left by then

        return elsewhere(connect, self._attempt_seconds(until))

    def _idle_one(self, path: str) -> Connection[ReplyOf] | None:
        pool = self._apart if path == self._dialect.kept_apart else self._idle
        while True:
            try:
                connection = pool.pop()
            except IndexError:
                return None
            try:
                if connection.still_good():
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()

    def _on(self, connection: Connection[ReplyOf], path: str, body: bytes, token: str | None, until: float) -> ReplyOf:
        try:
            answer = connection.exchange(path, body, token, self._attempt_seconds(until))
        except BaseException:  # cut short anywhere, the connection holds half an answer: nobody may reuse it
            connection.close()
            raise
        self._give_back(connection, path)
        return answer

    def _give_back(self, connection: Connection[ReplyOf], path: str) -> None:
        with self._guard:
            current = connection.endpoint == self.endpoint and connection.reusable
            pool, most = (self._apart, 1) if path == self._dialect.kept_apart else (self._idle, _IDLE_MAX)
            if current and not self._closed and len(pool) < most:
                pool.append(connection)
                return
        connection.close()

    def failed(self, endpoint: Endpoint, error: Exception) -> StoreError:
        """What a failure below HTTP means, in the house's words."""
        where = shown(endpoint)
        cause = next((e for e in _chain(error) if isinstance(e, ssl.SSLError)), None)
        self.move_on(endpoint, _reason(error))
        hung_up = self._answered and isinstance(cause, ssl.SSLEOFError)  # its settings were right before
        if cause is not None and not isinstance(cause, TimeoutError) and not hung_up:
            self._tls_failed.add(endpoint)
            if self._tls_failed >= set(self._options.endpoints):  # nowhere to go: it is not one server's fault
                return TLSFailed(
                    f"the TLS handshake with {where} failed: {_reason(cause)}. Check `tls`, `ca`, `cert` and `key`, "
                    "and that this port speaks TLS."
                )
        if is_path(endpoint):
            return self._socket_failed(where, error)
        if self._tls is None and not self._answered and not isinstance(error, TimeoutError) and _speaks_tls(endpoint):
            return TLSFailed(f"{where} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
        return StoreUnavailable(
            f"{where} did not answer: {_reason(error)}. Tried as part of {self._options.display}; is "
            f"{self._dialect.server} running and reachable there?"
        )

    def _socket_failed(self, where: str, error: Exception) -> StoreError:
        number = next((e.errno for e in _chain(error) if isinstance(e, OSError) and e.errno is not None), None)
        do = _AT_A_SOCKET.get(number or 0, f"is {self._dialect.server} running and answering there?")
        told = f"{where} did not answer: {_reason(error)}. Tried as part of {self._options.display}; {do}"
        if number in _FORBIDDEN and len(self._options.endpoints) == 1:  # nowhere to go, and no use in asking again
            return PermissionDenied(told)
        return StoreUnavailable(told)

    def _refused(self, refusal: Refusal, endpoint: Endpoint) -> Exception:
        error = self._dialect.refused(self._options.display, self._options.user, refusal)
        if isinstance(error, StoreUnavailable) and not refusal.of_haste:
            if len(self._options.endpoints) > 1:
                self.move_on(endpoint, refusal.message)
            else:
                self._let_go()
        return error

    def _let_go(self) -> None:
        """Of what is idle: behind one address there may be several servers, and the next connection goes to another."""
        with self._guard:
            idle = self._take_all()
        for connection in idle:
            connection.close()


def _speaks_tls(endpoint: tuple[str, int]) -> bool:
    """It looks the name up and connects: not on a loop's own thread."""
    try:
        return elsewhere(lambda: speaks_tls(endpoint), PROBE_SECONDS)
    except StoreUnavailable:  # no worker was free for it: then it is not told
        return False


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from; urllib3 and http.client wrap."""
    found: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in found:
        found.append(step)
        found += [a for a in step.args if isinstance(a, BaseException)]
        step = step.__cause__ or step.__context__
    return found


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return str(error) or type(error).__name__
