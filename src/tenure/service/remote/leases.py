"""Leases for remote clients: each lives by its own TTL, which only its client's renewals move.

Behind each stands a lease at the store, of the same TTL, that this replica renews while the client does. It is ended
when the client closes it, or when its TTL is over and the client can't believe in it any more: that counts from the
last renewal that came here, and the client counts from before it was sent. A replica that is killed or stopped renews
nothing: then the store ends the lease, and never before the client's belief, which reaches no further than ours did.
A lease that is over for its client is known here until it is over at the store, too.

Of a client that keeps a journal the holds are written down here, from what this replica sees of them: their tickets'
turns, and their ends by a release, a removal or the end of the client. Any other end is derived by whoever reads.

A lease belongs to this replica, and ends with it. A request that a client repeats, because an answer was lost, is
carried out once: a lease and a ticket are found by the names that the client made for them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from tenure._admin.journal import Journal
from tenure._admin.models import Ending, JournalEntry, admitted, kind_of
from tenure._admin.protocol import wall_time
from tenure._core.base.clock import Clock
from tenure._core.base.limits import JOURNAL_CLOSE_SECONDS, JOURNAL_MAX, RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure._core.drivers.asyncio import arun
from tenure._core.lease import Entry, Lease, Line, Reach, Ticket
from tenure._core.runtime import Runtime
from tenure._core.turn import Amend, Enter, Leave, Look, Operate, Renew, Step, Steps
from tenure.errors import LeaseLost, StoreRefused, StoreUnavailable, TenureError
from tenure.service.auth.tokens import Tenant
from tenure.service.holds.concurrency import EnterLimit
from tenure.service.http.problems import Problem, ProblemCode, later
from tenure.service.limits import LEASES_OF_TENANT_MAX, LEFT_KNOWN_MAX, LEFT_KNOWN_SECONDS
from tenure.service.shutdown import Shutdown

Outcome = TypeVar("Outcome")
_GONE: Final = "this lease is over: closed, not renewed in time, or ended by the store. Stop the protected work"
_log = logging.getLogger("tenure.service")


class RemoteEnding(enum.Enum):
    """Why a lease is over for its client."""

    CLOSED = "closed"
    """Closed by its client."""
    EXPIRED = "expired"
    """Not renewed in time by its client."""
    LOST = "lost"
    """Ended by the store."""
    SHUTDOWN = "shutdown"
    """Ended with this service, which renews no lease any more."""


class LeaseTotals(NamedTuple):
    """Numbers of remote leases and their tickets at one moment."""

    leases: int
    tickets: int
    """Tickets that wait included."""


class Amendments:
    """The amendments of one ticket: carried out one at a time; an older one never after a newer."""

    def __init__(self) -> None:
        self.lock: asyncio.Lock = asyncio.Lock()  # held while one is carried out
        self.order = 0
        self.stands = True
        """True if the ticket stood when the newest was carried out."""


class RemoteLease:
    """A lease of one client, with its tickets. Belongs to the event loop."""

    def __init__(
        self,
        lease_id: str,
        store_lease: Lease,
        tenant: Tenant,
        lock_delay: float,
        clock: Clock,
        journal: Journal | None = None,
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._written: dict[str, tuple[JournalEntry, float]] = {}  # holds in the journal, and when their turns came
        self.id = lease_id
        self.store_lease = store_lease
        self.tenant = tenant
        self.lock_delay = lock_delay
        self.ends_at: float = 0.0
        self.granted = False
        self.over = False
        self.timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Task[None] | None = None
        self.tickets: dict[str, Ticket] = {}
        self.entering: dict[str, asyncio.Task[Line]] = {}
        self.sent: set[str] = set()
        """Tickets for which an `Enter` was begun: they may stand in the store, whatever became of it."""
        self.entered_at: dict[str, float] = {}
        self._amendments: dict[str, Amendments] = {}
        self._left: OrderedDict[str, float] = OrderedDict()  # ticket id to the time at which it left

    @property
    def stands(self) -> bool:
        """True while its client may believe in it."""
        return self.granted and not self.over and not self.store_lease.state.over

    def amendments(self, ticket_id: str) -> Amendments:
        """Return the amendments of that ticket."""
        return self._amendments.setdefault(ticket_id, Amendments())

    def amended(self, ticket_id: str, value: str) -> None:
        """Remember the new value of a ticket."""
        ticket = self.tickets.get(ticket_id)
        if ticket is not None:
            self.tickets[ticket_id] = ticket._replace(value=value)

    def looked(self, ticket_id: str, reach: Reach, line: Line) -> None:
        """Write down in the journal what the line, up to that ticket, shows of it: its turn, or its removal."""
        ticket = self.tickets.get(ticket_id)
        if self._journal is None or ticket is None:
            return
        if line.find(ticket_id) is None:
            self.ended(ticket_id, Ending.REMOVED)
            return
        before = line.position(ticket_id)
        turn_came = not before or (reach is Reach.AHEAD and admitted(line) > before)
        kind = kind_of((ticket,))
        if turn_came and kind is not None and ticket_id not in self._written:
            now, facts = self._clock.now(), (ticket.owner or "", ticket.token or 0, ticket.value, wall_time())
            waited = now - self.entered_at.get(ticket_id, now)
            entry = JournalEntry(ticket.resource, kind, *facts, waited, ticket_id=ticket_id)
            self._written[ticket_id] = (entry, now)
            self._journal.add(entry)

    def ended(self, ticket_id: str, how: Ending) -> None:
        """Write down in the journal that a hold has ended; once, and nothing where its turn had not come."""
        entry, since = self._written.pop(ticket_id, (None, 0.0))
        if self._journal is not None and entry is not None:
            ticket, held = self.tickets.get(ticket_id), self._clock.now() - since
            value = entry.value if ticket is None else ticket.value
            self._journal.add(dataclasses.replace(entry, value=value, held=held, ended=how))

    def all_ended(self, how: Ending) -> None:
        """Write down in the journal that all holds have ended."""
        for ticket_id in list(self._written):
            self.ended(ticket_id, how)

    def ticket_gone(self, ticket_id: str) -> None:
        """Forget a ticket that is gone, but for its id: a request for it that comes late must not put another."""
        self.ended(ticket_id, Ending.RELEASED)
        self.tickets.pop(ticket_id, None)
        self.entered_at.pop(ticket_id, None)
        self.entering.pop(ticket_id, None)
        self.sent.discard(ticket_id)
        self._amendments.pop(ticket_id, None)
        now = self._clock.now()
        self._left[ticket_id] = now
        while now - self._left[next(iter(self._left))] > LEFT_KNOWN_SECONDS or len(self._left) > LEFT_KNOWN_MAX:
            self._left.popitem(last=False)

    def has_left(self, ticket_id: str) -> bool:
        """Say whether that ticket was here and has gone."""
        return ticket_id in self._left


class RemoteLeases:
    """The remote leases of one replica. Belongs to one event loop."""

    def __init__(
        self, runtime: Runtime, holds_max: int, shutdown: Shutdown, tenants: Callable[[], int] = lambda: 1
    ) -> None:
        """Serve as many tenants as `tenants` says, each with a journal of its own."""
        self._runtime = runtime
        self._tenants = tenants
        self._journals: dict[str, Journal] = {}
        self._shutdown = shutdown
        self._enter_limit = EnterLimit(runtime)
        self._holds_max = holds_max
        self._replica = secrets.token_hex(8)
        self._leases: dict[tuple[str, str], RemoteLease] = {}
        self._by_tenant: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()
        self._ended = dict.fromkeys(RemoteEnding, 0)

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def totals(self) -> LeaseTotals:
        """The leases in which clients may believe, and their tickets."""
        live = [lease for lease in self._leases.values() if lease.stands]
        return LeaseTotals(len(live), sum(len(lease.tickets) for lease in live))

    @property
    def ended(self) -> Mapping[RemoteEnding, int]:
        """Leases that were granted and are over, counted since the start."""
        return self._ended

    async def run(self, step: Step) -> Any:  # Any: each step has its own outcome, see turn.Steps
        """Carry out one step on the client's workers."""
        return await arun(_one(step), self._runtime.clock, self._runtime.workers)

    async def open(
        self, tenant: Tenant, nonce: str, ttl: float, lock_delay: float, until: float, *, journal: bool = False
    ) -> tuple[str, RemoteLease]:
        """Return the lease of that nonce, granted and proven, with its id. Raises Problem, TenureError.

        With `journal` the holds under it are written down.
        """
        lease_id = f"{self._replica}.{nonce}"
        lease = self._leases.get((tenant.name, lease_id))
        if lease is None:
            if self._by_tenant[tenant.name] >= LEASES_OF_TENANT_MAX:
                raise later(
                    ProblemCode.TOO_MANY_LEASES,
                    f"this tenant has {LEASES_OF_TENANT_MAX} leases here already: close some",
                )
            store_lease = self._runtime.open_lease(ttl, lock_delay)
            kept = self._journal(tenant) if journal else None
            lease = RemoteLease(lease_id, store_lease, tenant, lock_delay, self._runtime.clock, kept)
            self._leases[tenant.name, lease_id] = lease
            self._by_tenant[tenant.name] += 1
            self._extend(lease, self._runtime.clock.now())
            self._look_later(lease)
        elif lease.over:
            raise Problem(ProblemCode.LEASE_GONE, _GONE)
        try:
            await self.renew(lease, until)
        except StoreRefused as error:
            if not lock_delay:
                raise
            self._forget(lease)
            _log.warning("a lease was not granted: %s", error)
            detail = f"the store does not grant {ttl:g} seconds with a lock delay of {lock_delay:g}: give less of them"
            raise Problem(ProblemCode.LEASE_REFUSED, detail) from error
        return lease_id, lease

    def find(self, tenant: Tenant, lease_id: str) -> RemoteLease:
        """Return a tenant's lease. Raises Problem where there is none (any more), or another replica has it."""
        lease = self._leases.get((tenant.name, lease_id))
        if lease is None or lease.over:
            if not lease_id.startswith(f"{self._replica}."):
                raise Problem(
                    ProblemCode.LEASE_ELSEWHERE,
                    "another replica opened this lease: send requests about it there",
                    retry=True,
                )
            raise Problem(ProblemCode.LEASE_GONE, _GONE)
        return lease

    async def renew(self, lease: RemoteLease, until: float) -> None:
        """Let a lease live for its TTL from now on."""
        came = self._runtime.clock.now()
        self._extend(lease, came)  # first: it must not run out here while the store takes long to answer
        await self.run_for(lease, Renew(lease.store_lease, until))
        lease.granted = True
        self._extend(lease, came)  # again: the granted TTL may be longer than the one asked for

    async def run_for(self, lease: RemoteLease, step: Step) -> Any:  # Any: see `run`
        """Carry out a step on a lease. Raises Problem where the lease is over."""
        return await self._guarded(lease, self.run(step))

    async def enter(self, lease: RemoteLease, entry: Entry, until: float) -> Line:
        """Put a ticket, once: a repeated request is answered with the line of that one."""
        if lease.has_left(entry.id):
            return Line(entry.resource, (), 0)
        ticket = lease.tickets.get(entry.id)
        if ticket is not None:
            return await self.look(lease, ticket, entry.reach, until)
        task = lease.entering.get(entry.id)
        if task is None:
            self._check_number(lease.tenant)
            task = asyncio.create_task(self._enter(lease, entry, until))
            lease.entering[entry.id] = task
            task.add_done_callback(lambda done: _settle(lease, entry.id, done))
        return await asyncio.shield(task)

    async def look(self, lease: RemoteLease, ticket: Ticket, reach: Reach, until: float) -> Line:
        """Return the line up to a ticket."""
        line: Line = await self.run_for(lease, Look(lease.store_lease, ticket, reach, until))
        lease.looked(ticket.id, reach, line)
        return line

    async def amend(self, lease: RemoteLease, step: Amend, order: int) -> bool:
        """Give a ticket another value, unless a later amendment has; False where the ticket is gone."""
        newest = lease.amendments(step.ticket.id)
        async with newest.lock:
            if order >= newest.order:
                newest.order = order
                newest.stands = await self.run_for(lease, step)
                lease.amended(step.ticket.id, step.value)
            return newest.stands

    async def leave(self, lease: RemoteLease, step: Leave) -> bool:
        """Remove a ticket; False where it was gone."""
        left: bool = await self.run_for(lease, step)
        lease.ticket_gone(step.ticket.id)
        return left

    def abandon(self, lease: RemoteLease, entry: Entry) -> None:
        """Have the ticket of an entry removed, whatever became of the entry."""
        task = lease.entering.get(entry.id)
        if task is not None and not task.done():  # the fate of the entry comes first
            task.add_done_callback(lambda _: self.abandon(lease, entry))
            return
        put_here = entry.id in lease.sent
        lease.ticket_gone(entry.id)
        if put_here:  # else its request has not come here yet, or never will, or the ticket is another client's
            lease.store_lease.abandon(entry)

    async def close(self, tenant: Tenant, lease_id: str, until: float, *, lost: bool = False) -> None:
        """End a lease at the store; `lost`: its client believed in it no more.

        Raises StoreUnavailable where that takes longer; it goes on in the background.
        """
        lease = self._leases.get((tenant.name, lease_id))
        if lease is None:
            return
        if not lost:
            lease.all_ended(Ending.CLOSED)
        ending = self._end_soon(lease, RemoteEnding.CLOSED, 0.0)
        await asyncio.wait((ending,), timeout=until - self._runtime.clock.now())
        if not ending.done() or ending.cancelled():
            raise StoreUnavailable("the store has not ended the lease yet; it is seen to")
        ending.result()

    def remaining(self, lease: RemoteLease) -> float:
        """Return the seconds from now for which the client may believe in a lease."""
        by_renewals = lease.ends_at - self._runtime.clock.now()
        return max(0.0, min(by_renewals, lease.store_lease.remaining()))

    async def end(self) -> None:
        """End with the service. Store leases are left to their TTLs: clients believe in them for a while."""
        for lease in self._leases.values():
            self._is_over(lease, RemoteEnding.SHUTDOWN)
        for task in list(self._ending):
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        until = self._runtime.clock.now() + JOURNAL_CLOSE_SECONDS
        await asyncio.gather(*(self.run(Operate(journal.close, until)) for journal in self._journals.values()))

    async def _enter(self, lease: RemoteLease, entry: Entry, until: float) -> Line:
        def steps(_: float) -> Steps[Line]:
            lease.sent.add(entry.id)
            lease.entered_at.setdefault(entry.id, self._runtime.clock.now())
            line: Line = yield Enter(lease.store_lease, entry, until)
            return line

        line: Line = await self._guarded(lease, self._enter_limit.run(steps, 0.0))
        me = line.find(entry.id)
        if me is not None:
            lease.tickets[entry.id] = me
            lease.looked(entry.id, entry.reach, line)
        return line

    def _journal(self, tenant: Tenant) -> Journal:
        """Return the journal of a tenant, which keeps as much as any other; that of all names keeps no other back."""
        if tenant.name not in self._journals:
            runtime, keep = self._runtime, JOURNAL_MAX * (1 if tenant.prefix else 1 + self._tenants())
            self._journals[tenant.name] = Journal(
                runtime.admin, runtime.clock, runtime.background, runtime.request_seconds, tenant.prefix, keep
            )
        return self._journals[tenant.name]

    async def _guarded(self, lease: RemoteLease, work: Any) -> Any:  # Any: a coroutine, and what it comes to
        try:
            return await work
        except LeaseLost as error:
            self._is_over(lease, RemoteEnding.LOST)
            raise Problem(ProblemCode.LEASE_GONE, _GONE) from error

    def _check_number(self, tenant: Tenant) -> None:
        others = (lease for lease in self._leases.values() if lease.tenant.name == tenant.name)
        if sum(len(lease.tickets) + len(lease.entering) for lease in others) >= self._holds_max:
            raise later(
                ProblemCode.TOO_MANY_HOLDS,
                f"this tenant may have {self._holds_max} tickets here, those that wait included: release some",
            )

    def _extend(self, lease: RemoteLease, since: float) -> None:
        lease.ends_at = max(lease.ends_at, since + lease.store_lease.ttl)

    def _look_later(self, lease: RemoteLease) -> None:
        seconds = max(0.0, lease.ends_at - self._runtime.clock.now())
        loop = asyncio.get_running_loop()
        lease.timer = loop.call_later(seconds + 0.005, self._look, lease)

    def _look(self, lease: RemoteLease) -> None:
        """End a lease whose time has come, or set the timer again: renewals move the end without touching the timer."""
        if lease.ending is not None:
            return  # `_end_soon` forgets it when it has ended
        if lease.store_lease.state.over:
            self._is_over(lease, RemoteEnding.LOST)
            self._forget(lease)
        elif not lease.over and self._runtime.clock.now() < lease.ends_at:
            self._look_later(lease)
        else:
            why = RemoteEnding.SHUTDOWN if self._shutdown.begun else RemoteEnding.EXPIRED
            self._end_soon(lease, why, lease.lock_delay)

    def _is_over(self, lease: RemoteLease, why: RemoteEnding) -> None:
        """Mark a lease as over for its client, and count why; only the first reason counts."""
        if lease.granted and not lease.over:
            self._ended[why] += 1
        lease.over = True

    def _forget(self, lease: RemoteLease) -> None:
        lease.over = True
        if lease.timer is not None:
            lease.timer.cancel()  # it would keep the lease in memory until the TTL is over
        name = lease.tenant.name
        if self._leases.get((name, lease.id)) is lease:
            del self._leases[name, lease.id]
            self._by_tenant[name] -= 1

    def _end_soon(self, lease: RemoteLease, why: RemoteEnding, delay: float) -> asyncio.Task[None]:
        """Mark a lease as over for its client, and end it at the store; it is known here until then."""
        self._is_over(lease, why)
        if lease.ending is None:
            lease.ending = asyncio.create_task(self._end(lease, delay))
            self._ending.add(lease.ending)
            lease.ending.add_done_callback(self._ending.discard)
            lease.ending.add_done_callback(lambda _: self._forget(lease))
        return lease.ending

    async def _end(self, lease: RemoteLease, delay: float) -> None:
        """Close a store lease, after the lock delay, for which the next in line has to wait after a loss.

        A try for which no worker is free does not begin, and renewals go on: this is tried until one begins, however
        often. From then on nothing renews the lease, and its TTL ends it where the store does not answer.
        """
        await asyncio.sleep(delay)
        stands_until: float | None = None
        while stands_until is None or self._runtime.clock.now() < stands_until:
            try:
                await self.run(Operate(lease.store_lease.close, self._runtime.request_until()))
                return
            except TenureError as error:
                _log.warning("a lease that is over could not be ended at the store yet: %s", error)
            if stands_until is None and lease.store_lease.state.over:
                stands_until = self._runtime.clock.now() + lease.store_lease.ttl + lease.lock_delay
            await asyncio.sleep(jittered(RETRY_PAUSE_MAX))


def renamed(entry: Entry, resource: str) -> Entry:
    """Return the same entry, under the store's name for the line."""
    return dataclasses.replace(entry, resource=resource)


def _settle(lease: RemoteLease, ticket_id: str, done: asyncio.Task[Line]) -> None:
    """Forget an entry whose ticket stands, or that was never sent: it may be sent again. One of unknown fate stays."""
    if not done.cancelled():
        done.exception()  # marks it as retrieved: its callers were given it, or have hung up
    if ticket_id in lease.tickets or ticket_id not in lease.sent:
        lease.entering.pop(ticket_id, None)


def _one(step: Step) -> Steps[Any]:
    return (yield step)
