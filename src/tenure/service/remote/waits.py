"""Waits of remote clients, one stream for each client, and the handles by which clients name tickets.

A client opens a stream, and then registers waits for it: for tickets to change, or for any line below a prefix. Behind
each wait is a signal of the store; when it is set the stream names the wait once, and the client looks. A wait that
can't be kept is named at once: to wake too early is always right, to miss a change never. The end of the stream ends
its waits.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure._core.base.signals import Signal
from tenure._core.lease import Ticket
from tenure.service.auth.tokens import Tenant
from tenure.service.http.problems import Problem, ProblemCode
from tenure.service.limits import WAITS_OF_STREAM_MAX

_NAMED_AT_ONCE_MAX: Final = 1000


class WaitStream:
    """A stream and its waits. Belongs to the event loop; signals may be set by any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waits: dict[int, Signal | None] = {}
        self._news: list[int] = []
        self.over: bool = False
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waits)

    def wait_for(self, number: int, signal: Signal) -> None:
        """Register a wait, which is over when the signal is set."""
        if self.over or number in self._waits or len(self._waits) >= WAITS_OF_STREAM_MAX:
            signal.close()
            self.wait_over(number)
            return
        self._waits[number] = signal
        signal.add_callback(lambda: self._soon(number))

    def drop(self, number: int) -> None:
        """Forget a wait for which the client waits no longer."""
        signal = self._waits.pop(number, None)
        if signal is not None:
            signal.close()

    def wait_over(self, number: int) -> None:
        """Put a wait among the news: the client has to look."""
        self.drop(number)
        self._news.append(number)
        self._woken.set()

    def wake(self) -> None:
        """Let `news` return."""
        self._woken.set()

    async def news(self, seconds: float) -> list[int]:
        """Return the waits that are over; none where none is within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return []
        numbers, self._news = self._news[:_NAMED_AT_ONCE_MAX], self._news[_NAMED_AT_ONCE_MAX:]
        if not self._news:
            self._woken.clear()
        return numbers

    def close(self) -> None:
        """End the stream, and give back all signals."""
        self.over = True
        for number in list(self._waits):
            self.drop(number)

    def _soon(self, number: int) -> None:
        try:
            self._loop.call_soon_threadsafe(self._fired, number)
        except RuntimeError:  # the loop has ended, and the service with it
            return

    def _fired(self, number: int) -> None:
        if number in self._waits:
            self.wait_over(number)


class WaitStreams:
    """The open streams of one replica, by tenant and by the name that the client made."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], WaitStream] = {}

    @contextmanager
    def opened(self, tenant: Tenant, name: str) -> Iterator[WaitStream]:
        """Yield a new stream of that name, which is closed at the end of the block."""
        key, stream = (tenant.name, name), WaitStream()
        before, self._open[key] = self._open.get(key), stream
        if before is not None:  # a second stream of that name: the first is one that nobody reads
            before.close()
            before.wake()
        try:
            yield stream
        finally:
            stream.close()
            if self._open.get(key) is stream:
                del self._open[key]

    def find(self, tenant: Tenant, name: str) -> WaitStream:
        """Return the open stream of that name. Raises Problem."""
        stream = self._open.get((tenant.name, name))
        if stream is None:
            raise Problem(ProblemCode.UNKNOWN_STREAM, "this stream is not open here; open another, and look again")
        return stream


_MAC_BYTES: Final = 16


class BrokenHandle(Exception):
    """The text is no handle of this replica, or one of another tenant."""


class TicketHandles:
    """Handles: the key of a ticket in the store, signed, so that a client can hand it back and make up none.

    A client that waits for tickets of others names them by handles from earlier answers. A handle is good for its own
    tenant, at this replica, for as long as the replica lives.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, tenant: Tenant, ticket: Ticket) -> str:
        """Make the handle of a ticket, whose line has the store's name."""
        facts = json.dumps((ticket.resource, ticket.id, ticket.key), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(tenant, facts) + facts).decode()

    def open(self, tenant: Tenant, handle: str) -> Ticket:
        """Return the ticket, with its line, id and key only. Raises BrokenHandle."""
        try:
            raw = base64.b64decode(handle, altchars=b"-_", validate=True)
        except ValueError:
            raise BrokenHandle from None
        mac, facts = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(tenant, facts)):
            raise BrokenHandle
        resource, ticket_id, key = json.loads(facts)
        return Ticket(resource, ticket_id, key, None)

    def _mac(self, tenant: Tenant, facts: bytes) -> bytes:
        keyed = hashlib.blake2b(facts, digest_size=_MAC_BYTES, key=self._secret, person=b"ticket")
        keyed.update(b"\0" + tenant.name.encode())
        return keyed.digest()
