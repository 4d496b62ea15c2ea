"""All changes of lines over HTTP, as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.reports import LineInfo
from holdfast.sidecar import shapes
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import PULSE_SECONDS
from holdfast.sidecar.events import KEEP_ALIVE, begun, event, living
from holdfast.sidecar.exchange import EVENTS_TYPE, Stream
from holdfast.sidecar.lines import PREFIX
from holdfast.sidecar.problems import OF_THE_STORE, Code, later
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service

_FIRST_LOOK_SECONDS: Final = 10.0


async def events(service: Service, call: Call) -> Stream:
    """All changes, from now on."""
    return await begun(_changes(service, call))


async def _changes(service: Service, call: Call) -> AsyncIterator[bytes]:
    tenant = call.caller.tenant
    with service.lines.listening(tenant.inside(call.fields["prefix"])) as listener:
        async with living(service, call, listener) as lives:
            if not await listener.wait(_FIRST_LOOK_SECONDS) or not listener.known:
                raise later(Code.STORE_UNAVAILABLE, "the store did not answer in time; nothing is known yet")
            shown = _by_name(call, listener.newest)
            yield event("lines", {"lines": [shapes.listed(tenant, line) for line in shown.values()]})
            while lives():
                if not await listener.wait(PULSE_SECONDS):
                    yield KEEP_ALIVE
                    continue
                before, shown = shown, _by_name(call, listener.newest)
                for name, line in shown.items():
                    if name not in before or _lasting(before[name]) != _lasting(line):
                        yield event("line", shapes.listed(tenant, line))
                for name in before.keys() - shown.keys():
                    yield event("gone", {"name": tenant.outside(name)})


def _by_name(call: Call, lines: tuple[LineInfo, ...]) -> dict[str, LineInfo]:
    return {line.name: line for line in lines if call.caller.tenant.has(line.name)}


def _lasting(line: LineInfo) -> tuple[object, ...]:
    """Without what changes by itself."""
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
            "and `gone` {name} for each that is not in use any more. Changes that come close together are told as one. "
            "A comment every ten seconds shows that the stream lives."
        ),
        parameters=(PREFIX,),
        answer="",
        answer_about="A stream without an end.",
        media_type=EVENTS_TYPE,
        problems=(Code.TOO_MANY_STREAMS, *OF_THE_STORE),
    ),
)
