"""Holds that share the service's lease, each with a TTL of its own: a timer here.

What an owner may believe ends with its own TTL or with what is proven of the shared lease, whichever comes first.
When the own TTL is over nobody is asked: the hold reads LOST from then on, and the reaper removes its ticket.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from holdfast import checks
from holdfast.aiodriver import arun, wait
from holdfast.clock import Timer
from holdfast.errors import ClientClosed, HoldfastError
from holdfast.fence import Fence
from holdfast.hold import Holding, HoldState
from holdfast.house import House
from holdfast.lanes import Lanes
from holdfast.lease import Entry, Lease
from holdfast.limits import FENCE_HOLDERS_MAX
from holdfast.recipes.ask import Ask
from holdfast.sidecar import holdids
from holdfast.sidecar.errors import HeldElsewhere, gone
from holdfast.sidecar.gate import Gate
from holdfast.sidecar.holdids import HoldId, TimedId
from holdfast.sidecar.waits import CLOSING
from holdfast.signals import Signal
from holdfast.turn import Steps, Turn

_ENDED: Final = (HoldState.LOST, HoldState.RELEASED)
_NOT_RENEWED: Final = "its owner did not renew it within its time to live"
_log = logging.getLogger("holdfast")


class TimedHold(Holding):
    """A hold with an end of its own, which only its owner moves."""

    _over = False
    _own_timer: Timer | None = None
    _forget: Callable[[TimedHold], None] | None = None

    def __init__(self, turn: Turn, entry: Entry, lease: Lease, house: House, asked_ttl: float) -> None:
        self._own_deadline = 0.0
        super().__init__(turn, entry, lease, house)
        self._asked_ttl = asked_ttl
        self.secret = secrets.token_urlsafe(16)

    def live(self, forget: Callable[[TimedHold], None]) -> None:
        """Begin: from now on it ends by its own TTL. Calls `forget`, on any thread, when it has ended."""
        self._forget = forget
        self.extend()
        self._look_at_own_clock()
        if self._ended is not None:  # just now; whoever ended it did not know yet what to forget
            self._let_go()

    @property
    def own_ttl(self) -> float:
        """What is granted: of more than the shared lease's there is never a proof."""
        return min(self._asked_ttl, self.ttl)

    @property
    def own_deadline(self) -> float:
        """Until when its owner may believe in it."""
        return min(self._own_deadline, self._house.clock.now() + self.remaining())

    @property
    def fence_or_none(self) -> Fence | None:
        """The fence; None where too many are held together for one."""
        return self.fence if len(self._ids) <= FENCE_HOLDERS_MAX else None

    def extend(self) -> bool:
        """Its owner is alive; False where that comes too late."""
        with self._guard:
            if self._over or self.state in _ENDED:
                return False
            self._own_deadline = self._house.clock.now() + self.own_ttl
            return True

    def giving_up(self) -> Steps[bool]:
        """See Holding."""
        return self._giving_up()

    def _look_at_own_clock(self) -> None:
        """On the clock's thread: it blocks nowhere."""
        with self._guard:
            if self._ended is not None:
                return
            if self._house.clock.now() < self._own_deadline:
                self._own_timer = self._house.clock.schedule(self._own_deadline, self._look_at_own_clock)
                return
            self._over = True
        self._finish(HoldState.LOST, _NOT_RENEWED)

    def _let_go(self) -> None:
        super()._let_go()
        if self._own_timer is not None:
            self._own_timer.cancel()
        if self._forget is not None:
            self._forget(self)


class TimedHolds:
    """All that live by timers of this replica."""

    def __init__(self, house: House, gate: Gate, lanes: Lanes, address: str) -> None:
        self._house = house
        self._lanes = lanes
        self._gate = gate
        self._address = address
        self._instance = secrets.token_hex(8)
        self._holds: dict[str, TimedHold] = {}
        self._ending = False
        self._none_left = Signal()  # set when, in the end, the last one has ended

    def __len__(self) -> int:
        return len(self._holds)

    async def acquire(self, ask: Ask, wait_seconds: float) -> TimedHold | None:
        """Wait for the turn of `ask`, whose ttl is the hold's own, on the service's lease."""
        own_ttl = checks.ttl(ask.ttl)

        def make(turn: Turn, entry: Entry, lease: Lease, house: House) -> TimedHold:
            hold = TimedHold(turn, entry, lease, house, own_ttl)
            self._holds[hold.secret] = hold
            hold.live(self._forget)
            return hold

        shared = ask.over(self._house.options.ttl)
        house = self._house
        hold = await self._gate.run(
            lambda left: house.holding(shared, house.patience(left), make), wait_seconds, self._lanes
        )
        if hold is not None:
            hold.check()
        return hold

    def id_of(self, hold: TimedHold) -> HoldId:
        """What its owner calls it by."""
        return holdids.write(TimedId(hold.resource, self._instance, self._address, hold.secret))

    def renew(self, hold_id: TimedId) -> TimedHold:
        """Raises HoldGone, HeldElsewhere; ClientClosed once the end has begun."""
        hold = self._find(hold_id)
        if self._ending:
            raise ClientClosed(CLOSING)
        if not hold.extend():
            raise gone()
        return hold

    async def release(self, hold_id: TimedId) -> None:
        """Raises HoldGone, HeldElsewhere, StoreError."""
        hold = self._find(hold_id)
        if not await arun(hold.giving_up(), self._house.clock, self._house.workers, self._lanes):
            raise gone()

    async def until_unbelieved(self) -> None:
        """Begin the end: renew none any more, and wait until each is released, or what its owner was told is over."""
        self._ending = True
        holds = list(self._holds.values())  # they end on other threads, too
        if holds:
            believed_until = max(hold.own_deadline for hold in holds)
            await wait(self._none_left, believed_until, self._house.clock)

    async def close(self) -> None:
        """Release all of them, within the time of one request: its deadline is the same for all."""
        await asyncio.gather(*(self._give_up(hold) for hold in list(self._holds.values())))

    async def _give_up(self, hold: TimedHold) -> None:
        try:
            await arun(hold.giving_up(), self._house.clock, self._house.workers)
        except HoldfastError as error:  # the reaper goes on
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
