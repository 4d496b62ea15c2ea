"""Waits of remote clients over HTTP: one stream each, and waits that are registered for it. See waits.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

from tenure._core.base.limits import NAME_BYTES_MAX, TOKEN_MAX
from tenure._core.lease import Line, Ticket
from tenure._core.runtime import runtime_of
from tenure._core.turn import Operate
from tenure.errors import TenureError
from tenure.service.auth.tokens import Scope
from tenure.service.http.fields import Field, Flag, Items, Maybe, NumberText, Shape, Text, Whole
from tenure.service.http.problems import OF_THE_STORE, Problem, ProblemCode
from tenure.service.http.request import EVENTS_TYPE, EventStream, HttpResponse
from tenure.service.http.routing import Route, RouteCall
from tenure.service.http.streams import KEEP_ALIVE, begun, event, living
from tenure.service.limits import PULSE_SECONDS, WAITED_FOR_MAX, WAITS_AT_ONCE_MAX, WAITS_BODY_BYTES_MAX
from tenure.service.remote.lease_api import SECONDS, json_response, request_until
from tenure.service.remote.waits import BrokenHandle, WaitStream
from tenure.service.service import Service

_STREAM: Final = Field(
    "streamId", Text(64, minimum=16), "Made by the client, unguessable.", example="8a3e5b0e1d7c8a3e5b"
)
_NUMBER: Final = Field("wait", Whole(0, 2**53), "The client's number for it.", example=7)
_REVISION: Final = NumberText(TOKEN_MAX - 1)  # a watch begins at the next one, which has to be a number of the store's
_NUMBERS: Final = Items(Whole(0, 2**53), WAITS_AT_ONCE_MAX)


async def stream(service: Service, call: RouteCall) -> EventStream:
    """Open the client's stream, on which waits that are over are named."""
    return await begun(_news(service, call))


async def register(service: Service, call: RouteCall) -> HttpResponse:
    """Begin and end waits for a stream."""
    tenant, fields = call.caller.tenant, call.fields
    wait_stream = service.wait_streams.find(tenant, fields["streamId"])
    for number in fields["drop"]:
        wait_stream.drop(number)
    for wait in fields["tickets"]:
        _wait_for_tickets(service, call, wait_stream, wait)
    for wait in fields["prefixes"]:
        await _wait_below(service, call, wait_stream, wait)
    return json_response({"registered": True})


def _wait_for_tickets(service: Service, call: RouteCall, wait_stream: WaitStream, wait: Mapping[str, Any]) -> None:
    tenant, number = call.caller.tenant, wait["wait"]
    try:
        lease = service.remote_leases.find(tenant, wait["leaseId"])
        tickets = tuple(_opened(service, call, ticket) for ticket in wait["tickets"])
        line = Line(tenant.inside(wait["resource"]), tickets, wait["revision"])
        if any(ticket.resource != line.resource for ticket in tickets):
            raise BrokenHandle
        awaited = () if wait["anyChange"] else tickets
        signal = lease.store_lease.wait_change(line, awaited, amendments=wait["amendments"])
    except (Problem, BrokenHandle, TenureError):
        wait_stream.wait_over(number)  # the client looks, and its look is answered with the error
        return
    wait_stream.wait_for(number, signal)


async def _wait_below(service: Service, call: RouteCall, wait_stream: WaitStream, wait: Mapping[str, Any]) -> None:
    if Scope.READ not in call.caller.scopes:
        raise Problem(ProblemCode.FORBIDDEN, f"this needs a token with the scope {Scope.READ.value!r}")
    prefix = call.caller.tenant.inside(wait["prefix"])
    verbs = runtime_of(service.client).admin()
    signal = await service.remote_leases.run(
        Operate(lambda until: verbs.watch(prefix, until), request_until(service, call))
    )
    wait_stream.wait_for(wait["wait"], signal)


def _opened(service: Service, call: RouteCall, ticket: Mapping[str, Any]) -> Ticket:
    known = service.handles.open(call.caller.tenant, ticket["key"])
    return known._replace(token=ticket["token"], version=ticket["version"])


async def _news(service: Service, call: RouteCall) -> AsyncIterator[bytes]:
    opened = service.wait_streams.opened(call.caller.tenant, call.fields["streamId"])
    with call.usage.streaming(), opened as wait_stream:
        async with living(service, call, wait_stream.wake) as lives:
            yield event("open", {})
            while lives() and not wait_stream.over:
                numbers = await wait_stream.news(PULSE_SECONDS)
                yield event("changed", {"waits": numbers}) if numbers else KEEP_ALIVE


_WAITED_FOR: Final = Shape(
    (
        Field("key", Text(8192, minimum=1), "As it was sent."),
        Field("token", Maybe(NumberText()), "As it was sent.", None),
        Field("version", Maybe(NumberText()), "As it was sent.", None),
    )
)
_post: Final = partial(Route, method="POST", scope=Scope.ACQUIRE, tag="leases")
ROUTES: Final = (
    _post(
        path="/v1/streams/{streamId}/events",
        handler=stream,
        name="stream-open",
        summary="What comes of your waits",
        about=(
            "Server-sent events. `open` first; then `changed` {waits: […]} with the numbers of the waits that are "
            "over: look again. When the stream ends all of its waits are over. A comment every ten seconds shows that "
            "it lives."
        ),
        parameters=(_STREAM,),
        answer="",
        answer_about="A stream without an end.",
        media_type=EVENTS_TYPE,
        problems=(ProblemCode.TOO_MANY_STREAMS,),
    ),
    _post(
        path="/v1/waits",
        handler=register,
        name="waits",
        summary="Begin and end waits",
        about=(
            "For a stream that is open. A wait may be over early and for nothing; it never misses what happened since "
            "the line was read. One that can't be kept is over at once."
        ),
        body=(
            _STREAM,
            Field(
                "tickets",
                Items(
                    Shape(
                        (
                            _NUMBER,
                            Field("leaseId", Text(200, minimum=1), "Under which lease."),
                            Field("resource", Text(NAME_BYTES_MAX, minimum=1), "The line."),
                            Field("revision", _REVISION, "Of the line, as it was sent."),
                            Field("tickets", Items(_WAITED_FOR, WAITED_FOR_MAX), "Until one of these leaves."),
                            Field("amendments", Flag(), "Or is amended.", False),
                            Field("anyChange", Flag(), "Until anything changes; `tickets` is the line.", False),
                        )
                    ),
                    WAITS_AT_ONCE_MAX,
                ),
                "Waits for tickets.",
                [],
            ),
            Field(
                "prefixes",
                Items(Shape((_NUMBER, Field("prefix", Text(NAME_BYTES_MAX), "Of the names."))), WAITS_AT_ONCE_MAX),
                "Waits for any change of a line below a prefix, from now on.",
                [],
            ),
            Field("drop", _NUMBERS, "Waits that nobody waits for any more.", []),
            SECONDS,
        ),
        body_bytes_max=WAITS_BODY_BYTES_MAX,
        body_example={"streamId": "8a3e5b0e1d7c8a3e5b", "tickets": [], "prefixes": [], "drop": [7], "seconds": 5.0},
        answer="WaitsRegistered",
        answer_about="The stream says when they are over.",
        example={"registered": True},
        problems=(ProblemCode.UNKNOWN_STREAM, *OF_THE_STORE),
    ),
)
