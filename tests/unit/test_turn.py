"""The turn, driven by hand through every step and every failure, and the two drivers that carry it out."""

# fakes take what the protocols pass
from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest

import tenure
from tenure import aio
from tenure._backends.memory import MemoryBackend
from tenure._core.base.clock import VirtualClock
from tenure._core.base.limits import BACKGROUND_THREADS_MAX, LEAVE_GRACE, WORKERS_MAX
from tenure._core.base.signals import Signal
from tenure._core.drivers.asyncio import arun
from tenure._core.drivers.blocking import perform, run
from tenure._core.lease import Entry, LeaseState, Line, Mode, Reach, Ticket
from tenure._core.recipes.lock import LOCK_RULE
from tenure._core.recipes.rwlock import READ_RULE
from tenure._core.recipes.semaphore import FEW_SEATS_RULE, MANY_SEATS_RULE
from tenure._core.runtime import runtime_of
from tenure._core.turn import (
    Abandon,
    Amend,
    Await,
    Blockers,
    Enter,
    Leave,
    Look,
    NeverEntered,
    Patience,
    Renew,
    Rule,
    Step,
    Steps,
    Survey,
    Turn,
    take_turn,
)
from tenure.errors import (
    AcquireTimeout,
    ClientClosed,
    LeaseLost,
    LineMismatch,
    StoreRefused,
    StoreUnavailable,
    TenureError,
)
from tenure.events import Event, Hub
from tests.conformance.store_worlds import eventually
from tests.unit.fakes import FakeLease, HeldWorkers, ImmediateWorkers, Interrupted, entry, line_with, line_without
from tests.unit.rig import PATIENCE_SECONDS, Background, Rig, reached

START = 1000.0
REQUEST_SECONDS = 5.0
FAILURES: list[type[BaseException]] = [
    StoreUnavailable,
    StoreRefused,
    LeaseLost,
    AcquireTimeout,
    LineMismatch,
    ClientClosed,
    KeyboardInterrupt,
    SystemExit,
    asyncio.CancelledError,
    ValueError,
]


class Table:
    """One turn on the table: the generator, its fake lease, its clock, and what it told."""

    def __init__(self, rule: Rule = LOCK_RULE, *, timeout: float | None = None, waits: bool = True) -> None:
        self.clock = VirtualClock(START)
        self.lease = FakeLease()
        self.entry = (
            entry(Mode.SEAT, limit=2, reach=Reach.AHEAD)
            if rule.reach is Reach.AHEAD and rule is not READ_RULE
            else entry(reach=rule.reach)
        )
        self.told: list[Event] = []
        hub = Hub(self.clock.now)
        hub.subscribe(self.told.append)
        until = None if timeout is None else START + timeout
        self.patience = Patience(until, REQUEST_SECONDS, waits)
        self.steps: Steps[Turn | None] = take_turn(self.lease, self.entry, rule, self.patience, self.clock, hub)

    def go(self, outcomes: list[Any]) -> Step:
        """Answer the first steps with `outcomes`; the step after them."""
        step = next(self.steps)
        for outcome in outcomes:
            step = self.steps.send(outcome)
        return step

    def line(self, ahead: int) -> Line:
        return line_with(self.entry, ahead=ahead)

    @property
    def events(self) -> list[str]:
        return [e.event for e in self.told]


def ends_with(steps: Generator[Step, Any, Turn | None], outcome: object) -> Turn | None:
    """The turn's result when it ends on `outcome`."""
    with pytest.raises(StopIteration) as ended:
        steps.send(outcome)
    result: Turn | None = ended.value.value
    return result


# The straight ways.


def test_turn_in_an_empty_line_ends_after_entering() -> None:
    """The common case is one round trip: enter, and it is my turn."""
    table = Table()
    step = table.go([])
    assert step == Enter(table.lease, table.entry, START + REQUEST_SECONDS)
    turn = ends_with(table.steps, table.line(0))
    assert turn == Turn(table.line(0).tickets[-1], table.line(0), 0.0)
    assert table.events == ["entered"]


def test_turn_behind_another_waits_looks_and_ends() -> None:
    """Snapshot, decide, wait from that snapshot, look again."""
    table = Table()
    step = table.go([table.line(1)])
    assert isinstance(step, Await)
    assert table.lease.waited_on == [(table.line(1), table.line(1).tickets[:1], False)]
    table.clock.advance(3.0)
    looked = table.steps.send(True)
    assert isinstance(looked, Look)
    assert looked.ticket == table.line(1).tickets[-1]
    assert table.lease.closed_signals == 1
    turn = ends_with(table.steps, table.line(0))
    assert turn is not None
    assert turn.waited_seconds == 3.0


def test_turn_woken_for_nothing_waits_again_from_the_new_snapshot() -> None:
    """Law 11: an event wakes and never decides."""
    table = Table()
    later = table.line(1)._replace(revision=77)
    table.go([table.line(2), True])
    for _ in range(3):
        step = table.steps.send(later)
        assert isinstance(step, Await)
        assert table.lease.waited_on[-1][0] is later
        assert isinstance(table.steps.send(True), Look)
    assert table.lease.closed_signals == 4


def test_every_wait_closes_its_signal_before_the_next_step() -> None:
    """Law 12: no watch outlives the wait it was made for."""
    for woken in (True, False):
        table = Table(timeout=9.0)
        table.go([table.line(1)])
        assert table.lease.closed_signals == 0
        step = table.steps.send(woken)
        assert table.lease.closed_signals == 1
        assert isinstance(step, Look if woken else Leave)
        if woken:
            table.steps.throw(AcquireTimeout("enough"))
        with pytest.raises(AcquireTimeout):
            table.steps.send(True)


@pytest.mark.parametrize(
    ("rule", "announces"), [(LOCK_RULE, False), (READ_RULE, False), (FEW_SEATS_RULE, False), (MANY_SEATS_RULE, True)]
)
def test_admission_after_a_wait_is_announced_by_many_seats_only(rule: Rule, announces: bool) -> None:
    """A seat that had to wait amends itself with its own value, which makes its successor the front waiter."""
    table = Table(rule)
    blocked = table.line(2)
    assert isinstance(table.go([blocked]), Await)
    assert isinstance(table.steps.send(True), Look)
    free = table.line(0)
    if not announces:
        assert ends_with(table.steps, free) is not None
        return
    step = table.steps.send(free)
    assert step == Amend(table.lease, free.tickets[-1], table.entry.value, START + REQUEST_SECONDS)
    turn = ends_with(table.steps, True)
    assert turn is not None
    assert turn.ticket == free.tickets[-1]


def test_seat_whose_ticket_was_gone_when_it_announced_itself_is_lost() -> None:
    """Law 3: "acquired" is never said of a ticket that the store has just said is gone."""
    table = Table(MANY_SEATS_RULE)
    assert isinstance(table.go([table.line(2), True, table.line(1)]), Amend)
    assert table.steps.send(False) == Abandon(table.lease, table.entry)
    with pytest.raises(LeaseLost, match="gone"):
        table.steps.send(None)


def test_seat_admitted_at_once_is_not_announced() -> None:
    """Nobody was behind it yet: whoever comes sees it admitted."""
    table = Table(MANY_SEATS_RULE)
    table.go([])
    line = table.line(1)._replace(revision=40)  # my ticket's token
    assert ends_with(table.steps, line) is not None


def test_seat_admitted_in_a_line_of_later_is_announced() -> None:
    """A lost answer, or a listing of its own: whoever came in between saw it wait, and sleeps until it is told."""
    table = Table(MANY_SEATS_RULE)
    table.go([])
    announced = table.steps.send(table.line(1))
    assert isinstance(announced, Amend)
    assert ends_with(table.steps, True) is not None


def test_waiters_of_few_seats_await_the_nearest_that_leave_them_none() -> None:
    """The anti-herd rule reaches the store's watch as the rule said it; nobody's amendment is waited for."""
    for ahead in (2, 3, 4):
        table = Table(FEW_SEATS_RULE)
        step = table.go([table.line(ahead)])
        assert table.lease.waited_on == [(table.line(ahead), table.line(ahead).tickets[ahead - 2 : ahead], False)]
        assert isinstance(step, Await)
        assert step.until is None


def test_front_waiter_of_many_seats_awaits_all_ahead_and_the_next_its_predecessor_with_amendments() -> None:
    """The anti-herd rule reaches the store's watch as the rule said it."""
    front = Table(MANY_SEATS_RULE)
    front.go([front.line(2)])
    assert front.lease.waited_on == [(front.line(2), front.line(2).tickets[:2], False)]
    second = Table(MANY_SEATS_RULE)
    second.go([second.line(3)])
    assert second.lease.waited_on == [(second.line(3), second.line(3).tickets[2:3], True)]


def test_waiter_of_many_seats_looks_after_a_while_though_nothing_woke_it() -> None:
    """The one ahead may be hung, and never say that it was admitted: the fewer wait ahead, the sooner it is found out.
    Those far behind look first after as long as they have waited."""
    table = Table(MANY_SEATS_RULE, timeout=60.0)
    step = table.go([table.line(5)])
    for now, ahead, look_at in ((0.0, 5, 5.0), (8.0, 5, 16.0), (40.0, 4, 55.0), (50.0, 3, 60.0)):
        assert isinstance(step, Await)
        if now:
            table.clock.advance(START + now - table.clock.now())
            assert isinstance(table.steps.send(False), Look)
            step = table.steps.send(table.line(ahead))
        assert isinstance(step, Await)
        assert step.until == START + look_at
    table.clock.advance(10.0)
    assert isinstance(table.steps.send(False), Leave)
    with pytest.raises(AcquireTimeout):
        table.steps.send(True)


# Deadlines.


@pytest.mark.parametrize(("timeout", "enter_by"), [(None, 5.0), (2.0, 2.0), (60.0, 5.0)])
def test_enter_is_bounded_by_the_request_and_by_the_caller(timeout: float | None, enter_by: float) -> None:
    """Law 8: no request outlasts the caller's deadline."""
    step = Table(timeout=timeout).go([])
    assert isinstance(step, Enter)
    assert step.until == START + enter_by


@pytest.mark.parametrize("timeout", [None, 7.5])
def test_every_wait_is_given_the_callers_deadline_unchanged(timeout: float | None) -> None:
    """Law 8: one deadline for the call, however often it wakes."""
    table = Table(timeout=timeout)
    step = table.go([table.line(1)])
    for _ in range(3):
        assert isinstance(step, Await)
        assert step.until == (None if timeout is None else START + timeout)
        table.clock.advance(2.0)
        assert isinstance(table.steps.send(True), Look)
        step = table.steps.send(table.line(1))


def test_look_is_bounded_by_the_lease_and_by_the_caller() -> None:
    """A waiter outlives a store's absence for as long as its lease is proven, and no longer than it was told to."""
    patient = Table()
    patient.lease.left = 12.0
    patient.go([patient.line(1)])
    step = patient.steps.send(True)
    assert isinstance(step, Look)
    assert step.until == START + 12.0
    hasty = Table(timeout=3.0)
    hasty.go([hasty.line(1)])
    step = hasty.steps.send(True)
    assert isinstance(step, Look)
    assert step.until == START + 3.0


def test_wait_that_was_not_woken_raises_acquire_timeout_and_leaves() -> None:
    """Law 7: a time-out withdraws the ticket itself, in a grace of its own, and says who stood ahead."""
    table = Table(timeout=4.0)
    table.go([table.line(2)])
    table.clock.advance(4.0)
    step = table.steps.send(False)
    assert step == Leave(table.lease, table.line(2).tickets[-1], START + 4.0 + LEAVE_GRACE)
    with pytest.raises(AcquireTimeout, match=r"'r' did not come in time; at least 2 tickets.*'owner-1'"):
        table.steps.send(True)
    assert table.events == ["entered", "timed_out"]
    assert table.told[-1].seconds == 4.0


def test_store_silent_at_the_callers_deadline_raises_acquire_timeout() -> None:
    """Law 8: whoever gave a deadline gets the deadline's error, caused by the store's silence."""
    table = Table(timeout=4.0)
    table.go([table.line(1), True])
    table.clock.advance(4.0)
    silence = StoreUnavailable("nobody there")
    assert isinstance(table.steps.throw(silence), Leave)
    with pytest.raises(AcquireTimeout) as raised:
        table.steps.send(True)
    assert raised.value.__cause__ is silence


def test_store_silent_before_the_callers_deadline_raises_store_unavailable() -> None:
    """A store that is away is not a turn that did not come."""
    table = Table(timeout=60.0)
    table.go([table.line(1), True])
    assert table.steps.throw(StoreUnavailable("away")) == Abandon(table.lease, table.entry)
    with pytest.raises(StoreUnavailable):
        table.steps.send(None)


# Not waiting.


def test_turn_that_may_not_wait_leaves_and_ends_with_none() -> None:
    """A try that is not admitted at once takes its ticket back and is no error."""
    table = Table(waits=False)
    step = table.go([table.line(1)])
    assert step == Leave(table.lease, table.line(1).tickets[-1], START + LEAVE_GRACE)
    assert ends_with(table.steps, True) is None


def test_turn_that_may_not_wait_and_could_not_leave_abandons_and_ends_with_none() -> None:
    """Law 7: what could not be withdrawn is the reaper's."""
    table = Table(waits=False)
    table.go([table.line(1)])
    assert table.steps.throw(StoreUnavailable("away")) == Abandon(table.lease, table.entry)
    assert ends_with(table.steps, None) is None


@pytest.mark.parametrize("waits", [False, True])
def test_turn_whose_ticket_somebody_else_had_removed_abandons_it(waits: bool) -> None:
    """Law 7: a late `enter` could still bring it back, so somebody has to look out for it."""
    table = Table(timeout=4.0, waits=waits)
    step = table.go([table.line(1), False] if waits else [table.line(1)])
    assert isinstance(step, Leave)
    assert table.steps.send(False) == Abandon(table.lease, table.entry)
    if waits:
        with pytest.raises(AcquireTimeout):
            table.steps.send(None)
    else:
        assert ends_with(table.steps, None) is None


# Every failure at every step.

WAYS: list[Any] = [
    pytest.param(LOCK_RULE, {}, lambda _: [], Enter, id="enter"),
    pytest.param(LOCK_RULE, {}, lambda t: [t.line(1)], Await, id="await"),
    pytest.param(LOCK_RULE, {}, lambda t: [t.line(1), True], Look, id="look"),
    pytest.param(LOCK_RULE, {}, lambda t: [t.line(2), True, t.line(1)], Await, id="second-await"),
    pytest.param(LOCK_RULE, {}, lambda t: [t.line(2), True, t.line(1), True], Look, id="second-look"),
    pytest.param(MANY_SEATS_RULE, {}, lambda t: [t.line(2), True, t.line(1)], Amend, id="amend"),
    pytest.param(LOCK_RULE, {"timeout": 4.0}, lambda t: [t.line(1), False], Leave, id="leave-after-timeout"),
    pytest.param(LOCK_RULE, {"waits": False}, lambda t: [t.line(1)], Leave, id="leave-after-try"),
]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(("rule", "how", "way", "kind"), WAYS)
def test_any_failure_at_any_step_withdraws_the_ticket(
    rule: Rule, how: dict[str, Any], way: Callable[[Table], list[Any]], kind: type, failure: type[BaseException]
) -> None:
    """Law 7: every way out of a turn that is not the ticket ends in Leave or Abandon, and passes the error on."""
    table = Table(rule, **how)
    assert isinstance(table.go(way(table)), kind)
    steps: list[Step] = []
    raised: BaseException | None = None
    returned: object = None
    try:
        step = table.steps.throw(failure("told by the test"))
        while len(steps) < 5:
            steps.append(step)
            step = table.steps.send(True)
    except StopIteration as ended:
        returned = ended.value
    except BaseException as error:  # every kind is what this test is about
        raised = error
    assert steps, "left without withdrawing"
    assert returned is None
    assert raised is not None or kind is Leave  # only a try may end quietly, its ticket with the reaper
    assert all(isinstance(s, (Leave, Abandon)) for s in steps)
    if kind is not Leave:
        assert isinstance(raised, failure)
    elif raised is not None:
        assert isinstance(raised, (failure, AcquireTimeout))
    with pytest.raises(StopIteration):
        next(table.steps)  # over: nothing is left to be driven


@pytest.mark.parametrize(("rule", "how", "way", "kind"), [w for w in WAYS if "leave" not in str(w.id)])
def test_turn_dropped_at_any_step_abandons_its_ticket(
    rule: Rule, how: dict[str, Any], way: Callable[[Table], list[Any]], kind: type
) -> None:
    """Law 7: a generator that nobody drives any more can yield no step, so it tells the reaper itself."""
    table = Table(rule, **how)
    assert isinstance(table.go(way(table)), kind)
    table.steps.close()
    assert table.lease.abandoned == [table.entry]
    assert len(table.lease.signals) == table.lease.closed_signals


@pytest.mark.parametrize("second", [StoreUnavailable, KeyboardInterrupt, asyncio.CancelledError])
def test_second_failure_while_withdrawing_after_a_timeout_abandons(second: type[BaseException]) -> None:
    """Law 7: interrupted even while leaving, the ticket still has an owner."""
    table = Table(timeout=1.0)
    table.go([table.line(1), False])
    assert table.steps.throw(second("again")) == Abandon(table.lease, table.entry)
    with pytest.raises((second, AcquireTimeout)):
        table.steps.send(None)


# The lease under it.


@pytest.mark.parametrize("state", [LeaseState.LOST, LeaseState.CLOSED])
@pytest.mark.parametrize("woken", [True, False])
def test_lease_that_ends_while_waiting_ends_the_wait_at_once(state: LeaseState, woken: bool) -> None:
    """Law 3: the first thing a woken waiter reads is its lease; it asks the store nothing more."""
    table = Table(timeout=9.0)
    table.go([table.line(1)])
    table.lease.state = state
    assert table.steps.send(woken) == Abandon(table.lease, table.entry)
    with pytest.raises(ClientClosed if state is LeaseState.CLOSED else LeaseLost):
        table.steps.send(None)


@pytest.mark.parametrize("state", [LeaseState.LOST, LeaseState.CLOSED])
@pytest.mark.parametrize(("rule", "how", "way", "kind"), [w for w in WAYS if "leave" not in str(w.id)])
def test_lease_that_ended_under_a_request_is_never_followed_by_a_turn(
    rule: Rule, how: dict[str, Any], way: Callable[[Table], list[Any]], kind: type, state: LeaseState
) -> None:
    """Law 3: "acquired" is said only with the deadline ahead, whatever the store answered."""
    table = Table(rule, **how)
    assert isinstance(table.go(way(table)), kind)
    table.lease.state = state
    answer = True if kind in (Await, Amend) else table.line(0)
    assert table.steps.send(answer) == Abandon(table.lease, table.entry)
    with pytest.raises((LeaseLost, ClientClosed)):
        table.steps.send(None)


def test_suspect_lease_is_still_good_for_a_turn() -> None:
    """Suspect is provable still."""
    table = Table()
    table.go([])
    table.lease.state = LeaseState.SUSPECT
    assert ends_with(table.steps, table.line(0)) is not None


@pytest.mark.parametrize("way", [[], ["ahead", True]])
def test_line_without_my_ticket_raises_lease_lost(way: list[Any]) -> None:
    """Law 3: a place that is gone is told as lost, and never taken for a turn."""
    table = Table()
    table.go([table.line(1) if w == "ahead" else w for w in way])
    assert table.steps.send(line_without(table.entry)) == Abandon(table.lease, table.entry)
    with pytest.raises(LeaseLost, match="gone"):
        table.steps.send(None)


def test_lease_lost_on_enter_raises_never_entered() -> None:
    """A lease that had died unnoticed cost no place in a line: a new one may try at once."""
    table = Table()
    table.go([])
    assert isinstance(table.steps.throw(LeaseLost("expired")), Abandon)
    with pytest.raises(NeverEntered, match="expired"):
        table.steps.send(None)


@pytest.mark.parametrize("way", [[1], [1, True]])
def test_lease_lost_after_enter_raises_plain_lease_lost(way: list[Any]) -> None:
    """Once the ticket stood in the line its loss is the caller's to hear."""
    table = Table()
    table.go([table.line(1) if w == 1 and w is not True else w for w in way])
    table.steps.throw(LeaseLost("expired"))
    with pytest.raises(LeaseLost) as raised:
        table.steps.send(None)
    assert not isinstance(raised.value, NeverEntered)


def test_line_of_another_kind_raises_line_mismatch_and_leaves() -> None:
    """Refused by the rule: the ticket goes at once, and the wait is told as abandoned."""
    table = Table(MANY_SEATS_RULE)
    table.go([])
    other = table.line(1).tickets[0]._replace(limit=9)
    step = table.steps.send(Line("r", (other, table.line(0).tickets[-1]), 1))
    assert isinstance(step, Leave)
    with pytest.raises(LineMismatch):
        table.steps.send(True)
    assert table.events == ["entered", "abandoned"]


def test_lock_behind_a_seat_that_is_refused_waits_as_behind_any_ticket() -> None:
    """A rule that sees its predecessor only is asked again with the whole line, whose first one decides."""
    table = Table()
    table.go([])
    stranger = table.line(1).tickets[0]._replace(id="s", mode=Mode.SEAT)
    step = table.steps.send(Line("r", (stranger, table.line(0).tickets[-1]), 1))
    assert isinstance(step, Look)
    assert step.reach is Reach.AHEAD
    step = table.steps.send(Line("r", (table.line(1).tickets[0], stranger, table.line(0).tickets[-1]), 1))
    assert isinstance(step, Await)


def test_never_entered_on_a_dead_lease_is_retried_on_a_new_one(rig: Rig) -> None:
    """A machine that slept through its lease gets its next lock with a new lease, without an error."""
    client = rig.client(ttl=10)
    client.lock("a").acquire().release()
    rig.store.expire(rig.store.leases[0])
    hold = client.lock("a").acquire(timeout=0)
    assert hold.state.value == "held"
    assert len(rig.store.leases) == 1


def test_never_entered_twice_is_passed_on(rig: Rig) -> None:
    """The second try is the last: no loop over dying leases."""
    client = rig.client(ttl=10)
    tries = []

    def refuse(line: str, _entry: Entry, _lease_id: str) -> None:
        tries.append(line)

    rig.store.enter = refuse  # type: ignore[assignment,method-assign]  # every lease is gone on arrival
    with pytest.raises(LeaseLost):
        client.lock("a").acquire()
    assert len(tries) == 2


# perform: each step is its verb.


class NotingLease(FakeLease):
    """Notes which verb was called with what."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def enter(self, entry: Entry, until: float) -> Line:
        self.calls.append(("enter", entry, until))
        return line_without(entry)

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        self.calls.append(("look", ticket, reach, until))
        return Line("r", (), 1)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        self.calls.append(("survey", resource, until, front))
        return Line("r", (), 2)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        self.calls.append(("amend", ticket, value, until))
        return True

    def leave(self, ticket: Ticket, until: float) -> bool:
        self.calls.append(("leave", ticket, until))
        return False

    def renew(self, until: float) -> float:
        self.calls.append(("renew", until))
        return 7.0


def test_perform_carries_each_step_out_by_its_verb_with_its_deadline() -> None:
    """Law 8: a driver passes the deadline of the step on as it is."""
    lease, mine = NotingLease(), entry()
    me = line_with(mine, ahead=0).tickets[0]
    perform(Enter(lease, mine, 1.0))
    perform(Look(lease, me, Reach.AHEAD, 2.0))
    perform(Survey(lease, "r", 3.0, front=1))
    assert perform(Amend(lease, me, "v", 4.0)) is True
    assert perform(Leave(lease, me, 5.0)) is False
    assert perform(Renew(lease, 6.0)) == 7.0
    perform(Abandon(lease, mine))
    assert lease.calls == [
        ("enter", mine, 1.0),
        ("look", me, Reach.AHEAD, 2.0),
        ("survey", "r", 3.0, 1),
        ("amend", me, "v", 4.0),
        ("leave", me, 5.0),
        ("renew", 6.0),
    ]
    assert lease.abandoned == [mine]


def test_perform_refuses_a_wait() -> None:
    """Waiting is the drivers' own, not the store's."""
    with pytest.raises(TypeError):
        perform(Await(Signal(), None))


# The blocking driver.


def scripted(signal: Signal, until: float | None, heard: list[Any]) -> Steps[str]:
    try:
        heard.append((yield Await(signal, until)))
    except StoreUnavailable as error:
        heard.append(error)
    return "done"


@pytest.mark.parametrize("was_set", [True, False])
def test_run_awaits_on_the_given_clock_and_tells_whether_it_was_woken(was_set: bool) -> None:
    """The clock is injected: virtual time ends a wait of the blocking driver."""
    clock, signal, heard = VirtualClock(), Signal(), list[Any]()
    driven = Background(lambda: run(scripted(signal, clock.now() + 5.0, heard), clock))
    if was_set:
        signal.set()
    else:
        clock.advance(5.0)
    assert driven.result() == "done"
    assert heard == [was_set]


def test_run_throws_what_a_step_raised_back_into_the_steps() -> None:
    """Clean-up runs in the generator, where the decisions are."""

    def steps() -> Steps[str]:
        with pytest.raises(NotImplementedError):
            yield Renew(FakeLease(), 1.0)
        return "cleaned up"

    assert run(steps(), VirtualClock()) == "cleaned up"


def test_run_with_a_clock_that_is_interrupted_withdraws() -> None:
    """Law 7: Ctrl-C in the wait reaches the generator, which gives the ticket to the reaper."""

    class Interrupted(VirtualClock):
        def wait(self, signal: Signal, until: float | None) -> bool:
            raise KeyboardInterrupt

    class Blocked(FakeLease):
        def enter(self, entry: Entry, until: float) -> Line:
            return line_with(entry, ahead=1)

    clock, lease = Interrupted(), Blocked()
    steps = take_turn(lease, entry(), LOCK_RULE, Patience(None, 5.0), clock, Hub(clock.now))
    with pytest.raises(KeyboardInterrupt):
        run(steps, clock)
    assert lease.abandoned == [entry()]


# The asyncio driver.


def test_arun_takes_turns_without_a_thread_while_waiting(rig: Rig) -> None:
    """Waiting costs no thread: a hundred waiting tasks run on the few shared workers."""

    async def main() -> None:
        client = rig.aclient()
        first = await client.lock("a").acquire()
        waiting = [asyncio.create_task(client.lock("a").acquire()) for _ in range(100)]
        await asyncio.to_thread(rig.await_event, "entered", 101)
        workers = [t for t in threading.enumerate() if t.name.startswith("tenure-worker")]
        assert len(workers) <= 4
        await first.release()
        for turn in asyncio.as_completed(waiting):  # in the line's order: four workers entered them
            await (await turn).release()
        await client.close()

    asyncio.run(main())
    assert rig.tickets == 0


def busy_workers(client: aio.Client, until: threading.Event) -> None:
    """All of a client's workers wait, as for a silent store."""
    for _ in range(WORKERS_MAX):
        runtime_of(client).workers.submit(lambda: reached(until))


def test_arun_gives_up_by_the_deadline_what_no_worker_has_begun(rig: Rig) -> None:
    """Law 8: others may wait long for a silent store; a call with a short time-out is back by it, and sends nothing."""

    async def main() -> None:
        silence = threading.Event()
        client = rig.aclient()
        await (await client.lock("a").acquire()).release()
        busy_workers(client, silence)
        quick = asyncio.create_task(client.lock("b").acquire(timeout=0.5))
        await asyncio.sleep(0)
        rig.clock.advance(0.4)
        done, _ = await asyncio.wait([quick], timeout=0.05)
        assert not done
        rig.clock.advance(0.2)
        with pytest.raises(StoreUnavailable, match="not sent"):
            await asyncio.wait_for(quick, PATIENCE_SECONDS)
        silence.set()
        await client.close()

    asyncio.run(main())
    assert len(rig.heard("entered")) == 1
    assert rig.tickets == 0


def test_arun_cancelled_before_a_worker_has_begun_is_cancelled(rig: Rig) -> None:
    """A cancellation that comes with the deadline is still the caller's."""

    async def main() -> None:
        silence = threading.Event()
        client = rig.aclient()
        busy_workers(client, silence)
        quick = asyncio.create_task(client.lock("b").acquire(timeout=0.5))
        await asyncio.sleep(0)
        rig.clock.advance(0.6)
        quick.cancel()
        with pytest.raises(asyncio.CancelledError):
            await quick
        silence.set()
        await client.close()

    asyncio.run(main())
    assert rig.tickets == 0


def test_chores_of_a_silent_store_keep_no_call_waiting(rig: Rig) -> None:
    """The reaper's tries wait apart: an asyncio call finds a worker."""

    async def main() -> None:
        silence = threading.Event()
        client = rig.aclient()
        backend = runtime_of(client)._backend
        assert isinstance(backend, MemoryBackend)
        for _ in range(3 * BACKGROUND_THREADS_MAX + WORKERS_MAX):
            backend._context.workers.submit(lambda: reached(silence))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                await (await client.lock("a").acquire()).release()
        finally:
            silence.set()
            await client.close()

    asyncio.run(main())


class QueueLease(FakeLease):
    """A line of its own: `ahead` says how many stand ahead of whoever looks."""

    def __init__(self, ahead: list[int]) -> None:
        super().__init__()
        self.ahead = ahead
        self.standing: set[str] = set()
        self.left_after: list[str] = []

    def enter(self, entry: Entry, until: float) -> Line:
        self.standing.add(entry.id)
        self.mine = entry
        return line_with(entry, ahead=self.ahead.pop(0))

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        return line_with(self.mine, ahead=self.ahead.pop(0))

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        return True

    def leave(self, ticket: Ticket, until: float) -> bool:
        self.standing.discard(ticket.id)
        return True

    def abandon(self, entry: Entry) -> None:
        super().abandon(entry)
        self.standing.discard(entry.id)


async def settle() -> None:
    """Let everything run that is ready to."""
    for _ in range(10):
        await asyncio.sleep(0)


SEATED_AFTER_TWO_WAITS = [3, 2, 1]


async def _advanced(lease: QueueLease, workers: HeldWorkers, task: asyncio.Task[Any], moves: int) -> None:
    """Let the turn make `moves` moves: finish a request, or end a wait."""
    await settle()
    for _ in range(moves):
        if workers.works:
            workers.carry_out()
        elif not task.done():
            lease.signals[-1].set()
        await settle()


def _seat_turn(lease: QueueLease, clock: VirtualClock, workers: HeldWorkers) -> Any:
    mine = entry(Mode.SEAT, limit=2, reach=Reach.AHEAD)
    return arun(take_turn(lease, mine, MANY_SEATS_RULE, Patience(None, 5.0), clock, Hub(clock.now)), clock, workers)


def test_arun_driven_move_by_move_comes_to_its_turn() -> None:
    """The moves the next test cancels at: enter, wait, look, wait, look, amend."""

    async def main() -> None:
        lease, workers = QueueLease([*SEATED_AFTER_TWO_WAITS]), HeldWorkers()
        task = asyncio.create_task(_seat_turn(lease, VirtualClock(), workers))
        await _advanced(lease, workers, task, 6)
        assert task.done()
        assert isinstance(task.result(), Turn)
        assert lease.abandoned == []

    asyncio.run(main())


@pytest.mark.parametrize("moves", range(6))
def test_arun_cancelled_at_any_await_abandons_after_the_request_under_way(moves: int) -> None:
    """Laws 6 and 7: cancelled anywhere, the ticket is withdrawn, and only once the fate of what was sent is known."""

    async def main() -> None:
        lease, workers = QueueLease([*SEATED_AFTER_TWO_WAITS]), HeldWorkers()
        task = asyncio.create_task(_seat_turn(lease, VirtualClock(), workers))
        await _advanced(lease, workers, task, moves)
        task.cancel()
        await settle()
        assert task.cancelled()
        if workers.works:
            assert lease.abandoned == []  # still under way: its fate is not known
            workers.carry_out()
        assert [e.id for e in lease.abandoned] == ["mine"]
        assert lease.standing == set()
        assert len(lease.signals) == lease.closed_signals

    asyncio.run(main())


@pytest.mark.parametrize("moves", range(6))
def test_arun_dropped_at_any_await_abandons(moves: int) -> None:
    """Law 7: a coroutine that is closed, as with its loop, still hands its ticket over."""

    async def main() -> None:
        lease, workers = QueueLease([*SEATED_AFTER_TWO_WAITS]), HeldWorkers()
        coroutine = _seat_turn(lease, VirtualClock(), workers)
        coroutine.send(None)
        for _ in range(moves):
            if workers.works:
                workers.carry_out()
            else:
                lease.signals[-1].set()
            await settle()
            coroutine.send(None)
        coroutine.close()
        assert [e.id for e in lease.abandoned] == ["mine"]
        assert len(lease.signals) == lease.closed_signals
        while workers.works:
            workers.carry_out()

    asyncio.run(main())


def test_arun_cancelled_request_not_yet_begun_abandons_at_once() -> None:
    """What no worker has begun was not sent: nothing has to be waited for."""

    class Waiting(HeldWorkers):
        def submit(self, work: Callable[[], Any]) -> Any:
            return Future[Any]()  # pending for ever

    async def main() -> None:
        lease = QueueLease([0])
        task = asyncio.create_task(_seat_turn(lease, VirtualClock(), Waiting()))
        await settle()
        task.cancel()
        await settle()
        assert [e.id for e in lease.abandoned] == ["mine"]

    asyncio.run(main())


def test_arun_on_closed_workers_raises_client_closed_and_abandons() -> None:
    """A client closed under a waiting task ends the wait with its own error."""

    class Closed(ImmediateWorkers):
        def submit(self, work: Callable[[], Any]) -> Any:
            raise ClientClosed("closed")

    async def main() -> None:
        lease, clock = QueueLease([0]), VirtualClock()
        steps = take_turn(lease, entry(), LOCK_RULE, Patience(None, 5.0), clock, Hub(clock.now))
        with pytest.raises(ClientClosed):
            await arun(steps, clock, Closed())
        assert [e.id for e in lease.abandoned] == ["mine"]

    asyncio.run(main())


@pytest.mark.parametrize("was_set", [True, False])
def test_arun_waits_on_the_given_clock(was_set: bool) -> None:
    """Virtual time ends a wait of the asyncio driver, and its timer is cancelled with the wait."""

    async def main() -> None:
        clock, signal, heard = VirtualClock(), Signal(), list[Any]()
        task = asyncio.create_task(arun(scripted(signal, clock.now() + 5.0, heard), clock, ImmediateWorkers()))
        await settle()
        if was_set:
            signal.set()
        else:
            clock.advance(4.9)
            await settle()
            assert not task.done()
            clock.advance(0.1)
        assert await task == "done"
        assert heard == [was_set]

    asyncio.run(main())


@pytest.mark.parametrize("error", [StoreUnavailable("x"), LeaseLost("y")])
def test_both_drivers_pass_an_error_of_the_store_on(error: TenureError) -> None:
    """Neither driver decides: what the generator lets out, comes out."""

    class Failing(FakeLease):
        def renew(self, until: float) -> float:
            raise error

    def steps() -> Steps[None]:
        yield Renew(Failing(), 1.0)

    with pytest.raises(type(error)):
        run(steps(), VirtualClock())
    with pytest.raises(type(error)):
        asyncio.run(arun(steps(), VirtualClock(), ImmediateWorkers()))


# Through a whole client, with faults: nothing stays in the store.


@pytest.mark.parametrize("operation", ["grant", "enter", "look", "leave"])
@pytest.mark.parametrize("what", ["request", "answer"])
def test_wait_with_one_lost_message_of_any_kind_is_none_the_worse(rig: Rig, operation: str, what: str) -> None:
    """Law 6: each retry finds what the first try did; one ticket, one hold, nothing left behind."""
    client = rig.client()
    faults = rig.faults(client)
    lose = faults.lose_request if what == "request" else faults.lose_answer
    if operation == "grant":
        lose("grant")
    first = Background(lambda: client.lock("a").acquire())
    _until_ended(first, rig)
    hold = first.result()
    lose(operation)
    second = Background(lambda: client.lock("a").acquire())
    _release(hold, rig)
    _until_ended(second, rig)
    _release(second.result(), rig)
    assert rig.tickets == 0
    assert second.result().token > hold.token


def _release(hold: Any, rig: Rig) -> None:
    released = Background(hold.release)
    _until_ended(released, rig)
    assert released.result() is True


def _until_ended(call: Background, rig: Rig) -> None:
    """Virtual time for the pauses between retries: a little at a time, until the call has ended."""
    for _ in range(2000):
        if call.ended:
            return
        rig.clock.advance(0.005)
        call.joined(0.002)


def test_background_wait_reached_by_event_is_released_by_the_holder(rig: Rig) -> None:
    """Law 13: two threads of one client exclude each other, in the order they came."""
    client = rig.client()
    order: list[int] = []
    done = threading.Event()

    def second() -> None:
        with client.lock("a") as hold:
            order.append(hold.token)
        done.set()

    hold = client.lock("a").acquire()
    other = Background(second)
    rig.await_event("entered", 2)
    order.append(hold.token)
    hold.release()
    reached(done)
    other.result()
    assert order == sorted(order)
    assert len(order) == 2


def test_blockers_are_true_exactly_when_somebody_is_named() -> None:
    """The loop's condition: an empty naming is a turn."""
    assert not Blockers()
    assert Blockers((line_with(entry(), ahead=0).tickets[0],))


def tickets_kept(resource: str) -> int:
    """How many tickets stand in all that anybody keeps of this line."""
    gc.collect()
    kept = (found for found in gc.get_objects() if isinstance(found, Line) and found.resource == resource)
    return sum(len(line.tickets) for line in kept)


def entered(client: Any) -> int:
    """How many tickets a client has put into lines so far."""
    count: int = client.statistics()["events"].get("entered", 0)
    return count


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_asyncio_waiters_do_not_keep_the_line_as_they_saw_it(kind: str) -> None:
    """Each keeps its own ticket and those that it waits for, or memory would grow with the square of the waiters."""
    crowd = 60

    async def main() -> None:
        async with aio.connect(f"memory://crowd-{kind}") as client:
            line = client.lock("a") if kind == "lock" else client.semaphore("a", limit=1)
            hold = await line.acquire()
            waiting = [asyncio.create_task(line.acquire()) for _ in range(crowd)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                while entered(client) <= crowd or tickets_kept("a") >= 6 * crowd:
                    await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await hold.release()

    asyncio.run(main())


def test_blocking_waiters_do_not_keep_the_line_as_they_saw_it() -> None:
    """The same for threads."""
    crowd = 30
    with tenure.connect("memory://crowd-threads") as client:
        hold = client.semaphore("b", limit=1).acquire()
        waiting = [Background(lambda: client.semaphore("b", limit=1).acquire().release()) for _ in range(crowd)]
        assert eventually(lambda: entered(client) > crowd and tickets_kept("b") < 6 * crowd)
        hold.release()
        for thread in waiting:
            thread.result()


@pytest.mark.parametrize(
    ("how", "answers"), [({"timeout": 1.0}, [False]), ({"waits": False}, [])], ids=["after-timeout", "after-try"]
)
def test_turn_dropped_while_it_leaves_abandons_its_ticket(how: dict[str, Any], answers: list[Any]) -> None:
    """Law 7: dropped in the middle of withdrawing, the ticket still has an owner."""
    table = Table(**how)
    assert isinstance(table.go([table.line(1), *answers]), Leave)
    table.steps.close()
    assert {abandoned.id for abandoned in table.lease.abandoned} == {table.entry.id}  # owning is idempotent


def test_turn_past_its_deadline_whose_watch_always_wakes_raises_acquire_timeout() -> None:
    """Law 8: the deadline holds even where every wait ends by waking."""
    table = Table(timeout=1.0)
    step = table.go([table.line(1)])
    table.clock.advance(5.0)
    with pytest.raises(AcquireTimeout):
        for _ in range(50):
            step = table.steps.send(True if isinstance(step, (Await, Leave)) else table.line(1))


@pytest.mark.parametrize(("told", "withdrawal"), [("timed_out", Leave), ("abandoned", Abandon)])
def test_turn_interrupted_in_a_subscriber_at_its_end_has_withdrawn_before(told: str, withdrawal: type) -> None:
    """Law 7: Ctrl-C while the end of a wait is told or logged costs no orphan, because the ticket went first."""

    def interrupt(event: Event) -> None:
        if event.event == told:
            raise Interrupted

    clock, lease, mine = VirtualClock(START), FakeLease(), entry()
    hub = Hub(clock.now)
    hub.subscribe(interrupt)
    steps = take_turn(lease, mine, LOCK_RULE, Patience(START + 1.0, 5.0), clock, hub)
    next(steps)
    steps.send(line_with(mine, ahead=1))
    step = steps.send(False) if told == "timed_out" else steps.throw(StoreRefused("no"))
    assert isinstance(step, withdrawal)
    with pytest.raises(Interrupted):
        steps.send(True)
