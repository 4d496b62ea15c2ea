"""Network between one client and the memory store: time, losses, lateness, partitions.

It stands in the place of a memory backend's `faults`. Every request is a message on its way, carried out by the store
at a moment of its own, and an answer on its way back; the sender waits for so long and then gives up. So a request may
be lost, its answer may be, or it is carried out after its sender gave up: late, and by then often a second time.

One promise is kept that real stores' clients keep in ways of their own (a session's order, an audit of the lease's
keys): no `enter` is carried out behind a `leave` or `close` that its client sent later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, TypeVar

from tenure._core.base.signals import Signal
from tenure.errors import StoreUnavailable
from tests.verify.simulation.scheduler import Process, Scheduler

Outcome = TypeVar("Outcome")
LOST_REQUEST: Final = "lost request"
LOST_ANSWER: Final = "lost answer"
LATE: Final = "late request"
GIVES_UP_AFTER: Final = (0.3, 1.0)
LATE_BY: Final = (1.0, 5.0)
_ENDS: Final = ("leave", "close")


class Truth(Protocol):
    """The ground truth as the network sees it: it has to know on whose behalf the store is at work."""

    cause: str
    verb: str


class Exchange:
    """A request: sent, perhaps carried out, perhaps answered."""

    __slots__ = ("answered", "carried_out", "error", "operation", "outcome", "request")

    def __init__(self, operation: str, request: Callable[[], Any]) -> None:
        self.operation = operation
        self.request = request
        self.carried_out = False
        self.answered = False
        self.outcome: Any = None  # Any: each operation has its own
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        self.carried_out = True
        try:
            self.outcome = self.request()
        except BaseException as error:  # part of the answer
            self.error = error


class Network:
    """The way of one client to the store."""

    def __init__(self, name: str, scheduler: Scheduler, process: Process, choices: Random, truth: Truth) -> None:
        self.cut_off = False
        self.slowness = 1.0
        self.met: Counter[str] = Counter()
        self._name = name
        self._scheduler = scheduler
        self._process = process
        self._choices = choices
        self._truth = truth
        self._planned: list[tuple[str, str]] = []
        self._moments: list[tuple[str, Callable[[], None]]] = []
        self._entering: list[Exchange] = []
        self._late = 0  # requests that are on their way for longer than anything should be
        self.late_until = 0.0
        self.note_lateness: Callable[[bool], None] = _to_nobody
        """Called when the first of them is sent (True), and when the last has arrived (False)."""

    def plan(self, fate: str, operation: str) -> None:
        """Plan the fate of the next request of this operation; "" for any."""
        self._planned.append((fate, operation))

    def when_sent(self, operation: str, befall: Callable[[], None]) -> None:
        """Let something happen just when the next request of this operation was sent."""
        self._moments.append((operation, befall))

    def forget(self) -> None:
        """Plans that have met no request yet."""
        self._planned.clear()
        self._moments.clear()

    def carry(self, operation: str, request: Callable[[], Outcome]) -> Outcome:
        """Carry one exchange, as the sender sees it. Raises StoreUnavailable where no answer comes in time."""
        scheduler = self._scheduler
        thread = scheduler.running()
        epoch = thread.epoch
        exchange = Exchange(operation, request)
        self._send(exchange, self._fate(operation), lambda: scheduler.wake(thread, epoch, self._reaction()))
        scheduler.wake(thread, epoch, self._choices.uniform(*GIVES_UP_AFTER))
        self._sent(operation)
        scheduler.park()
        if not exchange.answered:
            raise StoreUnavailable(f"the store did not answer {operation!r}")
        if exchange.error is not None:
            raise exchange.error
        outcome: Outcome = exchange.outcome
        return outcome

    def tell(self, signal: Signal) -> None:
        """An event on its way to the client; lost where the client is cut off when it arrives."""
        self._scheduler.at(self._scheduler.now + self._latency(), lambda: self._told(signal), self._process)

    def _told(self, signal: Signal) -> None:
        if not self.cut_off:
            signal.set()

    def _send(self, exchange: Exchange, fate: str, answer: Callable[[], None]) -> None:
        if fate == LOST_REQUEST:
            return
        if exchange.operation == "enter":
            self._entering.append(exchange)
        arrives = self._scheduler.now + self._latency()
        if fate == LATE:
            arrives += self._choices.uniform(*LATE_BY)
            self.late_until = max(self.late_until, arrives)
            self._count_late(1)
        self._scheduler.at(arrives, lambda: self._arrive(exchange, fate, answer))

    def _count_late(self, change: int) -> None:
        before, self._late = self._late, self._late + change
        if not before or not self._late:
            self.note_lateness(change > 0)

    def _arrive(self, exchange: Exchange, fate: str, answer: Callable[[], None]) -> None:
        if fate == LATE:
            self._count_late(-1)
        if exchange.carried_out:
            return
        if self.cut_off and fate != LATE:
            if exchange in self._entering:
                self._entering.remove(exchange)  # lost for good: no later request may bring it
            return
        if exchange.operation in _ENDS:
            for entering in tuple(self._entering):
                self._carry_out(entering)
        self._carry_out(exchange)
        if fate != LOST_ANSWER:
            self._scheduler.at(self._scheduler.now + self._latency(), lambda: self._answer(exchange, answer))

    def _carry_out(self, exchange: Exchange) -> None:
        if self._entering and exchange in self._entering:
            self._entering.remove(exchange)
        self._truth.cause, self._truth.verb = self._name, exchange.operation
        try:
            exchange.carry_out()
        finally:
            self._truth.cause = self._truth.verb = ""

    def _answer(self, exchange: Exchange, answer: Callable[[], None]) -> None:
        if not self.cut_off and not self._process.dead:
            exchange.answered = True
            answer()

    def _sent(self, operation: str) -> None:
        for moment in tuple(self._moments):
            if moment[0] == operation:
                self._moments.remove(moment)
                self._scheduler.at(self._scheduler.now, moment[1])

    def _fate(self, operation: str) -> str:
        for index, (fate, wanted) in enumerate(self._planned):
            if wanted in ("", operation):
                del self._planned[index]
                self.met[fate] += 1
                return fate
        return ""

    def _latency(self) -> float:
        drawn = self._choices.random()
        return self.slowness * (0.0005 + 0.004 * drawn if drawn < 0.9 else 0.06 * drawn)

    def _reaction(self) -> float:
        return 0.0005 * self._choices.random()


def _to_nobody(_: bool) -> None:
    """Record nothing."""


class Turnstile:
    """A lock between threads, in the place of an RLock that is held across requests: RLock knows threads only."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: object | None = None
        self._depth = 0
        self._waiting: list[tuple[Any, int]] = []

    def __enter__(self) -> bool:
        me = self._scheduler.running()
        while self._owner not in (None, me):
            self._waiting.append((me, me.epoch))
            self._scheduler.park()
        self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        waiting, self._waiting = self._waiting, []
        for thread, epoch in waiting:
            self._scheduler.wake(thread, epoch, 0.0)
