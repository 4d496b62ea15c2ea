"""Leases for clients behind HTTP: each lives by its own TTL, which only its client's renewals move.

Behind each stands a lease at the store, of the same TTL, that this replica renews while the client does. It is ended
when the client says so, or when its TTL is over and the client can't believe in it any more: that counts from the last
renewal that came here, and the client counts from before it was sent. A replica that is killed or stopped renews
nothing: then the store ends the lease, and never before the client's belief, which reaches no further than ours did.
One that is over for its client is known here until it is over at the store, too.

A lease is this replica's, and ends with it. What a client asks for twice, because an answer was lost, is done once: a
lease and a ticket are found by the names that the client made for them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.aiodriver import arun
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LeaseLost, StoreRefused, StoreUnavailable
from holdfast.house import House
from holdfast.lease import Entry, Lease, Line, Ticket
from holdfast.limits import RETRY_PAUSE_MAX
from holdfast.sidecar.bounds import LEASES_OF_TENANT_MAX, LEFT_KNOWN_MAX, LEFT_KNOWN_SECONDS
from holdfast.sidecar.drain import Drain
from holdfast.sidecar.gate import Gate
from holdfast.sidecar.problems import Code, Problem, later
from holdfast.sidecar.tenants import Tenant
from holdfast.turn import Amend, Enter, Leave, Look, Operate, Renew, Step, Steps

Outcome = TypeVar("Outcome")
_GONE: Final = "this lease is over: closed, not renewed in time, or ended by the store. Stop the protected work"
_log = logging.getLogger("holdfast.sidecar")


class Ending(enum.Enum):
    """Why a lease is over for its client."""

    CLOSED = "closed"
    """Its client said so."""
    EXPIRED = "expired"
    """Its client did not renew it in time."""
    LOST = "lost"
    """The store ended it."""
    SHUTDOWN = "shutdown"
    """This service ends, and renews none any more."""


class Standing(NamedTuple):
    """What is lent at one moment."""

    leases: int
    tickets: int
    """Of those that wait as well."""


class Amendments:
    """Of one ticket: carried out one at a time, the newest last."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()  # held while one is carried out
        self.order = 0
        self.stands = True
        """Did the ticket stand when the newest was carried out?"""


class Lent:
    """One lease of one client. For the event loop."""

    def __init__(self, lease: Lease, tenant: Tenant, lock_delay: float, clock: Clock) -> None:
        self._clock = clock
        self.lease = lease
        self.tenant = tenant
        self.lock_delay = lock_delay
        self.ends_at = 0.0
        self.granted = False
        self.over = False
        self.timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Task[None] | None = None
        self.tickets: dict[str, Ticket] = {}
        self.entering: dict[str, asyncio.Task[Line]] = {}
        self.asked: set[str] = set()
        """Tickets that the store was asked to put: they may stand there, whatever was told of them."""
        self._amendments: dict[str, Amendments] = {}
        self._left: OrderedDict[str, float] = OrderedDict()  # when they did

    @property
    def stands(self) -> bool:
        """May its client believe in it?"""
        return self.granted and not self.over and not self.lease.state.over

    def amendments(self, ticket_id: str) -> Amendments:
        """Of that ticket."""
        return self._amendments.setdefault(ticket_id, Amendments())

    def amended(self, ticket_id: str, value: str) -> None:
        """Its value is another one now."""
        ticket = self.tickets.get(ticket_id)
        if ticket is not None:
            self.tickets[ticket_id] = ticket._replace(value=value)

    def leave_behind(self, ticket_id: str) -> None:
        """That ticket is gone: a request for it that comes late must not put another."""
        self.tickets.pop(ticket_id, None)
        self.entering.pop(ticket_id, None)
        self.asked.discard(ticket_id)
        self._amendments.pop(ticket_id, None)
        now = self._clock.now()
        self._left[ticket_id] = now
        while now - self._left[next(iter(self._left))] > LEFT_KNOWN_SECONDS or len(self._left) > LEFT_KNOWN_MAX:
            self._left.popitem(last=False)

    def has_left(self, ticket_id: str) -> bool:
        """Was it here, and is no more?"""
        return ticket_id in self._left


class Lending:
    """All leases that one replica has lent, for one event loop."""

    def __init__(self, house: House, holds_max: int, drain: Drain) -> None:
        self._house = house
        self._drain = drain
        self._gate = Gate(house)
        self._holds_max = holds_max
        self._replica = secrets.token_hex(8)
        self._lent: dict[tuple[str, str], Lent] = {}
        self._by_tenant: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()
        self._ended = dict.fromkeys(Ending, 0)

    def __len__(self) -> int:
        return len(self._lent)

    @property
    def standing(self) -> Standing:
        """What clients believe in, or may."""
        live = [lent for lent in self._lent.values() if lent.stands]
        return Standing(len(live), sum(len(lent.tickets) for lent in live))

    @property
    def ended(self) -> Mapping[Ending, int]:
        """How many leases are over since the start, of those that were granted."""
        return self._ended

    async def run(self, step: Step) -> Any:  # Any: each step has its own outcome, see turn.Steps
        """Carry out one step on the house's workers."""
        return await arun(_one(step), self._house.clock, self._house.workers)

    async def open(self, tenant: Tenant, nonce: str, ttl: float, lock_delay: float, until: float) -> tuple[str, Lent]:
        """The lease of that name, granted and proven, and what to call it by. Raises Problem, HoldfastError."""
        lease_id = f"{self._replica}.{nonce}"
        lent = self._lent.get((tenant.name, lease_id))
        if lent is None:
            if self._by_tenant[tenant.name] >= LEASES_OF_TENANT_MAX:
                raise later(
                    Code.TOO_MANY_LEASES, f"this tenant has {LEASES_OF_TENANT_MAX} leases here already: close some"
                )
            lent = Lent(self._house.lend(ttl, lock_delay), tenant, lock_delay, self._house.clock)
            self._lent[tenant.name, lease_id] = lent
            self._by_tenant[tenant.name] += 1
            self._extend(lent, self._house.clock.now())
            self._look_later(tenant.name, lease_id, lent)
        elif lent.over:
            raise Problem(Code.LEASE_GONE, _GONE)
        try:
            await self.renew(lent, until)
        except StoreRefused as error:
            if not lock_delay:
                raise
            self._forget(tenant.name, lease_id, lent)
            _log.warning("a lease was not granted: %s", error)
            told = f"the store does not grant {ttl:g} seconds with a lock delay of {lock_delay:g}: give less of them"
            raise Problem(Code.LEASE_REFUSED, told) from error
        return lease_id, lent

    def find(self, tenant: Tenant, lease_id: str) -> Lent:
        """Raises Problem: there is none (any more), or another replica has it."""
        lent = self._lent.get((tenant.name, lease_id))
        if lent is None or lent.over:
            if not lease_id.startswith(f"{self._replica}."):
                raise Problem(
                    Code.LEASE_ELSEWHERE, "another replica lent this lease: send what is about it there", retry=True
                )
            raise Problem(Code.LEASE_GONE, _GONE)
        return lent

    async def renew(self, lent: Lent, until: float) -> None:
        """Let it live for its TTL from now on."""
        came = self._house.clock.now()
        self._extend(lent, came)  # an answer of the store that takes long must not find it ended
        await self.asked(lent, Renew(lent.lease, until))
        lent.granted = True
        self._extend(lent, came)  # by what was granted

    async def asked(self, lent: Lent, step: Step) -> Any:  # Any: see `run`
        """Carry out a step on this lease. Raises Problem where it is over."""
        return await self._guarded(lent, self.run(step))

    async def enter(self, lent: Lent, entry: Entry, until: float) -> Line:
        """Put the ticket, once: whoever asks again for the same is told of that one."""
        if lent.has_left(entry.id):
            return Line(entry.resource, (), 0)
        ticket = lent.tickets.get(entry.id)
        if ticket is not None:
            looked: Line = await self.asked(lent, Look(lent.lease, ticket, entry.reach, until))
            return looked
        task = lent.entering.get(entry.id)
        if task is None:
            self._check_number(lent.tenant)
            task = asyncio.create_task(self._entered(lent, entry, until))
            lent.entering[entry.id] = task
            task.add_done_callback(lambda done: _settle(lent, entry.id, done))
        return await asyncio.shield(task)

    async def amend(self, lent: Lent, step: Amend, order: int) -> bool:
        """Give a ticket another value, unless a later amendment has; False where it is gone."""
        newest = lent.amendments(step.ticket.id)
        async with newest.turn:
            if order >= newest.order:
                newest.order = order
                newest.stands = await self.asked(lent, step)
                lent.amended(step.ticket.id, step.value)
            return newest.stands

    async def leave(self, lent: Lent, step: Leave) -> bool:
        """Remove a ticket; False where it was gone."""
        left: bool = await self.asked(lent, step)
        lent.leave_behind(step.ticket.id)
        return left

    def abandon(self, lent: Lent, entry: Entry) -> None:
        """See to it that its ticket goes, whatever became of it."""
        task = lent.entering.get(entry.id)
        if task is not None and not task.done():  # its fate first
            task.add_done_callback(lambda _: self.abandon(lent, entry))
            return
        put_here = entry.id in lent.asked
        lent.leave_behind(entry.id)
        if put_here:  # else its request has not come yet, if ever it was sent, or it is somebody else's
            lent.lease.abandon(entry)

    async def close(self, tenant: Tenant, lease_id: str, until: float) -> None:
        """End it at the store. Raises StoreUnavailable where it has not ended there by then: it will."""
        lent = self._lent.get((tenant.name, lease_id))
        if lent is None:
            return
        ending = self._end_soon(tenant.name, lease_id, lent, Ending.CLOSED, 0.0)
        await asyncio.wait((ending,), timeout=until - self._house.clock.now())
        if not ending.done() or ending.cancelled():
            raise StoreUnavailable("the store has not ended the lease yet; it is seen to")
        ending.result()

    def remaining(self, lent: Lent) -> float:
        """For how long its client may believe in it, from now on."""
        own = lent.ends_at - self._house.clock.now()
        return max(0.0, min(own, lent.lease.remaining()))

    async def end(self) -> None:
        """The service ends. What was lent is left to the store, as its clients believe in it for a while."""
        for lent in self._lent.values():
            self._is_over(lent, Ending.SHUTDOWN)
        for task in list(self._ending):
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _entered(self, lent: Lent, entry: Entry, until: float) -> Line:
        def steps(_: float) -> Steps[Line]:
            lent.asked.add(entry.id)
            line: Line = yield Enter(lent.lease, entry, until)
            return line

        line: Line = await self._guarded(lent, self._gate.run(steps, 0.0))
        me = line.find(entry.id)
        if me is not None:
            lent.tickets[entry.id] = me
        return line

    async def _guarded(self, lent: Lent, work: Any) -> Any:  # Any: a coroutine, and what it comes to
        try:
            return await work
        except LeaseLost as error:
            self._is_over(lent, Ending.LOST)
            raise Problem(Code.LEASE_GONE, _GONE) from error

    def _check_number(self, tenant: Tenant) -> None:
        others = (lent for lent in self._lent.values() if lent.tenant.name == tenant.name)
        if sum(len(lent.tickets) + len(lent.entering) for lent in others) >= self._holds_max:
            raise later(
                Code.TOO_MANY_HOLDS,
                f"this tenant may have {self._holds_max} tickets here, those that wait included: release some",
            )

    def _extend(self, lent: Lent, since: float) -> None:
        lent.ends_at = max(lent.ends_at, since + lent.lease.ttl)

    def _look_later(self, tenant: str, lease_id: str, lent: Lent) -> None:
        seconds = max(0.0, lent.ends_at - self._house.clock.now())
        loop = asyncio.get_running_loop()
        lent.timer = loop.call_later(seconds + 0.005, self._look, tenant, lease_id, lent)

    def _look(self, tenant: str, lease_id: str, lent: Lent) -> None:
        """Has its time come? Renewals move it without touching the timer."""
        if lent.ending is not None:
            return  # forgotten when it has ended
        if lent.lease.state.over:
            self._is_over(lent, Ending.LOST)
            self._forget(tenant, lease_id, lent)
        elif not lent.over and self._house.clock.now() < lent.ends_at:
            self._look_later(tenant, lease_id, lent)
        else:
            why = Ending.SHUTDOWN if self._drain.begun else Ending.EXPIRED
            self._end_soon(tenant, lease_id, lent, why, lent.lock_delay)

    def _is_over(self, lent: Lent, why: Ending) -> None:
        """Its client may believe in it no more. Why that is, is said by whoever comes first."""
        if lent.granted and not lent.over:
            self._ended[why] += 1
        lent.over = True

    def _forget(self, tenant: str, lease_id: str, lent: Lent) -> None:
        lent.over = True
        if lent.timer is not None:
            lent.timer.cancel()  # it would keep all of this until the TTL is over
        if self._lent.get((tenant, lease_id)) is lent:
            del self._lent[tenant, lease_id]
            self._by_tenant[tenant] -= 1

    def _end_soon(self, tenant: str, lease_id: str, lent: Lent, why: Ending, delay: float) -> asyncio.Task[None]:
        """It is over for its client, and known here until it is at the store, too: nobody else would end it there."""
        self._is_over(lent, why)
        if lent.ending is None:
            lent.ending = asyncio.create_task(self._end(lent, delay))
            self._ending.add(lent.ending)
            lent.ending.add_done_callback(self._ending.discard)
            lent.ending.add_done_callback(lambda _: self._forget(tenant, lease_id, lent))
        return lent.ending

    async def _end(self, lent: Lent, delay: float) -> None:
        """Close it. Whoever comes next after a loss waits for the lock delay, which is kept here.

        A try for which no worker came free has not begun, and beats go on: it is tried until one has, however often.
        After that nobody renews it any more, and its TTL ends it where the store does not answer.
        """
        await asyncio.sleep(delay)
        stands_until: float | None = None
        while stands_until is None or self._house.clock.now() < stands_until:
            try:
                await self.run(Operate(lent.lease.close, self._house.request_until()))
                return
            except HoldfastError as error:
                _log.warning("a lease that is over could not be ended at the store yet: %s", error)
            if stands_until is None and lent.lease.state.over:
                stands_until = self._house.clock.now() + lent.lease.ttl + lent.lock_delay
            await asyncio.sleep(RETRY_PAUSE_MAX)


def renamed(entry: Entry, resource: str) -> Entry:
    """The same wish, under the name that the store has for the line."""
    return dataclasses.replace(entry, resource=resource)


def _settle(lent: Lent, ticket_id: str, done: asyncio.Task[Line]) -> None:
    """It stands, or the store was never asked: then it may be asked for again. What nobody knows stays as it is."""
    if not done.cancelled():
        done.exception()  # whoever asked has heard of it, or has hung up
    if ticket_id in lent.tickets or ticket_id not in lent.asked:
        lent.entering.pop(ticket_id, None)


def _one(step: Step) -> Steps[Any]:
    return (yield step)
