"""Operators' verbs of a store over HTTP, for remote Python clients: see `StoreAdmin` in tenure/_admin/protocol.py.

A tenant sees its own lines and stored records, and no others. What is written, the service writes: the audit record of
a removal, with the actor by its token, and the journal (leases.py); both it bounds for each tenant apart.
"""

from __future__ import annotations

from typing import Any, Final

from tenure._admin.protocol import RecordKind, StoreAdmin, StoredRecord
from tenure._core.base.limits import NAME_BYTES_MAX, OWNER_BYTES_MAX
from tenure._core.runtime import runtime_of
from tenure._core.turn import Operate
from tenure._transport import remote
from tenure.errors import NoSuchTicket
from tenure.service.api.audit import REASON, actor_of, force_out
from tenure.service.auth.tokens import Scope
from tenure.service.http.fields import Field, Items, NumberText, OneOf, Text
from tenure.service.http.problems import OF_THE_STORE, ProblemCode
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Handler, Route, RouteCall
from tenure.service.limits import CURSOR_CHARACTERS_MAX
from tenure.service.remote.lease_api import SECONDS, json_response, line_json, request_until
from tenure.service.service import Service

_NAME: Final = Text(NAME_BYTES_MAX, minimum=1)
_RESOURCE: Final = Field("resource", _NAME, "The name of the line.", example="nightly-report")
_PREFIX: Final = Field("prefix", Text(NAME_BYTES_MAX), "With what names begin.", "")
_KIND: Final = Field("shelf", OneOf(tuple(kind.value for kind in RecordKind)), "Of which kind.")
_RECORD_NAME: Final = Field(
    "name", Text(200, minimum=1), "Which note.", example="0000000000000000033-5b0e1d7c8a3e5b0e1d7c"
)
_RECORD_EXAMPLE: Final = {
    "shelf": RecordKind.JOURNAL.value,
    "resource": "nightly-report",
    "name": "0000000000000000033-5b0e1d7c8a3e5b0e1d7c",
    "text": "{}",
    "order": "34",
}


async def lines(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with a page of lines."""
    tenant, fields = call.caller.tenant, call.fields
    prefix = tenant.inside(fields["prefix"])
    page = await _ask(service, call, lambda verbs, until: verbs.lines(prefix, fields["after"], until))
    own = tuple(line for line in page.lines if tenant.has(line.resource))
    return json_response({"lines": [line_json(service, call, line) for line in own], "after": page.after})


async def line(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with one line."""
    name = call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.line(name, until))
    return json_response(line_json(service, call, found))


async def time_left(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the TTLs of leases and what is left of them."""
    ids = call.fields["storeLeases"]
    return json_response(
        {"times": remote.write_times(await _ask(service, call, lambda verbs, until: verbs.time_left(ids, until)))}
    )


async def remove(service: Service, call: RouteCall) -> HttpResponse:
    """Remove one very ticket, with an audit record that the service makes of it."""
    fields, caller = call.fields, call.caller
    actor = actor_of(caller, fields["actor"] if fields["actor"] != caller.name else None)
    known = {"ticket_id": fields["ticketId"], "nonce": fields["nonce"]}
    try:
        record = await force_out(service, call, caller.tenant.inside(fields["resource"]), actor, **known)
    except NoSuchTicket:
        return json_response({"removed": False})
    return json_response({"removed": record.nonce == fields["nonce"]})


async def one_record(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with one record, or none."""
    kind, name = RecordKind(call.fields["shelf"]), call.fields["name"]
    resource = call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.record(kind, resource, name, until))
    return json_response({"notes": [] if found is None else [_record_json(call, found)]})


async def read(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the records of one line."""
    kind, resource = RecordKind(call.fields["shelf"]), call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.read(kind, resource, until))
    return json_response({"notes": [_record_json(call, one) for one in found]})


async def browse(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the records of all lines below a prefix."""
    tenant, kind = call.caller.tenant, RecordKind(call.fields["shelf"])
    prefix = tenant.inside(call.fields["prefix"])
    found = await _ask(service, call, lambda verbs, until: verbs.browse(kind, prefix, until))
    return json_response({"notes": [_record_json(call, one) for one in found if tenant.has(one.resource)]})


async def _ask(service: Service, call: RouteCall, verb: Any) -> Any:  # Any: each verb has its own outcome
    verbs: StoreAdmin = runtime_of(service.client).admin()
    return await service.remote_leases.run(Operate(lambda until: verb(verbs, until), request_until(service, call)))


def _record_json(call: RouteCall, found: StoredRecord) -> dict[str, Any]:
    return remote.write_note(remote.renamed(found, call.caller.tenant.outside(found.resource)))


def _verb(
    name: str,
    handler: Handler,
    scope: Scope,
    *,
    fields: tuple[Field, ...],
    body: dict[str, Any],
    problems: tuple[ProblemCode, ...] = (),
    **more: Any,
) -> Route:
    return Route(
        method="POST",
        path=f"/v1/operate/{name}",
        handler=handler,
        scope=scope,
        name=f"operate-{name}",
        tag="leases",
        body=(*fields, SECONDS),
        body_example={**body, "seconds": 5.0},
        answer_about="As it is at that moment.",
        problems=(*problems, *OF_THE_STORE),
        **more,
    )


_ABOUT_TICKET: Final = {"resource": "nightly-report", "ticketId": "5b0e1d7c8a3e5b0e1d7c", "token": "33"}
_ABOUT: Final = {"shelf": RecordKind.JOURNAL.value, "resource": "nightly-report"}
_RECORDS_EXAMPLE: Final = {"notes": [_RECORD_EXAMPLE]}
ROUTES: Final = (
    _verb(
        "lines",
        lines,
        Scope.READ,
        summary="Lines and all their tickets",
        about="A page; `after` is null on the last.",
        fields=(_PREFIX, Field("after", Text(CURSOR_CHARACTERS_MAX), "`after` of the page before.", "")),
        body={"prefix": "nightly-", "after": ""},
        answer="TicketLines",
        example={"lines": [], "after": None},
    ),
    _verb(
        "line",
        line,
        Scope.READ,
        summary="One line and all its tickets",
        about="Described.",
        fields=(_RESOURCE,),
        body={"resource": "nightly-report"},
        answer="TicketLine",
        example={"resource": "nightly-report", "revision": "33", "tickets": []},
    ),
    _verb(
        "time-left",
        time_left,
        Scope.READ,
        summary="How long leases stand",
        about="As far as the store can tell; the others are left out.",
        fields=(Field("storeLeases", Items(Text(200), 1000), "Which.", example=["694d81417acd4754"]),),
        body={"storeLeases": ["694d81417acd4754"]},
        answer="LeaseTimes",
        example={"times": {"694d81417acd4754": {"granted": 15.0, "left": 11.0}}},
    ),
    _verb(
        "remove",
        remove,
        Scope.OPERATE,
        summary="Take out one very ticket, and write it down",
        about="Both or neither. Again after a lost answer it finds what the first try did.",
        fields=(
            _RESOURCE,
            Field("ticketId", Text(1024, minimum=1), "Which."),
            Field("token", NumberText(), "Which."),
            REASON,
            Field("actor", Text(OWNER_BYTES_MAX, minimum=1), "Who does it; the token's name stands beside it."),
            Field(
                "nonce", Text(40, minimum=16), "New for each removal, the same for each try of one.", example="1d" * 10
            ),
        ),
        body={**_ABOUT_TICKET, "reason": "stuck since noon", "actor": "alice", "nonce": "1d" * 10},
        answer="TicketRemoved",
        example={"removed": True},
    ),
    _verb(
        "note",
        one_record,
        Scope.READ,
        summary="One note",
        about="Or none.",
        fields=(_KIND, _RESOURCE, _RECORD_NAME),
        body={**_ABOUT, "name": _RECORD_EXAMPLE["name"]},
        answer="Notes",
        example=_RECORDS_EXAMPLE,
    ),
    _verb(
        "read",
        read,
        Scope.READ,
        summary="The notes about one line",
        about="By name.",
        fields=(_KIND, _RESOURCE),
        body=_ABOUT,
        answer="Notes",
        example=_RECORDS_EXAMPLE,
    ),
    _verb(
        "browse",
        browse,
        Scope.READ,
        summary="The notes about all lines below a prefix",
        about="Audit records, in the order in which they were made.",
        fields=(Field("shelf", OneOf((RecordKind.AUDIT.value,)), "Of which kind."), _PREFIX),
        body={"shelf": RecordKind.AUDIT.value, "prefix": "nightly-"},
        answer="Notes",
        example=_RECORDS_EXAMPLE,
    ),
)
