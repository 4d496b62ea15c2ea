"""The ASGI application: finds the route, admits the caller, reads the fields, runs the handler, answers.

Errors of handlers become problems here and nowhere else (problems.py). An unexpected exception is logged with its
traceback, and answered with `internal` and no more.
"""

from __future__ import annotations

import logging
import time

from tenure._core.drivers.greenlets import ASKER
from tenure.errors import TenureError
from tenure.service.auth.tokens import admit, check_host
from tenure.service.http.fields import InvalidField, NotJSON, read_body, read_query
from tenure.service.http.problems import Problem, ProblemCode, of_error
from tenure.service.http.request import (
    CONNECTION,
    JSON_TYPE,
    EventStream,
    HttpRequest,
    HttpResponse,
    HungUp,
    Malformed,
    Receive,
    Scope,
    Send,
    TooLarge,
    TooSlow,
)
from tenure.service.http.routing import Route, RouteCall, RouteReply, Routes
from tenure.service.limits import BODY_SECONDS
from tenure.service.log import AccessLog, LoggedRequest
from tenure.service.service import Service

_log = logging.getLogger("tenure.service")
_UNREAD: frozenset[ProblemCode] = frozenset((ProblemCode.TOO_LARGE, ProblemCode.TOO_SLOW))
"""Problems after which the rest of the request is not read: the connection ends."""


class App:
    """The application of one service for one table of routes. It answers under `names`; None: under any."""

    def __init__(self, service: Service, routes: Routes, access: AccessLog, *, names: frozenset[str] | None) -> None:
        self._service = service
        self._routes = routes
        self._access = access
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this application knows HTTP and nothing else, not {scope['type']!r}")
        request, logged = HttpRequest(scope, receive), LoggedRequest()
        ASKER.set(scope.get(CONNECTION))
        counts = self._service.counts
        began = time.perf_counter()
        counts.running += 1
        try:
            reply = await self._reply(request, logged)
            if isinstance(reply, EventStream) and request.method == "HEAD":
                reply = await _only_its_head(reply)
            logged.status, logged.code = reply.status, reply.code
            await reply.send(send, close=logged.problem in _UNREAD or self._service.shutdown.begun)
        except HungUp:
            logged.status, logged.code = 499, "hung-up"  # nginx's number for it; for the log, as nobody receives it
        except TimeoutError:
            logged.code = "not-read"
            raise ConnectionAbortedError("the client does not read what it logged for") from None
        finally:
            counts.running -= 1
            seconds = time.perf_counter() - began
            counts.ended(logged.route, logged.status, seconds)
            self._access.write(request, logged, seconds)

    async def _reply(self, request: HttpRequest, logged: LoggedRequest) -> RouteReply:
        try:
            return await self._handled(request, logged)
        except Problem as problem:
            return _refusal(problem, logged)
        except InvalidField as error:
            return _refusal(Problem(ProblemCode.INVALID_FIELD, str(error)), logged)
        except (Malformed, NotJSON) as error:
            return _refusal(Problem(ProblemCode.BAD_REQUEST, str(error)), logged)
        except TooLarge:
            return _refusal(Problem(ProblemCode.TOO_LARGE, "the body has more bytes than are taken here"), logged)
        except TooSlow:
            return _refusal(
                Problem(ProblemCode.TOO_SLOW, f"the body did not come within {BODY_SECONDS:g} s", retry=True), logged
            )
        except TenureError as error:
            _log.warning("a request could not be carried out: %s: %s", type(error).__name__, error)
            return _refusal(of_error(error, reads=request.reads), logged)
        except HungUp:
            raise
        except Exception as error:  # a defect: its own words may show what is not for the caller
            _log.error("a request failed by a defect of the service", exc_info=error)
            happened = "no" if request.reads else "unknown"
            return _refusal(
                Problem(ProblemCode.INTERNAL, "a defect of the service; it has been logged", happened=happened), logged
            )

    async def _handled(self, request: HttpRequest, logged: LoggedRequest) -> RouteReply:
        route, values = self._routes.find(request.method, request.read_path())
        logged.route = route.name
        if self._names is not None:
            check_host(request, self._names, link=route.tag == "dashboard")
        caller = admit(self._service.tokens, self._service.limits, request, route.scope)
        logged.caller = caller
        usage = self._service.limits.of(caller.tenant.name)
        if route.scope is not None:
            usage.request(keeps=route.keeps)
        logged.fields = fields = read_query(route.in_path, values) if values else {}
        if route.query or (request.scope["query_string"] and not route.any_query):
            fields |= read_query(route.query, _known(route, request.query(strict=not route.any_query)))
        if route.body is not None:
            fields |= read_body(route.body, await _json(request, route.body_bytes_max))
        elif not request.reads:
            await request.body()  # a body that no route reads has to be complete and within the bounds, too
        return await route.handler(self._service, RouteCall(request, caller, usage, fields))


def _known(route: Route, query: dict[str, str]) -> dict[str, str]:
    """Leave out what the route passes over."""
    names = {field.name for field in route.query}
    return {name: value for name, value in query.items() if name in names or not route.any_query}


async def _json(request: HttpRequest, bytes_max: int) -> bytes:
    """Read the body if it is declared as JSON: a web page of another origin can't send that unasked."""
    kind = request.header(b"content-type") or ""
    if kind.partition(";")[0].strip().lower() != JSON_TYPE:
        raise Problem(ProblemCode.UNSUPPORTED_TYPE, f"send the body as Content-Type: {JSON_TYPE}")
    return await request.body(bytes_max)


async def _only_its_head(stream: EventStream) -> HttpResponse:
    await stream.close()
    return HttpResponse(stream.status, b"", "text/event-stream")


def _refusal(problem: Problem, logged: LoggedRequest) -> HttpResponse:
    logged.problem = problem.code
    return problem.answer()
