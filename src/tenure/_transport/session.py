"""The connection pool: lean connections, several endpoints, TLS, user tokens, whatever protocol is spoken over them.

One endpoint is current at a time; whoever finds that it does not answer, or can't for a while, moves everybody (a
stream too) on to the next. What is spoken is the dialect's business: JSON over HTTP/1.1, or gRPC.

Every failure leaves here as an error of tenure's tree. One `ask` is one try: retries are the
caller's, because only the caller knows what a retry means.
The TLS context is here too, for all backends: the server is always verified.
"""

from __future__ import annotations

import collections
import errno
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tenure._core.base.limits import CONNECTIONS_MAX
from tenure._core.base.options import Endpoint, Options, is_path, shown
from tenure._core.base.threads import take
from tenure._core.base.yielding import elsewhere
from tenure._core.lease import BackendContext
from tenure.errors import ClientClosed, PermissionDenied, StoreError, StoreRefused, StoreUnavailable, TLSFailed

_IDLE_MAX: Final = 4
_ATTEMPT_SECONDS_MIN: Final = 1.0
"""Minimum for a try, if there is so much time: a slow store is not to be asked ever more hastily."""
_SHARE_OF_WAITING: Final = 0.25
_SENT_AT_ONCE_BYTES: Final = 8 * 1024
"""Size of a request that the kernel takes at once, also where the other end stands still."""

_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
_AT_A_SOCKET: Final = {
    errno.ENOENT: "there is no such socket: does the service run with `--listen unix:PATH`, and is its directory here?",
    errno.ECONNREFUSED: "nobody listens on it any more: start the service again",
    errno.EAGAIN: "too many wait there to be let in: does the service stand still?",
    **dict.fromkeys(_FORBIDDEN, "it is for the service's user and group: run as that user, or in that group"),
}
"""Advice about an error at a UNIX socket, by its number."""


class StaleAuth(Exception):
    """The store does not accept the user's token (any more): ask for a new one. Never leaves the pool."""


class Refusal(NamedTuple):
    """A server's answer that refuses the request."""

    code: int | None
    """Code of gRPC; None where etcd did not answer, or where no gRPC is spoken."""
    message: str
    status: int
    """Status of HTTP."""

    @property
    def of_haste(self) -> bool:
        """True where its sender asked too often: to move everybody on would make them all ask again."""
        return self.code is None and self.status == 429


class Reply(Protocol):
    """The outcome of an exchange."""

    @property
    def refusal(self) -> Refusal | None:
        """The refusal; None where the answer is what was asked for."""


ReplyOf = TypeVar("ReplyOf", bound=Reply)
ReplyOfIts = TypeVar("ReplyOfIts", bound=Reply, covariant=True)


class Connection(Protocol[ReplyOfIts]):
    """A connection to one endpoint, for one exchange at a time."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def reusable(self) -> bool:
        """True where another exchange may follow. Looked at after each."""

    def still_good(self) -> bool:
        """True where there is no sign that the server has hung up. Looked at before the next exchange."""

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> ReplyOfIts:
        """Send one request and read its answer, within `seconds` in all. Raises OSError."""

    def close(self) -> None: ...


class Dialect(Protocol[ReplyOf]):
    """The way in which one transport speaks."""

    @property
    def server(self) -> str:
        """The program that should answer at the endpoints, for messages."""

    @property
    def signs_in(self) -> bool:
        """True where a user gets a token first, by `sign_in`."""

    @property
    def alpn(self) -> str:
        """The protocol's name in the TLS handshake."""

    @property
    def goes_aside(self) -> bool:
        """True where an exchange in a lane leaves its thread to others while it waits. With TLS none does."""

    @property
    def dedicated_path(self) -> str:
        """The path whose requests go over a dedicated connection, which is kept; "" for none."""

    def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> Connection[ReplyOf]:
        """Open a connection for exchanges. Raises OSError."""

    def dial(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        """Open a raw connection, for a stream. Raises OSError."""

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        """Make path and body of the request for a token."""

    def token(self, reply: ReplyOf) -> str:
        """Read the token from the answer to a sign-in; "" where it has none."""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        """Make a refusal's error. StaleAuth: a new token is needed; StoreUnavailable: another endpoint may do it."""


class ConnectionPool(Generic[ReplyOf]):
    """Connections to one cluster, and the endpoint that is current. Thread-safe."""

    def __init__(self, options: Options, context: BackendContext, dialect: Dialect[ReplyOf]) -> None:
        self._options = options
        self._context = context
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
        self._dedicated: collections.deque[Connection[ReplyOf]] = collections.deque()
        # One `None` per connection that may be in use. Not a semaphore: its lock is not re-entrant, and a signal
        # handler may ask the store while the main thread is about to.
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(CONNECTIONS_MAX):
            self._slots.put(None)
        self._dedicated_guard = threading.RLock()  # held while an exchange goes over the dedicated connection
        self._token: str | None = None
        self._signing_in = threading.RLock()  # held while a token is asked for
        self._closed = False
        self._answered = False
        # Less than half of what the first try of a usual request is given.
        usual = max(options.timeout / (len(options.endpoints) + 1), min(options.timeout, _ATTEMPT_SECONDS_MIN))
        self._hasty_seconds = usual / 2
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
        """Send a request once, signed in where there is a user. Raises StoreError, and what `refused` makes."""
        if self.goes_aside and len(body) <= _SENT_AT_ONCE_BYTES:
            return self._signed_in(path, body, until)
        return elsewhere(lambda: self._signed_in(path, body, until), until - self._context.clock.now())

    def _signed_in(self, path: str, body: bytes, until: float) -> ReplyOf:
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
        """Return the user's token; asked for where there is none, by one thread at a time."""
        token = self._token
        if token is not None:
            return token
        # A sign-in takes a server the better part of 0.1 s of a processor: all threads at once would keep it so busy
        # that none is answered in time.
        taken: list[bool] = []
        try:
            if not take(self._signing_in.acquire, until - self._context.clock.now(), taken):
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
        """Drop a token that the store does not accept any more. A newer one stays."""
        if self._token == refused:
            self._token = None

    def has_another_token(self, than: str | None) -> bool:
        """Tell whether the token that a stream was opened with is no longer the user's."""
        return self.needs_user and self._token != than

    def move_on(self, endpoint: Endpoint, why: str, *, hasty: bool = False) -> None:
        """Make the next endpoint current as `endpoint` does not answer; once for all threads that found out.

        `hasty`: it was given so little time that this says nothing about it.
        """
        with self._guard:
            if self.endpoint != endpoint:
                return
            known = hasty or endpoint in self._failing
            if not hasty:
                self._failing.add(endpoint)
            self._current = (self._current + 1) % len(self._options.endpoints)
            self.generation += 1
            stale = self._take_all()
        for connection in stale:
            connection.close()
        if not known:  # one event, not one at every try
            self._context.hub.emit("endpoint_failed", reason=f"{shown(endpoint)}: {why}")
        self.on_move()

    def dial(self, timeout: float) -> tuple[socket.socket, Endpoint]:
        """Open a raw connection to the current endpoint, for a stream. Raises StoreError."""
        endpoint = self.endpoint
        try:
            return self._dialect.dial(endpoint, self._tls, timeout), endpoint
        except OSError as error:
            raise self.failed(endpoint, error) from error

    def vouch(self) -> None:
        """Count TLS and credentials as right: another pool had an answer from there."""
        self._answered = True

    def close(self) -> None:
        with self._guard:
            self._closed = True
        self._let_go()

    def _take_all(self) -> list[Connection[ReplyOf]]:
        """Take the idle connections out of the pool, with the guard held."""
        taken = [*self._idle, *self._dedicated]
        self._idle, self._dedicated = collections.deque(), collections.deque()
        return taken

    def _exchange(self, path: str, body: bytes, until: float, token: str | None) -> ReplyOf:
        if self._closed:
            raise ClientClosed("the client is closed")
        endpoint = self.endpoint
        taken: list[None] = []
        try:
            self._take_slot(taken, until)
            reply = self._send(path, body, token, until)
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
            # In one call, as threads.py says: no interrupt comes between taking it and knowing that.
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
        """Return this try's share of the time left: where it can be had, enough remains to try elsewhere."""
        left = until - self._context.clock.now()
        if left <= 0:
            raise StoreUnavailable(f"the deadline had passed before {self._options.display} was asked")
        return max(left / (len(self._options.endpoints) + 1), min(left, _ATTEMPT_SECONDS_MIN))

    def _send(self, path: str, body: bytes, token: str | None, until: float) -> ReplyOf:
        endpoint, fresh, alone, given = self.endpoint, False, list[bool](), self._attempt_seconds(until)
        try:
            if path == self._dialect.dedicated_path:
                # Whoever has waited for a share of its time goes over another one: an answer that does not come must
                # keep nobody else from renewing.
                take(self._dedicated_guard.acquire, self._attempt_seconds(until) * _SHARE_OF_WAITING, alone)
            connection = self._idle_one(path)
            if connection is None:
                fresh = True
                connection = self._connected(endpoint, until)
            else:
                endpoint = connection.endpoint
            try:
                answer = connection.exchange(path, body, token, self._attempt_seconds(until))
            except BaseException:  # cut short anywhere, the connection holds half an answer: nobody may reuse it
                connection.close()
                raise
            self._give_back(connection, path)
            return answer
        except OSError as error:
            if fresh or isinstance(error, TimeoutError):
                hasty = isinstance(error, TimeoutError) and given < self._hasty_seconds
                raise self.failed(endpoint, error, hasty=hasty) from error
            # An idle connection breaks when the server closes it just now. That says nothing about the
            # endpoint; but the request may have arrived, so whether to send it again is not decided here.
            raise StoreUnavailable(f"an idle connection to {shown(endpoint)} had been closed") from error
        finally:
            if alone and alone[0]:
                self._dedicated_guard.release()

    def _connected(self, endpoint: Endpoint, until: float) -> Connection[ReplyOf]:
        def connect() -> Connection[ReplyOf]:
            return self._dialect.connect(endpoint, self._tls, self._attempt_seconds(until))  # of what is left by then

        return elsewhere(connect, self._attempt_seconds(until))

    def _idle_one(self, path: str) -> Connection[ReplyOf] | None:
        pool = self._dedicated if path == self._dialect.dedicated_path else self._idle
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

    def _give_back(self, connection: Connection[ReplyOf], path: str) -> None:
        with self._guard:
            current = connection.endpoint == self.endpoint and connection.reusable
            pool, maximum = (self._dedicated, 1) if path == self._dialect.dedicated_path else (self._idle, _IDLE_MAX)
            if current and not self._closed and len(pool) < maximum:
                pool.append(connection)
                return
        connection.close()

    def failed(self, endpoint: Endpoint, error: Exception, *, hasty: bool = False) -> StoreError:
        """Translate a failure below the protocol into tenure's errors, and move on to the next endpoint."""
        where = shown(endpoint)
        cause = next((e for e in _chain(error) if isinstance(e, ssl.SSLError)), None)
        self.move_on(endpoint, _reason(error), hasty=hasty)
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
        message = f"{where} did not answer: {_reason(error)}. Tried as part of {self._options.display}; {do}"
        if number in _FORBIDDEN and len(self._options.endpoints) == 1:  # nowhere to go, and no use in asking again
            return PermissionDenied(message)
        return StoreUnavailable(message)

    def _refused(self, refusal: Refusal, endpoint: Endpoint) -> Exception:
        error = self._dialect.refused(self._options.display, self._options.user, refusal)
        if isinstance(error, StoreUnavailable) and not refusal.of_haste:
            if len(self._options.endpoints) > 1:
                self.move_on(endpoint, refusal.message)
            else:
                self._let_go()
        return error

    def _let_go(self) -> None:
        """Close idle connections: one address may stand for several servers, and the next may reach another."""
        with self._guard:
            idle = self._take_all()
        for connection in idle:
            connection.close()


def _speaks_tls(endpoint: tuple[str, int]) -> bool:
    """Tell whether the server speaks TLS, away from a loop's own thread: the probe looks the name up and connects."""
    try:
        return elsewhere(lambda: speaks_tls(endpoint), PROBE_SECONDS)
    except StoreUnavailable:  # no worker was free for it: then the message does not say so
        return False


def _chain(error: BaseException) -> list[BaseException]:
    """List the error and its causes; urllib3 and http.client wrap."""
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


PROBE_SECONDS: Final = 0.4


def tls_context(options: Options) -> ssl.SSLContext:
    """Make the context: it verifies the server's name and chain, and shows our certificate. Raises TLSFailed."""
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.cert is not None and options.key is not None:
            context.load_cert_chain(options.cert, options.key)
    except (ssl.SSLError, OSError) as error:
        raise TLSFailed(f"can't use the TLS files (ca, cert, key): {error}") from error
    return context


def speaks_tls(endpoint: tuple[str, int], seconds: float = PROBE_SECONDS) -> bool:
    """Probe whether the server would shake hands, to explain why a plain connection failed."""
    until = time.monotonic() + seconds
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not the default one: loading all authorities takes long
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over it
    try:
        with socket.create_connection(endpoint, seconds) as plain:
            plain.settimeout(max(0.001, until - time.monotonic()))
            with context.wrap_socket(plain) as wrapped:
                return wrapped.version() is not None
    except ssl.SSLError as error:
        # a server that asks for a client certificate got as far as TLS
        return "CERTIFICATE" in str(error).upper() or "HANDSHAKE_FAILURE" in str(error).upper()
    except OSError:
        return False
