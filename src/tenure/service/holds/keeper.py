"""The Keeper: takes, renews and releases holds for owners who are behind HTTP.

Each hold lives by its own TTL, which only `renew` moves: an owner that dies behind a living service loses its lock.
What `Grant.remaining()` says is the belief of law 2: the owner's must end by it, and nobody else is admitted before.

On etcd each hold has a store lease of its own (delegated.py). Any replica of the service renews and releases it, and
it outlives the one that took it. It has ended when the store has ended it: a renewal that comes after its owner stopped
believing, and finds the ticket still standing, is one, because nobody else can have been admitted meanwhile.

On ZooKeeper and memory holds share the service's lease, and their TTLs are timers of this replica (timer.py): belief
ends first, then the ticket is removed, and a renewal after that is too late. No TTL is granted that is longer than the
service's own. Such a hold is this replica's: others raise HeldElsewhere.

The outcome of `renew` and `release` is that of that very hold, never of a later one of the same name:

* HoldGone is final. The hold was released, ran out, was forced out or lost with its lease.
* The first `release` that the store carries out is done; a second one raises HoldGone. So after a lost answer HoldGone
  means what the owner wanted: it does not hold.
* After StoreUnavailable a hold that was to be released is over for its owner, who may release it again.

A caller that hangs up while it waits leaves nothing behind. A handler that can't deliver the hold that `acquire`
returned releases it, or leaves it to its TTL: the same idempotency key finds it until then.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field

from tenure import aio
from tenure._core.base import validation
from tenure._core.base.clock import Clock
from tenure._core.base.limits import WORKERS_MAX
from tenure._core.base.validation import checked_owner, encode
from tenure._core.delegation import KeyReused
from tenure._core.drivers.greenlets import Lanes
from tenure._core.recipes import lock, rwlock, semaphore
from tenure._core.recipes.request import LineRequest
from tenure._core.runtime import Runtime, runtime_of
from tenure.errors import AcquireTimeout, ClientClosed, InvalidOption, TenureError
from tenure.fencing._fence import Fence
from tenure.service.holds.concurrency import CLOSING, EnterLimit, Waiters
from tenure.service.holds.delegated import DelegatedHold, DelegatedHolds, KeyDigests, Withdrawal, digest_of_request
from tenure.service.holds.hold_id import HeldElsewhere, HoldGone, HoldId, NoSuchHold, TimedId, read_id, write_id
from tenure.service.holds.idempotency import IdempotentCalls
from tenure.service.holds.timer import TimedHold, TimedHolds

__all__ = ["HeldElsewhere", "HoldGone", "HoldId", "Keeper", "Grant", "KeyReused", "NoSuchHold", "AcquireRequest"]
_log = logging.getLogger("tenure")


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """A request for a hold: `slots` makes it a seat of a semaphore, `shared` the reading side of an rwlock."""

    resource: str
    owner: str
    ttl: float
    slots: int | None = None
    weight: int = 1
    shared: bool = False
    value: str = ""
    idempotency: str | None = field(default=None, repr=False)
    """Requests with one key are one hold, whatever answers were lost. As hard to guess as the id of a hold."""
    tenant: str = ""
    """Whose key it is: each has a number of them."""
    secret: str = field(default="", repr=False)
    """Text that only the caller and all replicas know: with the key alone nobody can derive the hold's id."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A hold, as it was when it was granted or renewed. `remaining()` goes on counting."""

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
    withdrawal: Withdrawal | None = field(default=None, repr=False, compare=False)

    def remaining(self) -> float:
        """Seconds for which the owner may believe in the hold; 0.0 when no longer. Asks nobody."""
        return max(0.0, self.deadline - self.clock.now())


class Keeper:
    """The holds of one service, on one store, for one event loop.

    `address` is where other replicas' clients reach this one, for holds that only it can renew. Closing it does not
    close the client.
    """

    def __init__(self, client: aio.Client, *, address: str = "", remembers_seconds: float = 600.0) -> None:
        self._runtime: Runtime = runtime_of(client)
        self._calls: IdempotentCalls[Grant] = IdempotentCalls(
            self._runtime.clock, remembers_seconds, lambda grant: grant.id
        )
        self._enter_limit = EnterLimit(self._runtime)
        lanes = Lanes(self._runtime.workers, WORKERS_MAX if self._runtime.goes_aside else 0)
        self._timer_holds = TimedHolds(self._runtime, self._enter_limit, lanes, address)
        delegation = self._runtime.delegation()
        # None where the store can't have them: then every hold is ended by a timer here.
        self._delegated = (
            None
            if delegation is None
            else DelegatedHolds(self._runtime, self._enter_limit, lanes, delegation, remembers_seconds)
        )
        self._waiters = Waiters()
        self._closed = False

    @property
    def crowded(self) -> bool:
        """True when the next call has to wait before the store is asked."""
        return self._enter_limit.crowded

    async def acquire(self, request: AcquireRequest, *, wait_seconds: float) -> Grant | None:
        """Take a hold; None where its turn did not come within `wait_seconds`. Cancelling this leaves nothing behind.

        With an idempotency key that is known: the hold it stands for, renewed. Raises HoldGone where that has ended
        (the key is spent), KeyReused (another request), LeaseLost (the place in the line was lost), LineMismatch,
        UsageError, StoreError, ClientClosed.
        """
        line_request, key = _line_request(request), request.idempotency
        give_up = self._runtime.clock.now() + validation.seconds(wait_seconds, "wait_seconds", minimum=0.0)
        if key is None:
            return await self._wait_for_turn(line_request, None, give_up)
        once = KeyDigests.of(key, request.secret)
        return await self._calls.run(
            request.tenant,
            once.mark,
            digest_of_request(line_request, once),
            acquire=lambda: self._wait_for_turn(line_request, once, give_up),
            find=self.renew,
            undo=self._undo,
            give_up=give_up,
        )

    async def renew(self, hold_id: HoldId) -> Grant:
        """Let a hold live for its TTL from now on.

        Raises HoldGone, HeldElsewhere, NoSuchHold, StoreError; ClientClosed for a hold that ends with this replica.
        """
        found = read_id(hold_id)
        if isinstance(found, TimedId):
            return self._grant(self._timer_holds.renew(found))
        return self._grant(await self._delegated_holds().renew(found))

    async def release(self, hold_id: HoldId) -> None:
        """Remove a hold's ticket. Raises HoldGone, HeldElsewhere, NoSuchHold, StoreError."""
        found = read_id(hold_id)
        if isinstance(found, TimedId):
            await self._timer_holds.release(found)
        else:
            await self._delegated_holds().release(found)

    def resource_of(self, hold_id: HoldId) -> str:
        """Read the name that is held from a hold's id. Raises NoSuchHold."""
        return read_id(hold_id).resource

    async def until_unbelieved(self) -> None:
        """Renew no hold with a timer here any more, and wait until no owner believes in one.

        Each is released by then, or what was granted to its owner is over: that takes one TTL at most.
        """
        await self._timer_holds.until_unbelieved()

    async def close(self, *, release_delegated: bool = False) -> None:
        """Take no more holds, end waiting calls with ClientClosed, and release the holds with timers here.

        These are released at once, whatever their owners believe, and others are admitted: call `until_unbelieved`
        first. Delegated holds live on, for other replicas to renew and release; with `release_delegated` those that
        this replica was the last to grant or renew are released, too.
        """
        self._closed = True
        await self._waiters.end(self._runtime.request_seconds)
        await self._timer_holds.close()
        if self._delegated is not None and release_delegated:
            await self._delegated.release_all()

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""
        delegated = {} if self._delegated is None else self._delegated.statistics()
        return {
            "waiting": len(self._waiters),
            "timer_holds": len(self._timer_holds),
            "idempotency_keys": len(self._calls),
            **delegated,
        }

    async def _wait_for_turn(self, request: LineRequest, key: KeyDigests | None, give_up: float) -> Grant | None:
        if self._closed:
            raise ClientClosed(CLOSING)
        wait_seconds = max(0.0, give_up - self._runtime.clock.now())
        hold: TimedHold | DelegatedHold | None
        try:
            with self._waiters.waiting():
                if self._delegated is None:
                    hold = await self._timer_holds.take(request, wait_seconds)
                else:
                    hold = await self._delegated.take(request, wait_seconds, key)
        except AcquireTimeout:
            return None
        return None if hold is None else self._grant(hold)

    def _delegated_holds(self) -> DelegatedHolds:
        if self._delegated is None:
            raise NoSuchHold("this id is of a hold on another kind of store than this service's")
        return self._delegated

    def _grant(self, hold: TimedHold | DelegatedHold) -> Grant:
        if isinstance(hold, TimedHold):
            return Grant(
                id=self._timer_holds.id_of(hold),
                resource=hold.resource,
                owner=hold.owner,
                token=hold.token,
                fence=hold.fence_or_none,
                ttl=hold.granted_ttl,
                deadline=hold.believed_until,
                clock=self._runtime.clock,
            )
        held, proof, withdrawal = hold
        line = self._runtime.line_name(held.resource)
        ids = held.held_together
        return Grant(
            id=write_id(held),
            resource=held.resource,
            owner=proof.owner,
            token=held.token,
            fence=None if ids is None else Fence(line, held.token, self._runtime.incarnation, ids),
            ttl=proof.ttl,
            deadline=proof.deadline,
            clock=self._runtime.clock,
            withdrawal=withdrawal,
        )

    async def _undo(self, grant: Grant) -> None:
        """Give up a hold whose turn came just as its caller hung up."""
        try:
            if grant.withdrawal is None:
                await self.release(grant.id)
            else:  # another replica may have found it by its key, and granted it to its owner
                await self._delegated_holds().withdraw(grant.withdrawal)
        except TenureError as error:  # gone, or the reaper goes on, or its TTL ends it
            _log.debug("a hold whose caller had hung up was not released at once: %s", error)

    def __repr__(self) -> str:
        return f"<tenure.service.Keeper on {self._runtime!r}>"


def _line_request(request: AcquireRequest) -> LineRequest:
    """Translate a request to the recipe's. Raises UsageError."""
    encode(request.resource)
    ttl, owner, value = validation.ttl(request.ttl), checked_owner(request.owner), validation.text(request.value)
    if request.slots is None:
        if request.weight != 1:
            raise InvalidOption("a weight needs slots: give the number of all slots, too")
        line_request = (
            rwlock.read(request.resource, ttl, owner) if request.shared else lock.lock(request.resource, ttl, owner)
        )
    elif request.shared:
        raise InvalidOption("slots and shared exclude each other: a name is a semaphore or a read/write lock")
    else:
        line_request = semaphore.seat(request.resource, request.slots, request.weight, ttl, owner)
    return dataclasses.replace(line_request, value=value) if value else line_request
