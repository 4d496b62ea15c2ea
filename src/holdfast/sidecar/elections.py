"""Elections over HTTP: who leads, how well that is known, whether it is this service; and every change as an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.limits import NAME_BYTES_MAX
from holdfast.recipes.election import Leader
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.bounds import PULSE_SECONDS
from holdfast.sidecar.candidates import Candidate
from holdfast.sidecar.events import KEEP_ALIVE, begun, event, living
from holdfast.sidecar.exchange import EVENTS_TYPE, Answer, Stream
from holdfast.sidecar.fields import Field, Text
from holdfast.sidecar.leaders import View
from holdfast.sidecar.problems import Code
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service

_NAME: Final = Field("name", Text(NAME_BYTES_MAX, least=1), "The election, percent-encoded.", example="scheduler")
_PASSING: Final = ("ageSeconds", "remainingSeconds")


async def show(service: Service, call: Call) -> Answer:
    """Who leads."""
    name = call.caller.tenant.inside(call.fields["name"])
    told = _told(call.fields["name"], await service.leaders.view(name), service.candidates.get(name))
    return Answer(200, json.dumps(told).encode())


async def events(service: Service, call: Call) -> Stream:
    """Who leads, and every change."""
    return await begun(_changes(service, call))


async def _changes(service: Service, call: Call) -> AsyncIterator[bytes]:
    """Whatever wakes it, what is told is a view of that moment."""
    name = call.caller.tenant.inside(call.fields["name"])
    candidate = service.candidates.get(name)
    with service.leaders.feeds.listening(name) as listener:
        forget = candidate.on_change(listener.wake) if candidate is not None else None
        try:
            async with living(service, call, listener) as lives:
                before: dict[str, Any] = {}
                while not before or lives():
                    told = _told(call.fields["name"], await service.leaders.view(name), candidate)
                    lasting = {key: value for key, value in told.items() if key not in _PASSING}
                    # A yes is good for `remainingSeconds` only: it is told again before that is over.
                    yield event("leader", told) if lasting != before or told["isLeader"] else KEEP_ALIVE
                    before = lasting
                    await listener.wait(min(PULSE_SECONDS, (told["remainingSeconds"] or PULSE_SECONDS) / 2))
        finally:
            if forget is not None:
                forget()


def _told(name: str, view: View, candidate: Candidate | None) -> dict[str, Any]:
    hold = view.hold
    remaining = 0.0 if hold is None else hold.remaining()
    leads = hold is not None and remaining > 0
    if leads and candidate is not None:
        candidate.tell(remaining)
    return {
        "name": name,
        "leader": None if view.leader is None else _leader(view.leader),
        "ageSeconds": None if view.age is None else round(view.age, 3),
        "certain": view.certain,
        "isLeader": leads,
        "isCandidate": view.candidate,
        "remainingSeconds": round(remaining, 3) if leads else None,
        "fence": str(hold.fence) if hold is not None and leads else None,
    }


def _leader(leader: Leader) -> dict[str, Any]:
    return {"value": leader.value, "ownerId": leader.owner, "token": str(leader.token)}


_EXAMPLE: Final = {
    "name": "scheduler",
    "leader": {"value": "10.0.0.7:8080", "ownerId": "worker-1", "token": "41"},
    "ageSeconds": 0.002,
    "certain": True,
    "isLeader": True,
    "isCandidate": True,
    "remainingSeconds": 13.9,
    "fence": "0.41@billing/scheduler",
}
_ABOUT: Final = (
    "`isLeader`: this service leads, by a hold that it can prove at this moment, for `remainingSeconds` unless it is "
    "renewed, under `fence`. `leader`: who stands first, as the store said `ageSeconds` ago. `certain`: the store's "
    "quorum said so for this very answer, and nothing known here speaks against it. In doubt it is false: never act on "
    "a leader that is not certain. `isCandidate`: this service was told to stand (`--elect`)."
)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/elections/{name}",
        handler=show,
        scope=Scope.ELECT,
        name="leader",
        tag="elections",
        summary="Who leads",
        about=_ABOUT,
        parameters=(_NAME,),
        answer="Election",
        answer_about="As far as it is known.",
        example=_EXAMPLE,
        problems=(Code.STORE_REFUSED, Code.STORE_WENT_BACK),
    ),
    Route(
        method="GET",
        path="/v1/elections/{name}/events",
        handler=events,
        scope=Scope.ELECT,
        name="leaderEvents",
        tag="elections",
        summary="Every change of leader, live",
        about=(
            "Server-sent events named `leader`, each with what the look at an election answers: at once, then after "
            "every change, and while this service leads again and again: a yes is good for `remainingSeconds` from "
            "when it was sent, and not longer. A comment shows that the stream lives."
        ),
        parameters=(_NAME,),
        answer="",
        answer_about="A stream without an end.",
        media_type=EVENTS_TYPE,
        problems=(Code.TOO_MANY_STREAMS, Code.STORE_REFUSED, Code.STORE_WENT_BACK),
    ),
)
