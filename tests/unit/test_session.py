"""The session: one try and its time, whatever of it is spent before anything is sent."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import pytest

from holdfast.clock import VirtualClock
from holdfast.errors import StoreUnavailable
from holdfast.events import Hub
from holdfast.lease import Surroundings
from holdfast.links.session import Refusal, Session
from holdfast.options import parse
from tests.unit.fakes import ImmediateWorkers

START = 1000.0


class Reply:
    refusal = None


class Connection:
    """It writes down how long it may take."""

    reusable = False
    endpoint = ("a", 1)

    def __init__(self, given: list[float]) -> None:
        self._given = given

    def still_good(self) -> bool:
        return True

    def exchange(self, path: str, body: bytes, token: str | None, seconds: float) -> Reply:
        self._given.append(seconds)
        return Reply()

    def close(self) -> None:
        pass


class Dialect:
    """Connecting takes its time."""

    server: Final = "etcd"
    signs_in: Final = True
    alpn: Final = "x"
    kept_apart: Final = ""

    def __init__(self, clock: VirtualClock, connecting_seconds: float) -> None:
        self._clock = clock
        self._connecting_seconds = connecting_seconds
        self.given: list[float] = []

    def connect(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> Connection:
        self._clock.advance(self._connecting_seconds)
        return Connection(self.given)

    def dial(self, endpoint: tuple[str, int], tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        raise AssertionError

    def sign_in(self, user: str, password: str) -> tuple[str, bytes]:
        raise AssertionError

    def token(self, reply: Reply) -> str:
        raise AssertionError

    def refused(self, where: str, user: str | None, refusal: Refusal) -> Exception:
        raise AssertionError


def session_of(dialect: Dialect, clock: VirtualClock) -> Session[Reply]:
    around = Surroundings(clock, Hub(clock.now), ImmediateWorkers())
    return Session(parse("etcd://a:1/x", {}), around, dialect)


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
