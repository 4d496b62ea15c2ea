"""Force release over HTTP: an operator removes a ticket, with a reason; and the audit records of that."""

from __future__ import annotations

import json
import logging
from typing import Final

from tenure._admin.models import AuditRecord
from tenure._core.base.limits import AUDIT_MAX, OWNER_BYTES_MAX, REASON_BYTES_MAX
from tenure._core.drivers.asyncio import arun
from tenure._core.runtime import runtime_of
from tenure.errors import NoSuchTicket
from tenure.service.api import serialize
from tenure.service.api.lines import LIMIT, NAME, PREFIX
from tenure.service.auth.tokens import ANYBODY, Caller, Scope
from tenure.service.http.fields import Field, InvalidField, Text, TokenText
from tenure.service.http.problems import OF_THE_STORE, Problem, ProblemCode
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Route, RouteCall
from tenure.service.service import Service

_log = logging.getLogger("tenure.service")
REASON: Final = Field(
    "reason", Text(REASON_BYTES_MAX, minimum=1), "Why, for whoever asks later.", example="stuck since noon"
)


async def force_release(service: Service, call: RouteCall) -> HttpResponse:
    """Force the owner of one ticket out of a line."""
    tenant, token = call.caller.tenant, call.fields["token"]
    name = tenant.inside(call.fields["name"])
    actor = actor_of(call.caller, call.fields["actor"])
    try:
        record = await force_out(service, call, name, actor)
    except NoSuchTicket as error:
        line = await service.operator.line(name)
        if not line.tickets:
            raise Problem(ProblemCode.NOBODY_THERE, "nobody stands in this line, so nobody was forced out") from error
        raise Problem(
            ProblemCode.WRONG_TOKEN,
            f"no ticket with token {token} stands in this line, so nobody was forced out; look at it again",
        ) from error
    return HttpResponse(200, json.dumps(serialize.record(tenant, record)).encode())


async def force_out(service: Service, call: RouteCall, name: str, actor: str, **known: str) -> AuditRecord:
    """Remove the ticket that a request names, with a record of the service's own making. Raises NoSuchTicket."""
    runtime, tenant = runtime_of(service.client), call.caller.tenant
    token, reason = call.fields["token"], call.fields["reason"]
    # Who has all names keeps no tenant's records back: as many as they all may have.
    others = 0 if tenant.prefix or service.tokens is None else service.tokens.tenants
    kept = (tenant.prefix, AUDIT_MAX * (1 + others))
    steps = runtime.operator.force_release(name, token, reason, actor, **known, kept=kept)
    record = await arun(steps, runtime.clock, runtime.workers)
    _log.warning("%r (token %d) was forced out of %r by %r: %r", record.holder, token, name, record.actor, reason)
    return record


async def audit(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the audit records below a prefix, the newest first."""
    tenant = call.caller.tenant
    records = await service.operator.audit(tenant.inside(call.fields["prefix"]))
    shown = [record for record in reversed(records) if tenant.has(record.resource)][: call.fields["limit"]]
    return HttpResponse(200, json.dumps({"records": [serialize.record(tenant, record) for record in shown]}).encode())


def actor_of(caller: Caller, given: str | None) -> str:
    """Return the actor for an audit record: the caller's name by its token, after the name that the caller gives.

    So no caller can pass for another.
    """
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
            REASON,
            Field("actor", Text(OWNER_BYTES_MAX, minimum=1), "Who does it; the token's name stands beside it.", None),
        ),
        body_example={"token": "33", "reason": "stuck since noon", "actor": "alice"},
        answer="AuditRecord",
        answer_about="Done, and written down.",
        problems=(ProblemCode.NOBODY_THERE, ProblemCode.WRONG_TOKEN, *OF_THE_STORE),
    ),
    Route(
        method="GET",
        path="/v1/audit",
        handler=audit,
        scope=Scope.READ,
        name="audit",
        tag="lines",
        summary="Who was forced out",
        about="The newest first. 100 of a line are kept, and 1000 of a tenant.",
        parameters=(PREFIX, LIMIT),
        answer="Audit",
        answer_about="The records.",
        example={"records": []},
        problems=OF_THE_STORE,
    ),
)
