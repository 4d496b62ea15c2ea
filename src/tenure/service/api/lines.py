"""Lines over HTTP: which are in use, one of them in full, its past, and why it is as it is."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any, Final

from tenure._admin.models import LineInfo
from tenure._admin.protocol import listed_as
from tenure._core.base.limits import NAME_BYTES_MAX
from tenure._core.base.validation import encode
from tenure.service.api import serialize
from tenure.service.auth.tokens import Scope
from tenure.service.http.fields import Field, InvalidField, Text, Whole
from tenure.service.http.problems import OF_THE_STORE
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Route, RouteCall
from tenure.service.limits import CURSOR_CHARACTERS_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from tenure.service.service import Service

NAME: Final = Field("name", Text(NAME_BYTES_MAX, minimum=1), "The name, percent-encoded: '/' is %2F.", example="ledger")
PREFIX: Final = Field("prefix", Text(NAME_BYTES_MAX), "Only names that begin so.", "")
LIMIT: Final = Field("limit", Whole(1, LIST_LIMIT_MAX), "At most so many.", LIST_LIMIT_DEFAULT)


async def listing(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with a page of lines."""
    tenant, limit = call.caller.tenant, call.fields["limit"]
    start, last = _read_cursor(call.fields["after"])
    prefix = tenant.inside(call.fields["prefix"])
    page = await service.operator.page(prefix, after=start)
    lines = sorted((line for line in page.lines if tenant.has(line.name)), key=_sort_key)
    rest = [line for line in lines if _sort_key(line) > last]
    shown = rest[:limit]
    body = {
        "lines": [serialize.listed(tenant, line) for line in shown],
        "after": _write_cursor(start, _sort_key(shown[-1])) if len(rest) > limit else _write_cursor(page.after, ""),
    }
    return HttpResponse(200, json.dumps(body).encode())


async def one(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with one line in full."""
    tenant = call.caller.tenant
    line = await service.operator.line(tenant.inside(call.fields["name"]))
    return HttpResponse(200, json.dumps(serialize.line(tenant, line)).encode())


async def history(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the last holds of one line."""
    tenant = call.caller.tenant
    entries = await service.operator.history(tenant.inside(call.fields["name"]))
    return HttpResponse(200, json.dumps({"holds": [serialize.entry(tenant, entry) for entry in entries]}).encode())


async def why(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the reasons why one line is as it is."""
    tenant = call.caller.tenant
    explanation = await service.operator.why(tenant.inside(call.fields["name"]))
    return HttpResponse(200, json.dumps(serialize.explanation(tenant, explanation)).encode())


def _sort_key(line: LineInfo) -> str:
    """Return the key by which lists are sorted."""
    return listed_as(encode(line.name))


def _write_cursor(start: str | None, last: str) -> str | None:
    """Write where the next page begins: with the store's page from `start`, after the line `last`."""
    if start is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([start, last]).encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[str, str]:
    """Read a cursor. Any client can make one up, so nothing but the start of a page depends on it."""
    if not text:
        return "", ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found: Any = json.loads(raw)
        start, last = found
        if isinstance(start, str) and isinstance(last, str):
            (start + last).encode(errors="surrogateescape")
            return start, last
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidField("after is what the page before answered with, whole and unchanged")


_look: Final = partial(Route, method="GET", scope=Scope.READ, tag="lines", problems=OF_THE_STORE)
ROUTES: Final = (
    _look(
        path="/v1/locks",
        handler=listing,
        name="list",
        summary="What is in use",
        about="A page of lines: names in use, who holds them, how many wait. Each page is a moment of its own.",
        parameters=(PREFIX, Field("after", Text(CURSOR_CHARACTERS_MAX), "`after` of the page before.", ""), LIMIT),
        answer="Lines",
        answer_about="`after` is null on the last page; a page may be empty and yet not be the last.",
        example={"lines": [], "after": None},
    ),
    _look(
        path="/v1/resources/{name}",
        handler=one,
        name="show",
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
    ),
    _look(
        path="/v1/resources/{name}/history",
        handler=history,
        name="history",
        summary="Its last holds",
        about="As clients that keep a journal wrote them down, the oldest first.",
        parameters=(NAME,),
        answer="History",
        answer_about="The last holds.",
        example={"holds": []},
    ),
    _look(
        path="/v1/resources/{name}/why",
        handler=why,
        name="why",
        summary="Why it is as it is",
        about="Who holds it, and how the last hold ended, in sentences and in facts.",
        parameters=(NAME,),
        answer="Explanation",
        answer_about="In sentences and in facts.",
    ),
)
