"""ASGI's types, the header that both sides agree on, and refusals as problem details (RFC 9457), written and read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tenure.errors import (
    FenceMismatch,
    GuardBusy,
    InvalidFence,
    InvalidOption,
    StaleToken,
    StoreUnavailable,
    TenureError,
    UsageError,
)

# Any: what ASGI passes around are dictionaries of anything.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER: Final = "Fencing-Token"
"""The header that carries `str(hold.fence)`, unless both sides are given another."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}\Z")


def header_name(header: str) -> str:
    """`header`, if it can be the name of one. Raises InvalidOption."""
    if not isinstance(header, str) or not _HEADER_NAME.match(header):
        raise InvalidOption(f"not the name of a header: {str(header)[:60]!r}")
    return header


if TYPE_CHECKING:
    import httpx

PROBLEM_HEADER: Final = "Fencing-Problem"
"""The header of a refusal with its `type`, `offered` and `seen`, for answers without a body."""
_PROBLEM_CHARACTERS_MAX: Final = 1024  # some proxies take 4 KiB for all headers together
_RETRY_AFTER: Final = (b"retry-after", b"1")


class FenceRequired(UsageError):
    """The request brings no fence."""


class SocketRefused(UsageError):
    """A WebSocket on a protected line."""


_STALE: Final = "urn:tenure:stale-token"
_OTHER_LINE: Final = "urn:tenure:other-line"
_BUSY: Final = "urn:tenure:guard-busy"
_PROBLEMS: Final[Mapping[type[TenureError], tuple[str, int, str]]] = {
    FenceRequired: ("urn:tenure:fence-required", 428, "A fencing token is required"),
    InvalidFence: ("urn:tenure:invalid-fence", 400, "Not a fencing token"),
    StaleToken: (_STALE, 409, "The fencing token is stale"),
    FenceMismatch: (_OTHER_LINE, 409, "A fencing token of another line"),
    GuardBusy: (_BUSY, 503, "An older holder's requests are still running"),
    StoreUnavailable: ("urn:tenure:guard-unavailable", 503, "The fencing token could not be checked"),
    SocketRefused: ("urn:tenure:websocket-refused", 403, "A WebSocket can't be fenced"),
}
REFUSALS: Final = tuple(_PROBLEMS)


async def answer(error: TenureError, send: Send, prefix: str = "http.response") -> None:
    """Send the refusal that `error` is; it is one of REFUSALS."""
    kind, status, title = next(facts for of, facts in _PROBLEMS.items() if isinstance(error, of))
    problem = {"type": kind, "title": title, "status": status, "detail": str(error)}
    if isinstance(error, StaleToken):
        problem |= {"offered": error.offered, "seen": error.seen}
    body = json.dumps(problem).encode("ascii")
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (PROBLEM_HEADER.lower().encode("ascii"), _in_header(problem).encode("ascii")),
        (b"cache-control", b"no-store"),  # RFC 6585 forbids to store a 428; no refusal is true for long
        *([_RETRY_AFTER] if status == 503 else []),
    ]
    await send({"type": f"{prefix}.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})


def _in_header(problem: Mapping[str, object]) -> str:
    """Shorten a problem for its header. JSON is ASCII in one line: whatever a guard or an app put into its error, no"""
    short = json.dumps({name: problem[name] for name in ("type", "offered", "seen") if name in problem})
    return short if len(short) <= _PROBLEM_CHARACTERS_MAX else json.dumps({"type": problem["type"]})


def may_be_ours(response: httpx.Response) -> bool:
    """Tell whether to read the body: only our own refusals are worth it."""
    kind: str = response.headers.get("content-type", "")
    is_problem = kind.split(";")[0].strip().lower() == "application/problem+json" or PROBLEM_HEADER in response.headers
    return is_problem and response.status_code in (409, 503)


def raise_problem(response: httpx.Response) -> None:
    """Raise what was refused. The response has been read. Raises StaleToken, FenceMismatch, GuardBusy."""
    # the header's word counts: a gateway that replaced the body has no part in the decision about the fence
    problem = _members(response.content) | _members(response.headers.get(PROBLEM_HEADER, ""))
    kind, offered, seen = problem.get("type"), str(problem.get("offered", "")), str(problem.get("seen", ""))
    detail = str(problem.get("detail") or f"the server refused the fence {offered}: {kind}, seen {seen or 'unknown'}")
    if kind == _STALE:
        raise StaleToken(detail, offered=offered, seen=seen)
    if kind == _OTHER_LINE:
        raise FenceMismatch(detail)
    if kind == _BUSY:
        raise GuardBusy(detail)


def _members(text: str | bytes) -> dict[str, object]:
    """Read the members of a JSON object; none of anything else: then it is not what its type says, so not ours."""
    try:
        problem = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}
