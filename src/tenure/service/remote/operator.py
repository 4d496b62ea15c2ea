"""Operators' verbs of a store over HTTP, for remote Python clients: see `StoreAdmin` in tenure/_admin/protocol.py.

A tenant sees its own lines and stored records, and no others. The audit record of a removal names the actor by its
token, whatever the client wrote; and audit records are trimmed to the service's own bounds, so that no actor can erase
its trail.
"""

from __future__ import annotations

from typing import Any, Final

from tenure._admin.models import read_audit
from tenure._admin.protocol import RecordKind, StoreAdmin, StoredRecord, record_name
from tenure._core.base.limits import (
    AUDIT_MAX,
    AUDIT_PER_LINE_MAX,
    JOURNAL_MAX,
    JOURNAL_PER_LINE_MAX,
    NAME_BYTES_MAX,
    RECORDS_AT_ONCE_MAX,
)
from tenure._core.lease import Ticket
from tenure._core.runtime import runtime_of
from tenure._core.turn import Operate
from tenure._transport import remote
from tenure.service.api.audit import actor_of
from tenure.service.auth.tokens import ANYBODY, WHOLE, Scope
from tenure.service.http.fields import Field, InvalidField, Items, Maybe, NumberText, OneOf, Shape, Text, Whole
from tenure.service.http.problems import OF_THE_STORE, Problem, ProblemCode
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Handler, Route, RouteCall
from tenure.service.limits import COMMIT_BODY_BYTES_MAX, CURSOR_CHARACTERS_MAX, RECORD_BYTES_MAX
from tenure.service.remote.lease_api import SECONDS, json_response, line_json, request_until
from tenure.service.service import Service

_NAME: Final = Text(NAME_BYTES_MAX, minimum=1)
_RESOURCE: Final = Field("resource", _NAME, "The name of the line.", example="nightly-report")
_PREFIX: Final = Field("prefix", Text(NAME_BYTES_MAX), "With what names begin.", "")
_KIND: Final = Field("shelf", OneOf(tuple(kind.value for kind in RecordKind)), "Of which kind.")
_RECORD_NAME: Final = Field(
    "name", Text(200, minimum=1), "Which note.", example="0000000000000000033-5b0e1d7c8a3e5b0e1d7c"
)
_KEEP: Final = Field("keep", Whole(1, 1_000_000), "How many shall stand.", example=100)
_RECORD_FIELDS: Final = (
    _KIND,
    _RESOURCE,
    _RECORD_NAME,
    Field("text", Text(RECORD_BYTES_MAX, free=True), "What it says."),
    Field("order", NumberText(), "As it was sent.", 0),
)
_RECORD_EXAMPLE: Final = {
    "shelf": RecordKind.JOURNAL.value,
    "resource": "nightly-report",
    "name": "0000000000000000033-5b0e1d7c8a3e5b0e1d7c",
    "text": "{}",
    "order": "34",
}
_NOT_ITS_RECORD: Final = "note is to be the audit record of this removal: nobody is forced out without one"
_KEPT_MIN: Final = {
    RecordKind.AUDIT: (AUDIT_PER_LINE_MAX, AUDIT_MAX),
    RecordKind.JOURNAL: (JOURNAL_PER_LINE_MAX, JOURNAL_MAX),
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
    """Remove one very ticket, with its audit record."""
    fields, tenant = call.fields, call.caller.tenant
    name = tenant.inside(fields["resource"])
    record = None if fields["note"] is None else _inside(call, fields["note"])
    if call.caller is not ANYBODY:
        record = _signed(call, record)
    found = await _ask(service, call, lambda verbs, until: verbs.line(name, until))
    removed = (fields["ticketId"], fields["token"])
    ticket = next((ticket for ticket in found.tickets if (ticket.id, ticket.token) == removed), None)
    if ticket is not None:
        _check_name(ticket, record)
        done = await _ask(service, call, lambda verbs, until: verbs.remove(ticket, record, until))
    elif record is None:
        done = False
    else:  # perhaps by this very request, whose answer was lost
        stands = await _ask(service, call, lambda verbs, until: verbs.record(record.kind, name, record.name, until))
        done = stands is not None and stands.text == record.text
    return json_response({"removed": done})


async def write(service: Service, call: RouteCall) -> HttpResponse:
    """Write records of the journal."""
    records = [_inside(call, given) for given in call.fields["notes"]]
    if any(record.kind is RecordKind.AUDIT for record in records):
        raise Problem(
            ProblemCode.FORBIDDEN, "an audit record is written with the removal that it tells of, and not alone"
        )
    counts = await _ask(service, call, lambda verbs, until: verbs.write(records, until))
    outside = call.caller.tenant.outside
    return json_response({"counts": {outside(resource): count for resource, count in counts.items()}})


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


async def trim(service: Service, call: RouteCall) -> HttpResponse:
    """Remove the older records of one line."""
    kind, resource = RecordKind(call.fields["shelf"]), call.caller.tenant.inside(call.fields["resource"])
    keep = _kept(call, _KEPT_MIN[kind][0])
    await _ask(service, call, lambda verbs, until: verbs.trim(kind, resource, keep, until))
    return json_response({"trimmed": True})


async def trim_all(service: Service, call: RouteCall) -> HttpResponse:
    """Remove the older records of all lines. Of all tenants: most callers can't go below the service's own bound."""
    kind = RecordKind(call.fields["shelf"])
    keep = _kept(call, _KEPT_MIN[kind][1])
    await _ask(service, call, lambda verbs, until: verbs.trim_all(kind, keep, until))
    return json_response({"trimmed": True})


async def _ask(service: Service, call: RouteCall, verb: Any) -> Any:  # Any: each verb has its own outcome
    verbs: StoreAdmin = runtime_of(service.client).admin()
    return await service.remote_leases.run(Operate(lambda until: verb(verbs, until), request_until(service, call)))


def _kept(call: RouteCall, minimum: int) -> int:
    """Return how many records to keep: no fewer than the service does, unless the caller operates all tenants."""
    keep: int = call.fields["keep"]
    everywhere = call.caller.tenant.name == WHOLE and Scope.OPERATE in call.caller.scopes
    return keep if everywhere else max(keep, minimum)


def _inside(call: RouteCall, given: dict[str, Any]) -> StoredRecord:
    """Read a record of the client, under the store's name for its line."""
    written = StoredRecord(RecordKind(given["shelf"]), given["resource"], given["name"], given["text"], given["order"])
    return remote.renamed(written, call.caller.tenant.inside(written.resource))


def _signed(call: RouteCall, written: StoredRecord | None) -> StoredRecord:
    """Check that a record is the audit record of this very removal, and put in the actor by the token.

    Raises InvalidField.
    """
    record = None if written is None or written.kind is not RecordKind.AUDIT else read_audit(written)
    removed = (call.fields["ticketId"], call.fields["token"])
    if written is None or record is None or (record.ticket_id, record.token) != removed:
        raise InvalidField(_NOT_ITS_RECORD)
    actor = actor_of(call.caller, record.actor if record.actor != call.caller.name else None)
    return remote.renamed(written, written.resource, actor=actor)


def _check_name(removed: Ticket, record: StoredRecord | None) -> None:
    """Check that a record has the name of this removal's: under another it could replace the record of another removal.

    Raises InvalidField.
    """
    expected = (removed.resource, record_name(removed.token or 0, removed.id))
    if record is not None and (record.resource, record.name) != expected:
        raise InvalidField(_NOT_ITS_RECORD)


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
            Field("note", Maybe(Shape(_RECORD_FIELDS)), "The audit record: not null where tokens are asked for.", None),
        ),
        body={"resource": "nightly-report", "ticketId": "5b0e1d7c8a3e5b0e1d7c", "token": "33", "note": None},
        answer="TicketRemoved",
        example={"removed": True},
        body_bytes_max=COMMIT_BODY_BYTES_MAX,
    ),
    _verb(
        "write",
        write,
        Scope.ACQUIRE,
        summary="Leave notes of your own holds",
        about="Of the journal. Answered with how many each of their lines has now.",
        fields=(Field("notes", Items(Shape(_RECORD_FIELDS), RECORDS_AT_ONCE_MAX), "Which."),),
        body=_RECORDS_EXAMPLE,
        answer="NoteCounts",
        example={"counts": {"nightly-report": 7}},
        body_bytes_max=COMMIT_BODY_BYTES_MAX,
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
        about="In the order in which they were made.",
        fields=(_KIND, _PREFIX),
        body={"shelf": RecordKind.AUDIT.value, "prefix": "nightly-"},
        answer="Notes",
        example=_RECORDS_EXAMPLE,
    ),
    _verb(
        "trim",
        trim,
        Scope.ACQUIRE,
        summary="Keep the newest notes about a line",
        about="Never fewer than the service keeps, but for who operates the whole.",
        fields=(_KIND, _RESOURCE, _KEEP),
        body={**_ABOUT, "keep": 50},
        answer="Trimmed",
        example={"trimmed": True},
    ),
    _verb(
        "trim-all",
        trim_all,
        Scope.ACQUIRE,
        summary="Keep the newest notes of all lines",
        about="Never fewer than the service keeps, but for who operates the whole.",
        fields=(_KIND, _KEEP),
        body={"shelf": RecordKind.AUDIT.value, "keep": 1000},
        answer="Trimmed",
        example={"trimmed": True},
    ),
)
