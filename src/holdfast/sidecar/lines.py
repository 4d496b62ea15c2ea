"""Looking over HTTP: which lines are in use, one of them in full, its past, and why it is as it is."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from holdfast.limits import NAME_BYTES_MAX
from holdfast.names import encode
from holdfast.operating import listed_as
from holdfast.reports import LineInfo
from holdfast.sidecar import shapes
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import (
    CURSOR_CHARACTERS_MAX,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
)
from holdfast.sidecar.exchange import Answer
from holdfast.sidecar.fields import Field, InvalidField, Text, Whole
from holdfast.sidecar.problems import OF_THE_STORE
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service

NAME: Final = Field("name", Text(NAME_BYTES_MAX, least=1), "The name, percent-encoded: '/' is %2F.", example="ledger")
PREFIX: Final = Field("prefix", Text(NAME_BYTES_MAX), "Only names that begin so.", "")
LIMIT: Final = Field("limit", Whole(1, LIST_LIMIT_MAX), "At most so many.", LIST_LIMIT_DEFAULT)


async def listing(service: Service, call: Call) -> Answer:
    """A page of lines."""
    tenant, limit = call.caller.tenant, call.fields["limit"]
    place, last = _cursor(call.fields["after"])
    prefix = tenant.inside(call.fields["prefix"])
    page = await service.operator.page(prefix, after=place)
    lines = sorted((line for line in page.lines if tenant.has(line.name)), key=_place)
    wanted = [line for line in lines if _place(line) > last]
    shown = wanted[:limit]
    told = {
        "lines": [shapes.listed(tenant, line) for line in shown],
        "after": _written(place, _place(shown[-1])) if len(wanted) > limit else _written(page.after, ""),
    }
    return Answer(200, json.dumps(told).encode())


async def one(service: Service, call: Call) -> Answer:
    """One line in full."""
    tenant = call.caller.tenant
    line = await service.operator.line(tenant.inside(call.fields["name"]))
    return Answer(200, json.dumps(shapes.line(tenant, line)).encode())


async def history(service: Service, call: Call) -> Answer:
    """The last holds of one line."""
    tenant = call.caller.tenant
    entries = await service.operator.history(tenant.inside(call.fields["name"]))
    return Answer(200, json.dumps({"holds": [shapes.entry(tenant, entry) for entry in entries]}).encode())


async def why(service: Service, call: Call) -> Answer:
    """Why one line is as it is."""
    tenant = call.caller.tenant
    explanation = await service.operator.why(tenant.inside(call.fields["name"]))
    return Answer(200, json.dumps(shapes.explanation(tenant, explanation)).encode())


def _place(line: LineInfo) -> str:
    """Where it stands in the order of lists."""
    return listed_as(encode(line.name))


def _written(place: str | None, last: str) -> str | None:
    """Where the next page begins: at `place`, behind `last`."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([place, last]).encode()).decode().rstrip("=")


def _cursor(text: str) -> tuple[str, str]:
    """The same read back. It is made by whoever sends it: nothing but where to begin depends on it."""
    if not text:
        return "", ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found: Any = json.loads(raw)
        place, last = found
        if isinstance(place, str) and isinstance(last, str):
            (place + last).encode(errors="surrogateescape")
            return place, last
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidField("after is what the page before answered with, whole and unchanged")


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/locks",
        handler=listing,
        scope=Scope.READ,
        name="list",
        tag="lines",
        summary="What is in use",
        about="A page of lines: names in use, who holds them, how many wait. Each page is a moment of its own.",
        parameters=(
            PREFIX,
            Field("after", Text(CURSOR_CHARACTERS_MAX), "`after` of the page before.", ""),
            LIMIT,
        ),
        answer="Lines",
        answer_about="`after` is null on the last page; a page may be empty and yet not be the last.",
        example={"lines": [], "after": None},
        problems=OF_THE_STORE,
    ),
    Route(
        method="GET",
        path="/v1/resources/{name}",
        handler=one,
        scope=Scope.READ,
        name="show",
        tag="lines",
        summary="One name in full",
        about="Who holds it, and who waits, in order. A name that nobody uses is an empty line.",
        parameters=(NAME,),
        answer="Line",
        answer_about="As it was at one moment.",
        example={
            "name": "ledger",
            "kind": None,
            "slots": None,
            "holders": [],
            "holderCount": 0,
            "waiterCount": 0,
            "waiters": [],
        },
        problems=OF_THE_STORE,
    ),
    Route(
        method="GET",
        path="/v1/resources/{name}/history",
        handler=history,
        scope=Scope.READ,
        name="history",
        tag="lines",
        summary="Its last holds",
        about="As clients that keep a journal wrote them down, the oldest first.",
        parameters=(NAME,),
        answer="History",
        answer_about="The last holds.",
        example={"holds": []},
        problems=OF_THE_STORE,
    ),
    Route(
        method="GET",
        path="/v1/resources/{name}/why",
        handler=why,
        scope=Scope.READ,
        name="why",
        tag="lines",
        summary="Why it is as it is",
        about="Who holds it, and how the last hold ended, in sentences and in facts.",
        parameters=(NAME,),
        answer="Explanation",
        answer_about="In sentences and in facts.",
        problems=OF_THE_STORE,
    ),
)
