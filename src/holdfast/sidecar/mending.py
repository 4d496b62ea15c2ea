"""Mending over HTTP: who stands in the way is forced out, with a reason, and it is written down who did."""

from __future__ import annotations

import json
from typing import Final

from holdfast.errors import NoSuchTicket
from holdfast.limits import OWNER_BYTES_MAX, REASON_BYTES_MAX
from holdfast.sidecar import shapes
from holdfast.sidecar.auth import ANYBODY, Caller, Scope
from holdfast.sidecar.exchange import Answer
from holdfast.sidecar.fields import Field, InvalidField, Text, TokenText
from holdfast.sidecar.lines import LIMIT, NAME, PREFIX
from holdfast.sidecar.problems import OF_THE_STORE, Code, Problem
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service


async def force_release(service: Service, call: Call) -> Answer:
    """Force somebody out."""
    tenant, token = call.caller.tenant, call.fields["token"]
    name = tenant.inside(call.fields["name"])
    actor = actor_of(call.caller, call.fields["actor"])
    try:
        record = await service.operator.force_release(name, token=token, reason=call.fields["reason"], actor=actor)
    except NoSuchTicket as error:
        line = await service.operator.line(name)
        if not line.tickets:
            raise Problem(Code.NOBODY_THERE, "nobody stands in this line, so nobody was forced out") from error
        raise Problem(
            Code.WRONG_TOKEN,
            f"no ticket with token {token} stands in this line, so nobody was forced out; look at it again",
        ) from error
    return Answer(200, json.dumps(shapes.record(tenant, record)).encode())


async def audit(service: Service, call: Call) -> Answer:
    """Who was forced out, the newest first."""
    tenant = call.caller.tenant
    records = await service.operator.audit(tenant.inside(call.fields["prefix"]))
    own = [record for record in reversed(records) if tenant.has(record.resource)][: call.fields["limit"]]
    return Answer(200, json.dumps({"records": [shapes.record(tenant, record) for record in own]}).encode())


def actor_of(caller: Caller, given: str | None) -> str:
    """Who is written down: the caller as its token says, and whom it names beside that. Nobody can pass for another."""
    if caller is ANYBODY:
        return given or caller.name
    actor = caller.name if given is None else f"{given} ({caller.name})"
    if len(actor.encode()) > OWNER_BYTES_MAX:
        raise InvalidField(f"actor is too long: with the token's name it may have {OWNER_BYTES_MAX} bytes")
    return actor


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/resources/{name}/release",
        handler=force_release,
        scope=Scope.OPERATE,
        name="forceRelease",
        tag="lines",
        summary="Force somebody out",
        about=(
            "Removes the ticket of that token, holder or waiter, and writes the audit record in the same transaction. "
            "Whoever held it hears of it, and may be at work until then: only a guard that checks tokens keeps it from "
            "the resource. The same request again finds its own record."
        ),
        parameters=(NAME,),
        body=(
            Field("token", TokenText(), "Of the ticket that is meant, as it was shown.", example="33"),
            Field(
                "reason", Text(REASON_BYTES_MAX, least=1), "Why, for whoever asks later.", example="stuck since noon"
            ),
            Field("actor", Text(OWNER_BYTES_MAX, least=1), "Who does it; the token's name stands beside it.", None),
        ),
        body_example={"token": "33", "reason": "stuck since noon", "actor": "alice"},
        answer="AuditRecord",
        answer_about="Done, and written down.",
        problems=(Code.NOBODY_THERE, Code.WRONG_TOKEN, *OF_THE_STORE),
    ),
    Route(
        method="GET",
        path="/v1/audit",
        handler=audit,
        scope=Scope.READ,
        name="audit",
        tag="lines",
        summary="Who was forced out",
        about="The newest first. 100 of a line are kept, and 1000 in all.",
        parameters=(PREFIX, LIMIT),
        answer="Audit",
        answer_about="The records.",
        example={"records": []},
        problems=OF_THE_STORE,
    ),
)
