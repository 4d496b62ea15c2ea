"""The turn: the only waiting loop. It waits until a ticket's turn has come, for every recipe.

It is a generator that decides and does no I/O: it yields a step, a driver carries the step out and
sends the outcome back. So one loop serves threads and asyncio, and a thousand waiters in one
process are a thousand small generators, not a thousand threads.

    enter ─▶ my turn? ──yes──▶ (announce) ─▶ the ticket
                │ no
                ▼
              wait for what blocks me ─▶ look ─▶ my turn? …

Every way out that is not the ticket withdraws it: at once where the store answers, through the
lease's reaper where it does not or where the wait was cut short.

Its values are named tuples, because every turn makes a handful: frozen dataclasses take twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tenure._core.base.clock import Clock
from tenure._core.base.limits import LEAVE_GRACE
from tenure._core.base.signals import Signal
from tenure._core.lease import Compare, Delete, Entry, Lease, LeaseState, Line, Put, Reach, Ticket
from tenure.errors import AcquireTimeout, ClientClosed, LeaseLost, LineMismatch, StoreUnavailable, TenureError
from tenure.events import Hub

_LOOK_AFTER_MIN: Final = 5.0


class Blockers(NamedTuple):
    """The tickets whose change may admit me; empty when it is my turn."""

    tickets: tuple[Ticket, ...] = ()
    amendments: bool = False
    """True where an amended ticket may admit me too, not only one that left."""
    look_after: float | None = None
    """The seconds after which to look even if nothing changed, for who should amend its ticket may be hung. None where
    no admission depends on anybody's being awake."""

    def __bool__(self) -> bool:
        return bool(self.tickets)


class Rule(Protocol):
    """Recipe, as one pure function over the line."""

    @property
    def reach(self) -> Reach:
        """The part of the line that the rule needs to see."""

    @property
    def announces(self) -> bool:
        """True where a ticket that had to wait amends itself when admitted, to wake its successor."""

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        """Tickets that have to go before me. Raises LineMismatch where I can't stand in this line."""


# The steps. A driver carries each out; `perform` in drivers/blocking.py says how.


class Enter(NamedTuple):
    lease: Lease
    entry: Entry
    until: float


class Look(NamedTuple):
    lease: Lease
    ticket: Ticket
    reach: Reach
    until: float


class Survey(NamedTuple):
    lease: Lease
    resource: str
    until: float
    front: int | None = None


class Await(NamedTuple):
    signal: Signal
    until: float | None


class Amend(NamedTuple):
    lease: Lease
    ticket: Ticket
    value: str
    until: float


class Leave(NamedTuple):
    lease: Lease
    ticket: Ticket
    until: float


class Renew(NamedTuple):
    lease: Lease
    until: float


class Abandon(NamedTuple):
    lease: Lease
    entry: Entry


class Read(NamedTuple):
    lease: Lease
    ticket: Ticket
    keys: tuple[str, ...]
    until: float


class Commit(NamedTuple):
    lease: Lease
    ticket: Ticket
    compares: tuple[Compare, ...]
    writes: tuple[Put | Delete, ...]
    until: float


class Touch(NamedTuple):
    lease: Lease
    ticket: Ticket
    until: float


class Operate(NamedTuple):
    """Verb for operators, see _admin/protocol.py; `call` gets `until`."""

    call: Callable[[float], Any]  # Any: each verb has its own outcome
    until: float


Step: TypeAlias = Enter | Look | Survey | Await | Amend | Leave | Renew | Abandon | Read | Commit | Touch | Operate
Outcome = TypeVar("Outcome")
# What a driver sends back depends on the step; each `yield` below states the type it expects.
Steps: TypeAlias = Generator[Step, Any, Outcome]


class Patience(NamedTuple):
    """Time that a call may take. Absolute: it travels through all steps and retries unchanged (law 8)."""

    until: float | None
    """The caller's deadline; None for as long as the lease lives."""
    request_seconds: float
    """How long one exchange with the store may take."""
    waits: bool = True
    """False: don't stand in line, give up unless it is my turn at once."""

    def request_until(self, now: float) -> float:
        # The caller's deadline bounds an exchange, but a patient caller does not lengthen one: a silent server is left
        # for another after `request_seconds`, whoever waits.
        return _sooner(now + self.request_seconds, self.until)


class NeverEntered(LeaseLost):
    """The lease had ended before the ticket stood in the line: a new lease may try at once."""


class Turn(NamedTuple):
    """Outcome of a turn: my ticket and the line in which its turn had come."""

    ticket: Ticket
    line: Line
    waited_seconds: float
    behind: str | None = None
    """The id of the ticket that stood ahead of it last; None where its turn had come at once."""


def take_turn(lease: Lease, entry: Entry, rule: Rule, patience: Patience, clock: Clock, hub: Hub) -> Steps[Turn | None]:
    """Enter the line and wait for my turn. None when it is not at once and `patience.waits` is false.

    Raises AcquireTimeout, LeaseLost, LineMismatch or a StoreError; the ticket is withdrawn then.
    """
    started = clock.now()
    # None until the store has shown the ticket: the ways out below must know whether there is one to leave by its
    # token, or only an entry whose fate is open.
    me: Ticket | None = None
    behind: str | None = None
    try:
        line = yield from _enter(lease, entry, patience.request_until(started))
        me = _mine(line, entry, lease)
        hub.emit(
            "entered",
            resource=entry.resource,
            owner=entry.owner,
            lease_id=lease.id,
            token=me.token,
            ttl=lease.ttl,
            ticket=entry.id,
        )
        waited = line.revision != me.token  # or others may have seen me wait, before this line was read
        # Decide from the line just read, wait from that very line, look again. An event only wakes (law 11): what it
        # says may be old by the time this runs.
        while True:
            line, blockers = yield from _decide(rule, line, me, entry, lease, patience, clock)
            if not blockers:
                break
            behind = blockers.tickets[-1].id
            if not patience.waits:
                yield from _withdraw(lease, entry, me, clock)
                _emit_end("busy", entry, clock.now() - started, hub, behind)
                return None
            waited = True
            # Made before the wait, because its message names who stood ahead, and the line is let go of below.
            too_late = AcquireTimeout(_out_of_time(blockers, line, entry))
            if patience.until is not None and clock.now() >= patience.until:
                raise too_late
            look_at = _look_at(blockers, started, clock.now())
            signal = lease.wait_change(line, blockers.tickets, amendments=blockers.amendments)
            del line, blockers  # or each of a thousand waiters would keep a thousand tickets
            yield from _wait_for(signal, look_at, too_late, entry, lease, patience)
            line = yield from _look_again(me, rule.reach, entry, lease, patience, clock)
            me = _mine(line, entry, lease)
        # Only where others may have seen this ticket wait: an amendment costs an exchange, and wakes somebody. It comes
        # before "acquired" is said, so a lease that ends meanwhile is found out here and not by the holder.
        if waited and rule.announces:
            yield from _announce(lease, entry, me, patience.request_until(clock.now()))
            _refuse_dead(lease, entry)
        return Turn(me, line, clock.now() - started, behind)
    except (AcquireTimeout, LineMismatch) as error:
        # First the ticket goes, then the end is announced: a subscriber that raises an interrupt costs no orphan.
        yield from _withdraw(lease, entry, me, clock)
        event = "timed_out" if isinstance(error, AcquireTimeout) else "abandoned"
        _emit_end(event, entry, clock.now() - started, hub, behind)
        raise
    except GeneratorExit:  # dropped by its driver without a word: nobody carries out a step any more
        lease.abandon(entry)
        _emit_end("abandoned", entry, clock.now() - started, hub, behind, reason="GeneratorExit")
        raise
    except BaseException as error:  # cancelled, interrupted, lost, unreachable: leave no orphan behind
        yield Abandon(lease, entry)
        _emit_end("abandoned", entry, clock.now() - started, hub, behind, reason=type(error).__name__)
        raise


def emit_abandoned(turn: Turn, entry: Entry, hub: Hub, why: BaseException) -> None:
    """Announce that a turn had come of which no hold was made."""
    _emit_end("abandoned", entry, turn.waited_seconds, hub, turn.behind, reason=type(why).__name__)


def _emit_end(
    event: str, entry: Entry, seconds: float, hub: Hub, behind: str | None, *, reason: str | None = None
) -> None:
    """Announce the end of a wait in vain."""
    hub.emit(
        event,
        resource=entry.resource,
        owner=entry.owner,
        reason=reason,
        seconds=seconds,
        ticket=entry.id,
        behind=behind,
    )


def _decide(
    rule: Rule, line: Line, me: Ticket, entry: Entry, lease: Lease, patience: Patience, clock: Clock
) -> Steps[tuple[Line, Blockers]]:
    """What blocks me in `line`, with the line it was seen in. Raises LineMismatch as the rule does."""
    try:
        return line, rule.blockers(line, me)
    except LineMismatch:
        if rule.reach is Reach.AHEAD:
            raise
    # My predecessor is of another kind; where the first of the line is not, it is the one to be refused, and I wait.
    line = yield from _look_again(me, Reach.AHEAD, entry, lease, patience, clock)
    return line, rule.blockers(line, _mine(line, entry, lease))


def _enter(lease: Lease, entry: Entry, until: float) -> Steps[Line]:
    try:
        line: Line = yield Enter(lease, entry, until)
    except LeaseLost as error:
        # The one loss that costs nothing: no ticket has stood yet, so a new lease may try without losing a place.
        raise NeverEntered(str(error)) from error
    return line


def _look_at(blockers: Blockers, started: float, now: float) -> float | None:
    if blockers.look_after is None:
        return None
    # Many wait ahead, and have moved up meanwhile: whoever has waited for a minute looks after another.
    return now + min(blockers.look_after, max(_LOOK_AFTER_MIN, now - started))


def _wait_for(
    signal: Signal, look_at: float | None, too_late: AcquireTimeout, entry: Entry, lease: Lease, patience: Patience
) -> Steps[None]:
    until = patience.until if look_at is None else _sooner(look_at, patience.until)
    try:
        woken: bool = yield Await(signal, until)
    finally:
        signal.close()  # also where the driver throws a cancellation in: the watch behind it is a shared thing
    # The end of the lease sets the signal too. Asked before `woken`: a lease that ended at the very deadline is lost,
    # and that is what the caller has to hear.
    _refuse_dead(lease, entry)
    if not woken and until == patience.until:
        raise too_late


def _look_again(me: Ticket, reach: Reach, entry: Entry, lease: Lease, patience: Patience, clock: Clock) -> Steps[Line]:
    """The line as it is now. A waiter outlives a store's absence for as long as its lease is proven."""
    # Longer than one exchange may usually take: to give up here would give the place in the line away, though the lease
    # and the ticket still stand.
    now = clock.now()
    until = _sooner(now + max(patience.request_seconds, lease.remaining()), patience.until)
    try:
        line: Line = yield Look(lease, me, reach, until)
    except StoreUnavailable as error:
        _refuse_dead(lease, entry)
        if patience.until is not None and clock.now() >= patience.until:
            raise AcquireTimeout(
                f"the turn for {entry.resource!r} had not come in time, and the store was silent at the end: {error}"
            ) from error
        raise
    return line


def _announce(lease: Lease, entry: Entry, me: Ticket, until: float) -> Steps[None]:
    amended: bool = yield Amend(lease, me, entry.value, until)
    if not amended:
        raise LeaseLost(
            f"the place in the line of {entry.resource!r} is gone: somebody removed the ticket. Acquire again."
        )


def _withdraw(lease: Lease, entry: Entry, me: Ticket | None, clock: Clock) -> Steps[None]:
    """Leave the line now if the store answers at once; let the reaper do it otherwise."""
    if me is None:  # its fate is open: a late `enter` may still put it (law 6), so the reaper looks for it by its id
        yield Abandon(lease, entry)
        return
    try:
        gone: bool = yield Leave(lease, me, clock.now() + LEAVE_GRACE)
    except TenureError:  # why the wait failed matters more than why its end did
        gone = False
    except GeneratorExit:  # a generator that is closed may not yield any more
        lease.abandon(entry)
        raise
    except BaseException:  # interrupted or cancelled in the middle of it: whether the request went out is not known
        yield Abandon(lease, entry)
        raise
    if not gone:  # or removed by somebody: a late `enter` could still bring it back
        yield Abandon(lease, entry)


def _mine(line: Line, entry: Entry, lease: Lease) -> Ticket:
    """Find my ticket in the line; raise LeaseLost where it is gone (law 3)."""
    # The clock first: a ticket may be seen in a line that was read before the lease ended.
    _refuse_dead(lease, entry)
    me = line.find(entry.id)
    if me is None:
        raise LeaseLost(
            f"the place in the line of {entry.resource!r} is gone: the lease ended at the store, or somebody removed "
            "the ticket. Acquire again."
        )
    return me


def _refuse_dead(lease: Lease, entry: Entry) -> None:
    state = lease.state
    if state is LeaseState.CLOSED:
        raise ClientClosed(f"the client was closed while waiting for {entry.resource!r}")
    if state is LeaseState.LOST:
        raise LeaseLost(
            f"the lease ended while waiting for {entry.resource!r}: nothing proved it within its {lease.ttl:g} s. "
            "The place in the line is lost; acquire again."
        )


def _out_of_time(blockers: Blockers, line: Line, entry: Entry) -> str:
    ahead = line.position(entry.id) or 0
    owner = blockers.tickets[-1].owner
    known = f"at least {ahead} ticket{'s' if ahead != 1 else ''} stood ahead"
    return f"the turn for {entry.resource!r} did not come in time; {known}" + (
        f", the next of them of {owner!r}" if owner else ""
    )


def _sooner(a: float, b: float | None) -> float:
    return a if b is None else min(a, b)
