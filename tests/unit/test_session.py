"""The connection pool: one try and its time, also where some is spent before sending; and failover."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import pytest

from tenure._core.base.clock import VirtualClock
from tenure._core.base.options import parse
from tenure._core.lease import BackendContext
from tenure._transport.session import ConnectionPool, Refusal
from tenure.errors import StoreUnavailable, TLSFailed
from tenure.events import Hub
from tests.unit.fakes import ImmediateWorkers

START = 1000.0


class Reply:
    def __init__(self, refusal: Refusal | None) -> None:
        self.refusal = refusal


class Connection:
    """It writes down how long it may take."""

    closed = False

    def __init__(self, endpoint: tuple[str, int], given: list[float], refusals: list[Refusal]) -> None:
        self.endpoint = endpoint
        self.reusable = bool(refusals)
        self._given = given
        self._refusals = refusals

    def still_good(self) -> bool:
        return True

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> Reply:
        self._given.append(seconds)
        return Reply(self._refusals.pop(0) if self._refusals else None)

    def close(self) -> None:
        self.closed = True


class Dialect:
    """Connecting takes its time."""

    server: Final = "etcd"
    signs_in: Final = True
    alpn: Final = "x"
    goes_aside: Final = False
    dedicated_path: Final = ""

    def __init__(self, clock: VirtualClock, connecting_seconds: float = 0.0, *refusals: Refusal) -> None:
        self._clock = clock
        self._connecting_seconds = connecting_seconds
        self._refusals = list(refusals)
        self.given: list[float] = []
        self.connections: list[Connection] = []

    def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> Connection:
        self._clock.advance(self._connecting_seconds)
        self.connections.append(Connection(endpoint, self.given, self._refusals))
        return self.connections[-1]

    def dial(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        raise AssertionError

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        raise AssertionError

    def token(self, reply: Reply) -> str:
        raise AssertionError

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        return StoreUnavailable(refusal.message)


def session_of(dialect: Dialect, clock: VirtualClock, endpoints: str = "a:1") -> ConnectionPool[Reply]:
    context = BackendContext(clock, Hub(clock.now), ImmediateWorkers())
    return ConnectionPool(parse(f"etcd://{endpoints}/x", {}), context, dialect)


@pytest.mark.parametrize(("connecting", "left"), [(0.0, 1.0), (0.9, 0.1)])
def test_exchange_gets_what_connecting_has_left_of_the_callers_time(connecting: float, left: float) -> None:
    """Law 8: one deadline over all steps; a slow handshake does not begin it anew."""
    clock = VirtualClock(START)
    dialect = Dialect(clock, connecting)
    session_of(dialect, clock).ask("/", b"", START + 1.0)
    assert dialect.given == [pytest.approx(left)]


def test_nothing_is_sent_after_a_connection_that_took_all_of_the_callers_time() -> None:
    """It would be answered to nobody."""
    clock = VirtualClock(START)
    dialect = Dialect(clock, 1.5)
    with pytest.raises(StoreUnavailable, match="deadline had passed"):
        session_of(dialect, clock).ask("/", b"", START + 1.0)
    assert dialect.given == []


@pytest.mark.parametrize(
    ("status", "endpoints", "moves", "closes"),
    [(503, "a:1,b:2", 1, True), (503, "a:1", 0, True), (429, "a:1,b:2", 0, False), (429, "a:1", 0, False)],
)
def test_refusal_for_a_while_moves_everybody_on_only_where_it_helps(
    status: int, endpoints: str, moves: int, closes: bool
) -> None:
    """There is another endpoint, and the refusal is not one of haste. Behind one address there may be several servers:
    what was connected to the one that refused is not used again."""
    clock = VirtualClock(START)
    dialect = Dialect(clock, 0.0, Refusal(None, "not now", status))
    session, moved = session_of(dialect, clock, endpoints), list[None]()
    session.on_move = lambda: moved.append(None)
    with pytest.raises(StoreUnavailable, match="not now"):
        session.ask("/", b"", START + 1.0)
    assert (len(moved), session.generation) == (moves, moves)
    assert dialect.connections[0].closed is closes
    session.close()


def test_server_that_hangs_up_within_a_handshake_says_nothing_of_settings_that_were_right_before() -> None:
    """A proxy whose server is away does so. At the first connection it may be that no TLS is spoken there."""
    clock = VirtualClock(START)
    for vouched, expected in ((False, TLSFailed), (True, StoreUnavailable)):
        session = session_of(Dialect(clock), clock)
        if vouched:
            session.vouch()
        assert type(session.failed(("a", 1), ssl.SSLEOFError("EOF occurred in violation of protocol"))) is expected
        assert type(session.failed(("a", 1), ssl.SSLCertVerificationError("expired"))) is TLSFailed
        session.close()


@pytest.mark.parametrize(("left", "failures"), [(0.3, 0), (5.0, 1)])
def test_time_out_of_a_try_with_little_time_is_no_failure_of_the_endpoint(left: float, failures: int) -> None:
    """The last look of a wait has what is left of it: that it is not answered in that says nothing of a server."""

    class Silent(Dialect):
        def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> Connection:
            self._clock.advance(seconds)
            raise TimeoutError

    clock, failed = VirtualClock(START), list[str]()
    session = session_of(Silent(clock), clock, "a:1,b:2")
    session._context.hub.subscribe(lambda event: failed.append(event.event))
    with pytest.raises(StoreUnavailable, match="a:1 did not answer: timed out"):
        session.ask("/", b"", START + left)
    assert failed == ["endpoint_failed"] * failures
    assert session.endpoint == ("b", 2)  # the next try may do better there
    with pytest.raises(StoreUnavailable, match="b:2 did not answer"):
        session.ask("/", b"", clock.now() + 5.0)
    assert failed == ["endpoint_failed"] * (failures + 1)
