"""Holds with a store lease of their own: any replica renews and releases them, and they outlive the one that took them.

    acquire    open a lease ─▶ enter ─▶ wait for the turn ─▶ renew, unless freshly proven ─▶ entrust to the owner
    renew, release    at any replica, by what the hold's id says

All that is needed to find such a hold stands in its id. What is remembered here serves closing and the log alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import secrets
from typing import Final, NamedTuple

from tenure._admin.models import Ending
from tenure._core.base.limits import DELEGATED_KNOWN_MAX, FENCE_HOLDERS_MAX
from tenure._core.delegation import Delegated, DelegatedProof, Delegation, IdempotencyKey, KeySpent
from tenure._core.drivers.asyncio import arun
from tenure._core.drivers.greenlets import Lanes
from tenure._core.hold import held_together
from tenure._core.lease import Entry
from tenure._core.recipes.request import LineRequest
from tenure._core.runtime import Runtime
from tenure._core.turn import Abandon, NeverEntered, Operate, Patience, Renew, Steps, Turn, emit_abandoned, take_turn
from tenure.errors import TenureError
from tenure.service.holds.concurrency import EnterLimit
from tenure.service.holds.hold_id import DelegatedId, HoldGone, gone, ticket_id

_FRESH: Final = 0.9
"""Share of its TTL that must be left of a hold when it is granted; else it is renewed first."""
_log = logging.getLogger("tenure")


class KeyDigests(NamedTuple):
    """Digests of an idempotency key, none of which says anything of another."""

    mark: str
    """By the key alone: by it whoever sends the request again, at whichever replica, finds the first try's mark."""
    secret: str
    """By the key and the caller's secret: the hold's, which is part of its id."""

    @classmethod
    def of(cls, key: str, secret: str) -> KeyDigests:
        # "mark" goes into what is stored: another word would be another key.
        return cls(_derived("mark", key), _derived("hold", f"{key}\n{secret}"))


class Withdrawal(NamedTuple):
    """The facts by which a hold is withdrawn that was granted for an idempotency key, and delivered to no caller."""

    hold: Delegated
    key: IdempotencyKey


class DelegatedHold(NamedTuple):
    """A hold, and for how long its owner may believe in it."""

    id: DelegatedId
    proof: DelegatedProof
    withdrawal: Withdrawal | None = None
    """Set for a hold that was acquired just now with an idempotency key."""


class _LastGrant(NamedTuple):
    """The last grant or renewal of a hold that this replica answered with."""

    id: DelegatedId
    owner: str
    since: float
    deadline: float


class DelegatedHolds:
    """Takes, renews and releases delegated holds for one event loop."""

    def __init__(
        self, runtime: Runtime, enter_limit: EnterLimit, lanes: Lanes, delegation: Delegation, remembers_seconds: float
    ) -> None:
        self._runtime = runtime
        self._lanes = lanes
        self._enter_limit = enter_limit
        self._delegation = delegation
        self._remembers_seconds = remembers_seconds
        self._last_grants: dict[str, _LastGrant] = {}  # by ticket, the latest at the end

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""
        return {"delegated_holds": len(self._last_grants), "leases": self._delegation.statistics()}

    async def take(self, request: LineRequest, wait_seconds: float, key: KeyDigests | None) -> DelegatedHold | None:
        """Wait for the turn of `request`. Raises HoldGone where `key` is spent, KeyReused."""
        try:
            return await self._enter_limit.run(
                functools.partial(self._enter_twice, request, key),
                wait_seconds,
                # A lane may switch to other calls wherever the store is asked, and none may under a lock: the record
                # of a key is written under one.
                self._lanes if key is None else None,
            )
        except KeySpent as error:
            raise HoldGone(str(error)) from error

    async def renew(self, hold_id: DelegatedId) -> DelegatedHold:
        """Let a hold live for its TTL from now on. Raises HoldGone, StoreError."""
        return await arun(self._renewing(hold_id), self._runtime.clock, self._runtime.workers, self._lanes)

    async def release(self, hold_id: DelegatedId) -> None:
        """Remove a hold's ticket. Raises HoldGone, StoreError."""
        await arun(self._releasing(hold_id), self._runtime.clock, self._runtime.workers, self._lanes)

    async def withdraw(self, withdrawal: Withdrawal) -> None:
        """Remove a hold, unless another replica found it by its key: its owner may know of it. Raises StoreError."""
        hold, key = withdrawal
        step = Operate(lambda until: self._delegation.withdraw(hold, key, until), self._runtime.request_until())
        if await arun(_one(step), self._runtime.clock, self._runtime.workers):
            self._emit_released(hold)

    async def release_all(self) -> None:
        """Release the holds that this replica was the last to grant or renew, as far as it remembers."""
        for grant in list(self._last_grants.values()):
            try:
                await self.release(grant.id)
            except HoldGone:
                continue
            except TenureError as error:  # its own TTL ends it
                _log.warning("the hold of %r could not be released while shutting down: %s", grant.id.resource, error)

    def _enter_twice(
        self, request: LineRequest, key: KeyDigests | None, wait_seconds: float
    ) -> Steps[DelegatedHold | None]:
        """Take a turn; once more where the lease, one from the pool, had died: no place in a line was lost with it."""
        patience = self._runtime.patience(wait_seconds)
        # From the key, so that whoever repeats the request, at whichever replica, finds the same ticket.
        secret, once = secrets.token_urlsafe(16), None
        if key is not None:
            secret = key.secret
            once = IdempotencyKey(key.mark, digest_of_request(request, key), self._remembers_seconds)
        try:
            return (yield from self._wait_and_entrust(request, patience, secret, once))
        except NeverEntered:
            return (yield from self._wait_and_entrust(request, patience, secret, once))

    def _wait_and_entrust(
        self, request: LineRequest, patience: Patience, secret: str, once: IdempotencyKey | None
    ) -> Steps[DelegatedHold | None]:
        lease = self._delegation.open(request.ttl, once)
        entry = request.entry(ticket_id(secret))
        turn = yield from take_turn(lease, entry, request.rule, patience, self._runtime.clock, self._runtime.hub)
        if turn is None:
            return None
        try:
            if lease.remaining() < _FRESH * lease.ttl:  # it waited, and the owner is to have nearly all of its TTL
                yield Renew(lease, self._runtime.request_until())
            proof = DelegatedProof(self._runtime.clock.now() + lease.remaining(), lease.ttl, entry.owner)
            hold = lease.delegate(turn.ticket)
        except GeneratorExit as end:  # closed, not resumed: no step may be yielded any more
            lease.abandon(entry)
            emit_abandoned(turn, entry, self._runtime.hub, end)
            raise
        except BaseException as error:  # cancelled just now, or the lease was lost: nobody would ever renew it
            yield Abandon(lease, entry)
            emit_abandoned(turn, entry, self._runtime.hub, error)
            raise
        ids = held_together(turn, entry)
        shown = None if len(ids) > FENCE_HOLDERS_MAX else ids
        held = DelegatedId(hold.resource, hold.token, hold.lease_id, hold.single_use, secret, shown)
        self._emit_entrusted(turn, entry, held, proof)
        return DelegatedHold(held, proof, None if once is None else Withdrawal(hold, once))

    def _renewing(self, hold_id: DelegatedId) -> Steps[DelegatedHold]:
        hold = hold_id.hold
        proof: DelegatedProof | None = yield Operate(
            lambda until: self._delegation.renew(hold, until), self._runtime.request_until()
        )
        if proof is None:
            self._last_grants.pop(hold.ticket_id, None)
            raise gone()
        self._remember(hold_id, proof, hold.ticket_id)
        return DelegatedHold(hold_id, proof)

    def _releasing(self, hold_id: DelegatedId) -> Steps[None]:
        hold = hold_id.hold
        released: bool = yield Operate(
            lambda until: self._delegation.release(hold, until), self._runtime.request_until()
        )
        if not released:
            self._last_grants.pop(hold.ticket_id, None)
            raise gone()
        self._emit_released(hold)

    def _emit_released(self, hold: Delegated) -> None:
        grant = self._last_grants.pop(hold.ticket_id, None)
        self._runtime.hub.emit(
            "released",
            resource=hold.resource,
            lease_id=hold.lease_id,
            token=hold.token,
            # None for a hold that this replica neither granted nor renewed
            seconds=None if grant is None else self._runtime.clock.now() - grant.since,
            ticket=hold.ticket_id,
            ending=Ending.RELEASED.value,
        )

    def _emit_entrusted(self, turn: Turn, entry: Entry, held: DelegatedId, proof: DelegatedProof) -> None:
        self._remember(held, proof, entry.id)
        self._runtime.hub.emit(
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

    def _remember(self, hold_id: DelegatedId, proof: DelegatedProof, ticket: str) -> None:
        """Put the grant at the end, and forget from the front: those that are over, and those beyond the bound."""
        now = self._runtime.clock.now()
        before = self._last_grants.pop(ticket, None)
        since = now if before is None else before.since
        self._last_grants[ticket] = _LastGrant(hold_id, proof.owner, since, proof.deadline)
        while self._last_grants:
            oldest = next(iter(self._last_grants))
            if self._last_grants[oldest].deadline > now and len(self._last_grants) <= DELEGATED_KNOWN_MAX:
                return
            del self._last_grants[oldest]


def _one(step: Operate) -> Steps[bool]:
    done: bool = yield step
    return done


def _derived(purpose: str, key: str) -> str:
    """Hash an idempotency key for one purpose, so that the hash for another says nothing of this one."""
    return hashlib.sha256(f"tenure {purpose} {key}".encode()).hexdigest()[:40]


def digest_of_request(request: LineRequest, key: KeyDigests) -> str:
    """Hash what a request wants, and for whom."""
    facts = [request.resource, request.ttl, request.owner, request.mode.value, request.weight, request.limit]
    return hashlib.sha256(json.dumps([*facts, request.value, key.secret]).encode()).hexdigest()[:40]
