"""Law 2, to the digit: what is proven, until when, and who hears of the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from tenure._core.base.clock import SYSTEM_CLOCK, Timer, VirtualClock
from tenure._core.base.signals import Signal
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.lease import LeaseState

TTL = 12.0

HELD, SUSPECT, LOST, CLOSED = LeaseState.HELD, LeaseState.SUSPECT, LeaseState.LOST, LeaseState.CLOSED
START = 1000.0


class Stopped:
    """A clock whose timers never run: what a stopped or starved process has."""

    def __init__(self) -> None:
        self.reading = START
        self.scheduled: list[Timer] = []

    def now(self) -> float:
        return self.reading

    def wait(self, signal: Signal, until: float | None) -> bool:
        raise NotImplementedError

    def schedule(self, due: float, run: Callable[[], None]) -> Timer:
        self.scheduled.append(Timer(due, run))
        return self.scheduled[-1]


def proven(clock: VirtualClock, lifetime: float = 10.0) -> tuple[Belief, list[tuple[LeaseState, float]]]:
    belief, told = Belief(clock, lifetime), list[tuple[LeaseState, float]]()
    belief.on_change(lambda state, _: told.append((state, clock.now())))
    belief.prove(clock.now(), lifetime)
    return belief, told


@pytest.mark.parametrize(
    ("ttl", "expected"), [(15.0, 14.84), (1.0, 0.98), (10.0, 9.89), (0.05, 0.04), (0.05263, 0.042104)]
)
def test_provable_takes_a_margin_off_the_granted_ttl(ttl: float, expected: float) -> None:
    """Law 2: the margin off the granted TTL is 1 % and 10 ms, and a fifth at most."""
    assert provable(ttl) == pytest.approx(expected, abs=1e-6)
    assert 0.0 < provable(ttl) < ttl


def test_deadline_is_counted_from_before_the_request_was_sent() -> None:
    """Law 2: how long the answer took is time that the lease has already lived."""
    clock = VirtualClock(START)
    belief = Belief(clock, 10.0)
    sent = clock.now()
    clock.advance(4.0)
    assert belief.prove(sent, 9.0)
    assert belief.deadline == START + 9.0
    assert belief.remaining() == 5.0


def test_belief_before_any_proof_is_held_and_proves_nothing() -> None:
    """Nothing was asked of the store yet: nothing can have been lost, and nothing is proven."""
    belief = Belief(VirtualClock(START), 10.0)
    assert (belief.state, belief.remaining(), belief.proven, belief.deadline) == (HELD, 0.0, False, None)


def test_state_follows_the_clock_alone() -> None:
    """Law 2: expiry needs no network, no thread and no callback; the first look after any pause is right."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    belief.prove(START, 10.0)
    seen = []
    for reading in (0.0, 4.9, 5.1, 9.9, 10.0, 3600.0):
        clock.reading = START + reading
        seen.append((belief.state, round(belief.remaining(), 6)))
    assert seen == [(HELD, 10.0), (HELD, 5.1), (SUSPECT, 4.9), (SUSPECT, 0.1), (LOST, 0.0), (LOST, 0.0)]


def test_belief_of_a_process_stopped_for_an_hour_is_lost_at_the_first_reading() -> None:
    """Law 2: a SIGSTOP or a suspend is found out by whoever looks first, with a reason."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    belief.prove(START, 10.0)
    assert belief.reason == ""
    clock.reading += 3600.0
    assert belief.state is LOST
    assert "no renewal was answered" in belief.reason


def test_late_proof_is_refused_and_the_loss_stays() -> None:
    """Once lost it stays lost, even if the store says that the lease survived: somebody may have been told."""
    clock = VirtualClock(START)
    belief, told = proven(clock)
    clock.advance(10.0)
    assert belief.prove(clock.now(), 10.0) is False
    assert (belief.state, belief.remaining()) == (LOST, 0.0)
    clock.advance(-0.0)
    assert belief.prove(START + 9.0, 10.0) is False
    assert [s for s, _ in told] == [SUSPECT, LOST]


def test_late_proof_with_no_timer_having_run_is_refused_and_announces_the_loss() -> None:
    """The answer that comes too late is what tells: nobody else may have looked."""
    clock = Stopped()
    belief, told = Belief(clock, 10.0), list[LeaseState]()
    belief.on_change(lambda state, _: told.append(state))
    belief.prove(START, 10.0)
    clock.reading += 10.0
    assert belief.prove(START + 9.999, 10.0) is False
    assert told == [LOST]
    clock.reading = START + 1.0  # even a clock that went back brings nothing back
    assert belief.state is LOST


def test_proof_whose_own_lifetime_is_over_on_arrival_is_refused() -> None:
    """Law 2: an answer that took longer than the TTL proves nothing."""
    clock = VirtualClock(START)
    belief = Belief(clock, 10.0)
    clock.advance(11.0)
    assert belief.prove(START, 10.0) is False
    assert belief.state is LOST


def test_older_proof_never_shortens_the_deadline() -> None:
    """Two answers may overtake each other; what is proven stays proven."""
    clock = VirtualClock(START)
    belief = Belief(clock, 10.0)
    belief.prove(START + 0.0, 10.0)
    clock.advance(3.0)
    assert belief.prove(START + 3.0, 10.0)
    assert belief.prove(START + 1.0, 10.0)
    assert belief.deadline == START + 13.0


def test_proof_anew_voids_what_was_proven_before_and_tells_in_its_own_time() -> None:
    """Law 2: a store that grants less from now on has taken back the rest; nobody is told of it too late."""
    clock = VirtualClock(START)
    belief, told = proven(clock, 30.0)
    clock.advance(1.0)
    assert belief.prove(clock.now(), 10.0, anew=True)
    assert belief.deadline == START + 11.0
    clock.advance(60.0)
    assert [(state, round(at - START, 1)) for state, at in told] == [(SUSPECT, 6.0), (LOST, 11.0)]


def test_changes_are_announced_in_order_each_once() -> None:
    """Law 15: suspect, then held again when renewed, then suspect and lost; nothing is told twice."""
    clock = VirtualClock(START)
    belief, told = proven(clock)
    clock.advance(6.0)
    belief.prove(clock.now(), 10.0)
    belief.prove(clock.now(), 10.0)
    clock.advance(30.0)
    assert [s for s, _ in told] == [SUSPECT, HELD, SUSPECT, LOST]
    assert [round(at - START, 2) for _, at in told] == [5.0, 6.0, 11.0, 16.0]


def test_renewals_at_a_third_announce_nothing() -> None:
    """The steady state is silent."""
    clock = VirtualClock(START)
    belief, told = proven(clock)
    for _ in range(100):
        clock.advance(10.0 / 3)
        assert belief.prove(clock.now(), 10.0)
    assert told == []


def test_proofs_that_are_old_when_they_arrive_announce_nothing_as_long_as_they_come() -> None:
    """What is proven is less by so much from the start: the warning comes at half of what is left of it."""
    clock = VirtualClock(START)
    belief, told = Belief(clock, 10.0), list[tuple[LeaseState, float]]()
    belief.on_change(lambda state, _: told.append((state, clock.now())))
    belief.prove(START, 10.0, lag=4.0)
    clock.advance(6.5)
    assert told == []
    clock.advance(1.0)
    assert [(state, round(at - START, 1)) for state, at in told] == [(SUSPECT, 7.0)]


def test_announcement_of_a_loss_comes_within_a_moment_of_it() -> None:
    """Law 15: who does not look is told by a timer that reads the same clock, and never before the clock says so."""
    clock = VirtualClock(START)
    belief, told = proven(clock)
    clock.advance(9.9999)
    assert [s for s, _ in told] == [SUSPECT]
    clock.advance(0.01)
    assert [s for s, _ in told] == [SUSPECT, LOST]
    assert 0.0 <= told[-1][1] - (START + 10.0) < 0.01
    assert belief.state is LOST


def test_end_is_told_once_with_its_reason_and_the_first_end_stays() -> None:
    """Law 15: whoever ends it first has named the reason."""
    clock = VirtualClock(START)
    belief, told = Belief(clock, 10.0), list[tuple[LeaseState, str]]()
    belief.on_change(lambda state, reason: told.append((state, reason)))
    belief.prove(START, 10.0)
    belief.end(LOST, EXPIRED)
    belief.end(CLOSED, "closed")
    clock.advance(60.0)
    assert told == [(LOST, EXPIRED)]
    assert (belief.state, belief.reason, belief.remaining()) == (LOST, EXPIRED, 0.0)


def test_closed_belief_stays_closed_whatever_ends_it_afterwards() -> None:
    """A renewal that finds the lease gone after the client was closed announces no loss."""
    belief, told = proven(VirtualClock(START))
    belief.end(CLOSED, "closed")
    belief.end(LOST, EXPIRED)
    assert [state for state, _ in told] == [CLOSED]
    assert (belief.state, belief.reason) == (CLOSED, "closed")


def test_closed_belief_refuses_proof() -> None:
    """A renewal answered after the client was closed opens nothing again."""
    belief = Belief(VirtualClock(START), 10.0)
    belief.end(CLOSED, "closed")
    assert belief.prove(START, 10.0) is False
    assert belief.state is CLOSED


def test_waits_are_set_when_the_belief_ends_and_at_once_when_it_has() -> None:
    """Law 3: whoever waits under a lease is woken by its end."""
    clock = VirtualClock(START)
    belief, _ = proven(clock)
    early, dropped, late = Signal(), Signal(), Signal()
    belief.add_signal(early)
    belief.add_signal(dropped)
    belief.drop_signal(dropped)
    clock.advance(9.0)
    assert not early.is_set()
    clock.advance(2.0)
    belief.add_signal(late)
    assert (early.is_set(), dropped.is_set(), late.is_set()) == (True, False, True)


def test_waits_of_a_belief_that_nothing_ended_yet_but_the_clock_are_woken_by_the_timer() -> None:
    """Law 3: expiry alone wakes the waiters, with no store answering."""
    clock = VirtualClock(START)
    belief, _ = proven(clock)
    clock.advance(9.99)
    signal = Signal()
    belief.add_signal(signal)
    clock.advance(0.02)
    assert signal.is_set()


def test_unsubscribed_listener_hears_nothing() -> None:
    """A released hold is told nothing any more."""
    clock = VirtualClock(START)
    belief = Belief(clock, 10.0)
    told: list[LeaseState] = []
    belief.on_change(lambda state, _: told.append(state))()
    belief.end(LOST, "x")
    assert told == []


def test_listener_that_unsubscribes_itself_and_others_while_told_breaks_nothing() -> None:
    """A hold that ends while being told takes itself off the list it is told from."""
    belief = Belief(VirtualClock(START), 10.0)
    told: list[str] = []
    stops: list[Callable[[], None]] = []

    def hear(name: str) -> Callable[[LeaseState, str], None]:
        def listen(_state: LeaseState, _reason: str) -> None:
            told.append(name)
            for stop in stops:
                stop()

        return listen

    stops.extend(belief.on_change(hear(name)) for name in "ab")
    belief.end(LOST, "x")
    assert set(told) <= {"a", "b"}
    assert "a" in told


def test_idle_belief_leaves_no_timer_behind_once_ended() -> None:
    """Law 12, in a process: what is over is not announced again."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    belief.prove(START, 10.0)
    belief.end(CLOSED, "closed")
    assert clock.scheduled
    assert all(t.cancelled for t in clock.scheduled)


def test_belief_schedules_one_timer_however_often_it_is_proven() -> None:
    """Law 10: renewals cost no timer each."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    for _ in range(50):
        belief.prove(START, 10.0)
    assert len(clock.scheduled) == 1


def test_longer_granted_ttl_moves_the_suspicion_with_it() -> None:
    """The granted TTL rules, not the asked one."""
    clock = Stopped()
    belief = Belief(clock, 1.0)
    belief.prove(START, 60.0)
    clock.reading = START + 29.0
    assert belief.state is HELD
    clock.reading = START + 31.0
    assert belief.state is SUSPECT


def test_system_clock_counts_suspend_where_the_machine_can() -> None:
    """Law 2: CLOCK_BOOTTIME, because CLOCK_MONOTONIC stands still while a lease goes on running out."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this machine has no CLOCK_BOOTTIME")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SYSTEM_CLOCK.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_first_check_after_the_machine_slept_an_hour_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 2: boot time jumps on by the sleep while monotonic time does not; the hold is lost at the first look."""
    real, slept = time.clock_gettime, [0.0]

    def gettime(which: int) -> float:
        return real(which) + (slept[0] if which == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", gettime)
    belief = Belief(SYSTEM_CLOCK, 10.0)
    belief.prove(SYSTEM_CLOCK.now(), 10.0)
    assert belief.state is HELD
    slept[0] = 3600.0
    assert belief.state is LOST
    assert belief.remaining() == 0.0
    slept[0] = 0.0
    belief.end(CLOSED, "the test is over")


def test_what_the_clock_has_ended_is_lost_whoever_closes_it_afterwards() -> None:
    """Law 15: a close that comes after the deadline, before any timer told of it, does not make a loss a release."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    told: list[LeaseState] = []
    belief.on_change(lambda state, _: told.append(state))
    belief.prove(clock.now(), 10.0)
    clock.reading += 10.0
    belief.end(CLOSED, "the client was closed")
    assert (belief.state, told) == (LOST, [LOST])


def test_proof_that_comes_while_the_deadline_passes_brings_nothing_back() -> None:
    """Law 2: who looked at that very moment has seen LOST, and LOST is for good."""
    clock = Stopped()
    belief = Belief(clock, 10.0)
    belief.prove(START, 9.0)
    readings = iter([START + 8.9])

    def now() -> float:
        return next(readings, START + 9.1)

    clock.now = now  # type: ignore[method-assign]
    assert belief.prove(START + 8.0, 9.0) is False
    clock.now = lambda: START + 9.2  # type: ignore[method-assign]
    assert belief.state is LOST
    assert belief.remaining() == 0.0


def test_listener_that_raises_keeps_the_end_from_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """Law 15: one listener's failure is logged; the others hear, and whoever waits is woken."""
    belief, signal_of_wait = Belief(VirtualClock(), TTL), Signal()
    heard: list[LeaseState] = []

    def fail(_state: LeaseState, _reason: str) -> None:
        raise ValueError("told by the test")

    belief.on_change(fail)
    belief.on_change(lambda state, _reason: heard.append(state))
    belief.add_signal(signal_of_wait)
    with caplog.at_level(logging.ERROR, "tenure"):
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
            belief.drop_signal(each)

    for each in signals:
        belief.add_signal(each)
        each.add_callback(drop_all)
    belief.end(LeaseState.LOST, "gone")
    assert all(each.is_set() for each in signals)
