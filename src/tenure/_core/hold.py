"""The hold: what a user gets when the turn has come.

`Holding` is the part both faces share: facts and belief, read without I/O. The faces add `renew`
and `release`, which talk to the store. The state has one owner at a time: until the end the lease, which is asked at
every reading, and from the end on the hold's watch (hold_watch.py).

    HELD ◀──▶ SUSPECT ──▶ LOST          for good
      └──────────┴──────▶ RELEASED      for good
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tenure._admin.models import Ending
from tenure._core.base import validation
from tenure._core.base.options import Options
from tenure._core.base.signals import Signal
from tenure._core.base.threads import generation, place, refuse_child
from tenure._core.guarded_keys import Keys
from tenure._core.hold_watch import FINAL, STATE_BY_LEASE, HoldEnd, HoldState, HoldWatch, Origin, WatchContext, Witness
from tenure._core.lease import Compare, Delete, Entry, Lease, LeaseState, Mode, Put, Record, Ticket, Workers
from tenure._core.turn import Abandon, Amend, Await, Leave, Renew, Steps, Turn
from tenure.errors import ClientClosed, LeaseLost, StaleToken
from tenure.fencing._fence import Fence, ticket_ids

Outcome = TypeVar("Outcome")
_STOP = ". Stop the protected work; somebody else may hold it now."


class HoldContext(WatchContext, Protocol):
    """Parts of its client that a hold needs; `runtime.Runtime` has them."""

    @property
    def workers(self) -> Workers: ...
    @property
    def closed(self) -> Signal: ...
    @property
    def closed_by(self) -> object: ...
    @property
    def options(self) -> Options: ...
    @property
    def store(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    def caller(self) -> object:
        """The caller: a thread, or what a simulation has in its place."""

    def line_name(self, resource: str) -> str:
        """The whole name of a line, as its fences have it."""


class Holding:
    """Hold of one admitted ticket: the facts and the belief that both faces show, read without I/O."""

    def __init__(self, turn: Turn, entry: Entry, lease: Lease, runtime: HoldContext) -> None:
        token = turn.ticket.token
        if token is None:  # no fence could be made of it; the ticket must not stand for a hold that never was
            lease.abandon(entry)
            raise LeaseLost(f"the store showed no token for the ticket of {entry.resource!r}")
        self._token = token
        self._entry = entry
        self._lease = lease
        self._runtime = runtime
        self._incarnation = runtime.incarnation  # of the store that admitted it, whatever its service learns later
        self._ids = held_together(turn, entry)
        self._born = generation()
        self._given_up = False  # by a release of its own, before anything else had ended it
        self._keys: Keys | None = None
        self._waited_seconds = turn.waited_seconds
        origin = Origin(*place(), self._acquirer(), runtime.store)
        self._watch = HoldWatch(turn.ticket, entry, lease, runtime, seen_at=turn.line.revision, origin=origin)
        # Last: from here on other threads may end this hold, and call what a subclass overrides.
        self._watch.begin(turn.waited_seconds, turn.behind)

    def __del__(self) -> None:
        watch: HoldWatch | None = getattr(self, "_watch", None)
        if watch is not None and watch.ended is None and self.state not in FINAL:
            watch.warn_forgotten("was forgotten while held, and is kept until its client is closed")

    def _acquirer(self) -> object:
        """The thread or task that acquires it, to be compared."""
        return self._runtime.caller()

    @property
    def token(self) -> int:
        """The fencing token. Grows along the line of this resource, in order of admission."""
        return self._token

    @property
    def fence(self) -> Fence:
        """The token as a value that can travel: `str(hold.fence)` for a header, `Fence.parse` at the other end.

        Guards (`tenure.fencing`) decide by it. Raises InvalidFence where too many seats are held together.
        """
        return Fence(self._runtime.line_name(self.resource), self._token, self._incarnation, self._ids)

    @property
    def resource(self) -> str:
        """The name that is held."""
        return self._entry.resource

    @property
    def owner(self) -> str:
        """The holder's name, as others see it."""
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
        return self._watch.ticket.value

    @property
    def state(self) -> HoldState:
        """The state right now, computed from the clock at this very reading."""
        if self._born != generation():  # in a forked child: the parent has it, and no thread here would end it
            return HoldState.LOST
        # The end first: it is for good, even where the lease lives on (a release, a ticket that was removed).
        ended = self._watch.ended
        return STATE_BY_LEASE[self._lease.state] if ended is None else ended.state

    def __bool__(self) -> bool:
        """True while `state` is HELD or SUSPECT, so that the hold is proven."""
        return self.state not in FINAL

    @property
    def reason(self) -> str:
        """Reason of the loss; "" while it is held."""
        ended = self._watch.ended
        if ended is not None:
            return ended.reason
        return "nothing proved it within its time to live" if self.state is HoldState.LOST else ""

    def remaining(self) -> float:
        """Seconds for which the hold is still proven; 0.0 when it is not. Asks nobody."""
        return 0.0 if self.state in FINAL else self._lease.remaining()

    @property
    def deadline(self) -> Deadline:
        """The end of what is proven, to be handed on: `timeout=hold.deadline.timeout(5.0)` for the next RPC."""
        return Deadline(self)

    def check(self) -> None:
        """Raise LeaseLost when the hold can't be proven any longer. Asks nobody."""
        self._require()

    def _require(self) -> None:
        """Raise as `check` does, for a call that is not the user's own."""
        refuse_child(self._born, f"the hold of {self.resource!r}")
        state = self.state
        if state is HoldState.LOST:
            raise self._lost_error()
        if state is HoldState.RELEASED:
            reason = f": {self.reason}" if self.reason else ""
            raise LeaseLost(f"the hold of {self.resource!r} (token {self.token}) was released{reason}. Acquire again.")

    def _require_for(self, body: object) -> None:
        """Raise as `check` does, before `body`, a thread or task, begins; ClientClosed where somebody else has just
        closed the client."""
        if self._taken_from(body):
            raise ClientClosed(
                f"the client was closed before the `with` body that was to have {self.resource!r} (token {self.token}) "
                "began: nothing of it was run. Connect again."
            )
        self._require()

    def on_change(self, callback: Callable[[HoldState], None]) -> None:
        """Call `callback(state)` on every change from now on, in order, on a thread of its own; after an end that was
        delivered before, at once."""
        if self._watch.on_change(callback):
            state = self.state
            self._runtime.deliver(lambda: callback(state))

    def statistics(self) -> dict[str, object]:
        """Facts about the hold, ready for JSON; the token is a string, as it may exceed 2^53."""
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
            "age_seconds": self._runtime.clock.now() - self._watch.since,
        }

    def __repr__(self) -> str:
        return (
            f"<tenure.Hold {self.resource!r} token={self.token} {self.state.value} "
            f"remaining={self.remaining():.1f} owner={self.owner!r}>"
        )

    def _plain_fence(self) -> Fence:
        """The fence without the tickets held together with it: for people, who compare tokens."""
        return Fence(self._runtime.line_name(self.resource), self._token, self._incarnation)

    def _lost_error(self) -> LeaseLost:
        return LeaseLost(
            f"the hold of {self.resource!r} (token {self.token}) can't be proven any longer: {self.reason}{_STOP}"
        )

    def _lost_under_body(self, error: BaseException | None) -> Steps[LeaseLost]:
        """The error for the edge of the body, once it is known who removed the ticket. Where `error`, which the body
        raised, is this hold's LeaseLost, its message is brought up to date as well: whoever logs it stands outside."""
        ended = self._watch.ended
        if ended is not None and ended.how is Ending.REMOVED:
            yield Await(self._watch.explained, self._request_until())
        lost = self._lost_error()
        if isinstance(error, LeaseLost) and str(error).startswith(str(lost).removesuffix(self.reason + _STOP)):
            error.args = lost.args
        return lost

    def _ended_by(self, error: Exception) -> bool:
        """Whether `error` speaks of this hold's loss. A guard may say so, too, and refuse for other reasons."""
        return isinstance(error, LeaseLost) or (isinstance(error, StaleToken) and self.state is HoldState.LOST)

    def _taken_from(self, body: object) -> bool:
        """True where somebody else closed the client under `body`, a thread or task, before the hold was given up."""
        if self._born != generation():
            return False
        # The lease is asked as well: it says that it is closed before its listeners hear of it.
        ended = self._watch.ended
        closed = self._lease.state is LeaseState.CLOSED if ended is None else ended.how is Ending.CLOSED
        return closed and not self._given_up and self._runtime.closed_by not in (None, body)

    # What ends or changes it, as steps for a driver.

    def _request_until(self) -> float:
        return self._runtime.clock.now() + self._runtime.request_seconds

    def _giving_up(self) -> Steps[bool]:
        """Belief ends first, then the ticket goes. True when this call removed it."""
        refuse_child(self._born, f"the hold of {self.resource!r}")
        watch = self._watch
        if watch.ended is None:
            self._given_up = True  # also where another thread's close ends it first, from here on
        state = self.state
        if state in FINAL:  # by the clock, perhaps, and nothing has announced it yet
            watch.finish(state, self.reason, Ending.CLOSED if self._lease.state is LeaseState.CLOSED else None)
            return False
        until = self._request_until()
        try:
            # Belief before the ticket: with the request under way somebody else may be admitted at any moment. Inside
            # the `try`, as subscribers run here: what interrupts them must not keep the ticket from the reaper.
            watch.finish(HoldState.RELEASED, "")
            gone: bool = yield Leave(self._lease, watch.ticket, until)
        except (LeaseLost, ClientClosed):
            return False  # gone with its lease meanwhile
        except GeneratorExit as error:  # dropped by its driver: no further step would be carried out
            self._lease.abandon(self._entry)
            watch.emit("release_failed", reason=type(error).__name__)
            raise
        except BaseException as error:  # unreachable, cancelled, interrupted: the reaper owns the ticket from here
            yield Abandon(self._lease, self._entry)
            watch.emit("release_failed", reason=type(error).__name__)
            raise
        if not gone:
            self._lease.abandon(self._entry)  # removed by somebody: a late `enter` could still bring it back
        return gone

    def _closed_under_body(self) -> Steps[ClientClosed]:
        """The error for the edge of the body, once the store has heard of the end: a program that goes on finds the
        line free."""
        yield Await(self._runtime.closed, self._request_until())
        return ClientClosed(
            f"the client was closed under the `with` body that had {self.resource!r} (token {self.token}): the hold "
            "was given up at that moment, and what the body did after it was not protected. Let bodies end before "
            "their client is closed, or call hold.check() in them; connect again for a new hold."
        )

    def _renewing(self) -> Steps[float]:
        self.check()
        remaining: float = yield Renew(self._lease, self._request_until())
        self.check()  # again: the lease may have been proven while this ticket was removed
        return remaining

    def _amending(self, value: str) -> Steps[None]:
        self.check()
        validation.text(value)
        watch = self._watch
        amended: bool = yield Amend(self._lease, watch.ticket, value, self._request_until())
        if not amended:
            watch.finish(HoldState.LOST, "its ticket was removed from the store", Ending.REMOVED)
            self.check()
        watch.ticket = watch.ticket._replace(value=value)
        watch.emit("amended")

    # The user's own keys in the same store, see guarded_keys.py.

    def _reading(self, keys: Sequence[str], absolute: bool = False) -> Steps[tuple[Record | None, ...]]:
        self.check()
        return (yield from self._while_it_stands(self._guarded_keys().read(keys, self._request_until(), absolute)))

    def _committing(
        self, operations: Sequence[Put | Delete | Compare], absolute: bool = False
    ) -> Steps[dict[str, int]]:
        self.check()
        steps = self._guarded_keys().commit(operations, self._request_until(), absolute)
        return (yield from self._while_it_stands(steps))

    def _guarded_keys(self) -> Keys:
        """The keys, made at their first use: most holds have none."""
        # Under the lock: two threads with a `Keys` each would not know of each other's commits.
        with self._watch.guard:
            if self._keys is None:
                self._keys = Keys(self._lease, self._watch.ticket, self._plain_fence, *self._runtime.options.key_places)
            return self._keys

    def _while_it_stands(self, steps: Steps[Outcome]) -> Steps[Outcome]:
        try:
            return (yield from steps)
        except (StaleToken, LeaseLost) as error:
            # The store has said so, in the exchange itself: nobody needs to wait for the watch to find it.
            how = Ending.REMOVED if isinstance(error, StaleToken) else None
            self._watch.finish(HoldState.LOST, "its ticket is gone from the store", how)
            raise

    # For our own layers: the journal, and subclasses with an end of their own.

    @property
    def _ticket(self) -> Ticket:
        return self._watch.ticket

    @property
    def _ended(self) -> HoldEnd | None:
        return self._watch.ended

    @property
    def _at_end(self) -> Signal:
        return self._watch.at_end

    def _on_end(self, witness: Witness) -> None:
        self._watch.on_end(witness)


def held_together(turn: Turn, entry: Entry) -> tuple[str, ...]:
    """Ids of the tickets that a shared hold is held together with; () for an exclusive one."""
    # Its own and, since a line admits in order, those that stood ahead of it at its admission.
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
        maximum = validation.timeout(at_most)
        left = self.left() - validation.seconds(reserve, "reserve", minimum=0.0)
        if left <= 0:
            self._holding.check()  # raises with the loss's own reason, where it is lost and not only short of time
            raise LeaseLost(
                f"the hold of {self._holding.resource!r} is proven for less than the {reserve:g} s kept in reserve"
            )
        return left if maximum is None else min(maximum, left)

    def __repr__(self) -> str:
        return f"<tenure.Deadline of {self._holding.resource!r} in {self.left():.3f} s>"
