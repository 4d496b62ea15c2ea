"""Requests to the service and their answers: JSON, over the same kind of connection pool as etcd's gateway."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any, Final, NamedTuple

from tenure._core.base.options import Endpoint, Options
from tenure._core.base.retry import persist
from tenure._core.lease import BackendContext
from tenure._transport import http
from tenure._transport.remote import Json
from tenure._transport.session import ConnectionPool, Refusal
from tenure.errors import (
    AuthenticationFailed,
    InvalidOption,
    PermissionDenied,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
)

_SECONDS_MAX: Final = 60.0
_TEMPORARY: Final = (408, 421, 429, 500, 502, 503, 504)
_TOO_MANY: Final = ("too-many-holds", "too-many-leases", "too-many-waiting", "too-many-streams")


class LeaseIsOver(Exception):
    """The service does not have the lease (any more). Never leaves this backend."""


class ServiceNamespace(NamedTuple):
    """The service's namespace, the tenant's prefix in it, and the incarnation."""

    namespace: str
    prefix: str
    incarnation: int


class Calls:
    """Requests to one service. Thread-safe."""

    def __init__(self, options: Options, context: BackendContext) -> None:
        self._clock = context.clock
        self._options = options
        self._within = f"{options.namespace}/" if options.namespace else ""
        self._names: ServiceNamespace | None = None
        self.token = None if options.password is None else f"Bearer {options.password}"
        self.session: ConnectionPool[ServiceAnswer] = ConnectionPool(options, context, ServiceDialect(self.token))

    @property
    def names(self) -> ServiceNamespace:
        """The service's names, which are known once a lease was opened."""
        if self._names is None:
            raise StoreUnavailable(f"{self._options.display} was not asked yet")
        return self._names

    def inside(self, name: str) -> str:
        """Add the client's namespace: the service's name for `name`."""
        return self._within + name

    def outside(self, name: str) -> str:
        """Remove the client's namespace again."""
        return name.removeprefix(self._within)

    def ask(self, path: str, body: Json, until: float) -> Any:  # Any: JSON
        """Send a request that may be sent twice, and return its answer. Raises StoreError, LeaseIsOver."""
        return persist(lambda: self.ask_once(path, body, until), until, self._clock)

    def ask_once(self, path: str, body: Json, until: float) -> Any:  # Any: JSON
        """Send a request once. After StoreUnavailable its fate is unknown."""
        return self._answer(path, body, until).document()

    def ask_anybody(self, path: str, body: Json, until: float) -> tuple[Endpoint, Any]:  # Any: JSON
        """Send a request once, and return which endpoint answered, and its answer."""
        answer = self._answer(path, body, until)
        return answer.endpoint, answer.document()

    def _answer(self, path: str, body: Json, until: float) -> ServiceAnswer:
        seconds = min(max(0.0, until - self._clock.now()), _SECONDS_MAX)
        text = json.dumps({**body, "seconds": seconds}, separators=(",", ":")).encode()
        return self.session.ask(path, text, until)

    def settle(self, body: Json) -> None:
        """Take what the answer to the opening of a lease says of the service."""
        self._names = ServiceNamespace(body["namespace"], body["prefix"], body["incarnation"])


class ServiceAnswer(http.JsonResponse):
    """An HTTP response, with the endpoint that gave it."""

    __slots__ = ("endpoint",)
    endpoint: Endpoint

    @property
    def refusal(self) -> Refusal | None:
        return None if self.status_code == 200 else Refusal(None, self.text, self.status_code)

    def document(self) -> Any:  # Any: JSON
        try:
            return json.loads(self.content.decode())
        except (ValueError, RecursionError) as error:
            raise StoreRefused(
                f"something answers there, but not as `tenure serve` does: {self.text.strip()[:80]!r}"
            ) from error


class ServiceConnection(http.HttpConnection):
    """A connection that shows the bearer token."""

    answer = ServiceAnswer

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float, bearer: str | None) -> None:
        super().__init__(endpoint, tls, seconds)
        self._bearer = bearer

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> ServiceAnswer:
        answer = super().exchange(path, body, self._bearer, seconds)
        assert isinstance(answer, ServiceAnswer)
        answer.endpoint = self.endpoint
        return answer


class ServiceDialect:
    """HTTP/1.1 with problem details, as the connection pool needs to know it."""

    server: Final = "`tenure serve`"
    signs_in: Final = False
    alpn: Final = "http/1.1"
    goes_aside: Final = False
    dedicated_path: Final = ""

    def __init__(self, bearer: str | None) -> None:
        self._bearer = bearer

    def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> ServiceConnection:
        return ServiceConnection(endpoint, tls, seconds, self._bearer)

    def dial(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        return http.connect(endpoint, tls, seconds)

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        raise StoreRefused("a service knows its tokens, and nobody signs in")

    def token(self, reply: ServiceAnswer) -> str:
        return ""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        problem = _problem(refusal.message)
        if problem is None:
            said = refusal.message.strip()[:80]
            if refusal.status in _TEMPORARY:
                return StoreUnavailable(f"{where} can't answer now (HTTP {refusal.status}): {said!r}")
            return StoreRefused(f"{where} answers, but not as `tenure serve` does (HTTP {refusal.status}): {said!r}")
        return _meaning(where, user, problem, refusal.status)


def _problem(text: str) -> Json | None:
    """Read problem details (RFC 9457) with a code of ours; None for anything else."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(body, dict) and isinstance(body.get("code"), str) and isinstance(body.get("detail"), str)
    return body if ours else None


def _meaning(where: str, user: str | None, problem: Json, status: int) -> Exception:
    code, detail = problem["code"], problem["detail"]
    if code == "lease-gone":
        return LeaseIsOver(detail)
    if code == "unauthorized":
        return AuthenticationFailed(f"{where} does not accept this token: {detail}")
    if code in ("forbidden", "forbidden-host"):
        return PermissionDenied(f"{where} does not let {user or 'anybody'} do this: {detail}")
    if code in ("invalid-field", "bad-request", "too-large"):
        return InvalidOption(f"{where} does not take this: {detail}")
    if code == "store-went-back":
        return StoreWentBack(f"{where}: {detail}")
    if code in _TOO_MANY or status not in _TEMPORARY or code in ("store-refused", "internal"):
        return StoreRefused(f"{where} refused ({code}): {detail}")
    return StoreUnavailable(f"{where} can't answer now ({code}): {detail}")
