"""Timed renewals: one that could not even be begun is no reason not to begin the next."""

from __future__ import annotations

from typing import Any

import pytest

from tenure._backends.etcd.delegated.leases import BatchRenewal
from tenure._core.base.clock import VirtualClock
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.heartbeat import Heartbeat
from tenure._core.lease import BackendContext, LeaseState
from tenure.errors import StoreUnavailable, StoreWentBack
from tenure.events import Hub
from tests.unit.fakes import TTL, FakeLease, ImmediateWorkers, ThreadlessWorkers


def surroundings(clock: VirtualClock) -> BackendContext:
    return BackendContext(clock, Hub(clock.now), ImmediateWorkers())


@pytest.mark.parametrize("refusals", [1, 3])
def test_lease_whose_first_beats_find_no_thread_is_renewed_by_the_next(refusals: int) -> None:
    """One failed start of a thread cost the lease, at the end of its TTL: nobody came back."""
    clock = VirtualClock()
    belief = Belief(clock, TTL)

    def keep_alive(until: float) -> bool:
        return belief.prove(clock.now(), TTL)

    beats = Heartbeat(FakeLease(), belief, keep_alive, lambda: 1.0, surroundings(clock), ThreadlessWorkers(refusals))
    belief.prove(clock.now(), TTL)
    beats.start()
    clock.advance(4 * TTL)
    assert belief.state is LeaseState.HELD
    beats.stop()


class OneLease:
    """A proven lease with a heartbeat that a test answers: whether it is alive, or an error."""

    def __init__(self, answer: bool | Exception, longest: float = 60.0) -> None:
        self.clock = VirtualClock()
        self.belief = Belief(self.clock, TTL)
        self.tried: list[float] = []
        self.given: list[float] = []
        self._answer = answer
        around = surroundings(self.clock)
        beats = Heartbeat(FakeLease(), self.belief, self._keep_alive, lambda: longest, around, around.workers)
        self.belief.on_change(lambda state, _: beats.stop() if state.over else None)
        self.belief.prove(self.clock.now(), provable(TTL))
        beats.start()

    def _keep_alive(self, until: float) -> bool:
        self.tried.append(self.clock.now())
        self.given.append(until - self.clock.now())
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "reason"), [(False, EXPIRED), (StoreWentBack("told by the test"), "told by the test")]
)
def test_lease_that_the_store_has_no_more_is_lost_with_the_first_beat(answer: bool | Exception, reason: str) -> None:
    """Law 15: at once and with its reason, not by the clock two thirds of a TTL later; nothing is tried again."""
    lease = OneLease(answer)
    lease.clock.advance(TTL / 3)
    assert (lease.belief.state, lease.belief.reason) == (LeaseState.LOST, reason)
    lease.clock.advance(4 * TTL)
    assert len(lease.tried) == 1


@pytest.mark.parametrize(("longest", "first"), [(60.0, 2 / 3), (2.0, 2.0 / TTL)])
def test_beat_is_given_no_longer_than_the_belief_lasts(longest: float, first: float) -> None:
    """An answer after that comes too late, and other leases wait for the thread meanwhile."""
    lease = OneLease(StoreUnavailable("away"), longest)
    lease.clock.advance(TTL / 3)
    assert lease.given == [pytest.approx(first * TTL, rel=0.02)]
    lease.clock.advance(4 * TTL)
    assert lease.belief.state is LeaseState.LOST
    assert len(lease.tried) >= 16
    assert lease.given[-1] <= TTL / 3 / 4


class Waiting:
    """A lease whose ticket waits; renewed as often as told."""

    number = 7

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.due = clock.now() + TTL / 3
        self.renewals = 0

    def renewed(self, sent: float, ttl: float) -> None:
        self.renewals += 1
        self.due = self._clock.now() + TTL / 3

    def failed(self, reason: str) -> None:
        raise NotImplementedError


class Wire:
    """Knows every lease."""

    def keep_alives(self, numbers: list[int], until: float) -> dict[int, float]:
        return dict.fromkeys(numbers, TTL)


@pytest.mark.parametrize("refusals", [1, 3])
def test_leases_of_waiters_whose_first_rounds_find_no_thread_are_renewed_by_the_next(refusals: int) -> None:
    """The timer that had been in vain stood in the way of every later one."""
    clock = VirtualClock()
    wire: Any = Wire()
    rounds, waiting = BatchRenewal(wire, surroundings(clock), ThreadlessWorkers(refusals)), Waiting(clock)
    rounds.add(waiting)
    clock.advance(TTL)
    assert waiting.renewals >= 2
    rounds.remove(waiting)
