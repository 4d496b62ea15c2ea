"""The ASGI application: finds the route, lets the caller in, reads what was sent, and answers; all ways out are here.

What a handler raises becomes a problem (problems.py); what nobody foresaw is logged with its traceback, and told as
`internal` and no more.
"""

from __future__ import annotations

import logging
import time

from holdfast.errors import HoldfastError
from holdfast.lanes import ASKER
from holdfast.sidecar.access import AccessLog, Asked
from holdfast.sidecar.admission import admit, check_host
from holdfast.sidecar.bounds import BODY_SECONDS
from holdfast.sidecar.exchange import (
    CONNECTION,
    JSON_TYPE,
    Answer,
    HungUp,
    Malformed,
    Receive,
    Request,
    Scope,
    Send,
    Stream,
    TooLarge,
    TooSlow,
)
from holdfast.sidecar.fields import InvalidField, NotJSON, read_body, read_query
from holdfast.sidecar.problems import Code, Problem, of_error
from holdfast.sidecar.routes import Call, Reply, Routes
from holdfast.sidecar.service import Service

_log = logging.getLogger("holdfast.sidecar")
_UNREAD: frozenset[Code] = frozenset((Code.TOO_LARGE, Code.TOO_SLOW))
"""Behind these the rest of the request is not read: the connection ends."""


class App:
    """One service's application, for the routes of one table. `any_host`: does it answer under any name?"""

    def __init__(self, service: Service, routes: Routes, access: AccessLog, *, any_host: bool) -> None:
        self._service = service
        self._routes = routes
        self._access = access
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this application knows HTTP and nothing else, not {scope['type']!r}")
        request, asked = Request(scope, receive), Asked()
        ASKER.set(scope.get(CONNECTION))
        traffic = self._service.traffic
        began = time.perf_counter()
        traffic.running += 1
        try:
            reply = await self._reply(request, asked)
            if isinstance(reply, Stream) and request.method == "HEAD":
                reply = await _only_its_head(reply)
            asked.status, asked.code = reply.status, reply.code
            await reply.send(send, close=asked.problem in _UNREAD or self._service.drain.begun)
        except HungUp:
            asked.status, asked.code = 499, "hung-up"  # nginx's number for it; nobody gets it
        except TimeoutError:
            asked.code = "not-read"
            raise ConnectionAbortedError("the client does not read what it asked for") from None
        finally:
            traffic.running -= 1
            seconds = time.perf_counter() - began
            traffic.ended(asked.route, asked.status, seconds)
            self._access.write(request, asked, seconds)

    async def _reply(self, request: Request, asked: Asked) -> Reply:
        try:
            return await self._handled(request, asked)
        except Problem as problem:
            return _told(problem, asked)
        except InvalidField as error:
            return _told(Problem(Code.INVALID_FIELD, str(error)), asked)
        except (Malformed, NotJSON) as error:
            return _told(Problem(Code.BAD_REQUEST, str(error)), asked)
        except TooLarge:
            return _told(Problem(Code.TOO_LARGE, "the body has more bytes than are taken here"), asked)
        except TooSlow:
            return _told(Problem(Code.TOO_SLOW, f"the body did not come within {BODY_SECONDS:g} s", retry=True), asked)
        except HoldfastError as error:
            _log.warning("a request could not be carried out: %s: %s", type(error).__name__, error)
            return _told(of_error(error), asked)
        except HungUp:
            raise
        except Exception as error:  # a defect: told here, and not in the words of whatever raised it
            _log.error("a request failed by a defect of the service", exc_info=error)
            return _told(
                Problem(Code.INTERNAL, "a defect of the service; it has been logged", happened="unknown"), asked
            )

    async def _handled(self, request: Request, asked: Asked) -> Reply:
        route, values = self._routes.find(request.method, request.read_path())
        asked.route = route.name
        if not self._any_host:
            check_host(request)
        caller = admit(self._service, request, route)
        asked.caller = caller
        usage = self._service.limits.of(caller.tenant.name)
        if route.scope is not None:
            usage.request(keeps=route.keeps)
        asked.fields = fields = read_query(route.in_path, values) if values else {}
        if route.query or request.scope["query_string"]:
            fields |= read_query(route.query, request.query())
        if route.body is not None:
            fields |= read_body(route.body, await _json(request, route.body_bytes_max))
        elif request.method not in ("GET", "HEAD"):
            await request.body()  # what nobody wants has to be there, and to have an end
        return await route.handler(self._service, Call(request, caller, usage, fields))


async def _json(request: Request, bytes_max: int) -> bytes:
    """The body, if it says that it is JSON: a web page of a stranger can't send that without asking first."""
    kind = request.header(b"content-type") or ""
    if kind.partition(";")[0].strip().lower() != JSON_TYPE:
        raise Problem(Code.UNSUPPORTED_TYPE, f"send the body as Content-Type: {JSON_TYPE}")
    return await request.body(bytes_max)


async def _only_its_head(stream: Stream) -> Answer:
    await stream.close()
    return Answer(stream.status, b"", "text/event-stream")


def _told(problem: Problem, asked: Asked) -> Answer:
    asked.problem = problem.code
    return problem.answer()
