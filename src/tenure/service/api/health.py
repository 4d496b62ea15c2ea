"""The service itself over HTTP: liveness, readiness, metrics; and its caller, as it knows it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tenure._core.base.limits import NAME_BYTES_MAX
from tenure.errors import TenureError
from tenure.service.api.serialize import time_of_day
from tenure.service.auth.tokens import Scope
from tenure.service.http.fields import Field, Text
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.http.request import HttpResponse
from tenure.service.http.routing import Route, RouteCall
from tenure.service.service import Service

_ANSWER_SECONDS: Final = 2.0
_NOBODY: Final = "tenure-readyz"
"""The name of a line to read, which is most likely empty: any answer of the store will do."""


async def healthz(service: Service, call: RouteCall) -> HttpResponse:
    """Answer that the process lives. Without a store it does so too: a restart would not bring the store back."""
    return HttpResponse(200, b'{"healthy": true}')


async def readyz(service: Service, call: RouteCall) -> HttpResponse:
    """Answer whether the service may be sent work; with `leader`, whether it leads there."""
    why = await _not_ready(service, call.fields["leader"])
    return HttpResponse(200 if why is None else 503, json.dumps({"ready": why is None, "why": why}).encode())


async def metrics(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with all metrics in Prometheus' text format."""
    return HttpResponse(200, generate_latest(service.registry), CONTENT_TYPE_LATEST)


async def whoami(service: Service, call: RouteCall) -> HttpResponse:
    """Answer with the caller, as its token says, and with the limits of its tenant here."""
    caller, (limits, used) = call.caller, call.usage.figures()
    scopes = sorted(scope.value for scope in caller.scopes)
    body = {"name": caller.name, "tenant": caller.tenant.name, "scopes": scopes, "until": time_of_day(caller.until)}
    return HttpResponse(200, json.dumps({**body, "limits": limits, "used": used}).encode())


async def _not_ready(service: Service, leader: str | None) -> str | None:
    if service.shutdown.begun:
        return "it is shutting down"
    if leader is not None:
        candidate = service.candidates.get(leader)
        if candidate is None:
            raise Problem(
                ProblemCode.UNKNOWN_ELECTION,
                "this service does not stand in that election; it was not started with --elect",
            )
        return None if candidate.proven() is not None else "it does not lead, as far as it can prove"
    return None if await _answered(service) else "the store has not answered yet"


async def _answered(service: Service) -> bool:
    """Say whether the store has answered since the start.

    Once is enough: a store that goes away later is away for all replicas, and answers say so.
    """
    if not service.answered:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await service.operator.line(_NOBODY)
        except (TenureError, TimeoutError):
            return False
        service.answered = True
    return True


_look: Final = partial(Route, method="GET", tag="probes", any_query=True)
HEALTHZ: Final = _look(
    path="/healthz",
    handler=healthz,
    scope=None,
    name="healthz",
    summary="Does it live?",
    about="For liveness probes. Needs no token.",
    answer="Health",
    answer_about="It does.",
    example={"healthy": True},
)
READYZ: Final = _look(
    path="/readyz",
    handler=readyz,
    scope=None,
    name="readyz",
    summary="May it be sent work?",
    about=(
        "For readiness probes: once the store has answered, until it shuts down. With `leader` (a whole name, as given "
        "to `--elect`): while this service leads there, by a hold that it can prove at this moment. Needs no token."
    ),
    parameters=(Field("leader", Text(NAME_BYTES_MAX, minimum=1), "An election this service stands in.", None),),
    answer="Readiness",
    answer_about="It may. The same with 503: it may not, and `why` says why.",
    example={"ready": True, "why": None},
    problems=(ProblemCode.UNKNOWN_ELECTION,),
)
METRICS: Final = _look(
    path="/metrics",
    handler=metrics,
    scope=Scope.METRICS,
    name="metrics",
    summary="What it counts",
    about=(
        "In Prometheus' text format: attempts, waits and holds by the first part of their names, requests, and leases "
        "of remote clients."
    ),
    answer="",
    answer_about="All metrics.",
    media_type="text/plain",
)
_WHOAMI: Final = _look(
    path="/v1/whoami",
    handler=whoami,
    scope="any",
    name="whoami",
    summary="Who asks",
    about="The caller as its token says, until when that is good, the limits of its tenant, and what is used of them.",
    answer="Caller",
    answer_about="As of this request.",
)
ROUTES: Final = (HEALTHZ, READYZ, METRICS, _WHOAMI)
