"""The Keeper: holds on behalf of owners who are behind HTTP.

Each hold lives by its own TTL, which only `renew` moves: an owner that dies behind a living service loses its lock.
What `Kept.remaining()` says is the belief of law 2: the owner's must end by it, and nobody else is admitted before.

On etcd each hold has a lease of its own (own.py). Any replica of the service renews and releases it, and it outlives
the one that took it. It has ended when the store has ended it: a renewal that comes after its owner stopped believing,
and finds the ticket still standing, is one, because nobody else can have been admitted meanwhile.

On ZooKeeper and memory holds share the service's lease, and their TTLs are timers of this replica (timed.py): belief
ends first, then the ticket is removed, and a renewal after that is too late. No TTL is granted that is longer than the
service's own. Such a hold is this replica's: others raise HeldElsewhere.

What comes back of `renew` and `release` is about that very hold, never about a later one of the same name:

* HoldGone is final. The hold was released, ran out, was forced out or lost with its lease.
* The first `release` that the store carries out is done; a second one raises HoldGone. So after a lost answer HoldGone
  means what the owner wanted: it does not hold.
* After StoreUnavailable a hold that was to be released is over for its owner, who may say so again.

A caller that hangs up while it waits leaves nothing behind. Whoever gives back what `acquire` returned, and then can't
tell the caller, releases it, or leaves it to its TTL: the same idempotency key finds it until then.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field

from holdfast import aio, checks
from holdfast.clock import Clock
from holdfast.errors import AcquireTimeout, ClientClosed, HoldfastError, InvalidOption
from holdfast.fence import Fence
from holdfast.house import House
from holdfast.lanes import Lanes
from holdfast.limits import WORKERS_MAX
from holdfast.names import checked_owner, encode
from holdfast.recipes import lock, rwlock, semaphore
from holdfast.recipes.ask import Ask
from holdfast.sidecar import holdids
from holdfast.sidecar.errors import HeldElsewhere, HoldGone, KeyReused, NoSuchHold
from holdfast.sidecar.gate import Gate
from holdfast.sidecar.holdids import HoldId, TimedId
from holdfast.sidecar.once import Once
from holdfast.sidecar.own import OwnHold, OwnHolds, Untold
from holdfast.sidecar.timed import TimedHold, TimedHolds
from holdfast.sidecar.waits import CLOSING, Waits

__all__ = ["HeldElsewhere", "HoldGone", "HoldId", "Keeper", "Kept", "KeyReused", "NoSuchHold", "Wanted"]
_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to hold. `slots` makes it a seat of a semaphore, `shared` the reading side of an rwlock."""

    resource: str
    owner: str
    ttl: float
    slots: int | None = None
    weight: int = 1
    shared: bool = False
    value: str = ""
    idempotency: str | None = field(default=None, repr=False)
    """The same key and the same wish are one hold, whatever answers were lost. As hard to guess as the id of a hold."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A hold, as it was when it was told. `remaining()` goes on counting."""

    id: HoldId = field(repr=False)
    resource: str
    owner: str
    token: int
    fence: Fence | None
    """None where more tickets are held together than a fence can name."""
    ttl: float
    """The granted time to live, in seconds. Only `renew` makes it begin anew."""
    deadline: float = field(repr=False)
    clock: Clock = field(repr=False)
    untold: Untold | None = field(default=None, repr=False, compare=False)

    def remaining(self) -> float:
        """Seconds for which its owner may believe in it; 0.0 when no longer. Asks nobody."""
        return max(0.0, self.deadline - self.clock.now())


class Keeper:
    """The holds of one service, on one store, for one event loop.

    `address` is where other replicas' clients reach this one, for holds that only it can renew. Closing it does not
    close the client.
    """

    def __init__(self, client: aio.Client, *, address: str = "", remembers_seconds: float = 600.0) -> None:
        self._house: House = client._house
        self._once: Once[Wanted, Kept] = Once(self._house.clock, remembers_seconds)
        self._gate = gate = Gate(self._house)
        lanes = Lanes(self._house.workers, WORKERS_MAX if self._house.goes_aside else 0)
        self._timed = TimedHolds(self._house, gate, lanes, address)
        entrusting = self._house.entrusting()
        self._own = None if entrusting is None else OwnHolds(self._house, gate, lanes, entrusting, remembers_seconds)
        self._waits = Waits()
        self._closed = False

    @property
    def crowded(self) -> bool:
        """Do so many ask at this moment that the next one has to wait before the store is asked?"""
        return self._gate.crowded

    async def acquire(self, wanted: Wanted, *, wait_seconds: float) -> Kept | None:
        """The hold; None where its turn did not come within `wait_seconds`. Cancelling this leaves nothing behind.

        With an idempotency key that is known: the hold it stands for, renewed. Raises HoldGone where that has ended
        (the key is spent), KeyReused (another wish), LeaseLost (the place in the line was lost), LineMismatch,
        UsageError, StoreError, ClientClosed.
        """
        ask = _ask(wanted)
        give_up = self._house.clock.now() + checks.seconds(wait_seconds, "wait_seconds", least=0.0)

        async def acquire() -> Kept | None:
            return await self._acquire(ask, max(0.0, give_up - self._house.clock.now()), wanted.idempotency)

        if wanted.idempotency is None:
            return await acquire()
        wish = dataclasses.replace(wanted, idempotency=None)
        return await self._once.run(
            wanted.idempotency, wish, acquire, lambda kept: self.renew(kept.id), self._undo, give_up
        )

    async def renew(self, hold_id: HoldId) -> Kept:
        """Let it live for its TTL from now on.

        Raises HoldGone, HeldElsewhere, NoSuchHold, StoreError; ClientClosed for what ends with this replica.
        """
        found = holdids.read(hold_id)
        if isinstance(found, TimedId):
            return self._kept(self._timed.renew(found))
        return self._kept(await self._own_holds().renew(found))

    async def release(self, hold_id: HoldId) -> None:
        """Give it up. Raises HoldGone, HeldElsewhere, NoSuchHold, StoreError."""
        found = holdids.read(hold_id)
        if isinstance(found, TimedId):
            await self._timed.release(found)
        else:
            await self._own_holds().release(found)

    def resource_of(self, hold_id: HoldId) -> str:
        """What it is a hold of, as its id says, for whoever has to decide whether to go on. Raises NoSuchHold."""
        return holdids.read(hold_id).resource

    async def until_unbelieved(self) -> None:
        """Renew no hold that lives by a timer here any more, and wait until no owner believes in one.

        Each is released by then, or what its owner was told is over: that takes one TTL at most.
        """
        await self._timed.until_unbelieved()

    async def close(self, *, release_own: bool = False) -> None:
        """Take nothing more, end waiting calls with ClientClosed, and release what lives by timers here.

        At once, so that others are admitted, whatever owners believe: for them `until_unbelieved` comes first.
        Holds that live by a lease of their own live on, for other replicas to renew and release; with `release_own`
        those that this replica told last are released, too.
        """
        self._closed = True
        await self._waits.end(self._house.request_seconds)
        await self._timed.close()
        if self._own is not None and release_own:
            await self._own.release_all()

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""
        own = {} if self._own is None else self._own.statistics()
        return {
            "waiting": len(self._waits),
            "timed_holds": len(self._timed),
            "idempotency_keys": len(self._once),
            **own,
        }

    async def _acquire(self, ask: Ask, wait_seconds: float, key: str | None) -> Kept | None:
        if self._closed:
            raise ClientClosed(CLOSING)
        hold: TimedHold | OwnHold | None
        try:
            with self._waits.one():
                if self._own is None:
                    hold = await self._timed.acquire(ask, wait_seconds)
                else:
                    hold = await self._own.acquire(ask, wait_seconds, key)
        except AcquireTimeout:
            return None
        return None if hold is None else self._kept(hold)

    def _own_holds(self) -> OwnHolds:
        if self._own is None:
            raise NoSuchHold("this id is of a hold on another kind of store than this service's")
        return self._own

    def _kept(self, hold: TimedHold | OwnHold) -> Kept:
        if isinstance(hold, TimedHold):
            return Kept(
                id=self._timed.id_of(hold),
                resource=hold.resource,
                owner=hold.owner,
                token=hold.token,
                fence=hold.fence_or_none,
                ttl=hold.own_ttl,
                deadline=hold.own_deadline,
                clock=self._house.clock,
            )
        held, proof, untold = hold
        line = self._house.line_name(held.resource)
        ids = held.held_together
        return Kept(
            id=holdids.write(held),
            resource=held.resource,
            owner=proof.owner,
            token=held.token,
            fence=None if ids is None else Fence(line, held.token, self._house.incarnation, ids),
            ttl=proof.ttl,
            deadline=proof.deadline,
            clock=self._house.clock,
            untold=untold,
        )

    async def _undo(self, kept: Kept) -> None:
        """Its turn came just as its caller hung up."""
        try:
            if kept.untold is None:
                await self.release(kept.id)
            else:
                await self._own_holds().take_back(kept.untold)
        except HoldfastError as error:  # gone, or the reaper goes on, or its TTL ends it
            _log.debug("a hold whose caller had hung up was not released at once: %s", error)

    def __repr__(self) -> str:
        return f"<holdfast.sidecar.Keeper on {self._house!r}>"


def _ask(wanted: Wanted) -> Ask:
    """The recipe's. Raises UsageError."""
    encode(wanted.resource)
    ttl, owner, value = checks.ttl(wanted.ttl), checked_owner(wanted.owner), checks.text(wanted.value)
    if wanted.slots is None:
        if wanted.weight != 1:
            raise InvalidOption("a weight needs slots: give the number of all slots, too")
        ask = rwlock.read(wanted.resource, ttl, owner) if wanted.shared else lock.lock(wanted.resource, ttl, owner)
    elif wanted.shared:
        raise InvalidOption("slots and shared exclude each other: a name is a semaphore or a read/write lock")
    else:
        ask = semaphore.seat(wanted.resource, wanted.slots, wanted.weight, ttl, owner)
    return dataclasses.replace(ask, value=value) if value else ask
