"""What operators need of a store, over HTTP, for the Python client: see `Operating` in holdfast/operating.py.

A tenant sees lines and notes of its own and no others. Who removes a ticket is written down as the token says, whatever
the client wrote; and the trail of audits is trimmed by the service's own measure, so that nobody erases theirs.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import remote
from holdfast.lease import Ticket
from holdfast.limits import (
    AUDIT_MAX,
    AUDIT_PER_LINE_MAX,
    JOURNAL_MAX,
    JOURNAL_PER_LINE_MAX,
    NAME_BYTES_MAX,
    NOTES_AT_ONCE_MAX,
)
from holdfast.operating import Note, Operating, Shelf, note_name
from holdfast.reports import read_audit
from holdfast.sidecar.auth import ANYBODY, Scope
from holdfast.sidecar.bounds import COMMIT_BODY_BYTES_MAX, CURSOR_CHARACTERS_MAX, NOTE_BYTES_MAX
from holdfast.sidecar.compound import Items, Maybe, NumberText, OneOf, Shape
from holdfast.sidecar.exchange import Answer
from holdfast.sidecar.fields import Field, InvalidField, Text, Whole
from holdfast.sidecar.leases import SECONDS, answered, soon, told_line
from holdfast.sidecar.mending import actor_of
from holdfast.sidecar.problems import OF_THE_STORE, Code, Problem
from holdfast.sidecar.routes import Call, Handler, Route
from holdfast.sidecar.service import Service
from holdfast.sidecar.tenants import WHOLE
from holdfast.turn import Operate

_NAME: Final = Text(NAME_BYTES_MAX, least=1)
_RESOURCE: Final = Field("resource", _NAME, "The name of the line.", example="nightly-report")
_PREFIX: Final = Field("prefix", Text(NAME_BYTES_MAX), "With what names begin.", "")
_SHELF: Final = Field("shelf", OneOf(tuple(shelf.value for shelf in Shelf)), "Of which kind.")
_NOTE_NAME: Final = Field("name", Text(200, least=1), "Which note.", example="0000000000000000033-5b0e1d7c8a3e5b0e1d7c")
_KEEP: Final = Field("keep", Whole(1, 1_000_000), "How many shall stand.", example=100)
_NOTE_FIELDS: Final = (
    _SHELF,
    _RESOURCE,
    _NOTE_NAME,
    Field("text", Text(NOTE_BYTES_MAX, free=True), "What it says."),
    Field("order", NumberText(), "As it was told.", 0),
)
_NOTE_EXAMPLE: Final = {
    "shelf": Shelf.JOURNAL.value,
    "resource": "nightly-report",
    "name": "0000000000000000033-5b0e1d7c8a3e5b0e1d7c",
    "text": "{}",
    "order": "34",
}
_NOT_ITS_RECORD: Final = "note is to be the audit record of this removal: nobody is forced out without one"
_STANDS_AT_LEAST: Final = {
    Shelf.AUDIT: (AUDIT_PER_LINE_MAX, AUDIT_MAX),
    Shelf.JOURNAL: (JOURNAL_PER_LINE_MAX, JOURNAL_MAX),
}


async def lines(service: Service, call: Call) -> Answer:
    """A page of lines."""
    tenant, fields = call.caller.tenant, call.fields
    prefix = tenant.inside(fields["prefix"])
    page = await _ask(service, call, lambda verbs, until: verbs.lines(prefix, fields["after"], until))
    own = tuple(line for line in page.lines if tenant.has(line.resource))
    return answered({"lines": [told_line(service, call, line) for line in own], "after": page.after})


async def line(service: Service, call: Call) -> Answer:
    """One line."""
    name = call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.line(name, until))
    return answered(told_line(service, call, found))


async def time_left(service: Service, call: Call) -> Answer:
    """How long leases stand."""
    ids = call.fields["storeLeases"]
    return answered(
        {"times": remote.write_times(await _ask(service, call, lambda verbs, until: verbs.time_left(ids, until)))}
    )


async def remove(service: Service, call: Call) -> Answer:
    """Take out one very ticket, and write it down."""
    fields, tenant = call.fields, call.caller.tenant
    name = tenant.inside(fields["resource"])
    note = None if fields["note"] is None else _inside(call, fields["note"])
    if call.caller is not ANYBODY:
        note = _signed(call, note)
    found = await _ask(service, call, lambda verbs, until: verbs.line(name, until))
    wanted = (fields["ticketId"], fields["token"])
    ticket = next((ticket for ticket in found.tickets if (ticket.id, ticket.token) == wanted), None)
    if ticket is not None:
        _check_place(ticket, note)
        done = await _ask(service, call, lambda verbs, until: verbs.remove(ticket, note, until))
    elif note is None:
        done = False
    else:  # perhaps by this very request, whose answer was lost
        stands = await _ask(service, call, lambda verbs, until: verbs.note(note.shelf, name, note.name, until))
        done = stands is not None and stands.text == note.text
    return answered({"removed": done})


async def write(service: Service, call: Call) -> Answer:
    """Leave notes."""
    notes = [_inside(call, told) for told in call.fields["notes"]]
    if any(note.shelf is Shelf.AUDIT for note in notes):
        raise Problem(Code.FORBIDDEN, "an audit record is written with the removal that it tells of, and not alone")
    counts = await _ask(service, call, lambda verbs, until: verbs.write(notes, until))
    outside = call.caller.tenant.outside
    return answered({"counts": {outside(resource): count for resource, count in counts.items()}})


async def note(service: Service, call: Call) -> Answer:
    """One note."""
    shelf, name = Shelf(call.fields["shelf"]), call.fields["name"]
    resource = call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.note(shelf, resource, name, until))
    return answered({"notes": [] if found is None else [_told(call, found)]})


async def read(service: Service, call: Call) -> Answer:
    """The notes about one line."""
    shelf, resource = Shelf(call.fields["shelf"]), call.caller.tenant.inside(call.fields["resource"])
    found = await _ask(service, call, lambda verbs, until: verbs.read(shelf, resource, until))
    return answered({"notes": [_told(call, one) for one in found]})


async def browse(service: Service, call: Call) -> Answer:
    """The notes about all lines below a prefix."""
    tenant, shelf = call.caller.tenant, Shelf(call.fields["shelf"])
    prefix = tenant.inside(call.fields["prefix"])
    found = await _ask(service, call, lambda verbs, until: verbs.browse(shelf, prefix, until))
    return answered({"notes": [_told(call, one) for one in found if tenant.has(one.resource)]})


async def trim(service: Service, call: Call) -> Answer:
    """Keep the newest of a line."""
    shelf, resource = Shelf(call.fields["shelf"]), call.caller.tenant.inside(call.fields["resource"])
    keep = _at_least(call, _STANDS_AT_LEAST[shelf][0])
    await _ask(service, call, lambda verbs, until: verbs.trim(shelf, resource, keep, until))
    return answered({"trimmed": True})


async def trim_all(service: Service, call: Call) -> Answer:
    """Keep the newest of all lines: of all tenants, so it is done by the service's measure for most."""
    shelf = Shelf(call.fields["shelf"])
    keep = _at_least(call, _STANDS_AT_LEAST[shelf][1])
    await _ask(service, call, lambda verbs, until: verbs.trim_all(shelf, keep, until))
    return answered({"trimmed": True})


async def _ask(service: Service, call: Call, verb: Any) -> Any:  # Any: each verb has its own outcome
    verbs: Operating = service.client._house.operating()
    return await service.lending.run(Operate(lambda until: verb(verbs, until), soon(service, call)))


def _at_least(call: Call, own: int) -> int:
    """Who may force out everywhere may also clear up everywhere; others keep what the service keeps."""
    keep: int = call.fields["keep"]
    everywhere = call.caller.tenant.name == WHOLE and Scope.OPERATE in call.caller.scopes
    return keep if everywhere else max(keep, own)


def _inside(call: Call, told: dict[str, Any]) -> Note:
    """A note of the client's, under the name that the store has for its line."""
    written = Note(Shelf(told["shelf"]), told["resource"], told["name"], told["text"], told["order"])
    return remote.renamed(written, call.caller.tenant.inside(written.resource))


def _signed(call: Call, written: Note | None) -> Note:
    """The audit record of this very removal, with the actor whom the token names. Raises InvalidField."""
    record = None if written is None or written.shelf is not Shelf.AUDIT else read_audit(written)
    wanted = (call.fields["ticketId"], call.fields["token"])
    if written is None or record is None or (record.ticket_id, record.token) != wanted:
        raise InvalidField(_NOT_ITS_RECORD)
    actor = actor_of(call.caller, record.actor if record.actor != call.caller.name else None)
    return remote.renamed(written, written.resource, actor=actor)


def _check_place(removed: Ticket, note: Note | None) -> None:
    """Written elsewhere it could take the place of another removal's record. Raises InvalidField."""
    its_own = (removed.resource, note_name(removed.token or 0, removed.id))
    if note is not None and (note.resource, note.name) != its_own:
        raise InvalidField(_NOT_ITS_RECORD)


def _told(call: Call, found: Note) -> dict[str, Any]:
    return remote.write_note(remote.renamed(found, call.caller.tenant.outside(found.resource)))


def _verb(
    name: str,
    handler: Handler,
    scope: Scope,
    *,
    summary: str,
    about: str,
    fields: tuple[Field, ...],
    body: dict[str, Any],
    answer: str,
    example: Any,
    problems: tuple[Code, ...] = (),
    **more: Any,
) -> Route:
    return Route(
        method="POST",
        path=f"/v1/operate/{name}",
        handler=handler,
        scope=scope,
        name=f"operate-{name}",
        tag="leases",
        summary=summary,
        about=about,
        body=(*fields, SECONDS),
        body_example={**body, "seconds": 5.0},
        answer=answer,
        answer_about="As it is at that moment.",
        example=example,
        problems=(*problems, *OF_THE_STORE),
        **more,
    )


_ABOUT: Final = {"shelf": Shelf.JOURNAL.value, "resource": "nightly-report"}
_NOTES_EXAMPLE: Final = {"notes": [_NOTE_EXAMPLE]}
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
            Field("ticketId", Text(1024, least=1), "Which."),
            Field("token", NumberText(), "Which."),
            Field("note", Maybe(Shape(_NOTE_FIELDS)), "The audit record: not null where tokens are asked for.", None),
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
        fields=(Field("notes", Items(Shape(_NOTE_FIELDS), NOTES_AT_ONCE_MAX), "Which."),),
        body=_NOTES_EXAMPLE,
        answer="NoteCounts",
        example={"counts": {"nightly-report": 7}},
        body_bytes_max=COMMIT_BODY_BYTES_MAX,
    ),
    _verb(
        "note",
        note,
        Scope.READ,
        summary="One note",
        about="Or none.",
        fields=(_SHELF, _RESOURCE, _NOTE_NAME),
        body={**_ABOUT, "name": _NOTE_EXAMPLE["name"]},
        answer="Notes",
        example=_NOTES_EXAMPLE,
    ),
    _verb(
        "read",
        read,
        Scope.READ,
        summary="The notes about one line",
        about="By name.",
        fields=(_SHELF, _RESOURCE),
        body=_ABOUT,
        answer="Notes",
        example=_NOTES_EXAMPLE,
    ),
    _verb(
        "browse",
        browse,
        Scope.READ,
        summary="The notes about all lines below a prefix",
        about="In the order in which they were made.",
        fields=(_SHELF, _PREFIX),
        body={"shelf": Shelf.AUDIT.value, "prefix": "nightly-"},
        answer="Notes",
        example=_NOTES_EXAMPLE,
    ),
    _verb(
        "trim",
        trim,
        Scope.ACQUIRE,
        summary="Keep the newest notes about a line",
        about="Never fewer than the service keeps, but for who operates the whole.",
        fields=(_SHELF, _RESOURCE, _KEEP),
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
        fields=(_SHELF, _KEEP),
        body={"shelf": Shelf.AUDIT.value, "keep": 1000},
        answer="Trimmed",
        example={"trimmed": True},
    ),
)
