"""What machines ask of the service itself: is it well, may it be sent work, what does it count, what does it take."""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from holdfast.errors import HoldfastError
from holdfast.limits import NAME_BYTES_MAX
from holdfast.sidecar.auth import Scope
from holdfast.sidecar.exchange import Answer
from holdfast.sidecar.fields import Field, Text
from holdfast.sidecar.problems import Code, Problem
from holdfast.sidecar.routes import Call, Route
from holdfast.sidecar.service import Service

_ANSWER_SECONDS: Final = 2.0
_NOBODY: Final = "holdfast-readyz"
"""A name to look at: whether anybody stands there does not matter."""


async def healthz(service: Service, call: Call) -> Answer:
    """This process answers. A store that is away does not make it ill: another one in its place would not be better."""
    return Answer(200, b'{"healthy": true}')


async def readyz(service: Service, call: Call) -> Answer:
    """May it be sent work; with `leader`, does it lead there?"""
    why = await _not_ready(service, call.fields["leader"])
    return Answer(200 if why is None else 503, json.dumps({"ready": why is None, "why": why}).encode())


async def metrics(service: Service, call: Call) -> Answer:
    """What Prometheus asks for."""
    return Answer(200, generate_latest(service.registry), CONTENT_TYPE_LATEST)


async def openapi(service: Service, call: Call) -> Answer:
    """What the service takes, for machines."""
    return Answer(200, _document())


@lru_cache(maxsize=1)
def _document() -> bytes:
    from holdfast.sidecar.openapi import document  # knows all routes, these here included

    return json.dumps(document()).encode()


async def _not_ready(service: Service, leader: str | None) -> str | None:
    if service.drain.begun:
        return "it is shutting down"
    if leader is not None:
        candidate = service.candidates.get(leader)
        if candidate is None:
            raise Problem(
                Code.UNKNOWN_ELECTION, "this service does not stand in that election; it was not started with --elect"
            )
        return None if candidate.proven() is not None else "it does not lead, as far as it can prove"
    return None if await _answered(service) else "the store has not answered yet"


async def _answered(service: Service) -> bool:
    """Once is enough: a store that goes away later makes no replica worse than another, and answers tell it."""
    if not service.answered:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await service.operator.line(_NOBODY)
        except (HoldfastError, TimeoutError):
            return False
        service.answered = True
    return True


HEALTHZ: Final = Route(
    method="GET",
    path="/healthz",
    handler=healthz,
    scope=None,
    name="healthz",
    tag="probes",
    summary="Does it live?",
    about="For liveness probes. Needs no token.",
    answer="Health",
    answer_about="It does.",
    example={"healthy": True},
)
READYZ: Final = Route(
    method="GET",
    path="/readyz",
    handler=readyz,
    scope=None,
    name="readyz",
    tag="probes",
    summary="May it be sent work?",
    about=(
        "For readiness probes: once the store has answered, until it shuts down. With `leader` (a whole name, as given "
        "to `--elect`): while this service leads there, by a hold that it can prove at this moment. Needs no token."
    ),
    parameters=(Field("leader", Text(NAME_BYTES_MAX, least=1), "An election this service stands in.", None),),
    answer="Readiness",
    answer_about="It may. The same with 503: it may not, and `why` says why.",
    example={"ready": True, "why": None},
    problems=(Code.UNKNOWN_ELECTION,),
)
METRICS: Final = Route(
    method="GET",
    path="/metrics",
    handler=metrics,
    scope=Scope.METRICS,
    name="metrics",
    tag="probes",
    summary="What it counts",
    about=(
        "In Prometheus' text format: attempts, waits and holds by the first part of their names, requests, and leases "
        "that are lent."
    ),
    answer="",
    answer_about="All metrics.",
    media_type="text/plain",
)
OPENAPI: Final = Route(
    method="GET",
    path="/openapi.json",
    handler=openapi,
    scope=None,
    name="openapi",
    tag="probes",
    summary="This document",
    about="OpenAPI 3.1. Needs no token.",
    answer="Document",
    answer_about="This document.",
)
ROUTES: Final = (HEALTHZ, READYZ, METRICS, OPENAPI)
