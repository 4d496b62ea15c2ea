"""The ASGI application: finds the route, admits the caller, reads the fields, runs the handler, answers; and logs.

Errors of handlers become problems here and nowhere else (problems.py). An unexpected exception is logged with its
traceback, and answered with `internal` and no more.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from tenure._core.drivers.greenlets import ASKER
from tenure.errors import TenureError
from tenure.service.auth.tokens import Caller, admit, check_host
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
from tenure.service.http.routing import RouteCall, RouteReply, Routes
from tenure.service.limits import BODY_SECONDS
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
            return _refusal(of_error(error), logged)
        except HungUp:
            raise
        except Exception as error:  # a defect: its own words may show what is not for the caller
            _log.error("a request failed by a defect of the service", exc_info=error)
            return _refusal(
                Problem(ProblemCode.INTERNAL, "a defect of the service; it has been logged", happened="unknown"), logged
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
        if route.query or request.scope["query_string"]:
            fields |= read_query(route.query, request.query())
        if route.body is not None:
            fields |= read_body(route.body, await _json(request, route.body_bytes_max))
        elif request.method not in ("GET", "HEAD"):
            await request.body()  # a body that no route reads has to be complete and within the bounds, too
        return await route.handler(self._service, RouteCall(request, caller, usage, fields))


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


_SHOWN: Final = ("resource", "name", "prefix", "leader")
"""The fields of a request that may be logged."""


@dataclass(slots=True)
class LoggedRequest:
    """The facts about a request, gathered on its way, that the log shows."""

    route: str = "none"
    caller: Caller | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    status: int = 500
    code: str | None = None
    problem: ProblemCode | None = None


class AccessLog:
    """The access log: one JSON object a line for each request. Without a stream it writes nothing.

    Tokens, ids of holds (who knows one may release the hold) and values are not logged: of the path only its route, and
    the names in the request; of a path without a route nothing but that.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, request: HttpRequest, logged: LoggedRequest, seconds: float) -> None:
        """Write one line."""
        if self._stream is None:
            return
        now = time.time()
        entry: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z",
            "level": "info" if logged.status < 400 else "warning",
            "logger": "tenure.access",
            "message": f"{request.method} {logged.route} {logged.status}",
            "method": request.method,
            "route": logged.route,
            "status": logged.status,
            "seconds": round(seconds, 6),
            "peer": request.peer,
        }
        if logged.code is not None:
            entry["code"] = logged.code
        if logged.caller is not None:
            entry["caller"], entry["tenant"] = logged.caller.name, logged.caller.tenant.name
        entry |= {name: logged.fields[name] for name in _SHOWN if logged.fields.get(name)}
        try:
            self._stream.write(json.dumps(entry) + "\n")
            self._stream.flush()
        except OSError:  # the reader of the log has gone: serving locks matters more
            self._stream = None
