"""The hold: what a user gets when the turn has come.

`Holding` is the part both faces share: facts and belief, read without I/O. The faces add `renew`
and `release`, which talk to the store. A hold has one owner of its state, this object; what the
lease knows it asks the lease for, at every reading.

    HELD ◀──▶ SUSPECT ──▶ LOST          for good
      └──────────┴──────▶ RELEASED      for good
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast import checks
from holdfast.clock import Clock, Timer
from holdfast.desk import forced_out
from holdfast.errors import ClientClosed, HoldfastError, LeaseLost, StaleToken, StoreError, StoreWentBack
from holdfast.events import Hub
from holdfast.fence import Fence, ticket_ids
from holdfast.forks import generation, refuse_child
from holdfast.keys import Keys
from holdfast.lease import Compare, Delete, Entry, Lease, LeaseState, Line, Mode, Put, Reach, Record, Workers
from holdfast.limits import LEAVE_GRACE, OWN_WATCH_AFTER, RETRY_PAUSE_MAX
from holdfast.operating import Operable
from holdfast.reports import Ending
from holdfast.signals import Signal
from holdfast.turn import Abandon, Amend, Await, Leave, Renew, Steps, Turn

Held = TypeVar("Held", bound="Holding")
Outcome = TypeVar("Outcome")


class HoldState(enum.Enum):
    """What the holder may believe right now."""

    HELD = "held"
    SUSPECT = "suspect"
    LOST = "lost"
    RELEASED = "released"


_FINAL = (HoldState.LOST, HoldState.RELEASED)
_OF_LEASE = {
    LeaseState.HELD: HoldState.HELD,
    LeaseState.SUSPECT: HoldState.SUSPECT,
    LeaseState.LOST: HoldState.LOST,
    LeaseState.CLOSED: HoldState.RELEASED,
}
_ENDINGS = {HoldState.LOST: Ending.EXPIRED, HoldState.RELEASED: Ending.RELEASED}
"""What they come to where nothing else is known."""
Witness = Callable[[Ending, str, float], None]


class _End(NamedTuple):
    """How a hold ended. One value, because other threads read it without asking: they see all of it or nothing."""

    state: HoldState
    reason: str
    how: Ending


class House(Protocol):
    """What a hold needs of the client it came from."""

    @property
    def clock(self) -> Clock: ...
    @property
    def hub(self) -> Hub: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def chores(self) -> Workers: ...
    @property
    def request_seconds(self) -> float: ...
    @property
    def closed(self) -> Signal: ...
    @property
    def closed_by(self) -> object: ...
    @property
    def namespace(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    def caller(self) -> object:
        """Who calls: a thread."""

    def line_name(self, resource: str) -> str:
        """The whole name of a line, as its fences have it."""

    def deliver(self, call: Callable[[], None]) -> None:
        """Run a user's callback off our threads."""


class Holding:
    """One admitted ticket and what can be proven about it: the facts both faces show, read without I/O."""

    def __init__(self, turn: Turn, entry: Entry, lease: Lease, house: House) -> None:
        token = turn.ticket.token
        if token is None:
            lease.abandon(entry)
            raise LeaseLost(f"the store showed no token for the ticket of {entry.resource!r}")
        self._token = token
        self._at_end = Signal()
        self._entry = entry
        self._ticket = turn.ticket
        self._lease = lease
        self._house = house
        self._incarnation = house.incarnation  # of the store that admitted it, whatever its service is told later
        self._seen_at = turn.line.revision
        self._ids = held_together(turn, entry)
        self._born = generation()
        self._since = house.clock.now()
        self._guard = threading.RLock()  # guards the step from no end to an end; a signal handler may re-enter
        self._ended: _End | None = None
        self._given_up = False  # by a release of its own, before anything else had ended it
        self._witness: Witness | None = None
        self._callbacks: tuple[Callable[[HoldState], None], ...] = ()
        self._told_end = False
        self._own_watch: Signal | None = None
        self._keys: Keys | None = None
        # the lease may end at any moment from here, and tells on its own thread
        self._timer: Timer | None = house.clock.schedule(self._since + OWN_WATCH_AFTER, self._watch_own_ticket)
        self._unsubscribe: Callable[[], None] = _nothing
        self._waited_seconds = turn.waited_seconds
        self._emit("acquired", seconds=turn.waited_seconds, behind=turn.behind)  # before the end can be told
        self._unsubscribe = lease.on_end(self._lease_changed)
        if lease.state.over:  # it ended before it could tell us
            self._lease_changed(lease.state, "its lease had ended by the time its turn came")
        if self._ended is not None:
            self._let_go()

    @property
    def token(self) -> int:
        """The fencing token. Grows along the line of this resource, in order of admission."""
        return self._token

    @property
    def fence(self) -> Fence:
        """The token as a value that can travel: `str(hold.fence)` for a header, `Fence.parse` at the other end.

        Guards (`holdfast.fencing`) decide by it. Raises InvalidFence where too many seats are held together.
        """
        return Fence(self._house.line_name(self.resource), self._token, self._incarnation, self._ids)

    @property
    def resource(self) -> str:
        """The name that is held."""
        return self._entry.resource

    @property
    def owner(self) -> str:
        """Who holds it, as others see it."""
        return self._entry.owner

    @property
    def id(self) -> str:
        """The id of this very ticket."""
        return self._entry.id

    @property
    def ttl(self) -> float:
        """The granted time to live, in seconds. May exceed what was asked for."""
        return self._lease.ttl

    @property
    def lease_id(self) -> str:
        """The store's name for the lease behind it."""
        return self._lease.id

    @property
    def value(self) -> str:
        """The value that others read (elections)."""
        return self._ticket.value

    @property
    def state(self) -> HoldState:
        """What may be believed right now, computed from the clock at this very reading."""
        if self._born != generation():
            return HoldState.LOST
        if self._ended is not None:
            return self._ended.state
        return _OF_LEASE[self._lease.state]

    @property
    def reason(self) -> str:
        """Why it was lost; "" while it is not."""
        if self._ended is not None:
            return self._ended.reason
        return "nothing proved it within its time to live" if self.state is HoldState.LOST else ""

    def remaining(self) -> float:
        """Seconds for which the hold is still proven; 0.0 when it is not. Asks nobody."""
        return 0.0 if self.state in _FINAL else self._lease.remaining()

    @property
    def deadline(self) -> Deadline:
        """The end of what is proven, to be handed on: `timeout=hold.deadline.timeout(5.0)` for the next RPC."""
        return Deadline(self)

    def check(self) -> None:
        """Raise LeaseLost when the hold can't be proven any longer. Asks nobody."""
        self._require()

    def _require(self) -> None:
        """The same, for ourselves: `check` is what the user calls."""
        refuse_child(self._born, f"the hold of {self.resource!r}")
        state = self.state
        if state is HoldState.LOST:
            raise self._lost_error()
        if state is HoldState.RELEASED:
            raise LeaseLost(f"the hold of {self.resource!r} (token {self.token}) was released. Acquire again.")

    def _require_for(self, body: object) -> None:
        """The same before `body`, a thread or task, begins. Raises ClientClosed where the client was closed just now,
        by somebody else."""
        if self._taken_from(body):
            raise ClientClosed(
                f"the client was closed before the `with` body that was to have {self.resource!r} (token {self.token}) "
                "began: nothing of it was run. Connect again."
            )
        self._require()

    def on_change(self, callback: Callable[[HoldState], None]) -> None:
        """Call `callback(state)` on every change from now on, in order, on a thread of its own; of an end that was told
        before, at once."""
        with self._guard:
            self._callbacks += (callback,)
            late = self._told_end
        if late:
            state = self.state
            self._house.deliver(lambda: callback(state))

    def statistics(self) -> dict[str, object]:
        """What there is to know about the hold, ready for JSON; the token is a string, as it may exceed 2^53."""
        return {
            "resource": self.resource,
            "token": str(self.token),
            "fence": str(self._plain_fence()),
            "owner": self.owner,
            "id": self.id,
            "lease_id": self.lease_id,
            "ttl": self.ttl,
            "state": self.state.value,
            "reason": self.reason,
            "remaining": self.remaining(),
            "waited_seconds": self._waited_seconds,
            "age_seconds": self._house.clock.now() - self._since,
        }

    def __repr__(self) -> str:
        return (
            f"<holdfast.Hold {self.resource!r} token={self.token} {self.state.value} "
            f"remaining={self.remaining():.1f} owner={self.owner!r}>"
        )

    def _plain_fence(self) -> Fence:
        """Without those held together with it: for people, who compare tokens."""
        return Fence(self._house.line_name(self.resource), self._token, self._incarnation)

    def _lost_error(self) -> LeaseLost:
        return LeaseLost(
            f"the hold of {self.resource!r} (token {self.token}) can't be proven any longer: {self.reason}. "
            "Stop the protected work; somebody else may hold it now."
        )

    def _taken_from(self, body: object) -> bool:
        """Has the client been closed under `body`, a thread or task, by somebody else, and before it gave it up?"""
        if self._born != generation():
            return False
        ended = self._ended
        closed = self._lease.state is LeaseState.CLOSED if ended is None else ended.how is Ending.CLOSED
        return closed and not self._given_up and self._house.closed_by not in (None, body)

    # What ends or changes it, as steps for a driver.

    def _request_until(self) -> float:
        return self._house.clock.now() + self._house.request_seconds

    def _giving_up(self) -> Steps[bool]:
        """Belief ends first, then the ticket goes. True when this call removed it."""
        refuse_child(self._born, f"the hold of {self.resource!r}")
        if self._ended is None:
            self._given_up = True  # also where news of a close come first from here on, from another thread
        state = self.state
        if state in _FINAL:
            self._finish(state, self.reason, Ending.CLOSED if self._lease.state is LeaseState.CLOSED else None)
            return False
        until = self._request_until()
        try:
            self._finish(HoldState.RELEASED, "")
            gone: bool = yield Leave(self._lease, self._ticket, until)
        except (LeaseLost, ClientClosed):
            return False  # gone with its lease meanwhile
        except GeneratorExit as error:
            self._lease.abandon(self._entry)
            self._emit("release_failed", reason=type(error).__name__)
            raise
        except BaseException as error:  # unreachable, cancelled, interrupted: the reaper owns the ticket from here
            yield Abandon(self._lease, self._entry)
            self._emit("release_failed", reason=type(error).__name__)
            raise
        if not gone:
            self._lease.abandon(self._entry)  # removed by somebody: a late `enter` could still bring it back
        return gone

    def _closed_under_body(self) -> Steps[ClientClosed]:
        """What to raise at the edge, once the store has heard of the end: who goes on then finds the line free."""
        yield Await(self._house.closed, self._request_until())
        return ClientClosed(
            f"the client was closed under the `with` body that had {self.resource!r} (token {self.token}): the hold "
            "was given up at that moment, and what the body did after it was not protected. Let bodies end before "
            "their client is closed, or call hold.check() in them; connect again for a new hold."
        )

    def _renewing(self) -> Steps[float]:
        self.check()
        remaining: float = yield Renew(self._lease, self._request_until())
        self.check()
        return remaining

    def _amending(self, value: str) -> Steps[None]:
        self.check()
        checks.text(value)
        amended: bool = yield Amend(self._lease, self._ticket, value, self._request_until())
        if not amended:
            self._finish(HoldState.LOST, "its ticket was removed from the store", Ending.REMOVED)
            self.check()
        self._ticket = self._ticket._replace(value=value)
        self._emit("amended")

    # The user's own keys in the same store, see keys.py.

    def _reading(self, keys: Sequence[str]) -> Steps[tuple[Record | None, ...]]:
        self.check()
        return (yield from self._while_it_stands(self._own_keys().read(keys, self._request_until())))

    def _committing(self, operations: Sequence[Put | Delete | Compare]) -> Steps[dict[str, int]]:
        self.check()
        return (yield from self._while_it_stands(self._own_keys().commit(operations, self._request_until())))

    def _own_keys(self) -> Keys:
        """Made when they are first asked for: most holds never are."""
        with self._guard:
            if self._keys is None:
                self._keys = Keys(self._lease, self._ticket, self._plain_fence, self._house.namespace)
            return self._keys

    def _while_it_stands(self, steps: Steps[Outcome]) -> Steps[Outcome]:
        try:
            return (yield from steps)
        except (StaleToken, LeaseLost) as error:
            how = Ending.REMOVED if isinstance(error, StaleToken) else None
            self._finish(HoldState.LOST, "its ticket is gone from the store", how)
            raise

    # News.

    def _lease_changed(self, state: LeaseState, reason: str) -> None:
        if self._ended is not None:
            return
        if state.over:
            self._finish(_OF_LEASE[state], reason, Ending.CLOSED if state is LeaseState.CLOSED else None)
            return
        self._emit("suspect" if state is LeaseState.SUSPECT else "renewed")
        self._tell(_OF_LEASE[state])

    def _finish(
        self, state: HoldState, reason: str, how: Ending | None = None, explain: Callable[[], str] | None = None
    ) -> None:
        """The end, once. Called from any thread. `explain` may look for a better reason, for a bounded time: whoever
        has to stop is told before that, and the better reason is an event of its own."""
        with self._guard:
            if self._ended is not None:
                return
            ended = self._ended = _End(state, reason, how or _ENDINGS[state])
        self._let_go()
        if state is HoldState.LOST and self._lease.state in (LeaseState.HELD, LeaseState.SUSPECT):
            self._lease.abandon(self._entry)  # removed by somebody: a late `enter` could still bring it back
        seconds = self._house.clock.now() - self._since
        self._emit(state.value, reason=reason or None, seconds=seconds, ending=ended.how)
        self._at_end.set()
        self._tell(state, end=True)
        if explain is not None and (forced := explain()):
            ended = self._ended = _End(state, forced, Ending.FORCED)
            self._emit("forced", reason=forced, seconds=seconds, ending=ended.how)
        if self._witness is not None:
            self._witness(ended.how, ended.reason, seconds)

    def _on_end(self, witness: Witness) -> None:
        """Call `witness` with how and why it ended, and after how long; perhaps twice. It must not block."""
        with self._guard:
            self._witness = witness
            ended = self._ended
        if ended is not None:
            witness(ended.how, ended.reason, self._house.clock.now() - self._since)

    def _who_forced_it(self) -> str:
        """What an operator wrote down who removed the ticket; "" where none did, or the store does not say."""
        if not isinstance(self._lease, Operable):
            return ""
        until = self._house.clock.now() + LEAVE_GRACE
        try:
            return forced_out(self._lease.operating, self.resource, self.token, self.id, until)
        except HoldfastError:
            return ""

    def _let_go(self) -> None:
        """Nothing is to be heard any more: give back what hears it."""
        self._unsubscribe()
        timer = self._timer
        if timer is not None:
            timer.cancel()
        if self._own_watch is not None:
            self._own_watch.close()

    def _tell(self, state: HoldState, *, end: bool = False) -> None:
        with self._guard:
            callbacks, self._told_end = self._callbacks, self._told_end or end
        for callback in callbacks:
            self._house.deliver(lambda callback=callback: callback(state))  # type: ignore[misc]  # default binds now

    def _emit(
        self,
        event: str,
        *,
        reason: str | None = None,
        seconds: float | None = None,
        behind: str | None = None,
        ending: Ending | None = None,
    ) -> None:
        self._house.hub.emit(
            event,
            resource=self._entry.resource,
            owner=self._entry.owner,
            lease_id=self._lease.id,
            token=self._token,
            ttl=self._lease.ttl,
            reason=reason,
            seconds=seconds,
            ticket=self.id,
            behind=behind,
            ending=None if ending is None else ending.value,
        )

    # My own ticket is watched once the hold has lasted a moment: an administrator may remove it, and
    # short holds should not pay for a watch they outrun.

    def _watch_own_ticket(self) -> None:
        self._timer = None
        if self._ended is not None:
            return
        seen = Line(self.resource, (), self._seen_at)
        try:
            signal = self._lease.wait_change(seen, (self._ticket,), amendments=False)
        except StoreError:  # no thread for it just now; until then the lease's deadline is what ends the belief
            self._timer = self._house.clock.schedule(self._house.clock.now() + RETRY_PAUSE_MAX, self._watch_own_ticket)
            return
        self._own_watch = signal
        signal.add_callback(self._look_soon)
        if self._ended is not None:
            signal.close()

    def _look_soon(self) -> None:
        signal = self._own_watch
        if self._ended is None and signal is not None:
            try:
                self._house.chores.submit(lambda: self._look_at_own_ticket(signal))
            except ClientClosed:
                return  # the client's closing has ended this hold
            except StoreError:  # no thread for it just now
                self._timer = self._house.clock.schedule(self._house.clock.now() + RETRY_PAUSE_MAX, self._look_soon)

    def _look_at_own_ticket(self, signal: Signal) -> None:
        signal.close()
        if self.state in _FINAL:
            return
        clock = self._house.clock
        try:
            line = self._lease.look(self._ticket, Reach.PREDECESSOR, self._request_until())
        except StoreWentBack as error:  # a store with another history: the lease may live there, the ticket does not
            self._finish(HoldState.LOST, str(error))
            return
        except StoreError:  # the lease's own deadline covers a store that stays away
            self._timer = clock.schedule(clock.now() + RETRY_PAUSE_MAX, self._watch_own_ticket)
            return
        except LeaseLost:
            return  # told through the lease
        if line.find(self.id) is None:
            why = "its ticket was removed from the store, by an administrator or with its lease"
            self._finish(HoldState.LOST, why, Ending.REMOVED, self._who_forced_it)
            return
        self._seen_at = line.revision
        self._watch_own_ticket()


def held_together(turn: Turn, entry: Entry) -> tuple[str, ...]:
    """Of a shared hold: its own id and, since a line admits in order, those ahead of it at its admission."""
    if entry.mode is Mode.EXCLUSIVE:
        return ()
    return ticket_ids(entry.id, (ticket.id for ticket in turn.line.tickets[: turn.line.position(entry.id)]))


class Deadline:
    """The end of what is proven of one hold. It moves with every renewal; a time-out taken from it does not."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def left(self) -> float:
        """Seconds for which the hold is still proven; 0.0 when it is not."""
        return self._holding.remaining()

    def timeout(self, at_most: float | None = None, *, reserve: float = 0.0) -> float:
        """A time-out for the next call that does not outlive the hold, and is no longer than `at_most`.

        `reserve` seconds are kept back for what has to be done after it. Raises LeaseLost when nothing is left.
        """
        most = checks.timeout(at_most)
        left = self.left() - checks.seconds(reserve, "reserve", least=0.0)
        if left <= 0:
            self._holding.check()
            raise LeaseLost(
                f"the hold of {self._holding.resource!r} is proven for less than the {reserve:g} s kept in reserve"
            )
        return left if most is None else min(most, left)

    def __repr__(self) -> str:
        return f"<holdfast.Deadline of {self._holding.resource!r} in {self.left():.3f} s>"


class Entered(Generic[Held]):
    """The holds of one lock object that were entered with `with`, by the thread or task that did."""

    def __init__(self) -> None:
        self._holds: list[tuple[object, Held]] = []

    def push(self, who: object, hold: Held) -> None:
        self._holds.append((who, hold))

    def pop(self, who: object) -> Held:
        """What `who` entered last. Where a block is left by another than entered it: one that is over, else the oldest.

        Nobody's living hold is to be given up in place of one that was lost.
        """
        mine = [index for index, (by, _) in enumerate(self._holds) if by == who]
        over = [index for index, (_, hold) in enumerate(self._holds) if hold.state in _FINAL]
        return self._holds.pop((mine[-1:] or over or [0])[0])[1]

    def __len__(self) -> int:
        return len(self._holds)


def _nothing() -> None:
    """Nothing to unsubscribe from yet."""
