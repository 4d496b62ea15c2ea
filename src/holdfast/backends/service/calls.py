"""One request to the service and its answer: JSON, over the same kind of session as etcd's gateway."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any, Final, NamedTuple

from holdfast.errors import (
    AuthenticationFailed,
    InvalidOption,
    PermissionDenied,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
)
from holdfast.lease import Surroundings
from holdfast.links import http
from holdfast.links.session import Refusal, Session
from holdfast.options import Endpoint, Options
from holdfast.remote import Json
from holdfast.retry import persist

_SECONDS_MAX: Final = 60.0
_FOR_A_WHILE: Final = (408, 421, 429, 500, 502, 503, 504)
_TOO_MANY: Final = ("too-many-holds", "too-many-leases", "too-many-waiting", "too-many-streams")


class LeaseIsOver(Exception):
    """The service does not have the lease (any more). Never leaves this backend."""


class Place(NamedTuple):
    """Where the service has its lines, and a tenant its own among them."""

    namespace: str
    prefix: str
    incarnation: int


class Calls:
    """Requests to one service. Thread-safe."""

    def __init__(self, options: Options, around: Surroundings) -> None:
        self._clock = around.clock
        self._options = options
        self._within = f"{options.namespace}/" if options.namespace else ""
        self._place: Place | None = None
        self.token = None if options.password is None else f"Bearer {options.password}"
        self.session: Session[Answer] = Session(options, around, Dialect(self.token))

    @property
    def place(self) -> Place:
        """Known once a lease was opened."""
        if self._place is None:
            raise StoreUnavailable(f"{self._options.display} was not asked yet")
        return self._place

    def inside(self, name: str) -> str:
        """How the service calls what the client calls `name`."""
        return self._within + name

    def outside(self, name: str) -> str:
        """And back."""
        return name.removeprefix(self._within)

    def ask(self, path: str, body: Json, until: float) -> Any:  # Any: JSON
        """What comes back of a request that may be sent twice. Raises StoreError, LeaseIsOver."""
        return persist(lambda: self.ask_once(path, body, until), until, self._clock)

    def ask_once(self, path: str, body: Json, until: float) -> Any:  # Any: JSON
        """The same, sent once. After StoreUnavailable its fate is unknown."""
        return self._answer(path, body, until).told()

    def ask_anybody(self, path: str, body: Json, until: float) -> tuple[Endpoint, Any]:  # Any: JSON
        """The same, and the endpoint that answered."""
        answer = self._answer(path, body, until)
        return answer.endpoint, answer.told()

    def _answer(self, path: str, body: Json, until: float) -> Answer:
        seconds = min(max(0.0, until - self._clock.now()), _SECONDS_MAX)
        text = json.dumps({**body, "seconds": seconds}, separators=(",", ":")).encode()
        return self.session.ask(path, text, until)

    def settle(self, told: Json) -> None:
        """A lease was opened: what its answer says of the service."""
        self._place = Place(told["namespace"], told["prefix"], told["incarnation"])


class Answer(http.Answer):
    """What came back, and from where."""

    __slots__ = ("endpoint",)
    endpoint: Endpoint

    @property
    def refusal(self) -> Refusal | None:
        return None if self.status_code == 200 else Refusal(None, self.text, self.status_code)

    def told(self) -> Any:  # Any: JSON
        try:
            return json.loads(self.content.decode())
        except (ValueError, RecursionError) as error:
            raise StoreRefused(
                f"something answers there, but not as `holdfast serve` does: {self.text.strip()[:80]!r}"
            ) from error


class Connection(http.Connection):
    """A connection that shows the bearer token."""

    answer = Answer

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float, bearer: str | None) -> None:
        super().__init__(endpoint, tls, seconds)
        self._bearer = bearer

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> Answer:
        answer = super().exchange(path, body, self._bearer, seconds)
        assert isinstance(answer, Answer)
        answer.endpoint = self.endpoint
        return answer


class Dialect:
    """HTTP/1.1 with problem details, as the session needs to know it."""

    server: Final = "`holdfast serve`"
    signs_in: Final = False
    alpn: Final = "http/1.1"
    goes_aside: Final = False
    kept_apart: Final = ""

    def __init__(self, bearer: str | None) -> None:
        self._bearer = bearer

    def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> Connection:
        return Connection(endpoint, tls, seconds, self._bearer)

    def dial(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        return http.connect(endpoint, tls, seconds)

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        raise StoreRefused("a service knows its tokens, and nobody signs in")

    def token(self, reply: Answer) -> str:
        return ""

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        problem = _problem(refusal.message)
        if problem is None:
            said = refusal.message.strip()[:80]
            if refusal.status in _FOR_A_WHILE:
                return StoreUnavailable(f"{where} can't answer now (HTTP {refusal.status}): {said!r}")
            return StoreRefused(f"{where} answers, but not as `holdfast serve` does (HTTP {refusal.status}): {said!r}")
        return _meaning(where, user, problem, refusal.status)


def _problem(text: str) -> Json | None:
    """RFC 9457, with a code of ours."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(told, dict) and isinstance(told.get("code"), str) and isinstance(told.get("detail"), str)
    return told if ours else None


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
    if code in _TOO_MANY or status not in _FOR_A_WHILE or code in ("store-refused", "internal"):
        return StoreRefused(f"{where} refused ({code}): {detail}")
    return StoreUnavailable(f"{where} can't answer now ({code}): {detail}")
