"""The HTTP session given to etcd3gw: lean connections, several endpoints, TLS, user tokens.

etcd3gw knows one host and no users, and its own session is `requests`, which costs more than the
store does. One endpoint is current at a time;
whoever finds that it does not answer moves everybody (the watch too) on to the next.

Every failure leaves here as an error of holdfast's tree. One `post` is one try: retries are the
caller's, because only the caller knows what a retry means.
"""

from __future__ import annotations

import collections
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

from holdfast.backends.etcd.http import Answer, Connection, connect
from holdfast.errors import (
    AuthenticationFailed,
    ClientClosed,
    GatewayDisabled,
    PermissionDenied,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TLSFailed,
)
from holdfast.lease import Surroundings
from holdfast.limits import CONNECTIONS_MAX
from holdfast.options import Options
from holdfast.tls import speaks_tls, tls_context

_IDLE_MAX: Final = 4
_ATTEMPT_LEAST: Final = 1.0
"""A try gets at least this long, if there is so much: a slow store is not to be asked ever more hastily."""
_UNAVAILABLE: Final = (4, 8, 10, 14)  # gRPC: deadline exceeded, exhausted, aborted, unavailable


class LeaseGone(Exception):
    """The store does not know the lease (any more). Never leaves the etcd backend."""


class OutOfSpace(StoreRefused):
    """The store takes no transactions until it has space again. Plain deletions it does take."""


class StaleAuth(Exception):
    """The store does not accept the user's token (any more): ask for a new one. Never leaves the session."""


class Session:
    """Connections to one cluster. Thread-safe."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self._options = options
        self._around = around
        self._tls = tls_context(options) if options.tls else None
        self._guard = threading.RLock()  # guards _current, generation, _failing, _idle, _token and _closed
        self._current = 0
        self.generation = 0
        self._failing: set[tuple[str, int]] = set()
        self._tls_failed: set[tuple[str, int]] = set()  # since anybody last answered
        self._idle: collections.deque[Connection] = collections.deque()
        # One `None` per connection that may be in use. Not a semaphore: its lock is not re-entrant, and a signal
        # handler may ask the store while the main thread is about to.
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(CONNECTIONS_MAX):
            self._slots.put(None)
        self._token: str | None = None
        self._signing_in = threading.RLock()  # held while a token is asked for
        self._closed = False
        self._answered = False
        self.on_move: Callable[[], None] = lambda: None

    @property
    def endpoint(self) -> tuple[str, int]:
        """The current endpoint."""
        return self._options.endpoints[self._current]

    @property
    def needs_user(self) -> bool:
        return self._options.user is not None

    def post(self, url: str, *, until: float, data: Any = None, json: Any = None, timeout: object = None) -> Answer:
        """One try, one answer; signed in where there is a user. The name and shape are what etcd3gw calls."""
        path = url[url.index("/", url.index("//") + 2) :]
        body = data if data is not None else _dumps(json)
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

    def get(self, url: str, timeout: object = None) -> Answer:
        """What etcd3gw would discover versions with; holdfast names the API path itself."""
        raise StoreRefused(f"nothing asks etcd for {url}")

    def token(self, until: float) -> str:
        """The user's token; asked for where there is none, by one thread at a time."""
        token = self._token
        if token is not None:
            return token
        # A sign-in takes a server the better part of 0.1 s of a processor: all threads at once would keep it so busy
        # that none is answered in time.
        if not self._signing_in.acquire(timeout=max(0.0, until - self._around.clock.now())):
            raise StoreUnavailable(f"{self._options.display} did not answer another thread's sign-in in time")
        try:
            return self._token or self._sign_in(until)
        finally:
            self._signing_in.release()

    def _sign_in(self, until: float) -> str:
        credentials = _dumps({"name": self._options.user, "password": self._options.password or ""})
        told = self._exchange("/v3/auth/authenticate", credentials, until, None).json()
        if not isinstance(told, dict) or not told.get("token"):
            raise StoreRefused(f"{self._options.display} answered a sign-in without a token")
        token = self._token = str(told["token"])
        return token

    def forget_token(self, refused: str) -> None:
        """The store does not accept it any more. A newer one stays."""
        if self._token == refused:
            self._token = None

    def move_on(self, endpoint: tuple[str, int], why: str) -> None:
        """`endpoint` does not answer: make the next one current, once for all who found out."""
        with self._guard:
            if self.endpoint != endpoint:
                return
            known = endpoint in self._failing
            self._failing.add(endpoint)
            self._current = (self._current + 1) % len(self._options.endpoints)
            self.generation += 1
            stale, self._idle = self._idle, collections.deque()
        for connection in stale:
            connection.close()
        if not known:  # told once, not at every try
            self._around.hub.emit("endpoint_failed", reason=f"{endpoint[0]}:{endpoint[1]}: {why}")
        self.on_move()

    def dial(self, timeout: float) -> tuple[socket.socket, tuple[str, int]]:
        """A raw connection to the current endpoint, for the watch. Raises StoreError."""
        endpoint = self.endpoint
        try:
            return connect(endpoint, self._tls, timeout), endpoint
        except OSError as error:
            raise self.failed(endpoint, error) from error

    def close(self) -> None:
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, collections.deque()
        for connection in idle:
            connection.close()

    def _exchange(self, path: str, body: bytes, until: float, token: str | None) -> Answer:
        if self._closed:
            raise ClientClosed("the client is closed")
        seconds = self._attempt_seconds(until)
        try:
            self._slots.get(timeout=seconds)
        except queue.Empty:
            raise StoreUnavailable(
                f"no free connection to {self._options.display} in time; {CONNECTIONS_MAX} are in use"
            ) from None
        endpoint = self.endpoint
        try:
            answer = self._on_some_connection(path, body, token, seconds)
        finally:
            self._slots.put(None)
        if answer.status_code == 200:
            self._answered = True
            self._failing.discard(endpoint)
            self._tls_failed.clear()
            return answer
        raise self._refusal(answer, endpoint)

    def _attempt_seconds(self, until: float) -> float:
        """This try's share of the time left: where it can be had, enough remains to try elsewhere."""
        left = until - self._around.clock.now()
        if left <= 0:
            raise StoreUnavailable(f"the deadline had passed before {self._options.display} was asked")
        return max(left / (len(self._options.endpoints) + 1), min(left, _ATTEMPT_LEAST))

    def _on_some_connection(self, path: str, body: bytes, token: str | None, seconds: float) -> Answer:
        endpoint, fresh = self.endpoint, False
        try:
            try:
                connection = self._idle.pop()
                endpoint = connection.endpoint
            except IndexError:
                fresh = True
                connection = Connection(endpoint, self._tls, seconds)
            return self._on(connection, path, body, token, seconds)
        except OSError as error:
            if fresh or isinstance(error, TimeoutError):
                raise self.failed(endpoint, error) from error
            # An idle connection breaks when the server has closed it meanwhile. That says nothing about the
            # endpoint; but the request may have arrived, so whether to send it again is not decided here.
            raise StoreUnavailable(f"an idle connection to {endpoint[0]}:{endpoint[1]} had been closed") from error

    def _on(self, connection: Connection, path: str, body: bytes, token: str | None, seconds: float) -> Answer:
        try:
            answer = connection.exchange(path, body, token, seconds)
        except BaseException:  # cut short anywhere, the connection holds half an answer: nobody may reuse it
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def _give_back(self, connection: Connection) -> None:
        with self._guard:
            current = connection.endpoint == self.endpoint and connection.reusable
            if current and not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def failed(self, endpoint: tuple[str, int], error: Exception) -> StoreError:
        """What a failure below HTTP means, in the house's words."""
        where = f"{endpoint[0]}:{endpoint[1]}"
        cause = next((e for e in _chain(error) if isinstance(e, ssl.SSLError)), None)
        self.move_on(endpoint, _reason(error))
        if cause is not None and not isinstance(cause, TimeoutError):
            self._tls_failed.add(endpoint)
            if self._tls_failed >= set(self._options.endpoints):  # nowhere to go: it is not one server's fault
                return TLSFailed(
                    f"the TLS handshake with {where} failed: {_reason(cause)}. Check `tls`, `ca`, `cert` and `key`, "
                    "and that this port speaks TLS."
                )
        if self._tls is None and not self._answered and not isinstance(error, TimeoutError) and speaks_tls(endpoint):
            return TLSFailed(f"{where} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
        return StoreUnavailable(
            f"{where} did not answer: {_reason(error)}. Tried as part of {self._options.display}; is etcd running and "
            "reachable there?"
        )

    def _refusal(self, answer: Answer, endpoint: tuple[str, int]) -> Exception:
        """What a status other than 200 means, in the house's words."""
        code, message = _grpc_error(answer)
        where = self._options.display
        if "requested lease not found" in message:
            return LeaseGone(message)
        if answer.status_code == 404 and code is None:
            return GatewayDisabled(
                f"{where} answers, but has no JSON gateway (HTTP 404). Start etcd with --enable-grpc-gateway=true, and "
                "check that the port is its client port."
            )
        if "HTTPS server" in message:
            return TLSFailed(f"{where} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
        if "invalid auth token" in message or "auth store is old" in message:
            return StaleAuth(message)
        if (
            "authentication failed" in message
            or "user name is empty" in message
            or "authentication is not enabled" in message
        ):
            return AuthenticationFailed(f"{where} does not accept this user and password: {message}")
        if code == 7 or "permission denied" in message:
            return PermissionDenied(f"user {self._options.user!r} may not do this under {where}: {message}")
        if "database space exceeded" in message:
            return OutOfSpace(
                f"{where} is out of space (NOSPACE): {message}. Compact, defragment and disarm the alarm."
            )
        # a proposal is dropped, with an unknown code, where the leader has just gone
        if code in _UNAVAILABLE or answer.status_code in (429, 503, 504) or "proposal dropped" in message:
            self.move_on(endpoint, message)
            return StoreUnavailable(f"{where} can't answer now: {message}")
        return StoreRefused(f"{where} refused (HTTP {answer.status_code}): {message}")


def _dumps(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _grpc_error(answer: Answer) -> tuple[int | None, str]:
    try:
        told = answer.json()
        return int(told["code"]), str(told.get("message") or told.get("error"))
    except (StoreRefused, ValueError, KeyError, TypeError):
        return None, answer.text.strip()[:200]


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
