"""Changes of lines over HTTP, as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tenure._admin.models import LineInfo
from tenure.service.api import serialize
from tenure.service.api.lines import PREFIX
from tenure.service.auth.tokens import Scope
from tenure.service.http.problems import OF_THE_STORE, ProblemCode, later
from tenure.service.http.request import EVENTS_TYPE, EventStream
from tenure.service.http.routing import Route, RouteCall
from tenure.service.http.streams import KEEP_ALIVE, begun, event, living
from tenure.service.limits import PULSE_SECONDS
from tenure.service.service import Service

_FIRST_LOOK_SECONDS: Final = 10.0


async def events(service: Service, call: RouteCall) -> EventStream:
    """Open a stream of all changes below a prefix from now on."""
    return await begun(_changes(service, call))


async def _changes(service: Service, call: RouteCall) -> AsyncIterator[bytes]:
    tenant = call.caller.tenant
    with call.usage.streaming(), service.lines.listening(tenant.inside(call.fields["prefix"])) as listener:
        async with living(service, call, listener.wake) as lives:
            if not await listener.wait(_FIRST_LOOK_SECONDS) or not listener.known:
                raise later(ProblemCode.STORE_UNAVAILABLE, "the store did not answer in time; nothing is known yet")
            shown = _by_name(call, listener.newest)
            yield event("lines", {"lines": [serialize.listed(tenant, line) for line in shown.values()]})
            while lives():
                if not await listener.wait(PULSE_SECONDS):
                    yield KEEP_ALIVE
                    continue
                before, shown = shown, _by_name(call, listener.newest)
                for name, line in shown.items():
                    if name not in before or _lasting(before[name]) != _lasting(line):
                        yield event("line", serialize.listed(tenant, line))
                for name in before.keys() - shown.keys():
                    yield event("gone", {"name": tenant.outside(name)})


def _by_name(call: RouteCall, lines: tuple[LineInfo, ...]) -> dict[str, LineInfo]:
    return {line.name: line for line in lines if call.caller.tenant.has(line.name)}


def _lasting(line: LineInfo) -> tuple[object, ...]:
    """Return what tells one state of a line from another: all but what changes with time alone."""
    return line.kind, line.limit, *((t.token, t.id, t.holds, t.value, t.lease_id) for t in line.tickets)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/events",
        handler=events,
        scope=Scope.READ,
        name="events",
        tag="lines",
        summary="All changes, live",
        about=(
            "Server-sent events. `lines` first: {lines: […]} as in the list. Then `line` for each line that changed, "
            "and `gone` {name} for each that is not in use any more. Changes that come close together are sent as one. "
            "A comment every ten seconds shows that the stream lives."
        ),
        parameters=(PREFIX,),
        answer="",
        answer_about="A stream without an end.",
        media_type=EVENTS_TYPE,
        problems=(ProblemCode.TOO_MANY_STREAMS, *OF_THE_STORE),
    ),
)
