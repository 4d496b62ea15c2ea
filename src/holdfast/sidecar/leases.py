"""The verbs of a lease over HTTP, for the Python client: see `Lease` in holdfast/lease.py for what each does.

Whatever an answer was lost to, the same request may be sent again; but a commit, as the library says of it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast import remote
from holdfast.lease import Committed, Compare, Delete, Fate, Line, Mode, Put, Reach, Record, Ticket
from holdfast.limits import (
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
from holdfast.names import checked_key
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import COMMIT_BODY_BYTES_MAX
from holdfast.sidecar.compound import Blob, Items, Maybe, NumberText, OneOf, Shape
from holdfast.sidecar.drain import draining
from holdfast.sidecar.exchange import Answer
from holdfast.sidecar.fields import Field, Seconds, Text, Whole
from holdfast.sidecar.lending import Lent, renamed
from holdfast.sidecar.problems import OF_THE_STORE, Code, Problem
from holdfast.sidecar.routes import Call, Handler, Route
from holdfast.sidecar.service import Service
from holdfast.turn import Amend, Commit, Leave, Look, Operate, Read, Survey, Touch

_SECONDS_MAX: Final = 60.0
_SECONDS_LEAST: Final = 1.0
"""The store is given so long at least: who asked keeps time for itself."""
_NAME: Final = Text(NAME_BYTES_MAX, least=1)
_WORD: Final = Text(100, least=1)
_KEY: Final = Text(KEY_BYTES_MAX, least=1)

SECONDS: Final = Field("seconds", Seconds(0.0, _SECONDS_MAX), "How long it may take at the store.", 5.0)
_LEASE_ID: Final = Field("leaseId", Text(200, least=1), "What opening the lease answered with. A secret.")
_TICKET_ID: Final = Field("ticketId", _WORD, "The ticket, as it was entered.", example="5b0e1d7c8a3e5b0e1d7c")
_VERSION: Final = Field("version", Maybe(NumberText()), "At which version it is known; null: not known.", None)
_TOKEN: Final = Field("token", Maybe(NumberText()), "Its token, as it was told; null: any.", None)
_TICKET: Final = (_TICKET_ID, _TOKEN, _VERSION)
_RESOURCE: Final = Field("resource", _NAME, "The name of the line.", example="nightly-report")
_ENTRY: Final = (
    _RESOURCE,
    Field("ownerId", Text(OWNER_BYTES_MAX, least=1), "Who it is, for people.", example="worker-1"),
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


def soon(service: Service, call: Call) -> float:
    """Until when the store may be asked."""
    seconds: float = call.fields["seconds"]
    return service.client._house.clock.now() + max(seconds, _SECONDS_LEAST)


def told_line(service: Service, call: Call, line: Line) -> dict[str, Any]:
    """A line as the caller's tenant may see it."""
    tenant = call.caller.tenant
    return remote.write_line(line, tenant.outside(line.resource), lambda ticket: service.seals.seal(tenant, ticket))


def answered(told: Any) -> Answer:
    return Answer(200, json.dumps(told).encode())


def _lent(service: Service, call: Call) -> Lent:
    return service.lending.find(call.caller.tenant, call.fields["leaseId"])


async def open_lease(service: Service, call: Call) -> Answer:
    """A lease of its own."""
    if service.drain.begun:
        raise draining()
    fields, tenant, house = call.fields, call.caller.tenant, service.client._house
    lease_id, lent = await service.lending.open(
        tenant, fields["nonce"], fields["ttlSeconds"], fields["lockDelaySeconds"], soon(service, call)
    )
    return answered(
        {
            "leaseId": lease_id,
            **_life(service, lent),
            "storeLease": lent.lease.id,
            "namespace": house.namespace,
            "prefix": tenant.prefix,
            "incarnation": house.incarnation,
        }
    )


async def renew(service: Service, call: Call) -> Answer:
    """For its TTL from now on."""
    lent = _lent(service, call)
    if service.drain.begun:
        raise draining()
    await service.lending.renew(lent, soon(service, call))
    return answered(_life(service, lent))


async def close(service: Service, call: Call) -> Answer:
    """All of its tickets go."""
    await service.lending.close(call.caller.tenant, call.fields["leaseId"], soon(service, call))
    return answered({"closed": True})


async def enter(service: Service, call: Call) -> Answer:
    """Put a ticket."""
    lent = _lent(service, call)
    if service.drain.begun:
        raise draining()
    entry = renamed(remote.read_entry(call.fields), call.caller.tenant.inside(call.fields["resource"]))
    line = await service.lending.enter(lent, entry, soon(service, call))
    return answered(told_line(service, call, line))


async def abandon(service: Service, call: Call) -> Answer:
    """See to it that a ticket goes."""
    entry = renamed(remote.read_entry(call.fields), call.caller.tenant.inside(call.fields["resource"]))
    service.lending.abandon(_lent(service, call), entry)
    return answered({"abandoned": True})


async def look(service: Service, call: Call) -> Answer:
    """The line up to a ticket."""
    lent, reach = _lent(service, call), Reach(call.fields["reach"])
    ticket = lent.tickets.get(call.fields["ticketId"])
    line = Line("", (), 0)
    if ticket is not None:
        line = await service.lending.asked(lent, Look(lent.lease, ticket, reach, soon(service, call)))
    return answered(told_line(service, call, line))


async def survey(service: Service, call: Call) -> Answer:
    """A line, described."""
    lent, fields = _lent(service, call), call.fields
    resource = call.caller.tenant.inside(fields["resource"])
    step = Survey(lent.lease, resource, soon(service, call), fields["front"])
    return answered(told_line(service, call, await service.lending.asked(lent, step)))


async def amend(service: Service, call: Call) -> Answer:
    """Give a ticket another value."""
    lent, fields = _lent(service, call), call.fields
    ticket = _standing(lent, call)
    stands = False
    if ticket is not None:
        step = Amend(lent.lease, ticket, fields["value"], soon(service, call))
        stands = await service.lending.amend(lent, step, fields["order"])
    return answered({"stands": stands})


async def leave(service: Service, call: Call) -> Answer:
    """Take a ticket out."""
    left = over = False
    try:
        lent = _lent(service, call)
        ticket = _standing(lent, call)
        left = ticket is not None and await service.lending.leave(lent, Leave(lent.lease, ticket, soon(service, call)))
    except Problem as problem:
        if problem.code is not Code.LEASE_GONE or await _stands(service, call):
            raise
        over = True
    return answered({"left": left, "leaseOver": over})


async def _stands(service: Service, call: Call) -> bool:
    """A lease that is over here may not have ended at the store yet. Does the ticket stand there?"""
    fields, verbs = call.fields, service.client._house.operating()
    name = call.caller.tenant.inside(fields["resource"])
    line: Line = await service.lending.run(Operate(lambda until: verbs.line(name, until), soon(service, call)))
    ticket = line.find(fields["ticketId"])
    return ticket is not None and fields["token"] in (None, ticket.token)


async def read(service: Service, call: Call) -> Answer:
    """Keys of the client's own."""
    lent, keys = _lent(service, call), call.fields["keys"]
    ticket = _standing(lent, call)
    found: tuple[Record | None, ...] | None = None
    if ticket is not None:
        stored = tuple(_stored(service, call, key) for key in keys)
        found = await service.lending.asked(lent, Read(lent.lease, ticket, stored, soon(service, call)))
    if found is None:
        return answered({"stands": False, "records": []})
    records = [remote.write_record(record, key) for record, key in zip(found, keys, strict=True)]
    return answered({"stands": True, "records": records})


async def commit(service: Service, call: Call) -> Answer:
    """Write keys of the client's own, while a ticket stands."""
    lent, fields = _lent(service, call), call.fields
    ticket = _standing(lent, call)
    done = Committed(Fate.GONE)
    if ticket is not None:
        compares = tuple(Compare(_stored(service, call, one["key"]), one["version"]) for one in fields["compares"])
        writes = tuple(_inside(service, call, remote.read_change(one)) for one in fields["writes"])
        step = Commit(lent.lease, ticket, compares, writes, soon(service, call))
        done = await service.lending.asked(lent, step)
    outside = {_stored(service, call, one["key"]): one["key"] for one in fields["writes"]}
    return answered(
        {
            "fate": done.fate.value,
            "versions": {outside[key]: str(version) for key, version in done.versions.items()},
            "ticket": _told(service, call, done.ticket),
        }
    )


async def touch(service: Service, call: Call) -> Answer:
    """Move a ticket on from its version."""
    lent = _lent(service, call)
    ticket = _standing(lent, call)
    touched: Ticket | None = None
    if ticket is not None:
        touched = await service.lending.asked(lent, Touch(lent.lease, ticket, soon(service, call)))
    return answered({"ticket": _told(service, call, touched)})


def _standing(lent: Lent, call: Call) -> Ticket | None:
    """The ticket that the call is about, at the version that the client knows."""
    fields = call.fields
    ticket = lent.tickets.get(fields["ticketId"])
    if ticket is None or fields["token"] not in (None, ticket.token):
        return None
    return ticket._replace(version=fields["version"])


def _life(service: Service, lent: Lent) -> dict[str, Any]:
    return {"ttlSeconds": lent.lease.ttl, "remainingSeconds": service.lending.remaining(lent)}


def _told(service: Service, call: Call, ticket: Ticket | None) -> dict[str, Any] | None:
    if ticket is None:
        return None
    tenant = call.caller.tenant
    shown = ticket._replace(resource=tenant.outside(ticket.resource))
    return remote.write_ticket(shown, service.seals.seal(tenant, ticket))


def _stored(service: Service, call: Call, key: str) -> str:
    """How the store calls a key of the caller's: a tenant's begin with its name. Raises InvalidName."""
    slash, tenant = "/" if key.startswith("/") else "", call.caller.tenant
    stored = f"{slash}{tenant.prefix}{key.removeprefix('/')}" if tenant.prefix else key
    return checked_key(stored, service.client._house.namespace)


def _inside(service: Service, call: Call, change: Put | Delete) -> Put | Delete:
    key = _stored(service, call, change.key)
    return Put(key, change.value) if isinstance(change, Put) else Delete(key)


def _verb(
    name: str,
    handler: Handler,
    *,
    summary: str,
    about: str,
    answer: str,
    answer_about: str,
    fields: tuple[Field, ...] = (),
    body: dict[str, Any] | None = None,
    example: Any = None,
    problems: tuple[Code, ...] = (),
    **more: Any,
) -> Route:
    """A verb of a lease that is open."""
    return Route(
        method="POST",
        path=f"/v1/leases/{{leaseId}}/{name}",
        handler=handler,
        scope=Scope.ACQUIRE,
        name=f"lease-{name}",
        tag="leases",
        summary=summary,
        about=about,
        parameters=(_LEASE_ID,),
        body=(*fields, SECONDS),
        body_example={**(body or {}), "seconds": 5.0},
        answer=answer,
        answer_about=answer_about,
        example=example,
        problems=(Code.LEASE_GONE, Code.LEASE_ELSEWHERE, *problems, *OF_THE_STORE),
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
            Field("nonce", Text(64, least=16), "Unguessable, made by the client.", example="1d7c8a3e5b0e1d7c8a3e5b0e"),
            Field("ttlSeconds", Seconds(TTL_MIN, TTL_MAX), "How long it lives unless renewed.", example=15),
            Field("lockDelaySeconds", Seconds(0.0, LOCK_DELAY_MAX), "How much longer after a loss.", 0.0),
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
        problems=(Code.LEASE_GONE, Code.LEASE_REFUSED, Code.TOO_MANY_LEASES, Code.DRAINING, *OF_THE_STORE),
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
        problems=(Code.DRAINING,),
    ),
    _verb(
        "close",
        close,
        keeps=True,
        summary="End a lease",
        about="All of its tickets go at once. Of one that is not there (any more) it is said as well.",
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
        problems=(Code.TOO_MANY_HOLDS, Code.DRAINING),
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
        about="A tenant's keys begin with its name and a slash in the store.",
        fields=(*_TICKET, Field("keys", Items(_KEY, COMMIT_KEYS_MAX), "Which.", example=["ledger/balance"])),
        body={**_TICKET_BODY, "keys": ["ledger/balance"]},
        answer="GuardedRecords",
        answer_about="In the order of `keys`, null for what is not there; nothing where the ticket is gone.",
        example={"stands": True, "records": [{"key": "ledger/balance", "value": "MTAw", "version": "34"}]},
    ),
    _verb(
        "commit",
        commit,
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
