"""The table of routes: from it come the routing and the OpenAPI document; neither knows what the other does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from holdfast.sidecar.auth import Caller, Scope
from holdfast.sidecar.bounds import BODY_BYTES_MAX
from holdfast.sidecar.exchange import Request, Send
from holdfast.sidecar.fields import Field
from holdfast.sidecar.limits import Usage
from holdfast.sidecar.problems import Code, Problem

if TYPE_CHECKING:
    from holdfast.sidecar.service import Service

_READS: Final = {"HEAD": "GET"}


@dataclass(slots=True)
class Call:
    """One request that was let in: who asks, and the fields of its path, query and body by name."""

    request: Request
    caller: Caller
    usage: Usage
    fields: dict[str, Any]


class Reply(Protocol):
    """What a handler gives back: an Answer, a Stream of events, a Page of the dashboard."""

    status: int
    code: str | None
    """Of a problem, for the log."""

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send it. With `close` the connection ends behind it."""


Handler: TypeAlias = "Callable[[Service, Call], Awaitable[Reply]]"


@dataclass(frozen=True)
class Route:
    """One method at one path."""

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    """What a token needs for it; None: nobody needs one."""
    name: str
    summary: str
    about: str
    answer: str
    """The schema of what it answers with; "" where that is no JSON."""
    answer_about: str
    parameters: tuple[Field, ...] = ()
    """Those in the path, and those of the query."""
    headers: tuple[Field, ...] = ()
    body: tuple[Field, ...] | None = None
    body_bytes_max: int = BODY_BYTES_MAX
    body_example: Mapping[str, Any] = field(default_factory=dict)
    example: Any = None
    problems: tuple[Code, ...] = ()
    media_type: str = "application/json"
    tag: str = ""
    keeps: bool = False
    """Does it keep what is held, or give it up? Then it has room of its own in the tenant's rate."""

    @property
    def pattern(self) -> tuple[str, ...]:
        """The path's segments."""
        return tuple(self.path[1:].split("/"))

    @cached_property
    def in_path(self) -> tuple[Field, ...]:
        """The parameters of the path."""
        return tuple(field for field in self.parameters if f"{{{field.name}}}" in self.path)

    @cached_property
    def query(self) -> tuple[Field, ...]:
        """The parameters of the query."""
        return tuple(field for field in self.parameters if field not in self.in_path)


class Routes:
    """All routes, found by the segments of a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = tuple(routes)
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for route in routes:
            patterns = self._by_length.setdefault(len(route.pattern), [])
            methods = next((methods for pattern, methods in patterns if pattern == route.pattern), None)
            if methods is None:
                methods = {}
                patterns.append((route.pattern, methods))
            methods[route.method] = route

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        """The route, and the parameters in its path. Raises Problem (404, 405)."""
        for pattern, methods in self._by_length.get(len(segments), ()):
            values = _matched(pattern, segments)
            if values is not None:
                route = methods.get(_READS.get(method, method))
                if route is None:
                    allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
                    raise Problem(Code.METHOD_NOT_ALLOWED, f"this path takes {allowed}", headers={"Allow": allowed})
                return route, values
        raise Problem(Code.NOT_FOUND, "there is nothing at this path; /openapi.json lists what there is")


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    values = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith("{") and given:
            values[expected[1:-1]] = given
        elif expected != given:
            return None
    return values
