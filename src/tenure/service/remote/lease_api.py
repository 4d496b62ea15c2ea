"""Verbs of a lease over HTTP, for remote Python clients: `Lease` in tenure/_core/lease.py says what each does.

After a lost answer any of these requests may be repeated, except a commit: see there.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tenure._core.base.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_KEYS_MAX,
    KEY_BYTES_MAX,
    LOCK_DELAY_MAX,
    NAME_BYTES_MAX,
    OWNER_BYTES_MAX,
    SEATS_MAX,
    TTL_MAX,
    TTL_MIN,
    VALUE_BYTES_MAX,
)
from tenure._core.base.validation import checked_key, encode, keys_root
from tenure._core.lease import Committed, Compare, Delete, Fate, Line, Mode, Put, Reach, Record, Ticket
from tenure._core.runtime import runtime_of
from tenure._core.turn import Amend, Commit, Leave, Operate, Read, Survey, Touch
from tenure._transport import remote
from tenure.service.auth.tokens import Scope
from tenure.service.http.fields import (
    Blob,
    Field,
    Flag,
    Items,
    Maybe,
    NumberText,
    OneOf,
    SecondsField,
    Shape,
    Text,
    Whole,
)
from tenure.service.http.problems import OF_THE_STORE, Problem, ProblemCode
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Handler, Route, RouteCall
from tenure.service.limits import COMMIT_BODY_BYTES_MAX
from tenure.service.remote.leases import RemoteLease, renamed
from tenure.service.service import Service
from tenure.service.shutdown import draining

_SECONDS_MAX: Final = 60.0
_SECONDS_MIN: Final = 1.0
"""Time that the store is given at least; the client keeps its own time."""
_NAME: Final = Text(NAME_BYTES_MAX, minimum=1)
_WORD: Final = Text(100, minimum=1)
_KEY: Final = Text(KEY_BYTES_MAX, minimum=1)

SECONDS: Final = Field("seconds", SecondsField(0.0, _SECONDS_MAX), "How long it may take at the store.", 5.0)
_LEASE_ID: Final = Field("leaseId", Text(200, minimum=1), "What opening the lease answered with. A secret.")
_TICKET_ID: Final = Field("ticketId", _WORD, "The ticket, as it was entered.", example="5b0e1d7c8a3e5b0e1d7c")
_VERSION: Final = Field("version", Maybe(NumberText()), "At which version it is known; null: not known.", None)
_TOKEN: Final = Field("token", Maybe(NumberText()), "Its token, as it was sent; null: any.", None)
_TICKET: Final = (_TICKET_ID, _TOKEN, _VERSION)
_RESOURCE: Final = Field("resource", _NAME, "The name of the line.", example="nightly-report")
_ENTRY: Final = (
    _RESOURCE,
    Field("ownerId", Text(OWNER_BYTES_MAX, minimum=1), "Who it is, for people.", example="worker-1"),
    Field("mode", OneOf(tuple(mode.value for mode in Mode)), "How it stands in the line.", Mode.EXCLUSIVE.value),
    Field("weight", Whole(1, SEATS_MAX), "Of a seat.", 1),
    Field("slots", Whole(1, SEATS_MAX), "How many seats there are.", 1),
    Field("value", Text(VALUE_BYTES_MAX, free=True), "What others may read of it.", ""),
    Field("reach", OneOf(tuple(reach.value for reach in Reach)), "How much of the line is wanted.", Reach.AHEAD.value),
    _TICKET_ID,
)
_ENTRY_EXAMPLE: Final = {
    "resource": "nightly-report",
    "ownerId": "worker-1",
    "mode": "exclusive",
    "weight": 1,
    "slots": 1,
    "value": "",
    "reach": "predecessor",
    "ticketId": "5b0e1d7c8a3e5b0e1d7c",
}
_TICKET_EXAMPLE: Final = {
    **{name: fact for name, fact in _ENTRY_EXAMPLE.items() if name != "reach"},
    "key": "c2VhbGVk",
    "token": "33",
    "storeLease": "694d81417acd4754",
    "createdAt": 1769903999.25,
    "version": "33",
}
_LINE_EXAMPLE: Final = {"resource": "nightly-report", "revision": "33", "tickets": [_TICKET_EXAMPLE]}


def request_until(service: Service, call: RouteCall) -> float:
    """Return the clock's reading up to which the store may be asked, by the request's `seconds`."""
    seconds: float = call.fields["seconds"]
    return runtime_of(service.client).clock.now() + max(seconds, _SECONDS_MIN)


def line_json(service: Service, call: RouteCall, line: Line) -> dict[str, Any]:
    """Write a line as the caller's tenant sees it: its own names, and handles in place of keys."""
    tenant = call.caller.tenant
    return remote.write_line(line, tenant.outside(line.resource), lambda ticket: service.handles.make(tenant, ticket))


def json_response(body: Any) -> HttpResponse:
    """Answer 200 with `body` as JSON."""
    return HttpResponse(200, json.dumps(body).encode())


def _find_lease(service: Service, call: RouteCall) -> RemoteLease:
    return service.remote_leases.find(call.caller.tenant, call.fields["leaseId"])


async def open_lease(service: Service, call: RouteCall) -> HttpResponse:
    """Open a lease for the client."""
    if service.shutdown.begun:
        raise draining()
    fields, tenant, runtime = call.fields, call.caller.tenant, runtime_of(service.client)
    lease_id, lease = await service.remote_leases.open(
        tenant,
        fields["nonce"],
        fields["ttlSeconds"],
        fields["lockDelaySeconds"],
        request_until(service, call),
        journal=fields["journal"],
    )
    return json_response(
        {
            "leaseId": lease_id,
            **_life(service, lease),
            "storeLease": lease.store_lease.id,
            "namespace": runtime.namespace,
            "prefix": tenant.prefix,
            "incarnation": runtime.incarnation,
        }
    )


async def renew(service: Service, call: RouteCall) -> HttpResponse:
    """Renew a lease for its TTL from now on."""
    lease = _find_lease(service, call)
    if service.shutdown.begun:
        raise draining()
    await service.remote_leases.renew(lease, request_until(service, call))
    return json_response(_life(service, lease))


async def close(service: Service, call: RouteCall) -> HttpResponse:
    """End a lease; all of its tickets go."""
    await service.remote_leases.close(
        call.caller.tenant, call.fields["leaseId"], request_until(service, call), lost=call.fields["lost"]
    )
    return json_response({"closed": True})


async def enter(service: Service, call: RouteCall) -> HttpResponse:
    """Put a ticket at the end of a line."""
    lease = _find_lease(service, call)
    if service.shutdown.begun:
        raise draining()
    entry = renamed(remote.read_entry(call.fields), call.caller.tenant.inside(call.fields["resource"]))
    call.usage.writes(entry.value, len(encode(entry.resource)) + len(entry.owner.encode()))
    line = await service.remote_leases.enter(lease, entry, request_until(service, call))
    return json_response(line_json(service, call, line))


async def abandon(service: Service, call: RouteCall) -> HttpResponse:
    """Leave it to the service that a ticket goes."""
    entry = renamed(remote.read_entry(call.fields), call.caller.tenant.inside(call.fields["resource"]))
    service.remote_leases.abandon(_find_lease(service, call), entry)
    return json_response({"abandoned": True})


async def look(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the line up to a ticket."""
    lease, reach = _find_lease(service, call), Reach(call.fields["reach"])
    ticket = lease.tickets.get(call.fields["ticketId"])
    line = Line("", (), 0)
    if ticket is not None:
        line = await service.remote_leases.look(lease, ticket, reach, request_until(service, call))
    return json_response(line_json(service, call, line))


async def survey(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with a line, its tickets described."""
    lease, fields = _find_lease(service, call), call.fields
    resource = call.caller.tenant.inside(fields["resource"])
    step = Survey(lease.store_lease, resource, request_until(service, call), fields["front"])
    return json_response(line_json(service, call, await service.remote_leases.run_for(lease, step)))


async def amend(service: Service, call: RouteCall) -> HttpResponse:
    """Give a ticket another value."""
    lease, fields = _find_lease(service, call), call.fields
    call.usage.writes(fields["value"])
    ticket = _standing(lease, call)
    stands = False
    if ticket is not None:
        step = Amend(lease.store_lease, ticket, fields["value"], request_until(service, call))
        stands = await service.remote_leases.amend(lease, step, fields["order"])
    return json_response({"stands": stands})


async def leave(service: Service, call: RouteCall) -> HttpResponse:
    """Take a ticket out."""
    left = over = False
    try:
        lease = _find_lease(service, call)
        ticket = _standing(lease, call)
        left = ticket is not None and await service.remote_leases.leave(
            lease, Leave(lease.store_lease, ticket, request_until(service, call))
        )
    except Problem as problem:
        if problem.code is not ProblemCode.LEASE_GONE or await _stands(service, call):
            raise
        over = True
    return json_response({"left": left, "leaseOver": over})


async def _stands(service: Service, call: RouteCall) -> bool:
    """Say whether a ticket stands at the store: a lease that is over here may not have ended there yet."""
    fields, verbs = call.fields, runtime_of(service.client).admin()
    name = call.caller.tenant.inside(fields["resource"])
    line: Line = await service.remote_leases.run(
        Operate(lambda until: verbs.line(name, until), request_until(service, call))
    )
    ticket = line.find(fields["ticketId"])
    return ticket is not None and fields["token"] in (None, ticket.token)


async def read(service: Service, call: RouteCall) -> HttpResponse:
    """Read keys of the client while a ticket stands."""
    lease, keys = _find_lease(service, call), call.fields["keys"]
    ticket = _standing(lease, call)
    found: tuple[Record | None, ...] | None = None
    if ticket is not None:
        stored = tuple(_stored(service, call, key) for key in keys)
        found = await service.remote_leases.run_for(
            lease, Read(lease.store_lease, ticket, stored, request_until(service, call))
        )
    if found is None:
        return json_response({"stands": False, "records": []})
    records = [remote.write_record(record, key) for record, key in zip(found, keys, strict=True)]
    return json_response({"stands": True, "records": records})


async def commit(service: Service, call: RouteCall) -> HttpResponse:
    """Write keys of the client while a ticket stands."""
    lease, fields = _find_lease(service, call), call.fields
    ticket = _standing(lease, call)
    done = Committed(Fate.GONE)
    if ticket is not None:
        compares = tuple(Compare(_stored(service, call, one["key"]), one["version"]) for one in fields["compares"])
        writes = tuple(_inside(service, call, remote.read_change(one)) for one in fields["writes"])
        call.usage.writes("", sum(len(put.key) + len(put.value) for put in writes if isinstance(put, Put)))
        step = Commit(lease.store_lease, ticket, compares, writes, request_until(service, call))
        done = await service.remote_leases.run_for(lease, step)
    outside = {_stored(service, call, one["key"]): one["key"] for one in fields["writes"]}
    return json_response(
        {
            "fate": done.fate.value,
            "versions": {outside[key]: str(version) for key, version in done.versions.items()},
            "ticket": _ticket_json(service, call, done.ticket),
        }
    )


async def touch(service: Service, call: RouteCall) -> HttpResponse:
    """Move a ticket on from its version."""
    lease = _find_lease(service, call)
    ticket = _standing(lease, call)
    touched: Ticket | None = None
    if ticket is not None:
        touched = await service.remote_leases.run_for(
            lease, Touch(lease.store_lease, ticket, request_until(service, call))
        )
    return json_response({"ticket": _ticket_json(service, call, touched)})


def _standing(lease: RemoteLease, call: RouteCall) -> Ticket | None:
    """Return the ticket that the call is about, at the version that the client knows; None where it is gone."""
    fields = call.fields
    ticket = lease.tickets.get(fields["ticketId"])
    if ticket is None or fields["token"] not in (None, ticket.token):
        return None
    return ticket._replace(version=fields["version"])


def _life(service: Service, lease: RemoteLease) -> dict[str, Any]:
    return {"ttlSeconds": lease.store_lease.ttl, "remainingSeconds": service.remote_leases.remaining(lease)}


def _ticket_json(service: Service, call: RouteCall, ticket: Ticket | None) -> dict[str, Any] | None:
    if ticket is None:
        return None
    tenant = call.caller.tenant
    shown = ticket._replace(resource=tenant.outside(ticket.resource))
    return remote.write_ticket(shown, service.handles.make(tenant, ticket))


def _stored(service: Service, call: RouteCall, key: str) -> str:
    """Translate a key of the caller to the store's: a tenant's keys begin with its name. Raises InvalidName."""
    return keys_root(runtime_of(service.client).namespace) + checked_key(call.caller.tenant.prefix + key)


def _inside(service: Service, call: RouteCall, change: Put | Delete) -> Put | Delete:
    key = _stored(service, call, change.key)
    return Put(key, change.value) if isinstance(change, Put) else Delete(key)


def _verb(
    name: str,
    handler: Handler,
    *,
    fields: tuple[Field, ...] = (),
    body: dict[str, Any] | None = None,
    problems: tuple[ProblemCode, ...] = (),
    scope: Scope = Scope.ACQUIRE,
    **more: Any,
) -> Route:
    """Make the route of a verb of an open lease."""
    return Route(
        method="POST",
        path=f"/v1/leases/{{leaseId}}/{name}",
        handler=handler,
        scope=scope,
        name=f"lease-{name}",
        tag="leases",
        parameters=(_LEASE_ID,),
        body=(*fields, SECONDS),
        body_example={**(body or {}), "seconds": 5.0},
        problems=(ProblemCode.LEASE_GONE, ProblemCode.LEASE_ELSEWHERE, *problems, *OF_THE_STORE),
        **more,
    )


_TICKET_BODY: Final = {"ticketId": _ENTRY_EXAMPLE["ticketId"], "token": "33"}
ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/leases",
        handler=open_lease,
        scope=Scope.ACQUIRE,
        name="lease-open",
        tag="leases",
        summary="A lease of its own",
        about=(
            "It lives for `ttlSeconds` from each renewal. The same `nonce` again finds the same lease, at the same "
            "replica. Believe in it for `remainingSeconds` from when you **sent** the request, less a margin."
        ),
        body=(
            Field(
                "nonce", Text(64, minimum=16), "Unguessable, made by the client.", example="1d7c8a3e5b0e1d7c8a3e5b0e"
            ),
            Field("ttlSeconds", SecondsField(TTL_MIN, TTL_MAX), "How long it lives unless renewed.", example=15),
            Field("lockDelaySeconds", SecondsField(0.0, LOCK_DELAY_MAX), "How much longer after a loss.", 0.0),
            Field("journal", Flag(), "Are the holds under it to be written down, for their history?", False),
            SECONDS,
        ),
        body_example={"nonce": "1d7c8a3e5b0e1d7c8a3e5b0e", "ttlSeconds": 15, "seconds": 5.0},
        answer="Lease",
        answer_about="Granted.",
        example={
            "leaseId": "0f3c2a.1d7c8a3e5b0e1d7c8a3e5b0e",
            "ttlSeconds": 15,
            "remainingSeconds": 14.8,
            "storeLease": "694d81417acd4754",
            "namespace": "billing",
            "prefix": "",
            "incarnation": 0,
        },
        problems=(
            ProblemCode.LEASE_GONE,
            ProblemCode.LEASE_REFUSED,
            ProblemCode.TOO_MANY_LEASES,
            ProblemCode.DRAINING,
            *OF_THE_STORE,
        ),
    ),
    _verb(
        "renew",
        renew,
        keeps=True,
        summary="Let a lease live on",
        about="For its TTL from now on. About every third of the TTL is a good pace.",
        answer="LeaseLife",
        answer_about="It lives on.",
        example={"ttlSeconds": 15, "remainingSeconds": 14.8},
        problems=(ProblemCode.DRAINING,),
    ),
    _verb(
        "close",
        close,
        keeps=True,
        summary="End a lease",
        about="All of its tickets go at once. Of one that is not there (any more) it is said as well.",
        fields=(Field("lost", Flag(), "Did the client believe in it no more?", False),),
        answer="LeaseClosed",
        answer_about="It is over.",
        example={"closed": True},
    ),
    _verb(
        "enter",
        enter,
        summary="Put a ticket at the end of a line",
        about="However often it is sent, it makes one ticket: `ticketId` is a nonce.",
        fields=_ENTRY,
        body=_ENTRY_EXAMPLE,
        answer="TicketLine",
        answer_about="The line with the ticket; without it, where it was put and has gone.",
        example=_LINE_EXAMPLE,
        problems=(ProblemCode.TOO_MANY_HOLDS, ProblemCode.DRAINING),
    ),
    _verb(
        "abandon",
        abandon,
        keeps=True,
        summary="Leave a ticket to the service",
        about="It sees to it that the ticket goes, should it exist or come to exist.",
        fields=_ENTRY,
        body=_ENTRY_EXAMPLE,
        answer="TicketAbandoned",
        answer_about="It will.",
        example={"abandoned": True},
    ),
    _verb(
        "look",
        look,
        summary="The line up to a ticket",
        about="As the store's quorum knows it; without the ticket where that is gone.",
        fields=(_TICKET_ID, _ENTRY[6]),
        body={"ticketId": _ENTRY_EXAMPLE["ticketId"], "reach": "predecessor"},
        answer="TicketLine",
        answer_about="The line.",
        example=_LINE_EXAMPLE,
    ),
    _verb(
        "survey",
        survey,
        summary="A line, described",
        about="With owners, values and tokens.",
        fields=(_RESOURCE, Field("front", Maybe(Whole(1, 1_000_000)), "Only its first ones.", None)),
        body={"resource": "nightly-report", "front": 1},
        answer="TicketLine",
        answer_about="The line.",
        example=_LINE_EXAMPLE,
    ),
    _verb(
        "amend",
        amend,
        summary="Give a ticket another value",
        about=("If that very ticket still stands. One that comes after a later one is answered as that was."),
        fields=(
            *_TICKET,
            Field("value", Text(VALUE_BYTES_MAX, free=True), "The new one."),
            Field("order", Whole(0, 2**53), "Higher for each amendment, the same for each try of one.", example=1),
        ),
        body={**_TICKET_BODY, "version": "33", "value": "10.0.0.7:8080", "order": 1},
        answer="TicketStands",
        answer_about="Does it stand, with that value or a later one?",
        example={"stands": True},
    ),
    _verb(
        "leave",
        leave,
        keeps=True,
        summary="Take a ticket out",
        about=(
            "That very one. `left` is false where it was gone: after a lost answer that was your own first try, but "
            "for `leaseOver`: then it went with its lease. `lease-gone`: it stands, until the store ends its lease."
        ),
        fields=(*_TICKET, _RESOURCE),
        body={**_TICKET_BODY, "resource": "nightly-report"},
        answer="TicketLeft",
        answer_about="It is not there any more.",
        example={"left": True, "leaseOver": False},
    ),
    _verb(
        "read",
        read,
        summary="Read keys of your own while a ticket stands",
        about="Keys stand at `<namespace>/%data/` in the store; a tenant's begin with its name and a slash there.",
        fields=(*_TICKET, Field("keys", Items(_KEY, COMMIT_KEYS_MAX), "Which.", example=["ledger/balance"])),
        body={**_TICKET_BODY, "keys": ["ledger/balance"]},
        answer="GuardedRecords",
        answer_about="In the order of `keys`, null for what is not there; nothing where the ticket is gone.",
        example={"stands": True, "records": [{"key": "ledger/balance", "value": "MTAw", "version": "34"}]},
    ),
    _verb(
        "commit",
        commit,
        scope=Scope.WRITE,
        summary="Write keys of your own while a ticket stands",
        about="All or nothing. Send it once: after a lost answer `touch` the ticket first, and then read.",
        fields=(
            *_TICKET,
            Field(
                "compares",
                Items(
                    Shape((Field("key", _KEY, "Which."), Field("version", NumberText(), "0: it is new."))),
                    COMMIT_KEYS_MAX,
                ),
                "Keys that must still stand so.",
                [],
            ),
            Field(
                "writes",
                Items(
                    Shape((Field("key", _KEY, "Which."), Field("value", Maybe(Blob(COMMIT_BYTES_MAX)), "null: none."))),
                    COMMIT_KEYS_MAX,
                ),
                "What shall stand.",
            ),
        ),
        body={**_TICKET_BODY, "version": "33", "compares": [], "writes": [{"key": "ledger/balance", "value": "MTAw"}]},
        answer="GuardedCommit",
        answer_about="What became of it; `ticket` where that was amended meanwhile.",
        example={"fate": "done", "versions": {"ledger/balance": "34"}, "ticket": None},
        body_bytes_max=COMMIT_BODY_BYTES_MAX,
    ),
    _verb(
        "touch",
        touch,
        summary="Move a ticket on from its version",
        about="No commit that is tied to that version is carried out any more.",
        fields=_TICKET,
        body={**_TICKET_BODY, "version": "33"},
        answer="TicketTouched",
        answer_about="The ticket at its version of now; null: it is gone.",
        example={"ticket": _TICKET_EXAMPLE},
    ),
)
