"""The OpenAPI document, made from the tables: routes, fields, schemas, problems. Nothing in it is written twice."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from holdfast.sidecar.compound import object_schema
from holdfast.sidecar.fields import Field
from holdfast.sidecar.problems import PROBLEM_TYPE, Code, Problem
from holdfast.sidecar.routes import Route
from holdfast.sidecar.schemas import SCHEMAS, ref
from holdfast.sidecar.table import ALL

_OF_ALL: Final = (Code.BAD_REQUEST, Code.INTERNAL, Code.HEAD_TOO_LARGE, Code.TOO_SLOW, Code.FORBIDDEN_HOST)
_OF_THOSE_WITH_A_SCOPE: Final = (Code.UNAUTHORIZED, Code.FORBIDDEN, Code.RATE_LIMITED)
_OF_THOSE_WITH_FIELDS: Final = (Code.INVALID_FIELD,)
_OF_THOSE_WITH_A_BODY: Final = (Code.TOO_LARGE, Code.UNSUPPORTED_TYPE)
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
        "What the Python client does over HTTP, `holdfast.connect('https://…')`: a lease, and the tickets that live by "
        "it. It waits, renews and decides by itself. Programs in other languages are better served by `locks`."
    ),
    "probes": "The service itself.",
}


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The whole of it."""
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for route in ALL.all:
        paths[route.path][route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": version("holdfast"),
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
    codes = "\n".join(f"| `{code.value}` | {code.status} | {code.about} |" for code in Code)
    return (
        "Locks, semaphores, read/write locks and leader election on etcd and ZooKeeper, for programs in any language. "
        "Fencing tokens are strings.\n\nEvery refusal is a problem document (RFC 9457) with a stable `code`:\n\n"
        f"| code | status | when |\n|---|---|---|\n{codes}\n"
    )


def _operation(route: Route) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.about + _scope(route),
        "parameters": _parameters(route),
        "responses": {str(status): answer for status, answer in sorted(_answers(route).items())},
        "security": [] if route.scope is None else [{"token": []}, {}],
    }
    if route.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": object_schema(route.body),
                    "examples": {"usual": {"value": route.body_example}},
                }
            },
        }
    return told


def _scope(route: Route) -> str:
    if route.scope is None:
        return ""
    return f" Where the service wants tokens, this one needs the scope `{route.scope.value}`."


def _parameters(route: Route) -> list[dict[str, Any]]:
    places = ((route.in_path, "path"), (route.query, "query"), (route.headers, "header"))
    return [_parameter(field, place) for fields, place in places for field in fields]


def _parameter(field: Field, place: str) -> dict[str, Any]:
    schema = {key: value for key, value in field.schema().items() if key != "description"}
    return {
        "name": field.name,
        "in": place,
        "required": place == "path" or field.required,
        "description": field.about,
        "schema": schema,
    }


def _answers(route: Route) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {200: _good(route)}
    by_status: defaultdict[int, list[Code]] = defaultdict(list)
    for code in _codes(route):
        by_status[code.status].append(code)
    for status, codes in by_status.items():
        found[status] = _problem(status, codes)
    if route.name == "readyz":
        found[503] = {"description": "It may not.", "content": _json("Readiness", {"ready": False, "why": "…"})}
    return found


def _codes(route: Route) -> tuple[Code, ...]:
    scoped = _OF_THOSE_WITH_A_SCOPE if route.scope is not None else ()
    fields = _OF_THOSE_WITH_FIELDS if route.parameters or route.body else ()
    sent = _OF_THOSE_WITH_A_BODY if route.body is not None else ()
    size = (Code.TOO_LARGE,) if route.body is None and route.method != "GET" else ()
    return tuple(dict.fromkeys((*_OF_ALL, *scoped, *fields, *sent, *size, *route.problems, Code.NOT_FOUND)))


def _good(route: Route) -> dict[str, Any]:
    if not route.answer:
        return {"description": route.answer_about, "content": {route.media_type: {"schema": {"type": "string"}}}}
    return {"description": route.answer_about, "content": _json(route.answer, route.example)}


def _json(name: str, example: Any) -> dict[str, Any]:
    examples = {} if example is None else {"examples": {"usual": {"value": example}}}
    return {"application/json": {"schema": ref(name), **examples}}


def _problem(status: int, codes: list[Code]) -> dict[str, Any]:
    headers = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in _HEADERS.get(status, {}).items()
    }
    examples = {code.value: {"value": json.loads(Problem(code, code.about).answer().body)} for code in codes}
    return {
        "description": " ".join(f"`{code.value}`: {code.about}" for code in codes),
        **({"headers": headers} if headers else {}),
        "content": {PROBLEM_TYPE: {"schema": ref("Problem"), "examples": examples}},
    }
