"""Watches on nodes: at most one of ZooKeeper's on a node, however many wait for it.

ZooKeeper's watches are one-shot and kazoo can't take one back, so a waiter that gives up would leave
its callback behind until the node changes. Here all waiters of a node share one watch; one that gives
up is forgotten. A waiter that comes later is compared with what the watch was armed on: it may have
read its line before that.

A ticket is watched by reading it, not by `exists`: that arms a watch on a node that is gone as well, and as a
ticket's name never comes back, the server and kazoo would keep it as long as the session lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

from tenure._backends.zookeeper.connection import Pending, ZooKeeperSession
from tenure._core.base.signals import Signal

Seen: TypeAlias = Any  # a ticket's version, None where it is gone; or a list of children
Changed: TypeAlias = Callable[[Seen], bool]


class ArmedWatch:
    """An armed watch and the signals that wait for it; kazoo calls it. A session may have 10,000 of them."""

    __slots__ = ("armed", "children", "path", "seen", "waiting", "watches")

    def __init__(self, watches: Watches, path: str, *, children: bool) -> None:
        self.watches = watches
        self.path = path
        self.children = children
        self.waiting: dict[Signal, Changed] = {}
        self.seen: Seen = None
        self.armed = False

    def __call__(self, _event: object) -> None:
        self.watches._fire(self)


class Watches:
    """The watches of one session."""

    def __init__(self, connection: ZooKeeperSession) -> None:
        self._connection = connection
        self._guard = threading.RLock()  # guards everything below
        self._tickets: dict[str, ArmedWatch] = {}
        self._lines: dict[str, ArmedWatch] = {}

    @property
    def count(self) -> int:
        return len(self._tickets) + len(self._lines)

    def add(self, path: str, *, children: bool, changed: Changed, signal: Signal) -> ArmedWatch:
        """Set `signal` when the node (or its children) changes, or now if `changed` says that it has already.

        What it returns is for `drop`.
        """
        nodes = self._lines if children else self._tickets
        with self._guard:
            node = nodes.get(path)
            fresh = node is None
            if node is None:
                node = nodes[path] = ArmedWatch(self, path, children=children)
            node.waiting[signal] = changed
            late = node.armed and changed(node.seen)
        if late:
            signal.set()
        elif fresh:
            self._arm(node)
        return node

    def drop(self, watched: ArmedWatch, signal: Signal) -> None:
        """Have the watch not set that signal any more."""
        with self._guard:
            watched.waiting.pop(signal, None)

    def _arm(self, node: ArmedWatch) -> None:
        ask = self._connection.children if node.children else self._connection.get
        ask(node.path, watch=node).rawlink(partial(self._armed, node))

    def _armed(self, node: ArmedWatch, result: Pending) -> None:
        """Take the server's answer to the arming. On one of kazoo's threads: must not block."""
        try:
            seen: Seen = result.get_nowait()
        except KazooException as error:
            if node.children and isinstance(error, NoNodeError):
                self._await_parent(node)
            elif not node.children and isinstance(error, NoAuthError):
                self._await_line(node)
            else:  # the ticket has left; or it failed, and may or may not be armed: a reason to look
                self._fire(node)
            return
        self._show(node, seen if node.children else seen[1].version)

    def _await_line(self, node: ArmedWatch) -> None:
        """Watch the line of another library's ticket that only its owner may read: servers may tell nobody else what
        becomes of it, not even by `exists`. The line reports every change."""
        line, _, name = node.path.rpartition("/")

        def armed(result: Pending) -> None:
            if not result.successful() or name not in result.value:
                self._fire(node)

        self._connection.children(line, watch=node).rawlink(armed)

    def _await_parent(self, node: ArmedWatch) -> None:
        """Watch for the creation of a node that is not there: nothing is armed by listing it."""
        self._show(node, [])
        self._connection.exists(node.path, watch=node).rawlink(partial(self._parent_armed, node))

    def _parent_armed(self, node: ArmedWatch, result: Pending) -> None:
        if not result.successful() or result.value is not None:
            self._fire(node)  # it failed, or the node has come meanwhile

    def _show(self, node: ArmedWatch, seen: Seen) -> None:
        with self._guard:
            node.seen, node.armed = seen, True
            late = [signal for signal, changed in node.waiting.items() if changed(seen)]
        for signal in late:
            signal.set()

    def _fire(self, node: ArmedWatch) -> None:
        nodes = self._lines if node.children else self._tickets
        with self._guard:
            if nodes.get(node.path) is node:
                del nodes[node.path]
            waiting, node.waiting = list(node.waiting), {}
        for signal in waiting:
            signal.set()
