"""The dashboard at /ui/: the files of the page, as they are in `ui/`. The page uses the routes that everybody uses.

No token is needed for the files: nothing in them is secret. They are read once, and served by their exact names, so
that no path leads out of the folder. The policy lets only these files run, from this service, and keeps text from
becoming markup: a hostile name could not run even if the page had a defect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from tenure.service.http.fields import Field, Text
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.http.request import Send
from tenure.service.http.routing import Handler, Route, RouteCall, RouteReply
from tenure.service.service import Service

_INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = (
    (b"cache-control", b"no-cache"),  # asked for each time, and sent again only when it has changed
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page."""

    body: bytes
    type: str
    tag: str
    """The entity tag: a hash of the bytes."""


@dataclass(slots=True)
class DashboardPage:
    """An answer with a file, a redirection, or 304 without a body."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    code: str | None = None

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send the answer. With `close` the connection ends after it."""
        headers = [*self.headers, *([(b"connection", b"close")] if close else [])]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


async def to_page(service: Service, call: RouteCall) -> RouteReply:
    """Redirect to the page. The location is relative: a proxy may have put the service below a path of its own."""
    return DashboardPage(307, b"", ((b"location", b"ui/"), (b"content-length", b"0"), *_HEADERS))


async def page(service: Service, call: RouteCall) -> RouteReply:
    """Answer with one of the files."""
    file = FILES.get(call.fields.get("file", _INDEX))
    if file is None:
        raise Problem(ProblemCode.NOT_FOUND, "the dashboard has no such file; it is at /ui/")
    headers = (*_HEADERS, (b"etag", file.tag.encode()))
    known = (call.request.header(b"if-none-match") or "").split(",")
    if file.tag in {tag.strip().removeprefix("W/") for tag in known}:  # weak ones count there, too (RFC 9110, 13.1.2)
        return DashboardPage(304, b"", headers)
    of_file = ((b"content-type", file.type.encode()), (b"content-length", b"%d" % len(file.body)))
    return DashboardPage(200, file.body, (*of_file, *headers))


def _read() -> dict[str, File]:
    found = {}
    for path in files("tenure.service").joinpath("ui").iterdir():
        body = path.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        found[path.name] = File(body, _TYPES[path.name.rpartition(".")[2]], tag)
    return found


FILES: Final = _read()
"""The files by name."""

_FILE: Final = Field("file", Text(64, minimum=1), "One of its files.")


def _route(path: str, handler: Handler, summary: str, *parameters: Field) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        scope=None,
        name="dashboard",
        tag="dashboard",
        summary=summary,
        about="For browsers.",
        parameters=parameters,
        answer="",
        answer_about="A page, or a part of it.",
        media_type="text/html",
    )


ROUTES: Final = (
    _route("/", to_page, "To the dashboard"),
    _route("/ui", to_page, "To the dashboard"),
    _route("/ui/", page, "The dashboard"),
    _route("/ui/{file}", page, "A file of it", _FILE),
)
