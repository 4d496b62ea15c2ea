"""Elections over HTTP: who leads, how well that is known, whether this service does; and every change as an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from tenure._core.base.limits import NAME_BYTES_MAX
from tenure._core.recipes.election import Leader
from tenure.service.auth.tokens import Scope
from tenure.service.elections.candidates import Candidate
from tenure.service.elections.views import ElectionView
from tenure.service.http.fields import Field, Text
from tenure.service.http.problems import ProblemCode
from tenure.service.http.request import EVENTS_TYPE, EventStream, HttpResponse
from tenure.service.http.routing import Route, RouteCall
from tenure.service.http.streams import KEEP_ALIVE, begun, event, living
from tenure.service.limits import PULSE_SECONDS
from tenure.service.service import Service

_NAME: Final = Field("name", Text(NAME_BYTES_MAX, minimum=1), "The election, percent-encoded.", example="scheduler")
_PASSING: Final = ("ageSeconds", "remainingSeconds")


async def show(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the leader, as far as it is known."""
    name = call.caller.tenant.inside(call.fields["name"])
    body = _election_json(call.fields["name"], await service.leaders.view(name), service.candidates.get(name))
    return HttpResponse(200, json.dumps(body).encode())


async def events(service: Service, call: RouteCall) -> EventStream:
    """Open a stream of the leader now and of every change."""
    return await begun(_changes(service, call))


async def _changes(service: Service, call: RouteCall) -> AsyncIterator[bytes]:
    """Yield a view of the moment in which it is sent, whatever the wake-up was for."""
    name = call.caller.tenant.inside(call.fields["name"])
    candidate = service.candidates.get(name)
    with call.usage.streaming(), service.leaders.feeds.listening(name) as listener:
        forget = candidate.on_change(listener.wake) if candidate is not None else None
        try:
            async with living(service, call, listener.wake) as lives:
                before: dict[str, Any] = {}
                while not before or lives():
                    body = _election_json(call.fields["name"], await service.leaders.view(name), candidate)
                    lasting = {key: value for key, value in body.items() if key not in _PASSING}
                    # A yes is good for `remainingSeconds` only: it is sent again before that is over.
                    yield event("leader", body) if lasting != before or body["isLeader"] else KEEP_ALIVE
                    before = lasting
                    await listener.wait(min(PULSE_SECONDS, (body["remainingSeconds"] or PULSE_SECONDS) / 2))
        finally:
            if forget is not None:
                forget()


def _election_json(name: str, view: ElectionView, candidate: Candidate | None) -> dict[str, Any]:
    hold = view.hold
    remaining = 0.0 if hold is None else hold.remaining()
    leads = hold is not None and remaining > 0
    if leads and candidate is not None:
        candidate.promise(remaining)
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
_look: Final = partial(Route, method="GET", scope=Scope.ELECT, tag="elections", parameters=(_NAME,))
ROUTES: Final = (
    _look(
        path="/v1/elections/{name}",
        handler=show,
        name="leader",
        summary="Who leads",
        about=_ABOUT,
        answer="Election",
        answer_about="As far as it is known.",
        example=_EXAMPLE,
        problems=(ProblemCode.STORE_REFUSED, ProblemCode.STORE_WENT_BACK),
    ),
    _look(
        path="/v1/elections/{name}/events",
        handler=events,
        name="leaderEvents",
        summary="Every change of leader, live",
        about=(
            "Server-sent events named `leader`, each with what the look at an election answers: at once, then after "
            "every change, and while this service leads again and again: a yes is good for `remainingSeconds` from "
            "when it was sent, and not longer. A comment shows that the stream lives."
        ),
        answer="",
        answer_about="A stream without an end.",
        media_type=EVENTS_TYPE,
        problems=(ProblemCode.TOO_MANY_STREAMS, ProblemCode.STORE_REFUSED, ProblemCode.STORE_WENT_BACK),
    ),
)
