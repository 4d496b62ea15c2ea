"""Removal of empty lines (law 12): a line's node goes with its last ticket.

It is a container, so the server removes it in time even if nobody here lives to do it. We don't wait for
that: a line that was not used for a while is removed if it is empty, a busy one is left in place, and
closing removes what there is. ZooKeeper itself refuses to delete a node that is not empty.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from itertools import islice
from typing import Final

from kazoo.exceptions import KazooException, NoNodeError

from tenure._backends.zookeeper.connection import Pending, ZooKeeperSession
from tenure._core.base.clock import Clock, Timer
from tenure._core.base.limits import REQUESTS_AT_ONCE_MAX, TICKET_WATCH_AFTER
from tenure._core.base.validation import keys_root
from tenure.errors import TenureError

_SWEEP_AFTER: Final = 4 * TICKET_WATCH_AFTER


class Sweeper:
    """The nodes that one session has made, and their removal."""

    def __init__(self, connection: ZooKeeperSession, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._guard = threading.RLock()  # guards everything below
        self._nodes: dict[str, str] = {}  # my tickets' nodes, by id
        self._entering: dict[str, str] = {}  # lines of tickets whose nodes are not known yet, by id
        self._lines: dict[str, float] = {}  # when each was last used
        self._timer: Timer | None = None
        self._over = False

    def entering(self, ticket_id: str, line: str) -> None:
        """Record that a node is about to be made in `line`."""
        with self._guard:
            self._entering[ticket_id] = line
            self._lines[line] = self._clock.now()

    def entered(self, ticket_id: str, node: str | None) -> None:
        """Record the node that was made, or that none was."""
        with self._guard:
            self._entering.pop(ticket_id, None)
            if node is not None:
                self._nodes[ticket_id] = node
        self._sweep_later()

    def left(self, ticket_id: str) -> None:
        """Forget a node that its owner removes, or somebody else has removed."""
        self._nodes.pop(ticket_id, None)

    def stop(self) -> None:
        """Stop sweeping: the session is over, and nothing is ours any more."""
        with self._guard:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()

    def send_removals(self) -> None:
        """Send the removal of tickets before anything else is asked: whoever waits for them must not wait for the rest.

        Returns at once, and so sends no more than may be on their way together; `remove_all` sees to what is left.
        """
        with self._guard:
            nodes = list(islice(self._nodes.items(), REQUESTS_AT_ONCE_MAX))
        for ticket_id, node in nodes:
            self._connection.delete(node).rawlink(lambda answer, of=ticket_id: self._removed(of, answer))

    def _removed(self, ticket_id: str, answer: Pending) -> None:
        """Forget a ticket whose node is gone. On one of kazoo's threads."""
        if answer.successful() or isinstance(answer.exception, NoNodeError):
            self.left(ticket_id)

    def remove_all(self, namespace: str, made: Collection[str], until: float) -> None:
        """Remove tickets that still stand, then their lines, then what was `made` of the namespace. Best effort."""
        with self._guard:
            nodes, lines, entering = list(self._nodes.values()), list(self._lines), dict(self._entering)
        nodes += self._arrived(entering, until)
        parents = keys_root(namespace).rstrip("/").split("/")
        above = ["/" + "/".join(parts) for parts in (parents[:i] for i in range(len(parents), 0, -1))]
        above = [path for path in above if path in made]
        requests = [self._connection.delete(path) for path in (*nodes, *lines, *above)]
        for request in requests:
            try:
                self._connection.ask(until, request)
            except KazooException:
                continue  # not empty, or gone already
            except TenureError:
                return

    def _arrived(self, entering: dict[str, str], until: float) -> list[str]:
        """Find the nodes of tickets that were entering when the end came: requests sent before are answered before."""
        found: list[str] = []
        for line in set(entering.values()):
            try:
                children: list[str] = self._connection.ask(until, self._connection.children(line))[0]
            except (KazooException, TenureError):
                continue
            found += [f"{line}/{c}" for c in children if any(c.startswith(f"_c_{i}-") for i in entering)]
        return found

    def _sweep_later(self) -> None:
        with self._guard:
            if self._timer is None and not self._over:
                self._timer = self._clock.schedule(self._clock.now() + _SWEEP_AFTER, self._sweep)

    def _sweep(self) -> None:
        """Remove the lines not used for a while. On the clock's thread: sends, and does not wait."""
        now = self._clock.now()
        with self._guard:
            self._timer = None
            used = {node.rpartition("/")[0] for node in self._nodes.values()} | set(self._entering.values())
            idle = [line for line, at in self._lines.items() if line not in used and now - at >= _SWEEP_AFTER]
            for line in idle:
                del self._lines[line]
        for line in idle:
            self._connection.delete(line)  # not empty, not there, not connected: all the same here
        if self._lines:
            self._sweep_later()
