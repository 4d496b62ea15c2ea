"""Timed renewals: one that could not even be begun is no reason not to begin the next."""

from __future__ import annotations

from typing import Any

import pytest

from tenure._backends.etcd.delegated.leases import BatchRenewal
from tenure._core.base.clock import VirtualClock
from tenure._core.belief import Belief
from tenure._core.heartbeat import Heartbeat
from tenure._core.lease import BackendContext, LeaseState
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
