"""Catch-up of a watch that begins with the next event: changes written before it began are found."""

from __future__ import annotations

import collections
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tenure._backends.etcd.gateway import json_codec
from tenure._backends.etcd.grpc import messages
from tenure._backends.etcd.lines import CatchUp
from tenure._backends.etcd.requests import Header, KeyValue, Range, TxnResult, WatchMessage, WatchRequest
from tenure._backends.etcd.watch import Watcher
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext, Ticket
from tenure.errors import ClientClosed, StoreUnavailable, TenureError
from tenure.events import Hub
from tests.unit.fakes import ImmediateWorkers

KEY = b"ns/a/1-0-0"
WHERE = Range(KEY)
SEEN = Ticket("a", "id", KEY.decode(), 7, version=9)
WAIT = 10.0


def context(workers: Any = None) -> BackendContext:
    return BackendContext(SYSTEM_CLOCK, Hub(SYSTEM_CLOCK.now), workers or ImmediateWorkers())


class OneAnswer:
    """A wire that answers every range with the same."""

    def __init__(self, *found: KeyValue, failure: TenureError | None = None) -> None:
        self._found = list(found)
        self._failure = failure
        self.asked: list[Range] = []

    def range(self, asked: Range, until: float) -> TxnResult:
        self.asked.append(asked)
        if self._failure is not None:
            raise self._failure
        return TxnResult(Header(1, 20), True, self._found)


class Refusing:
    """Workers that take nothing."""

    def __init__(self, error: TenureError) -> None:
        self._error = error

    def submit(self, work: Callable[[], Any]) -> Any:
        raise self._error


def caught_up(wire: Any, workers: Any = None, *, amendments: bool = False) -> bool:
    """Is who waits woken?"""
    signal = Signal()
    CatchUp(wire, context(workers), WHERE, (SEEN,), signal, amendments=amendments)()
    return signal.is_set()


@pytest.mark.parametrize(
    ("found", "amendments", "woken"),
    [
        ((KeyValue(KEY, b"", 7, 9),), False, False),
        ((KeyValue(KEY, b"", 7, 9),), True, False),
        ((), False, True),
        ((KeyValue(KEY, b"", 8, 8),), False, True),
        ((KeyValue(KEY, b"", 7, 11),), False, False),
        ((KeyValue(KEY, b"", 7, 11),), True, True),
    ],
    ids=["stands", "unamended", "gone", "another", "amended", "amended, and that is news"],
)
def test_what_was_missed_wakes_and_nothing_else(found: tuple[KeyValue, ...], amendments: bool, woken: bool) -> None:
    """Only a ticket that is gone, or amended where that counts, wakes who waits for it."""
    wire = OneAnswer(*found)
    assert caught_up(wire, amendments=amendments) is woken
    assert wire.asked == [WHERE]


def test_who_can_not_be_answered_looks() -> None:
    """Where nobody can tell whether something was missed, the waiter is woken: law 11."""
    assert caught_up(OneAnswer(failure=StoreUnavailable("away")))
    assert caught_up(OneAnswer(), Refusing(StoreUnavailable("no thread")))


def test_a_closed_client_is_asked_nothing() -> None:
    """Closing ends every wait by itself."""
    wire = OneAnswer()
    assert not caught_up(wire, Refusing(ClientClosed("closed")))
    assert wire.asked == []


def test_a_wait_that_is_over_costs_no_request() -> None:
    """An event has woken it already."""
    wire, signal = OneAnswer(), Signal()
    signal.set()
    CatchUp(wire, context(), WHERE, (SEEN,), signal, amendments=False)()  # type: ignore[arg-type]  # a fake
    assert wire.asked == []


def test_only_a_watch_that_can_catch_up_begins_with_what_comes() -> None:
    """On the wire the start revision is left out, and stays where there is nobody to look for what was missed."""
    later = WatchRequest(KEY, None, 8, True, Signal(), lambda: None)
    assert "start_revision" not in json_codec.create(1, later)["create_request"]
    assert json_codec.create(1, later._replace(catch_up=None))["create_request"]["start_revision"] == 8
    at_once = WatchRequest(KEY, None, 0, True, Signal())
    assert messages.watch_create(1, later) == messages.watch_create(1, at_once)
    assert messages.watch_create(1, later._replace(catch_up=None)) != messages.watch_create(1, at_once)


class FakeStream:
    """It hears what the test says, by a byte for each message."""

    silence_seconds = 60.0

    def __init__(self, takes_more: bool, watches: Mapping[int, WatchRequest]) -> None:
        self.takes_more = takes_more
        self.sock, self._test = socket.socketpair()
        self.numbers = list(watches)
        self._told: collections.deque[WatchMessage] = collections.deque()

    def say(self, told: WatchMessage) -> None:
        self._told.append(told)
        self._test.send(b"!")

    def create(self, watch_id: int, watching: WatchRequest) -> None:
        self.numbers.append(watch_id)

    def cancel(self, watch_id: int) -> None:
        """Unheard."""

    def ping(self) -> bool:
        return False

    def receive(self) -> list[WatchMessage]:
        self.sock.recv(1)
        return [self._told.popleft()]

    def hang_up(self) -> None:
        self._test.close()


class FakeSession:
    """One endpoint that always answers, for a stream of the test's."""

    needs_user = False

    def dial(self, seconds: float) -> tuple[Any, tuple[str, int]]:
        return None, ("a", 1)


class Opener:
    def __init__(self, *, takes_more: bool) -> None:
        self._takes_more = takes_more
        self.opened = Signal()
        self.stream: FakeStream

    def open_stream(
        self, sock: Any, endpoint: Any, token: str | None, watches: Mapping[int, WatchRequest]
    ) -> FakeStream:
        self.stream = FakeStream(self._takes_more, watches)
        self.opened.set()
        return self.stream


@contextmanager
def watched(watching: WatchRequest, *, takes_more: bool = True) -> Iterator[tuple[FakeStream, int]]:
    """The stream that carries it, and its number there."""
    opener = Opener(takes_more=takes_more)
    watcher = Watcher(FakeSession(), context(), opener, lambda until: None)  # type: ignore[arg-type]  # a fake
    try:
        watcher.add(watching)
        assert opener.opened.wait(WAIT)
        yield opener.stream, opener.stream.numbers[0]
    finally:
        watcher.close()
        opener.stream.hang_up()


@pytest.mark.parametrize("takes_more", [True, False])
@pytest.mark.parametrize("revision", [7, 8, 12])
def test_a_watch_catches_up_where_it_began_late(revision: int, takes_more: bool) -> None:
    """The server tells at which revision a watch began: at the one before its start nothing was missed. A stream that
    takes no more watches began each where it was to."""
    missed, heard = threading.Event(), Signal()
    watching = WatchRequest(KEY, None, 8, True, heard, missed.set)
    with watched(watching, takes_more=takes_more) as (stream, number):
        stream.say(WatchMessage(number, revision, created=True))
        stream.say(WatchMessage(number, revision + 1, events=True))  # by then the message before it was taken
        assert heard.wait(WAIT)
        assert missed.is_set() is (takes_more and revision >= 8)
