"""Lines as exchanges with the server: create and list, find again, list, read whole.

Each is one try; what a failed one means, and whether to try again, is the lease's to say. A session's
requests are answered in order, so requests that belong together are sent back to back.
"""

from __future__ import annotations

import threading
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from tenure._backends.zookeeper import codec
from tenure._backends.zookeeper.connection import ZooKeeperSession
from tenure._core.lease import Entry, Line, Ticket
from tenure.errors import PermissionDenied, StoreWentBack


class ZooKeeperLines:
    """The lines under one namespace, seen over one session."""

    def __init__(self, namespace: str, connection: ZooKeeperSession, history: ZxidHistory) -> None:
        self._namespace = namespace
        self._connection = connection
        self._history = history
        self.made: set[str] = set()  # what this session created above its lines

    def path(self, resource: str) -> str:
        return codec.line_path(self._namespace, resource)

    def enter(self, entry: Entry, until: float) -> Line:
        """Create my node and list its siblings, in one exchange; with its parents where they are missing."""
        connection, path = self._connection, self.path(entry.resource)
        while True:
            minimum = self._history.highest
            created = connection.create_ticket(
                f"{path}/{codec.node_prefix(entry)}", codec.write_data(entry.owner, entry.value)
            )
            listed = connection.children_and_stat(path)
            try:
                (_, stat), (children, line) = connection.ask(until, created, listed)
            except NoNodeError:
                self.make_parents(path, until)
                continue
            self._history.check(stat.czxid, minimum)
            return self._with_mine(entry, children, line, stat.czxid)

    def find(self, entry: Entry, until: float) -> Line | None:
        """Find what an earlier try of `enter` left, whose answer was lost. The sync shows it even on another server."""
        connection, path = self._connection, self.path(entry.resource)
        try:
            _, (children, line) = connection.ask(until, connection.sync(path), connection.children_and_stat(path))
        except NoNodeError:
            return None
        mine = next((c for c in children if c.startswith(f"_c_{entry.id}-")), None)
        if mine is None:
            return None
        stat = connection.ask(until, connection.exists(f"{path}/{mine}"))[0]
        if stat is None or stat.ephemeralOwner != connection.session_id:
            return None
        return self._with_mine(entry, children, line, stat.czxid)

    def listed(self, resource: str, until: float) -> Line:
        """Read the line by its names: no tokens, no owners."""
        path = self.path(resource)
        try:
            children = self._connection.ask(until, self._connection.children(path))[0]
        except NoNodeError:
            children = []
        return Line(resource, codec.read_line(resource, path, children), 0)

    def survey(self, resource: str, front: int | None, until: float) -> Line:
        """Read the line, or its front, with the data of the nodes."""
        connection, path = self._connection, self.path(resource)
        try:
            _, children = connection.ask(until, connection.agreement(), connection.children(path))
        except NoNodeError:
            return Line(resource, (), 0)
        found: list[Ticket] = []
        waiting = codec.read_line(resource, path, children)
        size = len(waiting) if front is None else front
        while waiting and len(found) < size:
            batch, waiting = waiting[:size], waiting[size:]
            found += self._describe(batch, until)
        return Line(resource, tuple(found[:size]), 0)

    def _describe(self, tickets: tuple[Ticket, ...], until: float) -> list[Ticket]:
        """Read those of `tickets` that still stand, with the data of their nodes."""
        found = []
        requests = [self._connection.get(ticket.key) for ticket in tickets]
        for ticket, request in zip(tickets, requests, strict=True):
            try:
                data, stat = self._connection.ask(until, request)[0]
            except NoNodeError:
                continue  # it left between the listing and the reading
            found.append(codec.described(ticket, data, stat))
        return found

    def _with_mine(self, entry: Entry, children: list[str], line: Any, token: int) -> Line:  # Any: kazoo's stat
        """Make the line with our own ticket's token, which no listing shows. `line` is the stat of the line's node."""
        tickets = codec.read_line(entry.resource, self.path(entry.resource), children)
        position = next((i for i, t in enumerate(tickets) if t.id == entry.id), None)
        if position is None:
            return Line(entry.resource, (), 0)
        me = codec.mine(tickets[position], entry, token, codec.session_name(self._connection.session_id))
        return Line(entry.resource, (*tickets[:position], me), line.pzxid)

    def make_parents(self, path: str, until: float) -> None:
        """Create `path` and all above it as containers, where they are missing."""
        parts = path.split("/")[1:]
        requests = [self._connection.create_container("/" + "/".join(parts[: i + 1])) for i in range(len(parts))]
        for depth, request in enumerate(requests, 1):
            try:
                self._connection.ask(until, request)
                if depth < len(parts):
                    self.made.add("/" + "/".join(parts[:depth]))
            except (NodeExistsError, NoNodeError):
                continue  # there already; or its parent went with another client, and `enter` tries again
            except PermissionDenied:
                if depth == len(parts):  # above, what exists may be somebody else's to create
                    raise


class ZxidHistory:
    """Law 4 for ZooKeeper: tokens of later tickets are higher. A lower one shows that the store went back."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._guard = threading.RLock()  # guards the two below
        self._highest = 0
        self._broken = ""  # why, once it is; an error is made for each who asks: one would keep all their frames

    @property
    def highest(self) -> int:
        """The highest token seen so far. Read it before sending."""
        if self._broken:
            raise StoreWentBack(self._broken)
        return self._highest

    def check(self, token: int, minimum: int) -> None:
        with self._guard:
            if token <= minimum:
                self._broken = (
                    f"{self._store} gave token {token} after this client had seen {minimum}: it was restored or "
                    "replaced. Its tokens would repeat, so this client stops. Fence what it protected, then connect "
                    "anew."
                )
                raise StoreWentBack(self._broken)
            self._highest = max(self._highest, token)
