"""Fences over HTTP: an ASGI middleware that refuses stale holders, and hooks by which httpx sends fences.

    app = FencingMiddleware(app, line=line_name("billing", "ledger"))                                 # the server
    httpx.Client(event_hooks=fenced(hold)), httpx.AsyncClient(event_hooks=afenced(hold))              # the client

What it promises. Once a request with a younger fence was claimed, reads included, no older one reaches the app, and
none that had reached it still runs when the younger one does: claim, then drain, then the app.

What it does not.
- The drain sees the requests that pass one middleware object: one process, one event loop. ProcessGuard remembers
  in this process, and a restart forgets. With several worker processes, or restarts that matter, give a guard whose
  memory is shared, or hand `fence_of(scope)` to the database's guard in the transaction that writes. Only the latter
  closes the gap between processes.
- A request ends when the app's call does. A thread or task that the app leaves running is not waited for.
- A fence is no credential: whoever may send one can depose everybody. Authenticate outside of this middleware.
- GET, HEAD, OPTIONS and TRACE pass without a fence, and so does what `methods` leaves out where it is given. Rewrite
  methods (overrides) outside of it, too.
- StaleToken from inside the app becomes a 409 only where it comes out of the app. A handler that turns it into an
  answer has answered; one that sends 500 and raises it again, as Starlette's outermost does, is no matter.
- A long-lived socket can't be fenced by one header: a WebSocket on a protected line is refused.

Refusals are problem details (RFC 9457). Nothing of a refused request was passed to the app. Their `type`s:

    urn:tenure:fence-required      428  the header is missing
    urn:tenure:invalid-fence       400  it is no fence, or came twice
    urn:tenure:stale-token         409  a younger holder was seen; members `offered` and `seen` are the fences
    urn:tenure:other-line          409  it is a fence of another line
    urn:tenure:guard-busy          503  requests of an older holder did not end in time; Retry-After
    urn:tenure:guard-unavailable   503  the guard failed: without its answer nothing passes; Retry-After
    urn:tenure:websocket-refused   403  where the server can answer a WebSocket so, else it is closed with 1008

The answer to a HEAD has no body, so a header has it as well: `Fencing-Problem: {"type": …, "offered": …, "seen": …}`.
Where the fences would make it too long it has the type only.

asyncio only. No web framework is imported, and httpx only where `origins` are given.

Reading order:

    asgi          ASGI's types, the header, and refusals as problem details
    traffic       ProcessGuard; the requests that run in this process
    middleware    the server's side
    client        the hooks
"""

from tenure.fencing._fence import FencedHold
from tenure.fencing.http.asgi import HEADER, PROBLEM_HEADER, App, Message, Receive, Scope, Send
from tenure.fencing.http.client import (
    afence_requests,
    afenced,
    araise_for_fencing,
    fence_requests,
    fenced,
    raise_for_fencing,
)
from tenure.fencing.http.middleware import READS, FencingMiddleware, Guard, fence_of
from tenure.fencing.http.traffic import ProcessGuard

__all__ = [
    "HEADER",
    "PROBLEM_HEADER",
    "READS",
    "App",
    "FencingMiddleware",
    "Guard",
    "FencedHold",
    "Message",
    "ProcessGuard",
    "Receive",
    "Scope",
    "Send",
    "afence_requests",
    "afenced",
    "araise_for_fencing",
    "fence_of",
    "fence_requests",
    "fenced",
    "raise_for_fencing",
]
