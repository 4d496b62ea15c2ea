"""The dashboard at /ui/: the files of the page, as they are in `ui/`. What it shows, it asks of everybody's routes.

No token is needed for the files: nothing in them is secret. They are read once, and served by their exact names: there
is no path to climb. The policy lets nothing run but these files, from this service, and lets text be text only: a name
that is markup would not become any, even if the page had a defect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from holdfast.sidecar.exchange import Send
from holdfast.sidecar.fields import Field, Text
from holdfast.sidecar.problems import Code, Problem
from holdfast.sidecar.routes import Call, Handler, Reply, Route
from holdfast.sidecar.service import Service

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
    (b"cache-control", b"no-cache"),  # asked for again each time, and sent again only when it is another one
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page."""

    body: bytes
    type: str
    tag: str
    """Its entity tag: another one for other bytes."""


@dataclass(slots=True)
class Page:
    """An answer with a file in it, or with none: 304."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    code: str | None = None

    async def send(self, send: Send, *, close: bool = False) -> None:
        """Send it. With `close` the connection ends behind it."""
        headers = [*self.headers, *([(b"connection", b"close")] if close else [])]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


async def to_page(service: Service, call: Call) -> Reply:
    """The page is there. The place is relative, as a proxy may have put all of this below a path of its own."""
    return Page(307, b"", ((b"location", b"ui/"), (b"content-length", b"0"), *_HEADERS))


async def page(service: Service, call: Call) -> Reply:
    """One of its files."""
    file = FILES.get(call.fields.get("file", _INDEX))
    if file is None:
        raise Problem(Code.NOT_FOUND, "the dashboard has no such file; it is at /ui/")
    headers = (*_HEADERS, (b"etag", file.tag.encode()))
    if file.tag in _tags(call.request.header(b"if-none-match") or ""):
        return Page(304, b"", headers)
    told = ((b"content-type", file.type.encode()), (b"content-length", b"%d" % len(file.body)))
    return Page(200, file.body, (*told, *headers))


def _tags(header: str) -> set[str]:
    """Weak ones count like strong ones here (RFC 9110, 13.1.2)."""
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _read() -> dict[str, File]:
    found = {}
    for path in files("holdfast.sidecar").joinpath("ui").iterdir():
        body = path.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        found[path.name] = File(body, _TYPES[path.name.rpartition(".")[2]], tag)
    return found


FILES: Final = _read()
"""By name."""

_FILE: Final = Field("file", Text(64, least=1), "One of its files.")


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
