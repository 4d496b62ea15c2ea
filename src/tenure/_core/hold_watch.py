"""The end of a hold: how a loss is found out, and what follows from it, in order.

Two things end a hold against its holder's will. The belief in its lease ends, by the clock or because the store says
so. Or its ticket is removed while the lease lives on, by an operator or by hand: only a watch of the ticket finds that.

    the store's watch thread         signal ─▶ _look_soon
                                                   │
    a background thread                            ▼
                                                 _look ── the ticket stands ─▶ watch it again
                                                   │ the ticket is gone
    the clock's thread,                            ▼
    a renewal's thread   ── _lease_changed ──▶ finish, once: the first end counts
    the caller's thread  ── release, amend … ──▶   │
                                                   ├ 1 state      check() raises, remaining() is 0.0
                                                   ├ 2 let go     timer, watch of the ticket, listener at the lease
                                                   ├ 3 abandon    a late `enter` could bring a removed ticket back
                                                   ├ 4 event      lost or released: log, metrics, subscribers
                                                   ├ 5 at_end     cancels an `async with` body, wakes lost.wait()
                                                   ├ 6 on_change  the user's callbacks, on a thread of their own
                                                   ├ 7 explain    the operator's record; event forced
                                                   └ 8 witness    the journal

Whoever has to stop hears of it first (1 to 6); asking the store who did it comes after that (7). The edge of a body
waits for the answer, `explained`: the LeaseLost that it raises is what gets logged.
"""

from __future__ import annotations

import enum
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from tenure._admin.models import Ending
from tenure._admin.operator import forced_out
from tenure._admin.protocol import HasAdmin
from tenure._core.base.clock import Clock, Timer
from tenure._core.base.limits import LEAVE_GRACE, RETRY_PAUSE_MAX, TICKET_WATCH_AFTER
from tenure._core.base.retry import jittered
from tenure._core.base.signals import Signal
from tenure._core.lease import Entry, Lease, LeaseState, Line, Reach, Ticket, Workers
from tenure.errors import ClientClosed, LeaseLost, StoreError, StoreWentBack, TenureError
from tenure.events import Hub


class HoldState(enum.Enum):
    """State of a hold, as far as its holder may believe."""

    HELD = "held"
    SUSPECT = "suspect"
    LOST = "lost"
    RELEASED = "released"


FINAL: Final = (HoldState.LOST, HoldState.RELEASED)
STATE_BY_LEASE: Final = {
    LeaseState.HELD: HoldState.HELD,
    LeaseState.SUSPECT: HoldState.SUSPECT,
    LeaseState.LOST: HoldState.LOST,
    LeaseState.CLOSED: HoldState.RELEASED,
}
_ENDINGS: Final = {HoldState.LOST: Ending.EXPIRED, HoldState.RELEASED: Ending.RELEASED}
"""The ending that a final state means where nothing else is known."""
Witness = Callable[[Ending, str, float], None]


class HoldEnd(NamedTuple):
    """End of a hold. One value, because other threads read it without a lock: they see all of it or nothing."""

    state: HoldState
    reason: str
    how: Ending


class Origin(NamedTuple):
    """Origin of a hold: the line of the program that acquired it, the thread or task that did, and the store."""

    file: str
    line: int
    by: object
    store: str


class HeldHere:
    """Holds of this process that are not over, by store and name. Thread-safe."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget them all: in a forked child they are the parent's."""
        self._guard = threading.RLock()  # guards _held
        self._held: dict[tuple[str, str], list[HoldWatch]] = {}

    def of(self, store: str, name: str) -> list[HoldWatch]:
        """The holds of one name, the oldest first."""
        if (store, name) not in self._held:
            return []
        with self._guard:
            return list(self._held.get((store, name), ()))

    def of_loops(self, context: WatchContext) -> list[HoldWatch]:
        """The holds of one client that belong to event loops."""
        with self._guard:
            held = [watch for some in self._held.values() for watch in some]
        return [watch for watch in held if watch.context is context and watch.loop is not None]

    def add(self, watch: HoldWatch) -> None:
        with self._guard:
            self._held.setdefault((watch.origin.store, watch.ticket.resource), []).append(watch)

    def remove(self, watch: HoldWatch) -> None:
        """Forget the hold, where it is known."""
        key = (watch.origin.store, watch.ticket.resource)
        with self._guard:
            left = [held for held in self._held.pop(key, ()) if held is not watch]
            if left:
                self._held[key] = left


HELD_HERE: Final = HeldHere()
os.register_at_fork(after_in_child=HELD_HERE.forget)


class EventLoop(Protocol):
    """Event loop, as asyncio has them."""

    def is_closed(self) -> bool: ...


class WatchContext(Protocol):
    """Parts of its client that the watch of a hold needs."""

    @property
    def clock(self) -> Clock: ...
    @property
    def hub(self) -> Hub: ...
    @property
    def background(self) -> Workers: ...
    @property
    def request_seconds(self) -> float: ...
    def deliver(self, call: Callable[[], None]) -> None:
        """Run a user's callback on a thread that is not ours."""


class HoldWatch:
    """Watch over one hold, and the only owner of its end. Thread-safe.

    `give_back` is called once, when nothing more is to be heard; set by whoever has something beside the watch.
    """

    def __init__(
        self,
        ticket: Ticket,
        entry: Entry,
        lease: Lease,
        context: WatchContext,
        *,
        seen_at: int,
        origin: Origin,
    ) -> None:
        self.ticket: Ticket = ticket
        self.origin: Origin = origin
        self.loop: weakref.ref[EventLoop] | None = None  # of the task that acquired it
        self.ended: HoldEnd | None = None
        self.at_end: Signal = Signal()
        # Set once no better reason is to come; only of use where the ticket was removed.
        self.explained: Signal = Signal()
        self.since: float = context.clock.now()
        # Guards the step from no end to an end; a signal handler may re-enter.
        self.guard: AbstractContextManager[object] = threading.RLock()
        self._entry = entry
        self._lease = lease
        self.context: WatchContext = context
        self._seen_at = seen_at
        self.give_back: Callable[[], None] = _nothing
        self._witness: Witness | None = None
        self._callbacks: tuple[Callable[[HoldState], None], ...] = ()
        self._end_delivered = False
        self._ticket_watch: Signal | None = None
        self._timer: Timer | None = None
        self.unsubscribe: Callable[[], None] = _nothing

    def begin(self, waited_seconds: float, behind: str | None) -> None:
        """Announce the hold, and listen from now on."""
        # The lease may end at any moment from here, and says so on a thread of its own: the order below matters. The
        # watch of the ticket begins later: short holds should not pay for a watch that they outrun.
        self._timer = self.context.clock.schedule(self.since + TICKET_WATCH_AFTER, self._watch_ticket)
        self.emit("acquired", seconds=waited_seconds, behind=behind)  # before its end can be announced
        HELD_HERE.add(self)
        self.unsubscribe = self._lease.on_end(self._lease_changed)
        if self._lease.state.over:  # it ended before it had a listener
            self._lease_changed(self._lease.state, "its lease had ended by the time its turn came")
        if self.ended is not None:  # an end in the midst of this found less to let go than there is now
            self._let_go()

    def on_change(self, callback: Callable[[HoldState], None]) -> bool:
        """Add a callback for changes of the state; True where the end has been delivered before."""
        with self.guard:
            self._callbacks += (callback,)
            return self._end_delivered

    def on_end(self, witness: Witness) -> None:
        """Call `witness` with how and why the hold ended, and after how long; perhaps twice. It must not block."""
        with self.guard:
            self._witness = witness
            ended = self.ended
        if ended is not None:
            witness(ended.how, ended.reason, self.context.clock.now() - self.since)

    def finish(self, state: HoldState, reason: str, how: Ending | None = None) -> None:
        """End the hold, once; called from any thread. Who removed its ticket is asked in the background."""
        with self.guard:
            if self.ended is not None:  # by another thread, or by a signal handler within this one
                return
            ended = self.ended = HoldEnd(state, reason, how or _ENDINGS[state])
        # Without the lock from here on: what follows calls others, who may call back, and the state is final already.
        self._let_go()
        if state is HoldState.LOST and self._lease.state in (LeaseState.HELD, LeaseState.SUSPECT):
            # Removed by somebody while its lease lives: a late `enter` of our own could still bring the ticket back,
            # and only the reaper would notice. With a lease that has ended the store removes it.
            self._lease.abandon(self._entry)
        seconds = self.context.clock.now() - self.since
        self.emit(state.value, reason=reason or None, seconds=seconds, ending=ended.how)
        self.at_end.set()
        self._deliver(state, end=True)
        # Last, because it asks the store: whoever has to stop must not wait for that. So the better reason comes as an
        # event of its own, and replaces the one that `reason` gave until now.
        if ended.how is Ending.REMOVED:
            try:
                self.context.background.submit(lambda: self._explain(ended, seconds))
                return
            except TenureError:  # closed, or no thread for it: "removed" is then all that is known
                pass
        self._close_case(ended, seconds)

    def warn_forgotten(self, what: str) -> None:
        """Warn, at the line that acquired it, of a hold that nobody has any longer."""
        message = f"the hold of {self._entry.resource!r} (token {self.ticket.token}) {what}: release it, or use `with`"
        warnings.warn_explicit(message, ResourceWarning, self.origin.file, self.origin.line)

    def give_up_after_loop(self) -> None:
        """Give the hold up where its event loop has ended, as nobody else could. Returns at once."""
        loop = None if self.loop is None else self.loop()
        if loop is None or loop.is_closed():
            self.finish(HoldState.RELEASED, "the event loop that it was acquired on has ended")
            try:  # a filter may make an error of it
                self.warn_forgotten("was held when its event loop ended, and is given up")
            finally:
                self._lease.abandon(self._entry)

    def _explain(self, ended: HoldEnd, seconds: float) -> None:
        forced = self._forced_by()
        if forced:
            ended = self.ended = HoldEnd(ended.state, forced, Ending.FORCED)
            self.explained.set()  # before the event: subscribers run in there
            self.emit("forced", reason=forced, seconds=seconds, ending=ended.how)
        self._close_case(ended, seconds)

    def _close_case(self, ended: HoldEnd, seconds: float) -> None:
        """Hand the end, as far as it will ever be known, to the edge of the body and to the witness."""
        self.explained.set()
        if self._witness is not None:
            self._witness(ended.how, ended.reason, seconds)

    def emit(
        self,
        event: str,
        *,
        reason: str | None = None,
        seconds: float | None = None,
        behind: str | None = None,
        ending: Ending | None = None,
    ) -> None:
        """Emit an event about this hold."""
        self.context.hub.emit(
            event,
            resource=self._entry.resource,
            owner=self._entry.owner,
            lease_id=self._lease.id,
            token=self.ticket.token,
            ttl=self._lease.ttl,
            reason=reason,
            seconds=seconds,
            ticket=self._entry.id,
            behind=behind,
            ending=None if ending is None else ending.value,
        )

    def _lease_changed(self, state: LeaseState, reason: str) -> None:
        if self.ended is not None:
            return
        if state.over:
            self.finish(STATE_BY_LEASE[state], reason, Ending.CLOSED if state is LeaseState.CLOSED else None)
            return
        self.emit("suspect" if state is LeaseState.SUSPECT else "renewed")
        self._deliver(STATE_BY_LEASE[state])

    def _deliver(self, state: HoldState, *, end: bool = False) -> None:
        # Both in one go: a callback added at this moment is either among these, or sees that the end is out.
        with self.guard:
            callbacks, self._end_delivered = self._callbacks, self._end_delivered or end
        for callback in callbacks:
            self.context.deliver(lambda callback=callback: callback(state))  # type: ignore[misc]  # default binds now

    def _let_go(self) -> None:
        """Give back all that listens. Idempotent."""
        HELD_HERE.remove(self)
        self.unsubscribe()
        timer = self._timer
        if timer is not None:
            timer.cancel()
        if self._ticket_watch is not None:
            self._ticket_watch.close()
        # Dropped with the call: it refers to the hold, and a hold that has ended should be no garbage in a cycle.
        give_back, self.give_back = self.give_back, _nothing
        give_back()

    def _watch_ticket(self) -> None:
        """Let the store watch the ticket. Runs on the clock's thread, or at the end of a look."""
        self._timer = None
        if self.ended is not None:
            return
        # From the revision that was seen last: a removal between that look and this watch is not missed (law 11).
        seen = Line(self._entry.resource, (), self._seen_at)
        try:
            signal = self._lease.wait_change(seen, (self.ticket,), amendments=False)
        except StoreError:  # no thread for it just now; until then the lease's deadline is what ends the belief
            self._again(self._watch_ticket)
            return
        self._ticket_watch = signal
        signal.add_callback(self._look_soon)
        # Asked again: an end that came meanwhile did not see the signal, and would leave the watch open.
        if self.ended is not None:
            signal.close()

    def _look_soon(self) -> None:
        """Let a background thread look: this is the watch's own thread, or the clock's, and neither may block."""
        signal = self._ticket_watch
        if self.ended is None and signal is not None:
            try:
                self.context.background.submit(lambda: self._look(signal))
            except ClientClosed:
                return  # the client's closing has ended this hold
            except StoreError:  # no thread for it just now
                self._again(self._look_soon)

    def _look(self, signal: Signal) -> None:
        """Look whether the ticket still stands: the signal says only that something may have happened."""
        signal.close()
        if self.ended is not None or self._lease.state.over:
            return
        try:
            until = self.context.clock.now() + self.context.request_seconds
            line = self._lease.look(self.ticket, Reach.PREDECESSOR, until)
        except StoreWentBack as error:  # a store with another history: the lease may live there, the ticket does not
            self.finish(HoldState.LOST, str(error))
            return
        except StoreError:  # the lease's own deadline covers a store that stays away
            self._again(self._watch_ticket)
            return
        except LeaseLost:
            return  # its listener hears of that
        if line.find(self._entry.id) is None:
            why = "its ticket was removed from the store, by an administrator or with its lease"
            self.finish(HoldState.LOST, why, Ending.REMOVED)
            return
        self._seen_at = line.revision
        self._watch_ticket()

    def _again(self, call: Callable[[], None]) -> None:
        clock = self.context.clock
        self._timer = clock.schedule(clock.now() + jittered(RETRY_PAUSE_MAX), call)

    def _forced_by(self) -> str:
        """Reason that an operator gave for the removal; "" where none did, or where the store does not say."""
        if not isinstance(self._lease, HasAdmin):
            return ""
        until = self.context.clock.now() + LEAVE_GRACE
        try:
            return forced_out(self._lease.admin, self._entry.resource, self.ticket.token or 0, self._entry.id, until)
        except TenureError:  # the hold is lost either way; "removed" is then all that is known
            return ""


def _nothing() -> None:
    """Stand-in for a call that is not there yet, or not any more."""
