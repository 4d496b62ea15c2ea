"""Refusals of the service, all in one table, as problem details (RFC 9457).

    {"type": "urn:tenure:hold-gone", "title": …, "status": 410, "detail": …, "code": "hold-gone",
     "happened": "no", "retry": false}

`code` is stable. `happened` says whether the request may have been carried out all the same; `retry`, whether the same
request may succeed if it is sent again. `detail` is a sentence for people, and may change.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tenure import errors
from tenure.service.http.request import HttpResponse

PROBLEM_TYPE: Final = "application/problem+json"


class ProblemCode(enum.Enum):
    """A refusal by its stable name: status, title, and the cases in which it comes, for the documentation."""

    status: int
    title: str
    about: str

    def __new__(cls, name: str, status: int, title: str, about: str) -> ProblemCode:
        """Make a member whose value is its name on the wire."""
        code = object.__new__(cls)
        code._value_ = name
        code.status, code.title, code.about = status, title, about
        return code

    BAD_REQUEST = ("bad-request", 400, "The request can't be read", "HTTP, a path, a header or JSON that is none.")
    INVALID_FIELD = ("invalid-field", 400, "A field is wrong", "Missing, unknown, of the wrong type or out of range.")
    UNAUTHORIZED = ("unauthorized", 401, "A valid token is needed", "No bearer token, or one that is not known.")
    FORBIDDEN = ("forbidden", 403, "This token may not do that", "The token lacks the scope that the request needs.")
    FORBIDDEN_HOST = (
        "forbidden-host",
        403,
        "Not under this name",
        "The service answers to loopback, the address where it listens and the names of `--host`: a web page could "
        "otherwise reach it under a name of its own.",
    )
    FORBIDDEN_SITE = ("forbidden-site", 403, "Not from another site", "A browser sent it for a page of another site.")
    NOT_FOUND = ("not-found", 404, "There is nothing here", "No such path.")
    UNKNOWN_HOLD = ("unknown-hold", 404, "No such hold", "Not the id of a hold, or of one that is not yours.")
    UNKNOWN_STREAM = ("unknown-stream", 404, "No such stream", "Not open here (any more): open another.")
    UNKNOWN_ELECTION = ("unknown-election", 404, "No candidate there", "This service does not stand in that election.")
    NOBODY_THERE = ("nobody-there", 404, "Nobody stands in the line", "A force release where the line is empty.")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "Not with this method", "`Allow` says with which.")
    TOO_SLOW = ("too-slow", 408, "The request came too slowly", "Headers or body did not arrive in time.")
    WRONG_TOKEN = ("wrong-token", 409, "No ticket of that token", "A force release: others stand in the line.")
    NOT_ACQUIRED = ("not-acquired", 409, "Not acquired", "Its turn did not come in time; nothing is left behind.")
    LINE_MISMATCH = ("line-mismatch", 409, "In use as something else", "The name is used with other slots or kind.")
    KEY_SPENT = ("key-spent", 409, "What this key got is over", "The hold of this Idempotency-Key has ended.")
    HOLD_GONE = ("hold-gone", 410, "The hold is over", "Released, expired or forced out. It never comes back.")
    LEASE_GONE = ("lease-gone", 410, "The lease is over", "Closed, not renewed in time, or ended by the store.")
    TOO_LARGE = ("too-large", 413, "The body is too large", "More bytes than are taken.")
    UNSUPPORTED_TYPE = ("unsupported-type", 415, "Not JSON", "Bodies are sent as `Content-Type: application/json`.")
    HELD_ELSEWHERE = (
        "held-elsewhere",
        421,
        "Another replica keeps this hold",
        "On ZooKeeper a hold belongs to the replica that got it; `Location` is where to send the same request.",
    )
    LEASE_ELSEWHERE = (
        "lease-elsewhere",
        421,
        "Another replica has it",
        "A lease stays with the replica that opened it.",
    )
    KEY_REUSED = ("key-reused", 422, "The key stands for another request", "An Idempotency-Key of a different request.")
    LEASE_REFUSED = ("lease-refused", 422, "No such lease is granted", "A lock delay that the store does not grant.")
    RATE_LIMITED = ("rate-limited", 429, "Too many requests", "More requests a second than this tenant may send.")
    TOO_MANY_HOLDS = ("too-many-holds", 429, "Too many holds", "This tenant has as many at this service as it may.")
    TOO_MANY_WAITING = ("too-many-waiting", 429, "Too many wait", "As many requests of this tenant wait as may.")
    TOO_MANY_LEASES = ("too-many-leases", 429, "Too many leases", "Clients of this tenant have as many as may be.")
    TOO_MANY_STREAMS = ("too-many-streams", 429, "Too many streams", "As many of this tenant are open as may be.")
    HEAD_TOO_LARGE = ("head-too-large", 431, "The headers are too large", "More bytes than are taken.")
    INTERNAL = ("internal", 500, "A defect of the service", "It has been logged; please report it.")
    STORE_REFUSED = ("store-refused", 502, "The store refuses", "Quota, permissions, TLS: for who runs the service.")
    STORE_UNAVAILABLE = ("store-unavailable", 503, "The store does not answer", "Whether it was done may be unknown.")
    STORE_WENT_BACK = ("store-went-back", 503, "The store lost history", "It was restored or replaced.")
    PLACE_LOST = ("place-lost", 503, "The place in the line was lost", "While waiting. Ask again.")
    DRAINING = ("draining", 503, "The service is shutting down", "Ask another replica, or the same one later.")


OF_THE_STORE: Final = (ProblemCode.STORE_REFUSED, ProblemCode.STORE_UNAVAILABLE, ProblemCode.STORE_WENT_BACK)
"""The refusals for which the store may be the reason, in any route that asks it."""


class Problem(Exception):
    """A refusal on its way to the client."""

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        *,
        happened: str = "no",
        retry: bool = False,
        headers: Mapping[str, str] = {},
        more: Mapping[str, object] = {},
    ) -> None:
        super().__init__(detail)
        self.more = more
        self.code = code
        self.detail = detail
        self.happened = happened
        self.retry = retry
        self.headers = headers

    def answer(self) -> HttpResponse:
        """Make the HTTP response."""
        body = {
            "type": f"urn:tenure:{self.code.value}",
            "title": self.code.title,
            "status": self.code.status,
            "detail": self.detail,
            "code": self.code.value,
            "happened": self.happened,
            "retry": self.retry,
            **self.more,
        }
        return HttpResponse(
            self.code.status, json.dumps(body).encode(), PROBLEM_TYPE, {**self.headers}, self.code.value
        )


def later(code: ProblemCode, detail: str, seconds: float = 1.0, *, happened: str = "no") -> Problem:
    """Make a refusal that will not last, with Retry-After."""
    wait = str(max(1, math.ceil(seconds)))
    return Problem(code, detail, happened=happened, retry=True, headers={"Retry-After": wait})


@dataclass(frozen=True, slots=True)
class _ErrorProblem:
    code: ProblemCode
    detail: str | None = None
    """None: the error's own text. Errors of the store name its addresses, which are not for every tenant."""
    lasting: bool = True


_BY_ERROR: Final[Mapping[type[errors.TenureError], _ErrorProblem]] = {
    # The entry of the nearest class above an error is used.
    errors.TenureError: _ErrorProblem(ProblemCode.INTERNAL, "a defect of the service; it has been logged"),
    errors.UsageError: _ErrorProblem(ProblemCode.INVALID_FIELD),
    errors.LeaseLost: _ErrorProblem(
        ProblemCode.PLACE_LOST, "the place in the line was lost while waiting; ask again", lasting=False
    ),
    errors.LineMismatch: _ErrorProblem(
        ProblemCode.LINE_MISMATCH,
        "this name is in use with another number of slots, or as another kind of thing. Nothing was acquired: give the "
        "same slots as the others do, or use another name",
    ),
    errors.ClientClosed: _ErrorProblem(
        ProblemCode.DRAINING, "this service is shutting down; ask another replica", lasting=False
    ),
    errors.StoreError: _ErrorProblem(ProblemCode.STORE_REFUSED, "the store refuses; the service's log says why"),
    errors.StoreUnavailable: _ErrorProblem(
        ProblemCode.STORE_UNAVAILABLE,
        "the store did not answer in time; the service's log says more",
        lasting=False,
    ),
    errors.StoreWentBack: _ErrorProblem(
        ProblemCode.STORE_WENT_BACK, "the store lost history: it was restored or replaced. The service's log says more"
    ),
}


def of_error(error: errors.TenureError, *, reads: bool) -> Problem:
    """Make the refusal for one of the library's errors, of a request that only reads or of another."""
    problem = next(found for kind in type(error).__mro__ if (found := _BY_ERROR.get(kind)) is not None)
    detail = str(error) if problem.detail is None else problem.detail
    happened = "no" if reads else error.happened
    if happened == "unknown":
        detail += "; whether it was done is unknown"
    if not problem.lasting:
        return later(problem.code, detail, happened=happened)
    return Problem(problem.code, detail, happened=happened)
