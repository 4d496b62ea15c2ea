"""Holds that live by a lease of their own: any replica renews and releases them, and they outlive the one that took
them.

What has to be known of such a hold stands in its id. What is remembered here is for closing and for the log alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from typing import Final, NamedTuple

from holdfast.aiodriver import arun
from holdfast.entrusting import Entrusted, Entrusting, KeySpent, Once, Proof
from holdfast.errors import HoldfastError
from holdfast.hold import held_together
from holdfast.house import House
from holdfast.lanes import Lanes
from holdfast.lease import Entry
from holdfast.limits import ENTRUSTED_KNOWN_MAX, FENCE_HOLDERS_MAX
from holdfast.recipes.ask import Ask
from holdfast.reports import Ending
from holdfast.sidecar import holdids
from holdfast.sidecar.errors import HoldGone, gone
from holdfast.sidecar.gate import Gate
from holdfast.sidecar.holdids import OwnId
from holdfast.turn import Abandon, NeverEntered, Operate, Patience, Renew, Steps, Turn, take_turn, tell_abandoned

_FRESH: Final = 0.9
"""Share of its TTL that an owner is told of at least, when its turn has come."""
_log = logging.getLogger("holdfast")


class Untold(NamedTuple):
    """What takes back a hold of which nobody was told."""

    hold: Entrusted
    once: Once


class OwnHold(NamedTuple):
    """A hold, and what its owner may be told of it now."""

    id: OwnId
    proof: Proof
    untold: Untold | None = None
    """Where it was acquired just now with an idempotency key."""


class _Told(NamedTuple):
    id: OwnId
    owner: str
    since: float
    deadline: float


class OwnHolds:
    """Any number of them, for one event loop."""

    def __init__(
        self, house: House, gate: Gate, lanes: Lanes, entrusting: Entrusting, remembers_seconds: float
    ) -> None:
        self._house = house
        self._lanes = lanes
        self._gate = gate
        self._entrusting = entrusting
        self._remembers_seconds = remembers_seconds
        self._told: dict[str, _Told] = {}  # by ticket, the one told last at the end

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""
        return {"own_holds": len(self._told), "leases": self._entrusting.statistics()}

    async def acquire(self, ask: Ask, wait_seconds: float, key: str | None) -> OwnHold | None:
        """Wait for the turn of `ask`. Raises HoldGone where `key` is spent, KeyReused."""
        try:
            return await self._gate.run(
                lambda left: self._acquiring(ask, self._house.patience(left), key),
                wait_seconds,
                self._lanes if key is None else None,  # a key's mark is made under a lock
            )
        except KeySpent as error:
            raise HoldGone(str(error)) from error

    async def renew(self, hold_id: OwnId) -> OwnHold:
        """Raises HoldGone, StoreError."""
        return await arun(self._renewing(hold_id), self._house.clock, self._house.workers, self._lanes)

    async def release(self, hold_id: OwnId) -> None:
        """Raises HoldGone, StoreError."""
        await arun(self._releasing(hold_id), self._house.clock, self._house.workers, self._lanes)

    async def take_back(self, untold: Untold) -> None:
        """Remove it, unless another replica found it by its key: that may have told its owner. Raises StoreError."""
        hold, once = untold
        step = Operate(lambda until: self._entrusting.withdraw(hold, once, until), self._house.request_until())
        if await arun(_one(step), self._house.clock, self._house.workers):
            self._tell_released(hold)

    async def release_all(self) -> None:
        """Those that were told of here last, and may still be held."""
        for told in list(self._told.values()):
            try:
                await self.release(told.id)
            except HoldGone:
                continue
            except HoldfastError as error:  # its own TTL ends it
                _log.warning("the hold of %r could not be released while shutting down: %s", told.id.resource, error)

    def _acquiring(self, ask: Ask, patience: Patience, key: str | None) -> Steps[OwnHold | None]:
        secret = secrets.token_urlsafe(16) if key is None else _derived("hold", key)
        once = None if key is None else Once(_derived("mark", key), _wish(ask), self._remembers_seconds)
        try:
            return (yield from self._trying(ask, patience, secret, once))
        except NeverEntered:  # a lease that was kept for later had died: no place in a line was lost with it
            return (yield from self._trying(ask, patience, secret, once))

    def _trying(self, ask: Ask, patience: Patience, secret: str, once: Once | None) -> Steps[OwnHold | None]:
        lease = self._entrusting.open(ask.ttl, once)
        entry = ask.entry(holdids.ticket_id(secret))
        turn = yield from take_turn(lease, entry, ask.rule, patience, self._house.clock, self._house.hub)
        if turn is None:
            return None
        try:
            if lease.remaining() < _FRESH * lease.ttl:  # it waited for long
                yield Renew(lease, self._house.request_until())
            proof = Proof(self._house.clock.now() + lease.remaining(), lease.ttl, entry.owner)
            hold = lease.entrust(turn.ticket)
        except GeneratorExit as end:
            lease.abandon(entry)
            tell_abandoned(turn, entry, self._house.hub, end)
            raise
        except BaseException as error:  # cancelled just now, or the lease was lost: nobody would ever renew it
            yield Abandon(lease, entry)
            tell_abandoned(turn, entry, self._house.hub, error)
            raise
        ids = held_together(turn, entry)
        shown = None if len(ids) > FENCE_HOLDERS_MAX else ids
        held = OwnId(hold.resource, hold.token, hold.lease_id, hold.worn, secret, shown)
        self._tell_entrusted(turn, entry, held, proof)
        return OwnHold(held, proof, None if once is None else Untold(hold, once))

    def _renewing(self, hold_id: OwnId) -> Steps[OwnHold]:
        hold = hold_id.hold
        proof: Proof | None = yield Operate(
            lambda until: self._entrusting.renew(hold, until), self._house.request_until()
        )
        if proof is None:
            self._told.pop(hold.ticket_id, None)
            raise gone()
        self._remember(hold_id, proof, hold.ticket_id)
        return OwnHold(hold_id, proof)

    def _releasing(self, hold_id: OwnId) -> Steps[None]:
        hold = hold_id.hold
        released: bool = yield Operate(lambda until: self._entrusting.release(hold, until), self._house.request_until())
        if not released:
            self._told.pop(hold.ticket_id, None)
            raise gone()
        self._tell_released(hold)

    def _tell_released(self, hold: Entrusted) -> None:
        told = self._told.pop(hold.ticket_id, None)
        self._house.hub.emit(
            "released",
            resource=hold.resource,
            lease_id=hold.lease_id,
            token=hold.token,
            seconds=None if told is None else self._house.clock.now() - told.since,
            ticket=hold.ticket_id,
            ending=Ending.RELEASED.value,
        )

    def _tell_entrusted(self, turn: Turn, entry: Entry, held: OwnId, proof: Proof) -> None:
        self._remember(held, proof, entry.id)
        self._house.hub.emit(
            "entrusted",
            resource=entry.resource,
            owner=entry.owner,
            lease_id=held.lease_id,
            token=held.token,
            ttl=proof.ttl,
            seconds=turn.waited_seconds,
            ticket=entry.id,
            behind=turn.behind,
        )

    def _remember(self, hold_id: OwnId, proof: Proof, ticket: str) -> None:
        now = self._house.clock.now()
        before = self._told.pop(ticket, None)
        since = now if before is None else before.since
        self._told[ticket] = _Told(hold_id, proof.owner, since, proof.deadline)
        while self._told:
            oldest = next(iter(self._told))
            if self._told[oldest].deadline > now and len(self._told) <= ENTRUSTED_KNOWN_MAX:
                return
            del self._told[oldest]


def _one(step: Operate) -> Steps[bool]:
    done: bool = yield step
    return done


def _derived(what: str, key: str) -> str:
    """Of an idempotency key. One does not tell the other."""
    return hashlib.sha256(f"holdfast {what} {key}".encode()).hexdigest()[:40]


def _wish(ask: Ask) -> str:
    facts = [ask.resource, ask.ttl, ask.owner, ask.mode.value, ask.weight, ask.limit, ask.value]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]
