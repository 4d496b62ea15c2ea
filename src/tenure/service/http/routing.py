"""Routes: the table from which both the routing and the OpenAPI document are made, so that they can't differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from tenure.service.auth.limits import Usage
from tenure.service.auth.tokens import Caller, RouteScope
from tenure.service.http.fields import Field
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.http.request import HttpRequest, Send
from tenure.service.limits import BODY_BYTES_MAX

if TYPE_CHECKING:
    from tenure.service.service import Service

_READS: Final = {"HEAD": "GET"}


@dataclass(slots=True)
class RouteCall:
    """An admitted request: its caller, and the fields of its path, query and body by name."""

    request: HttpRequest
    caller: Caller
    usage: Usage
    fields: dict[str, Any]


class RouteReply(Protocol):
    """The answer of a handler: an HttpResponse, an EventStream or a DashboardPage."""

    status: int
    code: str | None
    """The code of a problem, for the log."""

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send the answer. With `close` the connection ends after it."""


Handler: TypeAlias = "Callable[[Service, RouteCall], Awaitable[RouteReply]]"


@dataclass(frozen=True)
class Route:
    """A method at a path, with its handler and its documentation."""

    method: str
    path: str
    handler: Handler
    scope: RouteScope
    name: str
    summary: str
    about: str
    answer: str
    """The schema of the answer; "" where that is no JSON."""
    answer_about: str
    parameters: tuple[Field, ...] = ()
    """Fields of the path and of the query."""
    headers: tuple[Field, ...] = ()
    body: tuple[Field, ...] | None = None
    body_bytes_max: int = BODY_BYTES_MAX
    body_example: Mapping[str, Any] = field(default_factory=dict)
    example: Any = None
    problems: tuple[ProblemCode, ...] = ()
    media_type: str = "application/json"
    tag: str = ""
    any_query: bool = False
    """True where unknown fields of the query are passed over: load balancers, and who makes links, add some."""
    keeps: bool = False
    """True for renewals and releases: such requests have a rate of their own beside the tenant's others."""

    @property
    def pattern(self) -> tuple[str, ...]:
        """The segments of the path, parameters in braces."""
        return tuple(self.path[1:].split("/"))

    @cached_property
    def in_path(self) -> tuple[Field, ...]:
        """Parameters in the path."""
        return tuple(field for field in self.parameters if f"{{{field.name}}}" in self.path)

    @cached_property
    def query(self) -> tuple[Field, ...]:
        """Parameters in the query."""
        return tuple(field for field in self.parameters if field not in self.in_path)


class Routes:
    """A table of routes, searched by the segments of a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all: tuple[Route, ...] = tuple(routes)
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for route in routes:
            patterns = self._by_length.setdefault(len(route.pattern), [])
            methods = next((methods for pattern, methods in patterns if pattern == route.pattern), None)
            if methods is None:
                methods = {}
                patterns.append((route.pattern, methods))
            methods[route.method] = route

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        """Return the route, and the parameters in its path. Raises Problem (404, 405)."""
        for pattern, methods in self._by_length.get(len(segments), ()):
            values = _matched(pattern, segments)
            if values is not None:
                route = methods.get(_READS.get(method, method))
                if route is None:
                    allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
                    raise Problem(
                        ProblemCode.METHOD_NOT_ALLOWED, f"this path takes {allowed}", headers={"Allow": allowed}
                    )
                return route, values
        raise Problem(ProblemCode.NOT_FOUND, "there is nothing at this path; /openapi.json lists what there is")


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    values = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith("{") and given:
            values[expected[1:-1]] = given
        elif expected != given:
            return None
    return values
