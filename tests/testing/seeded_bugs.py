"""Bugs, kept as patches: what the simulation must find. Each is one that some lock library has or had.

`BUGS` names them; `with BUGS[name]():` puts one in.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from tenure._backends.memory.server import MemoryStore
from tenure._core import turn
from tenure._core.belief import Belief
from tenure._core.guarded_keys import Keys
from tenure._core.hold import Holding
from tenure._core.lease import Entry, Lease, Line, Reach, Ticket
from tenure._core.reaper import Reaper
from tenure._core.recipes.semaphore import FewSeatsRule
from tenure._core.turn import Blockers, Look, Patience, Steps
from tenure.errors import StoreUnavailable

Bug = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def belief_from_the_time_of_the_answer() -> Iterator[None]:
    """Go's etcd client: a lease counts as proven from when the answer came, not from when the request was sent."""
    right = Belief.prove

    def prove(self: Belief, sent: float, lifetime: float, *, lag: float = 0.0) -> bool:
        return right(self, self._clock.now(), lifetime, lag=lag)

    with patch.object(Belief, "prove", prove):
        yield


@contextlib.contextmanager
def belief_that_comes_back() -> Iterator[None]:
    """A flag that a late answer sets again, after somebody else was let in."""

    def prove(self: Belief, sent: float, lifetime: float, *, lag: float = 0.0) -> bool:
        with self._guard:
            self._deadline = max(self._deadline or 0.0, sent + lifetime)
            self._announce()
            return self._ended is None

    with patch.object(Belief, "prove", prove):
        yield


@contextlib.contextmanager
def release_by_name() -> Iterator[None]:
    """etcd3gw's and others': what is released is whatever stands there now."""
    right = MemoryStore.leave

    def leave(self: MemoryStore, line: str, ticket_id: str, token: int | None) -> bool:
        standing = self._lines.get(line, {})
        first = ticket_id if ticket_id in standing else next(iter(standing), ticket_id)
        return right(self, line, first, None)

    with patch.object(MemoryStore, "leave", leave):
        yield


@contextlib.contextmanager
def seats_that_watch_one_ticket() -> Iterator[None]:
    """Curator gave this up: a waiter that watches only the ticket `limit` places ahead sleeps through its turn."""
    right = FewSeatsRule.blockers

    def blockers(self: FewSeatsRule, line: Line, me: Ticket) -> Blockers:
        if not right(self, line, me):
            return Blockers()
        position = line.position(me.id) or 0
        return Blockers((line.tickets[max(0, position - me.limit)],))

    with patch.object(FewSeatsRule, "blockers", blockers):
        yield


@contextlib.contextmanager
def wake_taken_for_success() -> Iterator[None]:
    """The predecessor has left, so it must be my turn: but it had only given up waiting."""

    def look_again(me: Ticket, reach: Reach, entry: Entry, lease: Lease, patience: Patience, clock: Any) -> Steps[Line]:
        line: Line = yield Look(lease, me, reach, patience.request_until(clock.now()))
        return line._replace(tickets=line.tickets[-1:])

    with patch.object(turn, "_look_again", look_again):
        yield


@contextlib.contextmanager
def enter_that_is_tried_anew() -> Iterator[None]:
    """kazoo and others: the retry after a lost answer makes a second ticket, and the first is nobody's."""
    right = MemoryStore.enter

    def enter(self: MemoryStore, line: str, entry: Entry, lease_id: str) -> Line | None:
        if entry.id in self._lines.get(line, {}):
            right(self, line, dataclasses.replace(entry, id=f"{entry.id}-again"), lease_id)
        return right(self, line, entry, lease_id)

    with patch.object(MemoryStore, "enter", enter):
        yield


@contextlib.contextmanager
def doubt_forgotten() -> Iterator[None]:
    """A commit without an answer is tried again, and the first one may still be on its way."""

    def settle(self: Keys, until: float) -> Steps[None]:
        yield from ()

    with patch.object(Keys, "_settle", settle):
        yield


@contextlib.contextmanager
def reaper_that_tries_once() -> Iterator[None]:
    """Clean-up that swallows its errors: the ticket stays until its lease ends, which may be never."""

    def try_once(self: Reaper, entry: Entry, pause: float) -> None:
        try:
            self._withdraw(entry, self._context.clock.now())
        except StoreUnavailable:
            pass
        self._owned.discard(entry.id)

    with patch.object(Reaper, "_try", try_once):
        yield


@contextlib.contextmanager
def loss_that_nobody_is_told() -> Iterator[None]:
    """kazoo's: `is_acquired` and the callbacks wait for a reconnect; here the timer that announces is missing."""

    def look_at_clock(self: Belief) -> None:
        self._timer = None

    with patch.object(Belief, "_look_at_clock", look_at_clock):
        yield


@contextlib.contextmanager
def close_under_a_body_in_silence() -> Iterator[None]:
    """Ours, once: the hold is given up with its client, and the body that had it ends as if nothing were."""
    with patch.object(Holding, "_taken_from", lambda *_: False):
        yield


BUGS: Mapping[str, Bug] = {
    bug.__name__: bug
    for bug in (
        belief_from_the_time_of_the_answer,
        belief_that_comes_back,
        release_by_name,
        seats_that_watch_one_ticket,
        wake_taken_for_success,
        enter_that_is_tried_anew,
        doubt_forgotten,
        reaper_that_tries_once,
        loss_that_nobody_is_told,
        close_under_a_body_in_silence,
    )
}

LAWS: Mapping[str, frozenset[str]] = {
    "belief_from_the_time_of_the_answer": frozenset({"S1"}),
    "belief_that_comes_back": frozenset({"S1"}),
    "release_by_name": frozenset({"S8"}),
    "seats_that_watch_one_ticket": frozenset({"L2"}),
    "wake_taken_for_success": frozenset({"S4"}),
    "enter_that_is_tried_anew": frozenset({"L1", "L2"}),
    "doubt_forgotten": frozenset({"S5"}),
    "reaper_that_tries_once": frozenset({"L1", "L2"}),
    "loss_that_nobody_is_told": frozenset({"L4"}),
    "close_under_a_body_in_silence": frozenset({"L4"}),
}
"""By which law each is found."""

FOUND_BY_DEMANDING_PROGRESS: frozenset[str] = frozenset(
    {"seats_that_watch_one_ticket", "enter_that_is_tried_anew", "reaper_that_tries_once"}
)
"""They do nothing wrong, they only do not do what they should: no run in safety mode can tell."""
