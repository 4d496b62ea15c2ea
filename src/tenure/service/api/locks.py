"""Locks over HTTP: acquire, renew, release."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from tenure._core.base.limits import NAME_BYTES_MAX, OWNER_BYTES_MAX, SEATS_MAX, TTL_MAX, VALUE_BYTES_MAX
from tenure._core.base.validation import encode
from tenure.errors import ClientClosed, LeaseLost, TenureError
from tenure.service.auth.tokens import Scope, Tenant
from tenure.service.holds.keeper import AcquireRequest, Grant, HeldElsewhere, HoldGone, HoldId, KeyReused, NoSuchHold
from tenure.service.http.fields import Field, Flag, SecondsField, Text, Whole
from tenure.service.http.problems import OF_THE_STORE, Problem, ProblemCode
from tenure.service.http.request import HttpResponse, HungUp
from tenure.service.http.routing import Route, RouteCall
from tenure.service.limits import (
    HOLD_TTL_MIN,
    HOLDERS_LISTED_MAX,
    KEY_CHARACTERS_MAX,
    KEY_RECORD_BYTES,
    WAIT_SECONDS_MAX,
)
from tenure.service.service import Service
from tenure.service.shutdown import draining

_log = logging.getLogger("tenure.service")
_ID_CHARACTERS_MAX: Final = 8192
_LOOK_SECONDS: Final = 1.0
_KEY: Final = Text(KEY_CHARACTERS_MAX, minimum=1)
_HOLD_ID: Final = Field("leaseId", Text(_ID_CHARACTERS_MAX, minimum=1), "What acquire answered with. A secret.")
_OF_A_HOLD: Final = (
    ProblemCode.UNKNOWN_HOLD,
    ProblemCode.HOLD_GONE,
    ProblemCode.HELD_ELSEWHERE,
    ProblemCode.DRAINING,
    *OF_THE_STORE,
)
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


async def acquire(service: Service, call: RouteCall) -> HttpResponse:
    """Take a hold, or wait for it; answers within `waitSeconds`."""
    fields, tenant = call.fields, call.caller.tenant
    request = AcquireRequest(
        resource=tenant.inside(fields["resource"]),
        owner=fields["ownerId"],
        ttl=fields["ttlSeconds"],
        slots=fields["slots"],
        weight=fields["weight"],
        shared=fields["shared"],
        value=fields["value"],
        idempotency=_idempotency_key(call),
        tenant=tenant.name,
        secret=call.caller.credential.hex(),
    )
    mark_bytes = 0 if request.idempotency is None else KEY_RECORD_BYTES
    call.usage.writes(request.value, len(encode(request.resource)) + len(request.owner.encode()) + mark_bytes)
    with call.usage.acquiring():
        grant = await _wait_for_grant(service, call, request, fields["waitSeconds"])
        if grant is None:
            raise await _not_acquired(service, request.resource)
        call.usage.held(grant.id, grant.remaining())
    return HttpResponse(200, json.dumps({"acquired": True, **_hold_json(tenant, grant)}).encode())


async def renew(service: Service, call: RouteCall) -> HttpResponse:
    """Let a hold live for its TTL from now on."""
    hold_id = call.fields["leaseId"]
    try:
        grant = await service.keeper.renew(_own_hold(service, call, hold_id))
    except (NoSuchHold, HoldGone, HeldElsewhere) as error:
        raise _hold_problem(call, error) from error
    call.usage.held(hold_id, grant.remaining())
    return HttpResponse(200, json.dumps({"renewed": True, **_hold_json(call.caller.tenant, grant)}).encode())


async def release(service: Service, call: RouteCall) -> HttpResponse:
    """Give a hold up."""
    hold_id = call.fields["leaseId"]
    try:
        await service.keeper.release(_own_hold(service, call, hold_id))
    except (NoSuchHold, HoldGone, HeldElsewhere) as error:
        raise _hold_problem(call, error) from error
    call.usage.gone(hold_id)
    return HttpResponse(200, b'{"released": true}')


async def _not_acquired(service: Service, resource: str) -> Problem:
    """Make the refusal, with who holds it now and how many wait, where the store says so."""
    seen: dict[str, object] = {}
    with contextlib.suppress(TenureError, TimeoutError):  # nothing was acquired, whatever this look comes to
        async with asyncio.timeout(_LOOK_SECONDS):
            line = await service.operator.line(resource)
        owners = [ticket.owner for ticket in line.holders[:HOLDERS_LISTED_MAX]]
        seen = {"heldBy": owners, "waiterCount": len(line.tickets) - len(line.holders)}
    detail = "others hold it, and its turn did not come in time; nothing is left behind"
    return Problem(ProblemCode.NOT_ACQUIRED, detail, retry=True, more={"acquired": False, **seen})


def _own_hold(service: Service, call: RouteCall, hold_id: HoldId) -> HoldId:
    """Return the same id where the name in it is this tenant's. Raises NoSuchHold. Asks nobody whether the hold exists.

    The name may be trusted: the Keeper looks for a hold of that name, so an id with another name in it finds none.
    """
    if not call.caller.tenant.has(service.keeper.resource_of(hold_id)):
        raise NoSuchHold("the hold is another tenant's")
    return hold_id


def _idempotency_key(call: RouteCall) -> str | None:
    """Read the Idempotency-Key, with the tenant before it, so that no two tenants share one.

    Raises InvalidField, Malformed.
    """
    key = call.request.header(b"idempotency-key")
    return None if key is None else f"{call.caller.tenant.name}\n{_KEY.parse('Idempotency-Key', key)}"


async def _wait_for_grant(service: Service, call: RouteCall, request: AcquireRequest, seconds: float) -> Grant | None:
    """Wait for the hold; None where its turn did not come.

    Ends at once, and leaves nothing, when the caller hangs up or the service ends.

    Raises HungUp, Problem, TenureError.
    """
    if service.shutdown.begun:
        raise draining()
    if seconds == 0 and request.idempotency is None and not service.keeper.crowded:
        return await _grant_at_once(service, call, request)
    work = asyncio.create_task(service.keeper.acquire(request, wait_seconds=seconds))
    gone = asyncio.create_task(call.request.hung_up())
    try:
        with service.shutdown.calls(work.cancel):
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:  # also when this request is cancelled itself
        hung_up = gone.done() or not gone.cancel()
        work.cancel()
        await asyncio.wait((work,))
    return await _deliver_or_take_back(service, call, request, _outcome(work, hung_up), hung_up=hung_up)


async def _grant_at_once(service: Service, call: RouteCall, request: AcquireRequest) -> Grant | None:
    """Take the hold without waiting for a turn, in this very task: the two for a wait would cost more than the rest.

    A caller that hangs up meanwhile is noticed after the store has answered, within the time limit of a request.
    """
    try:
        with service.shutdown.cancels():
            grant = await service.keeper.acquire(request, wait_seconds=0)
    except ClientClosed:
        raise draining() from None
    return await _deliver_or_take_back(service, call, request, grant, hung_up=call.request.has_hung_up())


async def _deliver_or_take_back(
    service: Service, call: RouteCall, request: AcquireRequest, grant: Grant | None, *, hung_up: bool
) -> Grant | None:
    """Return the grant, unless its caller hung up, lost its token or could not renew here: then it is taken back.

    Raises HungUp, Problem.
    """
    if grant is None or not (hung_up or service.shutdown.begun or not service.admits(call.caller)):
        return grant
    if request.idempotency is None:  # one with a key is left to its TTL: a repeated request will find it
        try:
            await service.keeper.release(grant.id)
        except TenureError as error:
            _log.warning("a hold that nobody heard of could not be released, its TTL ends it: %s", error)
    raise HungUp if hung_up else draining()


def _outcome(work: asyncio.Task[Grant | None], hung_up: bool) -> Grant | None:
    if work.cancelled():
        raise HungUp if hung_up else draining()
    try:
        return work.result()
    except ClientClosed:
        raise draining() from None
    except HoldGone as error:
        raise Problem(
            ProblemCode.KEY_SPENT, "the hold of this Idempotency-Key has ended; take a new key for a new hold"
        ) from error
    except KeyReused as error:
        raise Problem(
            ProblemCode.KEY_REUSED,
            "this Idempotency-Key came with another request before; take a new key for a new request",
        ) from error


def _hold_problem(call: RouteCall, error: TenureError) -> Problem:
    """Make the refusal. A hold of another tenant and one that never was are refused in the same words."""
    if isinstance(error, NoSuchHold):
        return Problem(
            ProblemCode.UNKNOWN_HOLD, "this is not the id of a hold of yours: give what acquire answered with"
        )
    if isinstance(error, HeldElsewhere):
        path, address = call.request.scope["raw_path"].decode("latin-1"), error.address
        is_one = re.match(r"https?://[!-~]*\Z", address)  # any client can make up an id, and this becomes a header
        location = {"Location": f"{address.rstrip('/')}{path}"} if is_one else {}
        detail = "another replica keeps this hold: send the same request to the address in Location"
        return Problem(ProblemCode.HELD_ELSEWHERE, detail, retry=True, headers=location)
    call.usage.gone(call.fields["leaseId"])
    return Problem(
        ProblemCode.HOLD_GONE,
        "this hold is over: released, run out, or forced out. Stop the protected work; acquire again",
    )


def _hold_json(tenant: Tenant, grant: Grant) -> dict[str, Any]:
    remaining = grant.remaining()
    if remaining <= 0:
        raise LeaseLost("the hold ran out before it could be delivered")
    ends = datetime.now(UTC) + timedelta(seconds=remaining)
    return {
        "resource": tenant.outside(grant.resource),
        "ownerId": grant.owner,
        "leaseId": grant.id,
        "fencingToken": str(grant.token),
        "fence": None if grant.fence is None else str(grant.fence),
        "ttlSeconds": grant.ttl,
        "expiresAt": ends.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "remainingSeconds": round(remaining, 3),
    }


_of_holds: Final = partial(Route, scope=Scope.ACQUIRE, tag="locks")
ROUTES: Final = (
    _of_holds(
        method="POST",
        path="/v1/locks/acquire",
        handler=acquire,
        name="acquire",
        summary="Take a hold, or wait for it",
        about=(
            "A lock; with `slots` a seat of a semaphore; with `shared` the reading side of a read/write lock. The hold "
            "lives for `ttlSeconds` from its grant, and only `renew` lets it live longer: stop the protected work when "
            "`remainingSeconds` have passed since you **sent** the request, whatever `expiresAt` says by your clock. "
            "Hand `fencingToken` or `fence` to the resource, so that it can refuse older ones. Waiting ends, and "
            "leaves nothing behind, when you hang up. With an Idempotency-Key the same request may be sent again, with "
            "the same token, after a lost answer: it finds the hold, and does not take another."
        ),
        headers=(
            Field("Idempotency-Key", _KEY, "Unguessable, and new for every request: a UUID.", None, "1d7c8a3e-5b0e"),
        ),
        body=(
            Field("resource", Text(NAME_BYTES_MAX, minimum=1), "What is to be held.", example="nightly-report"),
            Field("ownerId", Text(OWNER_BYTES_MAX, minimum=1), "Who holds it, for people.", example="worker-1"),
            Field("ttlSeconds", SecondsField(HOLD_TTL_MIN, TTL_MAX), "How long it lives unless renewed.", example=15),
            Field("waitSeconds", SecondsField(0, WAIT_SECONDS_MAX), "For how long to wait for it.", 0.0),
            Field("slots", Whole(1, SEATS_MAX), "How many seats there are; all give the same number.", None),
            Field("weight", Whole(1, SEATS_MAX), "How many of them to take.", 1),
            Field("shared", Flag(), "Together with others who share.", False),
            Field(
                "value",
                Text(VALUE_BYTES_MAX, free=True),
                "What others may read of it: 4096 bytes, unless the service says more.",
                "",
            ),
        ),
        body_example={"resource": "nightly-report", "ownerId": "worker-1", "ttlSeconds": 15, "waitSeconds": 5},
        answer="Acquired",
        answer_about="Granted. Where its turn did not come in time the answer is 409, `acquired` false.",
        example=_GRANTED_EXAMPLE,
        problems=(
            ProblemCode.NOT_ACQUIRED,
            ProblemCode.LINE_MISMATCH,
            ProblemCode.KEY_SPENT,
            ProblemCode.KEY_REUSED,
            ProblemCode.TOO_MANY_HOLDS,
            ProblemCode.TOO_MANY_WAITING,
            ProblemCode.PLACE_LOST,
            ProblemCode.DRAINING,
            *OF_THE_STORE,
        ),
    ),
    _of_holds(
        method="POST",
        path="/v1/locks/{leaseId}/renew",
        handler=renew,
        name="renew",
        keeps=True,
        summary="Let a hold live on",
        about="For its TTL from now on. About every third of the TTL is a good pace.",
        parameters=(_HOLD_ID,),
        answer="Renewed",
        answer_about="It lives on.",
        example={"renewed": True, **{k: v for k, v in _GRANTED_EXAMPLE.items() if k != "acquired"}},
        problems=(ProblemCode.PLACE_LOST, *_OF_A_HOLD),
    ),
    _of_holds(
        method="DELETE",
        path="/v1/locks/{leaseId}",
        handler=release,
        name="release",
        keeps=True,
        summary="Give a hold up",
        about=(
            "That very hold, and never a later one of the same name. After a lost answer send it again: "
            "`hold-gone` means that it is over, as you request."
        ),
        parameters=(_HOLD_ID,),
        answer="Released",
        answer_about="It is over, and the next in line has its turn.",
        example={"released": True},
        problems=_OF_A_HOLD,
    ),
)
