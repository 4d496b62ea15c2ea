"""What clients wait for over HTTP: one stream each, and waits that are registered for it. See channels.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.lease import Line, Ticket
from holdfast.limits import NAME_BYTES_MAX, TOKEN_MAX
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import PULSE_SECONDS, WAITED_FOR_MAX, WAITS_AT_ONCE_MAX, WAITS_BODY_BYTES_MAX
from holdfast.sidecar.channels import Channel
from holdfast.sidecar.compound import Items, Maybe, NumberText, Shape
from holdfast.sidecar.events import KEEP_ALIVE, begun, event
from holdfast.sidecar.exchange import EVENTS_TYPE, Answer, Stream
from holdfast.sidecar.fields import Field, Flag, Text, Whole
from holdfast.sidecar.leases import SECONDS, answered, soon
from holdfast.sidecar.problems import OF_THE_STORE, Code, Problem
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.seals import BrokenSeal
from holdfast.sidecar.service import Service
from holdfast.turn import Operate

_STREAM: Final = Field("streamId", Text(64, least=16), "Made by the client, unguessable.", example="8a3e5b0e1d7c8a3e5b")
_NUMBER: Final = Field("wait", Whole(0, 2**53), "The client's number for it.", example=7)
_REVISION: Final = NumberText(TOKEN_MAX - 1)  # a watch begins at the next one, which has to be a number of the store's
_NUMBERS: Final = Items(Whole(0, 2**53), WAITS_AT_ONCE_MAX)


async def stream(service: Service, call: Call) -> Stream:
    """What comes of the waits."""
    return await begun(_news(service, call))


async def register(service: Service, call: Call) -> Answer:
    """Begin and end waits."""
    tenant, fields = call.caller.tenant, call.fields
    channel = service.channels.find(tenant, fields["streamId"])
    for number in fields["drop"]:
        channel.drop(number)
    for wait in fields["tickets"]:
        _wait_for_tickets(service, call, channel, wait)
    for wait in fields["prefixes"]:
        await _wait_below(service, call, channel, wait)
    return answered({"registered": True})


def _wait_for_tickets(service: Service, call: Call, channel: Channel, wait: Mapping[str, Any]) -> None:
    tenant, number = call.caller.tenant, wait["wait"]
    try:
        lent = service.lending.find(tenant, wait["leaseId"])
        tickets = tuple(_opened(service, call, told) for told in wait["tickets"])
        line = Line(tenant.inside(wait["resource"]), tickets, wait["revision"])
        if any(ticket.resource != line.resource for ticket in tickets):
            raise BrokenSeal
        awaited = () if wait["anyChange"] else tickets
        signal = lent.lease.wait_change(line, awaited, amendments=wait["amendments"])
    except (Problem, BrokenSeal, HoldfastError):
        channel.tell(number)  # whoever looks is told what is wrong
        return
    channel.wait_for(number, signal)


async def _wait_below(service: Service, call: Call, channel: Channel, wait: Mapping[str, Any]) -> None:
    if Scope.READ not in call.caller.scopes:
        raise Problem(Code.FORBIDDEN, f"this needs a token with the scope {Scope.READ.value!r}")
    prefix = call.caller.tenant.inside(wait["prefix"])
    verbs = service.client._house.operating()
    signal = await service.lending.run(Operate(lambda until: verbs.watch(prefix, until), soon(service, call)))
    channel.wait_for(wait["wait"], signal)


def _opened(service: Service, call: Call, told: Mapping[str, Any]) -> Ticket:
    ticket = service.seals.open(call.caller.tenant, told["key"])
    return ticket._replace(token=told["token"], version=told["version"])


async def _news(service: Service, call: Call) -> AsyncIterator[bytes]:
    with call.usage.streaming(), service.channels.opened(call.caller.tenant, call.fields["streamId"]) as channel:
        async with _hearing(service, call, channel) as hung_up:
            yield event("open", {})
            while not (hung_up.done() or channel.over or service.drain.begun) and service.admits(call.caller):
                told = await channel.news(PULSE_SECONDS)
                yield event("changed", {"waits": told}) if told else KEEP_ALIVE


@asynccontextmanager
async def _hearing(service: Service, call: Call, channel: Channel) -> AsyncIterator[asyncio.Task[None]]:
    """The channel is woken when its client hangs up, and when the service ends."""
    hung_up = asyncio.create_task(call.request.hung_up())
    hung_up.add_done_callback(lambda _: channel.wake())
    try:
        with service.drain.tells(channel.wake):
            yield hung_up
    finally:
        hung_up.cancel()
        await asyncio.gather(hung_up, return_exceptions=True)


_WAITED_FOR: Final = Shape(
    (
        Field("key", Text(8192, least=1), "As it was told."),
        Field("token", Maybe(NumberText()), "As it was told.", None),
        Field("version", Maybe(NumberText()), "As it was told.", None),
    )
)
ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/streams/{streamId}/events",
        handler=stream,
        scope=Scope.ACQUIRE,
        name="stream-open",
        tag="leases",
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
        problems=(Code.TOO_MANY_STREAMS,),
    ),
    Route(
        method="POST",
        path="/v1/waits",
        handler=register,
        scope=Scope.ACQUIRE,
        name="waits",
        tag="leases",
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
                            Field("leaseId", Text(200, least=1), "Under which lease."),
                            Field("resource", Text(NAME_BYTES_MAX, least=1), "The line."),
                            Field("revision", _REVISION, "Of the line, as it was told."),
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
        answer_about="They are told of on the stream.",
        example={"registered": True},
        problems=(Code.UNKNOWN_STREAM, *OF_THE_STORE),
    ),
)
