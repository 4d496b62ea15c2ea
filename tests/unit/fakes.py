"""Fakes for unit tests: a lease that answers whatever a test wants, workers under a test's thumb, a Ctrl-C."""

# fakes take what the protocols pass
from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tenure._core.base.signals import Signal
from tenure._core.lease import Committed, Compare, Delete, Entry, LeaseState, Line, Mode, Put, Reach, Record, Ticket
from tenure.errors import StoreUnavailable

TTL = 15.0


class FakeLease:
    """The Lease protocol with nothing behind it: state is set by the test, verbs are not meant to be called."""

    def __init__(self) -> None:
        self.id = "lease-1"
        self.ttl = TTL
        self.state = LeaseState.HELD
        self.left = TTL
        self.abandoned: list[Entry] = []
        self.signals: list[Signal] = []
        self.waited_on: list[tuple[Line, tuple[Ticket, ...], bool]] = []
        self.closed_signals = 0

    def remaining(self) -> float:
        return self.left

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        self.waited_on.append((line, tuple(tickets), amendments))
        signal = Signal()
        signal.on_close(self._closed)
        self.signals.append(signal)
        return signal

    def _closed(self) -> None:
        self.closed_signals += 1

    def abandon(self, entry: Entry) -> None:
        self.abandoned.append(entry)

    def enter(self, entry: Entry, until: float) -> Line:
        raise NotImplementedError

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        raise NotImplementedError

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        raise NotImplementedError

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        raise NotImplementedError

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        raise NotImplementedError

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        raise NotImplementedError

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        raise NotImplementedError

    def leave(self, ticket: Ticket, until: float) -> bool:
        raise NotImplementedError

    def renew(self, until: float) -> float:
        raise NotImplementedError

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return lambda: None

    def close(self, until: float) -> None:
        self.state = LeaseState.CLOSED


def ticket_of(entry: Entry, token: int) -> Ticket:
    return Ticket(
        resource=entry.resource,
        id=entry.id,
        key=f"k{token}",
        token=token,
        mode=entry.mode,
        weight=entry.weight,
        limit=entry.limit,
        owner=entry.owner,
        value=entry.value,
    )


def line_with(entry: Entry, *, ahead: int, held: int = 0, revision: int = 50) -> Line:
    """A line with `ahead` tickets like mine ahead of me."""
    others = [ticket_of(entry, 10 + i)._replace(id=f"other-{i}", owner=f"owner-{i}") for i in range(held, ahead)]
    return Line(entry.resource, (*others, ticket_of(entry, 40)), revision)


def line_without(entry: Entry, revision: int = 60) -> Line:
    return Line(entry.resource, (), revision)


def entry(mode: Mode = Mode.EXCLUSIVE, *, limit: int = 1, reach: Reach = Reach.PREDECESSOR) -> Entry:
    return Entry("r", "me", mode, 1, limit, "my value", reach, id="mine")


class ImmediateWorkers:
    """Carries out at once, in the submitting thread."""

    crowded = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work())
        except BaseException as error:  # carried in the future, as an executor does
            done.set_exception(error)
        return done


class ThreadlessWorkers(ImmediateWorkers):
    """Has no thread for the first so many, as a process that may start no more; carries out what comes after."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        if self.refusals > 0:
            self.refusals -= 1
            raise StoreUnavailable("told by the test: no helper thread can be started")
        return super().submit(work)


class HeldWorkers:
    """Carries out nothing until told: each submitted work is under way, as seen by a canceller."""

    crowded = False

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.works.append((work, future))
        return future

    def carry_out(self) -> None:
        """Finish the oldest work that is under way."""
        work, future = self.works.pop(0)
        try:
            outcome = work()
        except BaseException as error:  # carried in the future, as an executor does
            future.set_exception(error)
        else:
            future.set_result(outcome)


class Interrupted(BaseException):
    """Stands for Ctrl-C: a KeyboardInterrupt that got out of a failing test would end the run."""
