"""Locks over HTTP: acquire, renew, release."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.errors import ClientClosed, HoldfastError, LeaseLost
from holdfast.fence import Fence
from holdfast.limits import NAME_BYTES_MAX, OWNER_BYTES_MAX, SEATS_MAX, TTL_MAX, VALUE_BYTES_MAX
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import KEY_CHARACTERS_MAX, TTL_LEAST, WAIT_SECONDS_MAX
from holdfast.sidecar.drain import draining
from holdfast.sidecar.exchange import Answer, HungUp
from holdfast.sidecar.fields import Field, Flag, Seconds, Text, Whole
from holdfast.sidecar.keeping import HeldElsewhere, HoldGone, HoldId, Keeper, Kept, KeyReused, NoSuchHold, Wanted
from holdfast.sidecar.problems import OF_THE_STORE, Code, Problem
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service
from holdfast.sidecar.tenants import Tenant

_log = logging.getLogger("holdfast.sidecar")
_ID_CHARACTERS_MAX: Final = 8192
_KEY: Final = Text(KEY_CHARACTERS_MAX, least=1)
_HOLD_ID: Final = Field("leaseId", Text(_ID_CHARACTERS_MAX, least=1), "What acquire answered with. A secret.")
_OF_A_HOLD: Final = (Code.UNKNOWN_HOLD, Code.HOLD_GONE, Code.HELD_ELSEWHERE, Code.DRAINING, *OF_THE_STORE)
_GRANTED_EXAMPLE: Final = {
    "acquired": True,
    "resource": "nightly-report",
    "ownerId": "worker-1",
    "leaseId": "eyJsIjoibmlnaHRseS1yZXBvcnQifQ",
    "fencingToken": "33",
    "fence": "0.33@billing/nightly-report",
    "ttlSeconds": 15,
    "expiresAt": "2026-01-31T23:59:59.250Z",
    "remainingSeconds": 14.62,
}


async def acquire(service: Service, call: Call) -> Answer:
    """Take a hold, or wait for it."""
    fields, tenant = call.fields, call.caller.tenant
    wanted = Wanted(
        resource=tenant.inside(fields["resource"]),
        owner=fields["ownerId"],
        ttl=fields["ttlSeconds"],
        slots=fields["slots"],
        weight=fields["weight"],
        shared=fields["shared"],
        value=fields["value"],
        idempotency=_key(call),
    )
    with call.usage.asking():
        kept = await _granted(service, call, wanted, fields["waitSeconds"])
        if kept is None:
            told = {"acquired": False, "resource": fields["resource"], "ownerId": fields["ownerId"]}
            return Answer(200, json.dumps(told).encode())
        call.usage.held(kept.id, kept.remaining())
    return Answer(200, json.dumps({"acquired": True, **_told(tenant, kept)}).encode())


async def renew(service: Service, call: Call) -> Answer:
    """Let a hold live for its TTL from now on."""
    hold_id = call.fields["leaseId"]
    try:
        kept = await service.keeper.renew(_own(service, call, hold_id))
    except (NoSuchHold, HoldGone, HeldElsewhere) as error:
        raise _not_here(call, error) from error
    call.usage.held(hold_id, kept.remaining())
    return Answer(200, json.dumps({"renewed": True, **_told(call.caller.tenant, kept)}).encode())


async def release(service: Service, call: Call) -> Answer:
    """Give a hold up."""
    hold_id = call.fields["leaseId"]
    try:
        await service.keeper.release(_own(service, call, hold_id))
    except (NoSuchHold, HoldGone, HeldElsewhere) as error:
        raise _not_here(call, error) from error
    call.usage.gone(hold_id)
    return Answer(200, b'{"released": true}')


def _own(service: Service, call: Call, hold_id: HoldId) -> HoldId:
    """The same id, if it is of a hold of this tenant's. Raises NoSuchHold, and asks nobody whether it is there.

    The id says what it is of, and the Keeper holds it to that: one that was changed is the id of nothing.
    """
    if not call.caller.tenant.has(service.keeper.resource_of(hold_id)):
        raise NoSuchHold("the hold is another tenant's")
    return hold_id


def _key(call: Call) -> str | None:
    """The tenant's own: the same text of another tenant is another key. Raises InvalidField, Malformed."""
    key = call.request.header(b"idempotency-key")
    return None if key is None else f"{call.caller.tenant.name}\n{_KEY.parse('Idempotency-Key', key)}"


async def _granted(service: Service, call: Call, wanted: Wanted, seconds: float) -> Kept | None:
    """The hold, or None. Ends at once, and leaves nothing, when the caller hangs up or the service ends.

    Raises HungUp, Problem, HoldfastError.
    """
    if service.drain.begun:
        raise draining()
    if seconds == 0 and wanted.idempotency is None and not service.keeper.crowded:
        return await _granted_at_once(service, call, wanted)
    work = asyncio.create_task(service.keeper.acquire(wanted, wait_seconds=seconds))
    gone = asyncio.create_task(call.request.hung_up())
    try:
        with service.drain.tells(work.cancel):
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:  # also when this request is cancelled itself
        hung_up = gone.done() or not gone.cancel()
        work.cancel()
        await asyncio.wait((work,))
    return await _handed_over(service, call, wanted, _outcome(service, work, hung_up), hung_up=hung_up)


async def _granted_at_once(service: Service, call: Call, wanted: Wanted) -> Kept | None:
    """The same where nobody waits, but for the store: two tasks would cost more than the rest of it.

    Whoever hangs up meanwhile is heard of behind it, within the time of a request.
    """
    try:
        with service.drain.cancels():
            kept = await service.keeper.acquire(wanted, wait_seconds=0)
    except ClientClosed:
        raise draining() from None
    return await _handed_over(service, call, wanted, kept, hung_up=call.request.has_hung_up())


async def _handed_over(
    service: Service, call: Call, wanted: Wanted, kept: Kept | None, *, hung_up: bool
) -> Kept | None:
    """To whoever is there, may have it, and can renew it; else it is given up. Raises HungUp, Problem."""
    if kept is not None and (hung_up or service.drain.begun or not service.admits(call.caller)):
        await _take_back(service.keeper, kept, wanted)
        raise HungUp if hung_up else draining()
    return kept


def _outcome(service: Service, work: asyncio.Task[Kept | None], hung_up: bool) -> Kept | None:
    if work.cancelled():
        raise HungUp if hung_up else draining()
    try:
        return work.result()
    except ClientClosed:
        raise draining() from None
    except HoldGone as error:
        raise Problem(
            Code.KEY_SPENT, "the hold of this Idempotency-Key has ended; take a new key for a new hold"
        ) from error
    except KeyReused as error:
        raise Problem(
            Code.KEY_REUSED, "this Idempotency-Key came with another request before; take a new key for a new wish"
        ) from error


async def _take_back(keeper: Keeper, kept: Kept, wanted: Wanted) -> None:
    """Nobody has heard of this hold. One with a key is left to its TTL: whoever asks again with it will find it."""
    if wanted.idempotency is not None:
        return
    try:
        await keeper.release(kept.id)
    except HoldfastError as error:
        _log.warning("a hold that nobody heard of could not be released, its TTL ends it: %s", error)


def _not_here(call: Call, error: HoldfastError) -> Problem:
    """The same words for what never was and for what is another tenant's."""
    if isinstance(error, NoSuchHold):
        return Problem(Code.UNKNOWN_HOLD, "this is not the id of a hold of yours: give what acquire answered with")
    if isinstance(error, HeldElsewhere):
        path = call.request.scope["raw_path"].decode("latin-1")
        location = {"Location": f"{error.address.rstrip('/')}{path}"} if _is_address(error.address) else {}
        told = "another replica keeps this hold: send the same request to the address in Location"
        return Problem(Code.HELD_ELSEWHERE, told, retry=True, headers=location)
    call.usage.gone(call.fields["leaseId"])
    return Problem(
        Code.HOLD_GONE, "this hold is over: released, run out, or forced out. Stop the protected work; acquire again"
    )


def _is_address(address: str) -> bool:
    """An id is made by whoever sends it: what stands in it is looked at before it becomes a header."""
    return address.startswith(("http://", "https://")) and address.isascii() and address.isprintable()


def _told(tenant: Tenant, kept: Kept) -> dict[str, Any]:
    remaining = kept.remaining()
    if remaining <= 0:
        raise LeaseLost("the hold ran out before it could be told")
    ends = datetime.now(UTC) + timedelta(seconds=remaining)
    return {
        "resource": tenant.outside(kept.resource),
        "ownerId": kept.owner,
        "leaseId": kept.id,
        "fencingToken": str(kept.token),
        "fence": None if kept.fence is None else _text(kept.fence),
        "ttlSeconds": kept.ttl,
        "expiresAt": ends.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "remainingSeconds": round(remaining, 3),
    }


def _text(fence: Fence) -> str:
    return str(fence)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/locks/acquire",
        handler=acquire,
        scope=Scope.ACQUIRE,
        name="acquire",
        tag="locks",
        summary="Take a hold, or wait for it",
        about=(
            "A lock; with `slots` a seat of a semaphore; with `shared` the reading side of a read/write lock. The hold "
            "lives for `ttlSeconds` from its grant, and only `renew` lets it live longer: stop the protected work when "
            "`remainingSeconds` have passed since you **sent** the request, whatever `expiresAt` says by your clock. "
            "Hand `fencingToken` or `fence` to the resource, so that it can refuse older ones. Waiting ends, and "
            "leaves nothing behind, when you hang up. With an Idempotency-Key the same request may be sent again after "
            "a lost answer: it finds the hold, and does not take another."
        ),
        headers=(
            Field("Idempotency-Key", _KEY, "Unguessable, and new for every wish: a UUID.", None, "1d7c8a3e-5b0e"),
        ),
        body=(
            Field("resource", Text(NAME_BYTES_MAX, least=1), "What is to be held.", example="nightly-report"),
            Field("ownerId", Text(OWNER_BYTES_MAX, least=1), "Who holds it, for people.", example="worker-1"),
            Field("ttlSeconds", Seconds(TTL_LEAST, TTL_MAX), "How long it lives unless renewed.", example=15),
            Field("waitSeconds", Seconds(0, WAIT_SECONDS_MAX), "For how long to wait for it.", 0.0),
            Field("slots", Whole(1, SEATS_MAX), "How many seats there are; all give the same number.", None),
            Field("weight", Whole(1, SEATS_MAX), "How many of them to take.", 1),
            Field("shared", Flag(), "Together with others who share.", False),
            Field("value", Text(VALUE_BYTES_MAX, free=True), "What others may read of it.", ""),
        ),
        body_example={"resource": "nightly-report", "ownerId": "worker-1", "ttlSeconds": 15, "waitSeconds": 5},
        answer="Acquired",
        answer_about="Granted; or `acquired` is false: its turn did not come in time, and nothing is left behind.",
        example=_GRANTED_EXAMPLE,
        problems=(
            Code.LINE_MISMATCH,
            Code.KEY_SPENT,
            Code.KEY_REUSED,
            Code.TOO_MANY_HOLDS,
            Code.TOO_MANY_WAITING,
            Code.PLACE_LOST,
            Code.DRAINING,
            *OF_THE_STORE,
        ),
    ),
    Route(
        method="POST",
        path="/v1/locks/{leaseId}/renew",
        handler=renew,
        scope=Scope.ACQUIRE,
        name="renew",
        tag="locks",
        keeps=True,
        summary="Let a hold live on",
        about="For its TTL from now on. About every third of the TTL is a good pace.",
        parameters=(_HOLD_ID,),
        answer="Renewed",
        answer_about="It lives on.",
        example={"renewed": True, **{k: v for k, v in _GRANTED_EXAMPLE.items() if k != "acquired"}},
        problems=(Code.PLACE_LOST, *_OF_A_HOLD),
    ),
    Route(
        method="DELETE",
        path="/v1/locks/{leaseId}",
        handler=release,
        scope=Scope.ACQUIRE,
        name="release",
        tag="locks",
        keeps=True,
        summary="Give a hold up",
        about=(
            "That very hold, and never a later one of the same name. After a lost answer send it again: "
            "`hold-gone` means that it is over, as you wanted."
        ),
        parameters=(_HOLD_ID,),
        answer="Released",
        answer_about="It is over, and the next in line has its turn.",
        example={"released": True},
        problems=_OF_A_HOLD,
    ),
)
