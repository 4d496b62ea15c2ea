"""The user's own keys in ZooKeeper, read and written only while a ticket stands (its node, whose name is unique).

A commit is one `multi` that begins with a check of the ticket's node. The check is of its data version as well:
touching the node makes sure that a commit whose answer was lost is not carried out later. A `multi` must
say of each node whether it creates or changes it, so a wrong guess is refused whole, and sent again with the
right one. Missing parents are created in the same `multi`, as plain nodes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion, Create, SetData
from kazoo.protocol.serialization import Delete as DeleteNode

from holdfast.backends.zookeeper.connection import Connection
from holdfast.errors import StoreUnavailable
from holdfast.lease import Committed, Compare, Delete, Fate, Put, Record, Ticket

_PERSISTENT: Final = 0
_ANY: Final = -1
_PLANS_MAX: Final = 32


class Guarded:
    """Exchanges about the user's own keys, over one session. Each verb is one try."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        """One exchange: the nodes, then a check of the ticket that the quorum decides."""
        requests = [self._connection.get(_path(key)) for key in keys]
        outcome = self._commit([CheckVersion(ticket.key, _ANY)], until)[0]
        if isinstance(outcome, NoNodeError):
            return None
        return tuple(self._record(key, request, until) for key, request in zip(keys, requests, strict=True))

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        """Plans until one fits what is there. Only the last of them can have been carried out."""
        plan = _Plan(ticket, compares, writes, self._connection.acl)
        for _ in range(_PLANS_MAX):
            outcomes = self._commit(plan.operations(), until)
            failed = next((i for i, outcome in enumerate(outcomes) if _is_reason(outcome)), None)
            if failed is None:
                return Committed(Fate.DONE, plan.versions(outcomes))
            if failed == 0:
                return self._ticket_failed(ticket, outcomes[0], until)
            match plan.learn(failed, outcomes[failed]):
                case _Lesson.DIFFERS:
                    return Committed(Fate.DIFFERS)
                case _Lesson.PARENTS:
                    plan.parents = self._missing(plan.wanted_parents(), until)
                case _Lesson.REFUSED:
                    raise self._connection.translated(outcomes[failed])
        raise StoreUnavailable(f"the nodes of the commit came and went {_PLANS_MAX} times while it was tried")

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        """The same data once more, as another version, unless somebody else did that."""
        try:
            data, stat = self._connection.ask(until, self._connection.get(ticket.key))[0]
            if ticket.version in (None, stat.version):
                stat = self._connection.ask(until, self._connection.set(ticket.key, data, stat.version))[0]
        except NoNodeError:
            return None
        except BadVersionError:  # amended meanwhile: moved on all the same
            return self._as_it_stands(ticket, until)
        return dataclasses.replace(ticket, version=stat.version)

    def _ticket_failed(self, ticket: Ticket, reason: Exception, until: float) -> Committed:
        if not isinstance(reason, (NoNodeError, BadVersionError)):
            raise self._connection.translated(reason)
        standing = self._as_it_stands(ticket, until)
        return Committed(Fate.GONE) if standing is None else Committed(Fate.AMENDED, ticket=standing)

    def _as_it_stands(self, ticket: Ticket, until: float) -> Ticket | None:
        stat = self._connection.ask(until, self._connection.exists(ticket.key))[0]
        return None if stat is None else dataclasses.replace(ticket, version=stat.version)

    def _missing(self, paths: Sequence[str], until: float) -> list[str]:
        stats = self._connection.ask(until, *map(self._connection.exists, paths)) if paths else []
        return [path for path, stat in zip(paths, stats, strict=True) if stat is None]

    def _commit(self, operations: Sequence[Any], until: float) -> list[Any]:
        outcomes: list[Any] = self._connection.ask(until, self._connection.commit(operations))[0]
        return outcomes

    def _record(self, key: str, request: Any, until: float) -> Record | None:
        try:
            data, stat = self._connection.ask(until, request)[0]
        except NoNodeError:
            return None
        return Record(key, data or b"", stat.version + 1)


class _Lesson(enum.Enum):
    """What a refused plan taught."""

    GUESS = "a node is there, or is not, against what was thought"
    PARENTS = "a parent is missing, or came meanwhile"
    DIFFERS = "a comparison does not hold"
    REFUSED = "the server will not have it"


class _Plan:
    """One commit as requests, for what is known of the nodes."""

    def __init__(self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], acl: Any) -> None:
        self._ticket = ticket
        # parents before their children come, and after they have gone
        self._puts = sorted((w for w in writes if isinstance(w, Put)), key=lambda w: _path(w.key).count("/"))
        self._deletes = sorted((w for w in writes if isinstance(w, Delete)), key=lambda w: -_path(w.key).count("/"))
        self._compares = {compare.key: compare.version for compare in compares}
        self._acl = acl
        self._absent = {key for key, version in self._compares.items() if version == 0}
        self._keys: list[str | None] = []  # which key each request is for; None for the ticket and for parents
        self.parents: list[str] = []

    def operations(self) -> list[Any]:
        """The ticket's check first, then parents, then each key's own."""
        written = {put.key for put in self._puts} | {gone.key for gone in self._deletes}
        version = _ANY if self._ticket.version is None else self._ticket.version
        planned: list[tuple[str | None, Any]] = [(None, CheckVersion(self._ticket.key, version))]
        planned += [(None, Create(parent, b"", self._acl, _PERSISTENT)) for parent in self.parents]
        planned += [(k, CheckVersion(_path(k), v - 1)) for k, v in self._compares.items() if k not in written]
        planned += [(put.key, self._put(put)) for put in self._puts]
        planned += [
            (gone.key, DeleteNode(_path(gone.key), self._version(gone.key)))
            for gone in self._deletes
            if gone.key not in self._absent
        ]
        self._keys = [key for key, _ in planned]
        return [operation for _, operation in planned]

    def versions(self, outcomes: Sequence[Any]) -> dict[str, int]:
        """The versions of what was put. The server counts from 0, we from 1; a created node is told by its path."""
        told = dict(zip(self._keys, outcomes, strict=True))
        return {p.key: 1 if isinstance(told[p.key], str) else told[p.key].version + 1 for p in self._puts}

    def learn(self, failed: int, reason: Exception) -> _Lesson:
        """Take in why the plan was refused."""
        key, missing = self._keys[failed], isinstance(reason, NoNodeError)
        if key is None:
            return _Lesson.PARENTS if missing or isinstance(reason, NodeExistsError) else _Lesson.REFUSED
        if key in self._absent and missing:
            return _Lesson.PARENTS
        if not isinstance(reason, (NoNodeError, NodeExistsError, BadVersionError)):
            return _Lesson.REFUSED
        if key in self._compares:
            return _Lesson.DIFFERS
        if missing:
            self._absent.add(key)
        else:
            self._absent.discard(key)
        return _Lesson.GUESS

    def wanted_parents(self) -> list[str]:
        """What has to be above the nodes that are to be created, from the root down."""
        puts = {_path(put.key) for put in self._puts}
        above = {parent for put in self._puts if put.key in self._absent for parent in _above(_path(put.key))}
        return sorted(above - puts, key=lambda path: path.count("/"))

    def _put(self, put: Put) -> Any:
        if put.key in self._absent:
            return Create(_path(put.key), put.value, self._acl, _PERSISTENT)
        return SetData(_path(put.key), put.value, self._version(put.key))

    def _version(self, key: str) -> int:
        return self._compares.get(key, 0) - 1


def _is_reason(outcome: Any) -> bool:
    """Is it why the whole was refused? The others of a refused whole are told as rolled back or as never tried."""
    return isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency))


def _path(key: str) -> str:
    return key if key.startswith("/") else f"/{key}"


def _above(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
