"""Admission: who asks, whether they may, and how much of it."""

from __future__ import annotations

import ipaddress
from typing import Final

from holdfast.sidecar.auth import ANYBODY, Caller
from holdfast.sidecar.exchange import Request
from holdfast.sidecar.problems import Code, Problem, later
from holdfast.sidecar.routes import Route
from holdfast.sidecar.service import Service

CERTIFIED: Final = "holdfast.certified"
"""The extension of an ASGI scope that tells whom a client's certificate names."""
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


def admit(service: Service, request: Request, route: Route) -> Caller:
    """The caller, who may use the route. Raises Problem (401, 403, 429), Malformed."""
    if route.scope is None or service.tokens is None:
        certified = request.scope.get("extensions", {}).get(CERTIFIED)
        return ANYBODY if certified is None else Caller(certified["name"], ANYBODY.tenant, ANYBODY.scopes)
    caller = service.tokens.find(_token(service, request))
    if caller is None:
        raise _refused(service, request, "this token is not known")
    if route.scope not in caller.scopes:
        raise Problem(Code.FORBIDDEN, f"this needs a token with the scope {route.scope.value!r}")
    return caller


def check_host(request: Request) -> None:
    """A service that asks for no token is there for programs on its own machine, and for no page in a browser there.

    Raises Problem (403), Malformed.
    """
    host = request.header(b"host")
    if request.peer == "unix" or host is None or _is_local(host):
        return
    raise Problem(
        Code.FORBIDDEN_HOST, "this service asks for no token, so it answers to localhost and loopback addresses only"
    )


def _token(service: Service, request: Request) -> str:
    header = request.header(b"authorization")
    if header is None:
        raise _refused(service, request, "send a token: Authorization: Bearer …")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _refused(service, request, "send a bearer token: Authorization: Bearer …")
    return token.strip()


def _refused(service: Service, request: Request, detail: str) -> Problem:
    """From one address only so many are answered one by one: whoever guesses is not served for it."""
    wait = service.limits.failure(request.peer)
    if wait:
        return later(Code.RATE_LIMITED, "too many requests without a valid token came from this address", wait)
    return Problem(Code.UNAUTHORIZED, detail, headers=_CHALLENGE)


def _is_local(host: str) -> bool:
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    name = (name if name and port.isdecimal() else host).strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
