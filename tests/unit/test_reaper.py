"""The reaper: every ticket it owns goes, or its lease does; a store that is away costs no thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tenure._core.base.clock import VirtualClock
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT, RETRY_PAUSE_FIRST
from tenure._core.lease import BackendContext, Entry, LeaseState
from tenure._core.reaper import Reaper
from tenure.errors import (
    ClientClosed,
    LeaseLost,
    StoreRefused,
    StoreUnavailable,
    TenureError,
)
from tenure.events import Event, Hub
from tests.unit.fakes import HeldWorkers, ImmediateWorkers, ThreadlessWorkers, entry

Answer = bool | TenureError


class Bench:
    """A reaper with a scripted store behind it; answers run out into `otherwise`."""

    def __init__(self, *answers: Answer, otherwise: Answer = True, workers: Any = None) -> None:
        self.clock = VirtualClock()
        self.answers = list(answers)
        self.otherwise = otherwise
        self.asked: list[tuple[float, float]] = []
        self.state = LeaseState.HELD
        self.told: list[Event] = []
        hub = Hub(self.clock.now)
        hub.subscribe(self.told.append)
        context = BackendContext(self.clock, hub, ImmediateWorkers() if workers is None else workers)
        self.reaper = Reaper(self.withdraw, lambda: self.state, context)
        self.entry = entry()

    def withdraw(self, asked: Entry, until: float) -> bool:
        assert asked is self.entry
        self.asked.append((self.clock.now(), until))
        answer = self.answers.pop(0) if self.answers else self.otherwise
        if isinstance(answer, TenureError):
            raise answer
        return answer

    @property
    def times(self) -> list[float]:
        return [round(at - 1000.0, 6) for at, _ in self.asked]

    @property
    def events(self) -> list[str]:
        return [e.event for e in self.told]


def test_ticket_that_goes_at_the_first_try_is_reaped_once() -> None:
    """Law 7: the usual case is one request, told once, and nothing is owned afterwards."""
    bench = Bench(True)
    bench.reaper.own(bench.entry)
    bench.clock.advance(3600.0)
    assert bench.times == [0.0]
    assert bench.asked[0][1] == 1000.0 + REQUEST_TIMEOUT_DEFAULT
    assert bench.events == ["reaped"]
    assert bench.reaper.owned == 0


def test_store_that_is_away_is_asked_again_with_growing_pauses_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 7: the reaper goes on for as long as the lease lives, and does not hammer."""
    monkeypatch.setattr("tenure._core.reaper.jittered", lambda seconds: seconds)
    bench = Bench(otherwise=StoreUnavailable("away"))
    bench.reaper.own(bench.entry)
    bench.clock.advance(60.0)
    pauses = [round(b - a, 6) for a, b in itertools.pairwise(bench.times)]
    assert pauses[0] == RETRY_PAUSE_FIRST
    assert all(a <= b for a, b in itertools.pairwise(pauses))
    assert pauses[-1] == 2.0
    assert set(bench.events) == {"reap_failed"}
    assert bench.told[0].reason == "away"
    assert bench.reaper.owned == 1
    bench.otherwise = True
    bench.clock.advance(2.0)
    assert bench.events[-1] == "reaped"
    assert bench.reaper.owned == 0


def test_pause_between_tries_holds_no_worker() -> None:
    """A store that is away costs no thread: between tries nothing is submitted."""
    workers = HeldWorkers()
    bench = Bench(StoreUnavailable("away"), True, workers=workers)
    bench.reaper.own(bench.entry)
    workers.carry_out()
    assert workers.works == []
    bench.clock.advance(RETRY_PAUSE_FIRST)
    workers.carry_out()
    assert bench.events[-1] == "reaped"


@pytest.mark.parametrize("error", [StoreRefused("no"), LeaseLost("gone"), StoreUnavailable("away")])
def test_any_error_of_the_tree_is_told_and_tried_again(error: TenureError) -> None:
    """Law 7: refusals may pass too (a quota, a lost leader); only the ticket's or the lease's end ends it."""
    bench = Bench(error, error, True)
    bench.reaper.own(bench.entry)
    bench.clock.advance(10.0)
    assert bench.events == ["reap_failed", "reap_failed", "reaped"]


@pytest.mark.parametrize("state", [LeaseState.LOST, LeaseState.CLOSED])
def test_reaper_of_an_ended_lease_asks_nobody(state: LeaseState) -> None:
    """The store removes what the lease held; there is nothing left to withdraw."""
    bench = Bench(StoreUnavailable("away"))
    bench.reaper.own(bench.entry)
    assert bench.reaper.owned == 1
    bench.state = state
    bench.clock.advance(3600.0)
    assert bench.times == [0.0]
    assert bench.reaper.owned == 0


def test_ticket_not_there_on_a_store_that_answers_in_order_is_done_with() -> None:
    """Where no request can overtake another, one look is certain."""
    bench = Bench(False)
    bench.reaper.own(bench.entry)
    bench.clock.advance(3600.0)
    assert bench.times == [0.0]
    assert bench.events == []
    assert bench.reaper.owned == 0


def test_entry_owned_twice_is_reaped_by_one_chain_of_tries() -> None:
    """Owning is idempotent: two ways out may both hand over the same ticket."""
    bench = Bench(StoreUnavailable("away"), True)
    bench.reaper.own(bench.entry)
    bench.reaper.own(bench.entry)
    bench.clock.advance(60.0)
    assert len(bench.asked) == 2
    assert bench.events.count("reaped") == 1


class ClosedWorkers:
    """The workers of a closed client."""

    crowded = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        raise ClientClosed(f"closed before {work}")


def test_owning_on_a_closed_client_returns_and_owns_nothing() -> None:
    """A closed client's leases are closed with it, and their tickets with them; `own` never raises."""
    bench = Bench(workers=ClosedWorkers())
    bench.reaper.own(bench.entry)
    assert bench.reaper.owned == 0
    assert bench.asked == []


def test_tries_that_find_no_thread_are_made_later() -> None:
    """Law 7: a process short of threads withdraws its tickets once it has one; `own` never raises."""
    bench = Bench(StoreUnavailable("away"), True, workers=ThreadlessWorkers(3))
    bench.reaper.own(bench.entry)
    assert bench.reaper.owned == 1
    bench.clock.advance(60.0)
    assert len(bench.asked) == 2
    assert bench.events == ["reap_failed", "reaped"]
    assert bench.reaper.owned == 0


def test_suspect_lease_is_still_reaped_under() -> None:
    """Suspect is provable: its tickets still stand."""
    bench = Bench(True)
    bench.state = LeaseState.SUSPECT
    bench.reaper.own(bench.entry)
    assert bench.events == ["reaped"]


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
