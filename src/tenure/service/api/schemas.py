"""JSON Schemas of all answers, by name: written by hand; the tests hold every answer against its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tenure.service.http.fields import TOKEN_SCHEMA

_TEXT: Final = {"type": "string"}
_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SECONDS: Final = {"type": "number", "minimum": 0}
_MAYBE_SECONDS: Final = {"type": ["number", "null"], "minimum": 0}
_TIME: Final = {"type": "string", "format": "date-time"}
_MAYBE_TIME: Final = {"type": ["string", "null"], "format": "date-time"}
_ANY_TOKEN: Final = {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "0: not known."}
_MAYBE_COUNT: Final = {"type": ["integer", "null"], "minimum": 1}


def _object(about: str, optional: Mapping[str, Any] = {}, /, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": about,
        "properties": {**properties, **optional},
        "required": list(properties),
        "additionalProperties": False,
    }


def ref(name: str) -> dict[str, Any]:
    """Return a reference to a schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": ref(name)}


def _maybe(name: str) -> dict[str, Any]:
    return {"anyOf": [ref(name), {"type": "null"}]}


_NUMBER_TEXT: Final = {"type": "string", "pattern": "^[0-9]{1,19}$"}
_MAYBE_NUMBER_TEXT: Final = {**_NUMBER_TEXT, "type": ["string", "null"]}
_LIFE: Final = {"ttlSeconds": {"type": "number", "exclusiveMinimum": 0}, "remainingSeconds": _SECONDS}
_HOLD: Final = {
    "resource": _TEXT,
    "ownerId": _TEXT,
    "leaseId": {"type": "string", "description": "Renews and releases this hold: a secret."},
    "fencingToken": {**TOKEN_SCHEMA, "description": "Grows along the line. A string: it exceeds 2^53."},
    "fence": {"type": ["string", "null"], "description": "The token with its line; null: too many share it for one."},
    "ttlSeconds": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "As granted; may exceed what was asked for.",
    },
    "expiresAt": {**_TIME, "description": "By the service's clock."},
    "remainingSeconds": _SECONDS,
}
_LINE: Final = {
    "name": _TEXT,
    "kind": {"enum": ["lock", "election", "rwlock", "semaphore", None]},
    "slots": _MAYBE_COUNT,
    "holders": _list("Ticket"),
    "holderCount": _COUNT,
    "waiterCount": _COUNT,
}
_FIGURES: Final = _object(
    "Of a tenant.",
    {"valueBytes": _COUNT},
    requestsAtOnce=_SECONDS,
    bytesAtOnce=_COUNT,
    holds=_COUNT,
    waiting=_COUNT,
    streams=_COUNT,
)

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Acquired": _object("Granted.", acquired={"const": True}, **_HOLD),
    "Renewed": _object("It lives on.", renewed={"const": True}, **_HOLD),
    "Released": _object("It is over.", released={"const": True}),
    "Ticket": _object(
        "One place in a line.",
        token=_ANY_TOKEN,
        ownerId={**_MAYBE_TEXT, "description": "null: a stranger's (etcdctl, Go, Curator, kazoo)."},
        holds={"type": "boolean", "description": "Has its turn come? Otherwise it waits."},
        mode={"enum": ["exclusive", "read", "seat"]},
        weight={"type": "integer"},
        value=_TEXT,
        since={**_MAYBE_TIME, "description": "In line since, by its owner's clock."},
        ageSeconds=_MAYBE_SECONDS,
        ttlSeconds={**_MAYBE_SECONDS, "description": "As its lease was granted; null: not known."},
        leftSeconds={"type": ["number", "null"], "description": "What is left of that; null: not known."},
        orphaned={"type": "boolean", "description": "It hangs on no lease: only a force release ends it."},
    ),
    "Line": _object("A line in full, up to 1000 holders and 1000 waiters.", **_LINE, waiters=_list("Ticket")),
    "ListedLine": _object("A line, with its first ten holders.", **_LINE, longestWaitSeconds=_MAYBE_SECONDS),
    "Lines": _object("A page.", lines=_list("ListedLine"), after=_MAYBE_TEXT),
    "AuditRecord": _object(
        "That somebody was forced out.",
        name=_TEXT,
        token=_ANY_TOKEN,
        ownerId=_MAYBE_TEXT,
        reason=_TEXT,
        actor=_TEXT,
        at=_MAYBE_TIME,
        wasHolding=_FLAG,
    ),
    "Audit": _object("The newest first.", records=_list("AuditRecord")),
    "JournalEntry": _object(
        "One hold.",
        name=_TEXT,
        kind={"enum": ["lock", "election", "rwlock", "semaphore"]},
        ownerId=_TEXT,
        token=_ANY_TOKEN,
        value=_TEXT,
        acquiredAt=_MAYBE_TIME,
        waitedSeconds={"type": "number"},
        heldSeconds={"type": ["number", "null"]},
        ended={"enum": ["released", "expired", "forced", "removed", "closed", None]},
        reason=_TEXT,
        derived={"type": "boolean", "description": "Nobody wrote down its end: it follows from other things."},
    ),
    "History": _object("The oldest first.", holds=_list("JournalEntry")),
    "Explanation": _object(
        "Why a line is as it is.",
        name=_TEXT,
        sentences={"type": "array", "items": _TEXT},
        line=ref("Line"),
        last=_maybe("JournalEntry"),
        forced=_maybe("AuditRecord"),
    ),
    "Leader": _object("Who stands first.", value=_TEXT, ownerId=_MAYBE_TEXT, token=_ANY_TOKEN),
    "Election": _object(
        "What is known of an election.",
        name=_TEXT,
        leader=_maybe("Leader"),
        ageSeconds=_MAYBE_SECONDS,
        certain=_FLAG,
        isLeader=_FLAG,
        isCandidate=_FLAG,
        remainingSeconds=_MAYBE_SECONDS,
        fence=_MAYBE_TEXT,
    ),
    "Health": _object("Well.", healthy={"const": True}),
    "Readiness": _object("May it be sent work?", ready=_FLAG, why=_MAYBE_TEXT),
    "Caller": _object(
        "Who asks.",
        name=_TEXT,
        tenant=_TEXT,
        scopes={"type": "array", "items": _TEXT},
        until={**_MAYBE_TIME, "description": "The end of the token; null: none."},
        limits=_FIGURES,
        used=_FIGURES,
    ),
    "Document": {"type": "object", "description": "An OpenAPI document."},
    "Lease": _object(
        "A lease of a client's own.",
        leaseId={"type": "string", "description": "Whoever knows it may do everything with it: a secret."},
        **_LIFE,
        storeLease={"type": "string", "description": "What the store calls it."},
        namespace={"type": "string", "description": "Fences begin with it."},
        prefix={"type": "string", "description": "The tenant's, before each name in the store."},
        incarnation=_COUNT,
    ),
    "LeaseLife": _object("It lives.", **_LIFE),
    "LeaseClosed": _object("It is over.", closed={"const": True}),
    "LeaseTicket": _object(
        "A ticket as the library has it.",
        resource=_TEXT,
        ticketId=_TEXT,
        key={"type": "string", "description": "Where it is: to be handed back as it was sent."},
        token=_MAYBE_NUMBER_TEXT,
        mode={"enum": ["exclusive", "read", "seat"]},
        weight={"type": "integer"},
        slots={"type": "integer"},
        ownerId=_MAYBE_TEXT,
        value=_TEXT,
        storeLease=_TEXT,
        createdAt={"type": ["number", "null"]},
        version=_MAYBE_NUMBER_TEXT,
    ),
    "TicketLine": _object(
        "Tickets of one line, in order.", resource=_TEXT, revision=_NUMBER_TEXT, tickets=_list("LeaseTicket")
    ),
    "TicketLines": _object("A page.", lines=_list("TicketLine"), after=_MAYBE_TEXT),
    "TicketAbandoned": _object("It will go.", abandoned={"const": True}),
    "TicketStands": _object("Whether it does.", stands=_FLAG),
    "TicketLeft": _object("It is gone.", left=_FLAG, leaseOver=_FLAG),
    "TicketRemoved": _object("It is gone.", removed=_FLAG),
    "TicketTouched": _object("As it stands.", ticket=_maybe("LeaseTicket")),
    "GuardedRecord": _object(
        "What stands at a key.", key=_TEXT, value={"type": "string", "contentEncoding": "base64"}, version=_NUMBER_TEXT
    ),
    "GuardedRecords": _object(
        "Read while a ticket stood.", stands=_FLAG, records={"type": "array", "items": _maybe("GuardedRecord")}
    ),
    "GuardedCommit": _object(
        "What became of a commit.",
        fate={"enum": ["done", "differs", "amended", "gone"]},
        versions={"type": "object", "additionalProperties": _NUMBER_TEXT},
        ticket=_maybe("LeaseTicket"),
    ),
    "WaitsRegistered": _object("They are.", registered={"const": True}),
    "LeaseTimes": _object(
        "In seconds, by what the store calls them.",
        times={
            "type": "object",
            "additionalProperties": _object("One.", granted={"type": "number"}, left={"type": "number"}),
        },
    ),
    "Note": _object(
        "A text about a ticket.",
        shelf={"enum": ["%audit", "%journal"]},
        resource=_TEXT,
        name=_TEXT,
        text=_TEXT,
        order=_NUMBER_TEXT,
    ),
    "Notes": _object("What was found.", notes=_list("Note")),
    "Problem": _object(
        "RFC 9457. `not-acquired` has `acquired` besides, and, if the store says so, owners that hold it and who wait.",
        {"acquired": {"const": False}, "heldBy": {"type": "array", "items": _MAYBE_TEXT}, "waiterCount": _COUNT},
        type={"type": "string", "pattern": "^urn:tenure:[a-z-]+$"},
        title=_TEXT,
        status={"type": "integer"},
        detail={"type": "string", "description": "A sentence for people."},
        code={"type": "string", "description": "Stable: decide by this."},
        happened={"enum": ["no", "unknown"], "description": "May what was asked for have been done all the same?"},
        retry={"type": "boolean", "description": "May the same request be sent again, with hope?"},
    ),
}
