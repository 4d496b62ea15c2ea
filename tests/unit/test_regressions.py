"""What once went wrong and was fixed, and the helper threads that were written because of it."""

# what once went wrong inside has no public name: tests reach for it
from __future__ import annotations

import ast
import asyncio
import itertools
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import holdfast
from holdfast import HoldState, aio
from holdfast.belief import Belief
from holdfast.clock import SystemClock, VirtualClock
from holdfast.drivers import perform, run
from holdfast.errors import (
    AcquireTimeout,
    ClientClosed,
    InvalidName,
    InvalidOption,
    InvalidURL,
    LeaseLost,
    StoreRefused,
)
from holdfast.events import Event, Hub
from holdfast.helpers import Helpers
from holdfast.house import House
from holdfast.lease import Entry, Lease, LeaseState
from holdfast.limits import WORKERS_MAX
from holdfast.names import encode
from holdfast.options import parse
from holdfast.recipes.lock import LOCK_RULE
from holdfast.signals import Signal
from holdfast.turn import Abandon, Await, Leave, Patience, Turn, take_turn
from tests.unit.fakes import FakeLease, entry, line_with
from tests.unit.test_events import vocabulary
from tests.unit.test_fork import in_child
from tests.unit.test_options import everything_said
from tests.unit.test_reaper import Bench
from tests.unit.test_turn import START, Table
from tests.unit.world import PATIENCE_SECONDS, Background, World, reached

TTL = 12.0
FOREVER = 3600.0
SECRET = "s3cret"
HANG_SECONDS = 30.0
"""A main thread that hangs can't be called off from another one; pytest-timeout's signal can."""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
forks_among_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Interrupted(BaseException):
    """Stands for Ctrl-C: a KeyboardInterrupt that got out of a failing test would end the run."""


# The turn.


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


# Making a hold.


def test_hold_interrupted_while_it_is_made_leaves_no_ticket(world: World) -> None:
    """Law 7: between the turn and the hold nobody else would ever release it."""
    client = world.client()
    house = client._house

    def make(_turn: Turn, _entry: Entry, _lease: Lease, _house: House) -> holdfast.Hold:
        raise Interrupted

    with pytest.raises(Interrupted):
        run(house.holding(client.lock("a")._ask, house.patience(None), make), world.clock)
    world.await_event("reaped")
    assert world.tickets == 0
    (told,) = world.heard("abandoned")  # or whoever counts who waits would count it for ever
    assert (told.ticket, told.reason) == (world.heard("entered")[0].ticket, "Interrupted")


def test_client_closed_while_a_hold_is_being_made_releases_the_others_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: a half-made hold hears of the lease's end like any other, and keeps nobody else from hearing."""
    client = world.client(ttl=TTL)
    other = client.lock("other").acquire()
    schedule = world.clock.schedule

    def close_first(due: float, call: Callable[[], None]) -> Any:
        monkeypatch.undo()
        client.close()  # stands for another thread's close, at the first thing a hold's making does with its clock
        return schedule(due, call)

    def make(turn: Turn, entry: Entry, lease: Lease, house: House) -> holdfast.Hold:
        monkeypatch.setattr(world.clock, "schedule", close_first)
        return holdfast.Hold(turn, entry, lease, house)

    house = client._house
    hold = run(house.holding(client.lock("a")._ask, house.patience(None), make), world.clock)
    assert hold is not None
    assert (hold.state, other.state) == (HoldState.RELEASED, HoldState.RELEASED)
    assert sorted(e.resource or "" for e in world.heard("released")) == ["a", "other"]
    assert world.tickets == 0


# Waiting for the loss.


def test_lost_wait_in_a_thread_ends_by_the_clients_clock(world: World) -> None:
    """The clock is injected: virtual time ends `hold.lost.wait(timeout)` as it ends every other wait."""
    hold = world.client(ttl=TTL).lock("a").acquire()
    waiting = Background(lambda: hold.lost.wait(FOREVER))
    for _ in range(200):
        if waiting.joined(0.002):
            break
        world.clock.advance(FOREVER)
    ended = waiting.ended
    world.store.expire(hold.lease_id)
    world.clock.advance(TTL)  # lost: ends a wait that virtual time did not
    assert ended
    assert waiting.result() is False


def test_lost_wait_in_a_task_again_and_again_leaves_nothing_behind(world: World) -> None:
    """Law 12, in a process: a loop that asks `await hold.lost.wait(...)` for days grows nothing."""

    async def main() -> None:
        client = world.aclient()
        hold = await client.lock("a").acquire()
        before = len(hold._at_end._callbacks)
        for _ in range(50):
            waiting = asyncio.create_task(hold.lost.wait(0.001))
            await asyncio.sleep(0)
            world.clock.advance(0.001)
            assert await waiting is False
        assert len(hold._at_end._callbacks) == before
        await client.close()

    asyncio.run(main())


# Releasing.


def test_release_interrupted_before_its_request_leaves_the_ticket_to_the_reaper(world: World) -> None:
    """Law 7: Ctrl-C between the end of belief and the request drops no ticket, though no later release removes it."""
    client = world.client()
    hold = client.lock("a").acquire()

    def interrupt(event: Event) -> None:
        if event.event == "released":
            raise Interrupted

    stop = client.subscribe(interrupt)
    with pytest.raises(Interrupted):
        hold.release()
    stop()
    assert hold.release() is False
    world.await_event("reaped")
    assert world.tickets == 0


def test_with_block_left_on_another_thread_releases(world: World) -> None:
    """A block may be left by another thread than entered it, as an exit stack handed over does."""
    lock = world.client().lock("a")
    hold = lock.__enter__()
    Background(lambda: lock.__exit__(None, None, None)).result()
    assert hold.state is HoldState.RELEASED
    assert world.tickets == 0


def test_async_with_block_left_in_another_task_releases(world: World) -> None:
    """A fixture's set-up and tear-down run in two tasks; the block is left all the same."""

    async def main() -> None:
        client = world.aclient()
        lock = client.lock("a")
        hold: aio.Hold = await asyncio.create_task(lock.__aenter__())
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert hold.state is HoldState.RELEASED
        assert world.tickets == 0
        await client.close()

    asyncio.run(main())


# Closing.


def test_close_while_a_callback_blocks_is_bounded(world: World) -> None:
    """Law 16: a user's callback that never comes back does not hold up the end of the program."""
    client = world.client(timeout=0.1)
    hold = client.lock("a").acquire()
    running, gate = threading.Event(), threading.Event()

    def block(_: HoldState) -> None:
        running.set()
        gate.wait()

    hold.on_change(block)
    hold.release()
    reached(running)
    try:
        Background(client.close).result()
    finally:
        gate.set()


def test_close_during_the_grant_leaves_no_lease(world: World) -> None:
    """Law 16: a lease that is granted while its client is being closed is given back, not left to run out."""
    client = world.client()
    grant = world.store.grant
    closings: list[Background] = []

    def close_meanwhile(ttl: float) -> str:
        lease_id = grant(ttl)
        closed = threading.Event()
        lease: Lease = next(iter(client._house._leases.values()))
        lease.on_end(lambda _state, _reason: closed.set())
        closings.append(Background(client.close))
        reached(closed)
        assert not closings[0].joined(0.1)  # it waits for this grant, whose lease it has to give back
        return lease_id

    world.store.grant = close_meanwhile  # type: ignore[method-assign]  # to close while the request is under way
    with pytest.raises((ClientClosed, LeaseLost)):
        client.lock("a").acquire()
    closings[0].result()
    assert world.store.leases == ()
    assert world.tickets == 0


def test_lease_that_takes_all_its_time_to_close_leaves_some_to_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: one server is silent; what is held at another is given up all the same."""
    client = world.client(timeout=6.0)
    holds = [client.lock(name, ttl=ttl).acquire() for name, ttl in (("a", 10.0), ("b", 20.0), ("c", 30.0))]
    given: list[float] = []
    for hold in holds:
        lease = hold._lease

        def close(until: float, end: Callable[[float], None] = lease.close) -> None:
            given.append(until - world.clock.now())
            world.clock.advance(given[-1])
            end(until)

        monkeypatch.setattr(lease, "close", close)
    client.close()
    assert given == [pytest.approx(2.0)] * 3


def test_close_in_a_signal_handler_within_close_returns_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 16: a second SIGTERM does not wait for the very call that it interrupts."""
    client = world.client()
    hold = client.lock("a").acquire()
    lease: Lease = next(iter(client._house._leases.values()))
    close = lease.close
    took: list[float] = []

    def interrupted(until: float) -> None:
        started = time.monotonic()
        client.close()
        took.append(time.monotonic() - started)
        close(until)

    monkeypatch.setattr(lease, "close", interrupted)
    client.close()
    assert took[0] < client._house.request_seconds / 2
    assert hold.state is HoldState.RELEASED


# Forked children.


@needs_fork
@forks_among_threads
def test_child_that_drops_the_parents_waiting_turn_asks_the_store_nothing(world: World) -> None:
    """Law 14: what the collector does to the parent's tasks in a child leaves the parent's ticket where it stands."""
    client = world.client()
    house = client._house
    hold = client.lock("a").acquire()
    lease: Any = hold._lease
    steps = house.holding(client.lock("a")._ask, house.patience(None), holdfast.Hold)
    assert isinstance(steps.send(perform(next(steps))), Await)

    def check() -> None:
        steps.close()
        assert lease.reaping == 0
        assert world.store.requests["leave"] == 0

    in_child(check)
    assert world.tickets == 2
    steps.close()
    world.await_event("reaped")
    assert world.tickets == 1


@needs_fork
@forks_among_threads
def test_statistics_in_a_child_forked_while_the_client_was_busy_raise_forked_client(world: World) -> None:
    """Law 14: the child refuses before it takes a lock that no thread will ever give back."""
    client = world.client()
    taken, forked = threading.Event(), threading.Event()

    def be_busy() -> None:
        with client._house._guard:
            taken.set()
            reached(forked)

    def check() -> None:
        with pytest.raises(holdfast.ForkedClient):
            client.statistics()

    busy = Background(be_busy)
    reached(taken)
    try:
        in_child(check)
    finally:
        forked.set()
        busy.result()


# Belief, reaper, clock.


def test_listener_that_raises_keeps_the_end_from_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """Law 15: one listener's failure is logged; the others hear, and whoever waits is woken."""
    belief, signal_of_wait = Belief(VirtualClock(), TTL), Signal()
    heard: list[LeaseState] = []

    def fail(_state: LeaseState, _reason: str) -> None:
        raise ValueError("told by the test")

    belief.on_change(fail)
    belief.on_change(lambda state, _reason: heard.append(state))
    belief.add_wait(signal_of_wait)
    with caplog.at_level(logging.ERROR, "holdfast"):
        belief.end(LeaseState.LOST, "gone")
    assert heard == [LeaseState.LOST]
    assert signal_of_wait.is_set()
    assert "told by the test" in caplog.text


def test_wait_closed_by_the_callback_of_another_wait_breaks_nothing() -> None:
    """Law 3: a waiter that is woken may end its neighbours' waits; each of them is woken all the same."""
    belief = Belief(VirtualClock(), TTL)
    signals = [Signal() for _ in range(3)]

    def drop_all() -> None:
        for each in signals:
            belief.drop_wait(each)

    for each in signals:
        belief.add_wait(each)
        each.add_callback(drop_all)
    belief.end(LeaseState.LOST, "gone")
    assert all(each.is_set() for each in signals)


class BrokenOnce(Bench):
    """Its first try fails with what is no error of the tree."""

    broken = True

    def withdraw(self, asked: Entry, until: float) -> bool:
        if self.broken:
            self.broken = False
            raise RuntimeError("can't start new thread")
        return super().withdraw(asked, until)


def test_reaper_that_meets_an_error_outside_the_tree_tries_again() -> None:
    """Law 7: even a machine out of threads, or a bug of ours, ends with no orphan."""
    bench = BrokenOnce(True)
    bench.reaper.own(bench.entry)
    bench.clock.advance(60.0)
    assert bench.events == ["reap_failed", "reaped"]
    assert bench.reaper.owned == 0


def test_cancelled_timers_behind_a_live_one_do_not_pile_up() -> None:
    """Ten thousand short holds behind one long wait leave no ten thousand timers behind."""
    clock, swept = SystemClock(), threading.Event()
    live = clock.schedule(clock.now() + FOREVER / 2, lambda: None)
    for _ in range(10_000):
        clock.schedule(clock.now() + FOREVER, lambda: None).cancel()
    clock.schedule(clock.now(), swept.set)
    reached(swept)
    left = len(clock._timers)
    live.cancel()
    clock.schedule(clock.now(), lambda: None)  # wakes the clock's thread, which finds only cancelled ones and ends
    assert left < 5_000


# Names and numbers.


def test_memory_names_that_differ_only_in_their_namespaces_end_are_two_lines(world: World) -> None:
    """One name is one line: a slash in a name does not reach into another namespace."""
    inner, outer = world.client(namespace="x/a"), world.client(namespace="x")
    with inner.lock("b") as one, outer.lock("a/b").acquire(timeout=0) as other:
        assert one.token != other.token
        assert len(world.store.lines) == 2


@pytest.mark.parametrize("bad", [["a"], {"a": 1}, {"a"}, bytearray(b"a")])
def test_name_that_can_not_even_be_hashed_raises_invalid_name(world: World, bad: Any) -> None:
    """A list where a name belongs is told like a number there."""
    with pytest.raises(InvalidName, match="is a str"):
        encode(bad)
    with pytest.raises(InvalidName, match="is a str"):
        world.client().lock(bad)


@pytest.mark.parametrize("option", ["ttl", "timeout", "tick"])
@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_number_beyond_all_floats_raises_invalid_option_that_stays_short(option: str, value: int) -> None:
    """An absurd integer is nonsense like infinity, and its four hundred digits are not put into a log."""
    with pytest.raises(InvalidOption, match=option) as raised:
        parse("memory://", {option: value})
    assert len(str(raised.value)) < 200


# URLs.


@pytest.mark.parametrize(
    "password", ["p\u2100ss", "s3[cr]et", "s3[cret", "s3]cret", "s3:cret", "s3@cret", "s3,cret", "\uff0fs3cret"]
)
def test_unusual_character_in_a_password_is_part_of_it_and_not_shown(password: str) -> None:
    """What urllib would stumble over, and then show, is a character like any other."""
    found = parse(f"etcd://u:{password}@h/ns", {})
    assert (found.user, found.password, found.namespace) == ("u", password, "ns")
    assert found.endpoints == (("h", 2379),)
    for shown in (repr(found), str(found), found.display):
        assert password not in shown


@pytest.mark.parametrize(
    "url",
    [
        f"etcd://u:{SECRET}/x@h",
        f"etcd://u:12/{SECRET}@h",
        f"etcd://u:{SECRET}?x@h",
        f"etcd://u:12?{SECRET}@h",
        f"etcd://u:12?ttl={SECRET}@h",
        f"etcd://u:x/@{SECRET}@h",
        f"etcd://u@h/{SECRET}@i",
        f"memory://u:12/{SECRET}@h",
        f"etcd://u:{SECRET}@[::1/x",
        f"etcd://u:{SECRET}@[h]/x",
        f"etcd://u:{SECRET}@h]/x",
    ],
)
def test_url_with_a_raw_delimiter_in_its_password_or_hosts_is_refused_without_showing_it(url: str) -> None:
    """A password cut in two by '/' or '?' becomes neither a namespace nor an option nor part of a message."""
    with pytest.raises(InvalidURL) as raised:
        parse(url, {})
    assert SECRET not in everything_said(raised.value)


# The vocabulary of events.


def test_amend_tells_amended(world: World) -> None:
    """A leader that moves its address is an event, with the token of who did."""
    with world.client().election("e", value="old").campaign() as hold:
        hold.amend("new")
        assert [e.token for e in world.heard("amended")] == [hold.token]


def test_lost_lease_tells_lease_lost_once_and_lost_per_hold(world: World) -> None:
    """A lease is lost once, however many holds go with it."""
    client = world.client(ttl=TTL)
    holds = [client.lock(name).acquire() for name in ("a", "b")]
    world.store.expire(holds[0].lease_id)
    world.clock.advance(TTL / 3)
    world.await_event("lost", 2)  # a hold that watches its own ticket may have found out first, on a worker
    assert [e.lease_id for e in world.heard("lease_lost")] == [holds[0].lease_id]
    assert sorted(e.token or 0 for e in world.heard("lost")) == [hold.token for hold in holds]


def texts(path: Path) -> set[str]:
    """All texts in a module's code, whole."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_word_of_the_vocabulary_is_told_somewhere() -> None:
    """A dashboard that waits for a documented event does not wait for ever."""
    source = Path(holdfast.__file__).parent
    told: set[str] = set()
    for path in source.rglob("*.py"):
        if path != source / "events.py":
            told |= texts(path)
    assert vocabulary() - told == set()


# Helper threads.


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """One helper thread; what it was given is finished when the test is over."""
    made = Helpers("test-helper", 1)
    yield made
    made.close(PATIENCE_SECONDS)


def helper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("test-helper")]


def test_helpers_start_no_thread_before_there_is_work() -> None:
    """A client that never needs a helper costs no thread."""
    idle = Helpers("test-helper", WORKERS_MAX)
    assert helper_threads() == []
    idle.close(PATIENCE_SECONDS)


def test_helpers_with_more_work_than_threads_stay_within_their_bound() -> None:
    """Law 10: threads don't grow with the work; all of them work at one time, and all work is done."""
    helpers = Helpers("test-helper", 3)
    busy, gate = threading.Barrier(4), threading.Event()

    def work(number: int) -> int:
        if number < 3:
            busy.wait(PATIENCE_SECONDS)
        reached(gate)
        return number

    futures = [helpers.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]  # binds now
    busy.wait(PATIENCE_SECONDS)
    threads = helper_threads()
    gate.set()
    assert [future.result(PATIENCE_SECONDS) for future in futures] == list(range(20))
    assert len(threads) == 3
    assert all(thread.daemon for thread in threads)
    assert len(helper_threads()) == 3
    helpers.close(PATIENCE_SECONDS)
    assert helper_threads() == []


def test_one_helper_carries_out_in_the_order_submitted(helpers: Helpers) -> None:
    """Callbacks are told in order because one thread tells them."""
    done: list[int] = []
    futures = [helpers.submit(lambda number=number: done.append(number)) for number in range(200)]  # type: ignore[misc]  # binds now
    for future in futures:
        future.result(PATIENCE_SECONDS)
    assert done == list(range(200))


@pytest.mark.parametrize("error", [ValueError("x"), LeaseLost("y"), SystemExit(3), Interrupted()])
def test_error_of_work_is_carried_over_and_the_helper_goes_on(helpers: Helpers, error: BaseException) -> None:
    """Whoever waits gets the very error; no error ends the thread."""

    def fail() -> None:
        raise error

    failed = helpers.submit(fail)
    assert failed.exception(PATIENCE_SECONDS) is error
    assert helpers.submit(lambda: "next").result(PATIENCE_SECONDS) == "next"


def test_submit_after_close_raises_client_closed(helpers: Helpers) -> None:
    """What comes too late is refused, not dropped; closing again is harmless."""
    ran: list[int] = []
    helpers.submit(lambda: None).result(PATIENCE_SECONDS)
    helpers.close(PATIENCE_SECONDS)
    helpers.close(PATIENCE_SECONDS)
    with pytest.raises(ClientClosed):
        helpers.submit(lambda: ran.append(1))
    assert ran == []


def test_close_finishes_what_was_taken_and_waits_for_it(helpers: Helpers) -> None:
    """Law 16: work that was accepted is carried out, and its threads have ended when close returns."""
    gate = threading.Event()
    done: list[int] = []
    helpers.submit(lambda: reached(gate))
    for number in range(20):
        helpers.submit(lambda number=number: done.append(number))  # type: ignore[misc]  # binds now
    closing = Background(lambda: helpers.close(PATIENCE_SECONDS))
    assert not closing.joined(0.05)
    gate.set()
    closing.result()
    assert done == list(range(20))
    assert helper_threads() == []


def test_close_waits_for_all_blocked_threads_together_as_long_as_told() -> None:
    """One bound for the call, however many threads do not come back."""
    helpers, gate = Helpers("test-helper", 8), threading.Event()
    futures = [helpers.submit(lambda: reached(gate)) for _ in range(8)]
    started = time.monotonic()
    closing = Background(lambda: helpers.close(0.5))
    try:
        closing.result()
        took = time.monotonic() - started
    finally:
        gate.set()
    for future in futures:
        future.result(PATIENCE_SECONDS)
    assert 0.4 < took < 2.0


def test_close_by_a_helper_itself_does_not_wait_for_itself(helpers: Helpers) -> None:
    """A callback may close its client."""
    assert helpers.submit(lambda: helpers.close(PATIENCE_SECONDS)).result(PATIENCE_SECONDS / 2) is None


def test_cancelled_work_is_skipped(helpers: Helpers) -> None:
    """A task cancelled before its request was begun sends none."""
    gate = threading.Event()
    ran: list[str] = []
    helpers.submit(lambda: reached(gate))
    cancelled = helpers.submit(lambda: ran.append("cancelled"))
    last = helpers.submit(lambda: ran.append("last"))
    assert cancelled.cancel()
    gate.set()
    last.result(PATIENCE_SECONDS)
    assert ran == ["last"]


class Thing:
    """Something a work refers to."""


def test_idle_helper_keeps_nothing_of_its_last_work_alive(helpers: Helpers) -> None:
    """A client or hold that a work referred to can be collected while the thread waits for more."""
    thing, gone = Thing(), threading.Event()
    weakref.finalize(thing, gone.set)
    helpers.submit(lambda thing=thing: None).result(PATIENCE_SECONDS)  # type: ignore[misc]  # binds now
    del thing
    reached(gone)


# Signal handlers within the helpers.


def interrupted_at_line(number: int, code: CodeType, handle: Callable[[], object], call: Callable[[], object]) -> bool:
    """Make `call`, with `handle` before the `number`th line it runs of `code`, where a signal handler may run.

    False when it did not run that many.
    """
    lines = itertools.count()
    handled: list[int] = []

    def at_line(_frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and next(lines) == number:
            handled.append(number)
            handle()  # not traced itself: nothing is, within a trace function
        return at_line

    def at_call(frame: FrameType, _event: str, _: object) -> Any:
        return at_line if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return bool(handled)


@pytest.mark.timeout(HANG_SECONDS, method="signal")
@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("most", [1, 4])
def test_submit_in_a_signal_handler_before_any_line_of_submit_does_not_hang(most: int, is_warm: bool) -> None:
    """Law 16: the main thread's own lock is never in its signal handler's way, and no work of either is dropped."""
    for number in itertools.count():
        helpers, futures = Helpers("test-helper", most), list[Future[str]]()
        if is_warm:
            helpers.submit(lambda: None).result(PATIENCE_SECONDS)
        submit = Helpers.submit.__code__
        interrupted = interrupted_at_line(
            number,
            submit,
            lambda helpers=helpers, futures=futures: futures.append(helpers.submit(lambda: "handler")),  # type: ignore[misc]  # binds now
            lambda helpers=helpers, futures=futures: futures.append(helpers.submit(lambda: "main")),  # type: ignore[misc]  # binds now
        )
        told = [future.result(PATIENCE_SECONDS) for future in futures]
        helpers.close(PATIENCE_SECONDS)
        if not interrupted:
            break
        assert told == ["handler", "main"]
    assert number > 5


@pytest.mark.timeout(HANG_SECONDS, method="signal")
def test_hold_with_a_callback_released_by_a_signal_handler_inside_submit_does_not_hang(world: World) -> None:
    """Law 16: SIGTERM's handler may release what somebody listens to, while the main thread hands work over."""
    client = world.client()
    heard: list[HoldState] = []
    holds = [client.lock(str(number)).acquire() for number in range(100)]
    for hold in holds:
        hold.on_change(heard.append)
    held, inside = list(holds), list[int]()

    def handle(_signal: int, _frame: object) -> None:
        if inside or not held:
            return  # one handler at a time, as a program that blocks the signal in its handler has it
        inside.append(1)
        held.pop().release()
        inside.pop()

    give_up = time.monotonic() + PATIENCE_SECONDS
    before = signal.signal(signal.SIGVTALRM, handle)  # not SIGALRM, which bounds the tests themselves
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
        while held and time.monotonic() < give_up:
            for _ in range(100):
                last = client._house._callbacks.submit(lambda: None)
            last.result(PATIENCE_SECONDS)  # a bound on the queue
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    client.close()
    assert heard == [HoldState.RELEASED] * len(holds)
    assert world.tickets == 0
