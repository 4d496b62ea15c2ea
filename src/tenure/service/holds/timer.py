"""Holds on the service's shared lease, each ended by a timer here when its own TTL is over.

    acquire    wait for a turn on the shared lease ─▶ TimedHold.live: the timer runs
    renew      TimedHold.extend: the end moves; the timer finds that when it fires, and is set again
    the end    the timer fires ─▶ LOST, and the reaper removes the ticket

An owner's belief ends with the hold's own TTL or with what is proven of the shared lease, whichever comes first. The
end of the TTL needs no answer of the store: the hold reads LOST from that moment.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from tenure._core.base import validation
from tenure._core.base.clock import Timer
from tenure._core.base.limits import FENCE_HOLDERS_MAX
from tenure._core.base.signals import Signal
from tenure._core.drivers.asyncio import arun, wait
from tenure._core.drivers.greenlets import Lanes
from tenure._core.hold import Holding
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Entry, Lease
from tenure._core.recipes.request import LineRequest
from tenure._core.runtime import Runtime
from tenure._core.turn import Steps, Turn
from tenure.errors import ClientClosed, TenureError
from tenure.fencing._fence import Fence
from tenure.service.holds.concurrency import CLOSING, EnterLimit
from tenure.service.holds.hold_id import HeldElsewhere, HoldId, TimedId, gone, write_id

_ENDED: Final = (HoldState.LOST, HoldState.RELEASED)
_NOT_RENEWED: Final = "its owner did not renew it within its time to live"
_log = logging.getLogger("tenure")


class TimedHold(Holding):
    """A hold that ends by a TTL of its own unless its owner extends it."""

    # Defaults on the class: the lease may end, on its own thread, while the base's `__init__` runs.
    _over = False  # set under the guard before the end itself, so that no extension comes between the two
    _timer_of_ttl: Timer | None = None
    _forget: Callable[[TimedHold], None] | None = None

    def __init__(self, turn: Turn, entry: Entry, lease: Lease, runtime: Runtime, asked_ttl: float) -> None:
        self._ttl_over_at = 0.0
        super().__init__(turn, entry, lease, runtime)
        self._watch.give_back = self._give_back
        self._asked_ttl = asked_ttl
        self.secret: str = secrets.token_urlsafe(16)

    def live(self, forget: Callable[[TimedHold], None]) -> None:
        """Start the TTL. Calls `forget`, on any thread, when the hold has ended."""
        self._forget = forget
        self.extend()
        self._check_ttl()
        if self._ended is not None:  # before `_forget` was set, so that the end did not call it
            self._give_back()

    @property
    def granted_ttl(self) -> float:
        """The TTL as granted: no longer than the shared lease's, as there is never a proof for more."""
        return min(self._asked_ttl, self.ttl)

    @property
    def believed_until(self) -> float:
        """The clock's reading up to which the owner may believe in the hold."""
        return min(self._ttl_over_at, self._runtime.clock.now() + self.remaining())

    @property
    def fence_or_none(self) -> Fence | None:
        """The fence; None where too many tickets are held together for one."""
        return self.fence if len(self._ids) <= FENCE_HOLDERS_MAX else None

    def extend(self) -> bool:
        """Start the TTL anew for an owner that renews; False where that comes too late."""
        with self._watch.guard:
            if self._over or self.state in _ENDED:
                return False
            self._ttl_over_at = self._runtime.clock.now() + self.granted_ttl
            return True

    def giving_up(self) -> Steps[bool]:
        """End belief, then remove the ticket. True when this call removed it; see Holding."""
        return self._giving_up()

    def _check_ttl(self) -> None:
        """End the hold, or set the timer again where the TTL was extended. On the clock's thread: never blocks."""
        with self._watch.guard:
            if self._ended is not None:
                return
            if self._runtime.clock.now() < self._ttl_over_at:
                self._timer_of_ttl = self._runtime.clock.schedule(self._ttl_over_at, self._check_ttl)
                return
            self._over = True
        self._watch.finish(HoldState.LOST, _NOT_RENEWED)  # outside the guard: it calls callbacks

    def _give_back(self) -> None:
        if self._timer_of_ttl is not None:
            self._timer_of_ttl.cancel()
        if self._forget is not None:
            self._forget(self)


class TimedHolds:
    """Takes, renews and releases the holds that are ended by timers of this replica."""

    def __init__(self, runtime: Runtime, enter_limit: EnterLimit, lanes: Lanes, address: str) -> None:
        self._runtime = runtime
        self._lanes = lanes
        self._enter_limit = enter_limit
        self._address = address
        self._instance = secrets.token_hex(8)  # tells the holds of this process from those before a restart
        self._holds: dict[str, TimedHold] = {}
        self._ending = False
        self._none_left = Signal()  # set when, in the end, the last one has ended

    def __len__(self) -> int:
        return len(self._holds)

    async def take(self, request: LineRequest, wait_seconds: float) -> TimedHold | None:
        """Wait for the turn of `request`, whose TTL is the hold's own, on the service's lease."""
        asked_ttl = validation.ttl(request.ttl)

        def make(turn: Turn, entry: Entry, lease: Lease, runtime: Runtime) -> TimedHold:
            hold = TimedHold(turn, entry, lease, runtime, asked_ttl)
            self._holds[hold.secret] = hold
            hold.live(self._forget)
            return hold

        shared = request.over(self._runtime.options.ttl)
        runtime = self._runtime
        hold = await self._enter_limit.run(
            lambda left: runtime.holding(shared, runtime.patience(left), make), wait_seconds, self._lanes
        )
        if hold is not None:
            hold.check()  # it may have ended while this task waited to be resumed
        return hold

    def id_of(self, hold: TimedHold) -> HoldId:
        """Return the id by which an owner names the hold."""
        return write_id(TimedId(hold.resource, self._instance, self._address, hold.secret))

    def renew(self, hold_id: TimedId) -> TimedHold:
        """Extend a hold. Raises HoldGone, HeldElsewhere; ClientClosed once the end has begun."""
        hold = self._find(hold_id)
        if self._ending:
            raise ClientClosed(CLOSING)
        if not hold.extend():
            raise gone()
        return hold

    async def release(self, hold_id: TimedId) -> None:
        """Remove a hold's ticket. Raises HoldGone, HeldElsewhere, StoreError."""
        hold = self._find(hold_id)
        if not await arun(hold.giving_up(), self._runtime.clock, self._runtime.workers, self._lanes):
            raise gone()

    async def until_unbelieved(self) -> None:
        """Begin the end: renew no hold any more, and wait until each is released or its owner's belief is over."""
        self._ending = True
        holds = list(self._holds.values())  # a copy: they end on other threads, too
        if holds:
            believed_until = max(hold.believed_until for hold in holds)
            await wait(self._none_left, believed_until, self._runtime.clock)

    async def close(self) -> None:
        """Release all holds, together within the time of one request."""
        await asyncio.gather(*(self._give_up(hold) for hold in list(self._holds.values())))

    async def _give_up(self, hold: TimedHold) -> None:
        try:
            await arun(hold.giving_up(), self._runtime.clock, self._runtime.workers)
        except TenureError as error:  # the reaper goes on
            _log.warning("the hold of %r could not be released while shutting down: %s", hold.resource, error)

    def _forget(self, hold: TimedHold) -> None:
        self._holds.pop(hold.secret, None)
        if self._ending and not self._holds:
            self._none_left.set()

    def _find(self, hold_id: TimedId) -> TimedHold:
        hold = self._holds.get(hold_id.secret)
        if hold is not None and hold.resource == hold_id.resource:
            return hold
        if hold_id.instance == self._instance or hold_id.address in ("", self._address):
            raise gone()
        raise HeldElsewhere(
            f"another replica has this hold, at {hold_id.address}: it lives by a timer there", address=hold_id.address
        )
