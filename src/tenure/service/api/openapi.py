"""The table of all routes, and the OpenAPI document made from it and from the tables of fields, schemas, problems."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from tenure.service.api import audit, dashboard, elections, events, health, lines, locks
from tenure.service.api.schemas import SCHEMAS, ref
from tenure.service.http.fields import object_schema
from tenure.service.http.problems import PROBLEM_TYPE, Problem, ProblemCode
from tenure.service.http.request import JSON_TYPE
from tenure.service.http.routing import Route, RouteCall, RouteReply, Routes
from tenure.service.remote import lease_api, operator, wait_api
from tenure.service.service import Service

_OF_ALL: Final = (
    ProblemCode.BAD_REQUEST,
    ProblemCode.INTERNAL,
    ProblemCode.HEAD_TOO_LARGE,
    ProblemCode.TOO_SLOW,
    ProblemCode.FORBIDDEN_HOST,
    ProblemCode.FORBIDDEN_SITE,
)
_OF_THOSE_WITH_A_SCOPE: Final = (ProblemCode.UNAUTHORIZED, ProblemCode.FORBIDDEN, ProblemCode.RATE_LIMITED)
_OF_THOSE_WITH_FIELDS: Final = (ProblemCode.INVALID_FIELD,)
_OF_THOSE_WITH_A_BODY: Final = (ProblemCode.TOO_LARGE, ProblemCode.UNSUPPORTED_TYPE)
_HEADERS: Final = {
    401: {"WWW-Authenticate": "Bearer."},
    405: {"Allow": "The methods that this path takes."},
    421: {"Location": "Where to send the same request, if it is known."},
    429: {"Retry-After": "Seconds."},
    503: {"Retry-After": "Seconds."},
}
_TAGS: Final = {
    "locks": "Holds of your own.",
    "lines": "What is in use, by whom; and mending it.",
    "elections": "Who leads.",
    "leases": (
        "What the Python client does over HTTP, `tenure.connect('https://…')`: a lease, and the tickets that live by "
        "it. It waits, renews and decides by itself. Programs in other languages are better served by `locks`."
    ),
    "probes": "The service itself.",
}


async def openapi(service: Service, call: RouteCall) -> RouteReply:
    """Answer with the document."""
    return dashboard.file_answer(call.request, _document_file())


@lru_cache(maxsize=1)
def _document_file() -> dashboard.File:
    body = json.dumps(document()).encode()
    return dashboard.File(body, JSON_TYPE, gzip.compress(body, mtime=0))


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """Make the document from the tables."""
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for route in ALL.all:
        paths[route.path][route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tenure",
            "version": version("tenure"),
            "description": _description(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": dict(paths),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "From the service's file of tokens; each has a tenant and scopes.",
                }
            },
        },
    }


def _description() -> str:
    codes = "\n".join(f"| `{code.value}` | {code.status} | {code.about} |" for code in ProblemCode)
    return (
        "Locks, semaphores, read/write locks and leader election on etcd and ZooKeeper, for programs in any language. "
        "Fencing tokens are strings.\n\nEvery refusal is a problem document (RFC 9457) with a stable `code`:\n\n"
        f"| code | status | when |\n|---|---|---|\n{codes}\n"
    )


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.about + _scope(route),
        "parameters": _parameters(route),
        "responses": {str(status): answer for status, answer in sorted(_answers(route).items())},
        "security": [] if route.scope is None else [{"token": []}, {}],
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": object_schema(route.body),
                    "examples": {"usual": {"value": route.body_example}},
                }
            },
        }
    return operation


def _scope(route: Route) -> str:
    if route.scope is None:
        return ""
    needed = "one of any scope" if route.scope == "any" else f"one with the scope `{route.scope.value}`"
    return f" Where the service wants tokens, this needs {needed}."


def _parameters(route: Route) -> list[dict[str, Any]]:
    locations = ((route.in_path, "path"), (route.query, "query"), (route.headers, "header"))
    return [
        {
            "name": field.name,
            "in": location,
            "required": location == "path" or field.required,
            "description": field.about,
            "schema": {key: value for key, value in field.schema().items() if key != "description"},
        }
        for fields, location in locations
        for field in fields
    ]


def _answers(route: Route) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {200: _good(route)}
    by_status: defaultdict[int, list[ProblemCode]] = defaultdict(list)
    for code in _codes(route):
        by_status[code.status].append(code)
    for status, codes in by_status.items():
        found[status] = _problem(status, codes)
    if route.name == "readyz":
        found[503] = {"description": "It may not.", "content": _json("Readiness", {"ready": False, "why": "…"})}
    return found


def _codes(route: Route) -> tuple[ProblemCode, ...]:
    scoped = _OF_THOSE_WITH_A_SCOPE if route.scope is not None else ()
    fields = _OF_THOSE_WITH_FIELDS if route.parameters or route.body else ()
    sent = _OF_THOSE_WITH_A_BODY if route.body is not None else ()
    size = (ProblemCode.TOO_LARGE,) if route.body is None and route.method != "GET" else ()
    return tuple(dict.fromkeys((*_OF_ALL, *scoped, *fields, *sent, *size, *route.problems, ProblemCode.NOT_FOUND)))


def _good(route: Route) -> dict[str, Any]:
    if not route.answer:
        return {"description": route.answer_about, "content": {route.media_type: {"schema": {"type": "string"}}}}
    return {"description": route.answer_about, "content": _json(route.answer, route.example)}


def _json(name: str, example: Any) -> dict[str, Any]:
    examples = {} if example is None else {"examples": {"usual": {"value": example}}}
    return {"application/json": {"schema": ref(name), **examples}}


def _problem(status: int, codes: list[ProblemCode]) -> dict[str, Any]:
    headers = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in _HEADERS.get(status, {}).items()
    }
    examples = {code.value: {"value": json.loads(Problem(code, code.about).answer().body)} for code in codes}
    return {
        "description": " ".join(f"`{code.value}`: {code.about}" for code in codes),
        **({"headers": headers} if headers else {}),
        "content": {PROBLEM_TYPE: {"schema": ref("Problem"), "examples": examples}},
    }


OPENAPI: Final = Route(
    method="GET",
    path="/openapi.json",
    handler=openapi,
    scope=None,
    name="openapi",
    tag="probes",
    any_query=True,
    summary="This document",
    about="OpenAPI 3.1. Needs no token.",
    answer="Document",
    answer_about="This document.",
)
ALL: Final = Routes(
    tuple(
        route
        for routes in (
            *(locks.ROUTES, lines.ROUTES, audit.ROUTES, events.ROUTES, elections.ROUTES),
            *(lease_api.ROUTES, wait_api.ROUTES, operator.ROUTES, health.ROUTES, (OPENAPI,)),
        )
        for route in routes
    )
)
"""The routes for programs, all of them in the document."""
SERVED: Final = Routes((*ALL.all, *dashboard.ROUTES))
"""The routes of the service's own port: those, and the dashboard's."""
PROBES: Final = (health.HEALTHZ, health.READYZ)
"""The routes of the port for probes, with the next one where metrics have no port of their own."""
SCRAPED: Final = dataclasses.replace(health.METRICS, scope=None)
"""The route of the port for metrics. A kubelet and a Prometheus have no token."""
