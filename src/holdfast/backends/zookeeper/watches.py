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
from typing import Any, TypeAlias

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

from holdfast.backends.zookeeper.connection import Connection, Pending
from holdfast.signals import Signal

Seen: TypeAlias = Any  # a node's stat, None where it is gone, or a list of children
Changed: TypeAlias = Callable[[Seen], bool]


class _Node:
    """One armed watch and who waits for it."""

    def __init__(self) -> None:
        self.waiting: dict[Signal, Changed] = {}
        self.seen: Seen = None
        self.armed = False


class Watches:
    """The watches of one session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._guard = threading.RLock()  # guards everything below
        self._nodes: dict[tuple[str, bool], _Node] = {}

    @property
    def count(self) -> int:
        return len(self._nodes)

    def add(self, path: str, *, children: bool, changed: Changed, signal: Signal) -> Callable[[], None]:
        """Set `signal` when the node (or its children) changes, or now if `changed` says that it has already."""
        place = (path, children)
        with self._guard:
            node = self._nodes.get(place)
            fresh = node is None
            if node is None:
                node = self._nodes[place] = _Node()
            node.waiting[signal] = changed
            late = node.armed and changed(node.seen)
        if late:
            signal.set()
        elif fresh:
            self._arm(place, node)
        return lambda: self._drop(node, signal)

    def _drop(self, node: _Node, signal: Signal) -> None:
        with self._guard:
            node.waiting.pop(signal, None)

    def _arm(self, place: tuple[str, bool], node: _Node) -> None:
        path, children = place
        ask = self._connection.children if children else self._connection.get
        ask(path, watch=lambda _: self._fire(place, node)).rawlink(lambda result: self._armed(place, node, result))

    def _armed(self, place: tuple[str, bool], node: _Node, result: Pending) -> None:
        """The server's answer to the arming. On one of kazoo's threads: must not block."""
        _, children = place
        try:
            seen: Seen = result.get_nowait()
        except KazooException as error:
            if children and isinstance(error, NoNodeError):
                self._await_parent(place, node)
            elif not children and isinstance(error, NoAuthError):
                self._await_line(place, node)
            else:  # the ticket has left; or it failed, and may or may not be armed: a reason to look
                self._fire(place, node)
            return
        self._show(node, seen if children else seen[1])

    def _await_line(self, place: tuple[str, bool], node: _Node) -> None:
        """Another library's ticket, that only its owner may read: servers may tell nobody else what becomes of it, not
        even by `exists`. Its line tells of every change."""
        line, _, name = place[0].rpartition("/")

        def armed(result: Pending) -> None:
            if not result.successful() or name not in result.value:
                self._fire(place, node)

        self._connection.children(line, watch=lambda _: self._fire(place, node)).rawlink(armed)

    def _await_parent(self, place: tuple[str, bool], node: _Node) -> None:
        """There is no such node to list, so nothing is armed: watch for its creation."""
        self._show(node, [])
        self._connection.exists(place[0], watch=lambda _: self._fire(place, node)).rawlink(
            lambda result: self._parent_armed(place, node, result)
        )

    def _parent_armed(self, place: tuple[str, bool], node: _Node, result: Pending) -> None:
        if not result.successful() or result.value is not None:
            self._fire(place, node)  # it failed, or the node has come meanwhile

    def _show(self, node: _Node, seen: Seen) -> None:
        with self._guard:
            node.seen, node.armed = seen, True
            late = [signal for signal, changed in node.waiting.items() if changed(seen)]
        for signal in late:
            signal.set()

    def _fire(self, place: tuple[str, bool], node: _Node) -> None:
        with self._guard:
            if self._nodes.get(place) is node:
                del self._nodes[place]
            waiting, node.waiting = list(node.waiting), {}
        for signal in waiting:
            signal.set()
