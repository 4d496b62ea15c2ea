"""The user's own keys in ZooKeeper, read and written only while a ticket stands (its node, whose name is unique).

A commit is one `multi` that begins with a check of the ticket's node. The check is of its data version as well:
touching the node makes sure that a commit whose answer was lost is not carried out later. A `multi` must say of each
node whether it creates or changes it. So the first plan takes all nodes to be there, which costs one exchange where it
is so; after a wrong guess, and where there are comparisons, the plan is made from a look at all of them.

A record's version is the node's mzxid, which no later node of the same path has again. A `multi` can only check data
versions, which begin anew with each node: they are looked at together with the mzxid, and checked. What is not noticed
is a node that was deleted and made anew, with just as many changes, within that one round trip.

The root of a namespace's keys is a container: it goes with the last of them. Nodes on the way to a key stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion, Create, SetData
from kazoo.protocol.serialization import Delete as DeleteNode

from tenure._backends.zookeeper.connection import ZooKeeperSession
from tenure._backends.zookeeper.lines import ZooKeeperLines
from tenure._core.base.validation import keys_root
from tenure._core.lease import Committed, Compare, Delete, Fate, Put, Record, Ticket
from tenure.errors import StoreRefused

_PERSISTENT: Final = 0
_ANY: Final = -1
_PLANS_MAX: Final = 16
_WRONG_GUESS: Final = (NoNodeError, NodeExistsError, BadVersionError)


class Guarded:
    """Exchanges about the user's own keys, over one session. Each verb is one try."""

    def __init__(self, connection: ZooKeeperSession, lines: ZooKeeperLines, namespace: str) -> None:
        self._connection = connection
        self._lines = lines
        self._root = f"/{keys_root(namespace)}".rstrip("/")

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        """Read in one exchange: the nodes as of now, also on a server that lags, then a check by the quorum."""
        self._connection.sync("/")
        requests = [self._connection.get(_path(key)) for key in keys]
        (outcome,), _ = self._commit([CheckVersion(ticket.key, _ANY)], until)
        if isinstance(outcome, NoNodeError):
            return None
        if isinstance(outcome, Exception):
            raise self._connection.translated(outcome)
        return tuple(self._record(key, request, until) for key, request in zip(keys, requests, strict=True))

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        """Try plans until one fits the nodes. Only the last of them can have been carried out."""
        plan = _CommitPlan(ticket, compares, writes, self._connection.acl)
        look = bool(compares)
        for _ in range(_PLANS_MAX):
            if look and (ends := self._look(plan, ticket, until)) is not None:
                return ends
            if self._root in plan.missing_parents():
                self._lines.make_parents(self._root, until)
                self._lines.made.add(self._root)
                continue
            outcomes, zxid = self._commit(plan.operations(), until)
            failed = next((i for i, outcome in enumerate(outcomes) if _is_reason(outcome)), None)
            if failed is None:
                return Committed(Fate.DONE, {write.key: zxid for write in writes if isinstance(write, Put)})
            if not isinstance(outcomes[failed], _WRONG_GUESS):
                raise self._connection.translated(outcomes[failed])
            if failed == 0:
                return self._ticket_failed(ticket, until)
            look = True
        raise StoreRefused(f"the nodes of the commit came and went {_PLANS_MAX} times meanwhile. Nothing was written.")

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        """Write the same data as another version, unless somebody else has changed it."""
        try:
            data, stat = self._connection.ask(until, self._connection.get(ticket.key))[0]
            if ticket.version in (None, stat.version):
                stat = self._connection.ask(until, self._connection.set(ticket.key, data, stat.version))[0]
        except NoNodeError:
            return None
        except BadVersionError:  # amended meanwhile: moved on all the same
            return self._as_it_stands(ticket, until)
        return ticket._replace(version=stat.version)

    def _look(self, plan: _CommitPlan, ticket: Ticket, until: float) -> Committed | None:
        """Look at the nodes for the plan; return the outcome where it is known without a try."""
        paths = plan.paths()
        stats = self._connection.ask(until, *map(self._connection.exists, (*paths, ticket.key)))
        if stats[-1] is None:
            return Committed(Fate.GONE)
        if ticket.version not in (None, stats[-1].version):
            return Committed(Fate.AMENDED, ticket=ticket._replace(version=stats[-1].version))
        plan.nodes = dict(zip(paths, stats[:-1], strict=True))
        return None if plan.comparisons_hold() else Committed(Fate.DIFFERS)

    def _ticket_failed(self, ticket: Ticket, until: float) -> Committed:
        standing = self._as_it_stands(ticket, until)
        return Committed(Fate.GONE) if standing is None else Committed(Fate.AMENDED, ticket=standing)

    def _as_it_stands(self, ticket: Ticket, until: float) -> Ticket | None:
        stat = self._connection.ask(until, self._connection.exists(ticket.key))[0]
        return None if stat is None else ticket._replace(version=stat.version)

    def _commit(self, operations: Sequence[Any], until: float) -> tuple[list[Any], int]:
        """Send a `multi`; return the outcome of each operation, and the zxid: the mzxid of every node written."""
        *outcomes, zxid = self._connection.ask(until, self._connection.commit(operations))[0]
        return outcomes, zxid

    def _record(self, key: str, request: Any, until: float) -> Record | None:
        try:
            data, stat = self._connection.ask(until, request)[0]
        except NoNodeError:
            return None
        return Record(key, data or b"", stat.mzxid)


class _CommitPlan:
    """A commit as requests, made for what is known of the nodes."""

    def __init__(self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], acl: Any) -> None:
        self._ticket = ticket
        # parents before their children come, and after they have gone
        self._puts = sorted((w for w in writes if isinstance(w, Put)), key=lambda w: _path(w.key).count("/"))
        self._deletes = sorted((w for w in writes if isinstance(w, Delete)), key=lambda w: -_path(w.key).count("/"))
        self._written = {_path(write.key) for write in writes}
        self._compares = {_path(compare.key): compare.version for compare in compares}
        self._acl = acl
        self.nodes: Mapping[str, Any] | None = None
        """Stat seen at each path, or None where there was no node. None for all before the first look: a guess."""

    def paths(self) -> list[str]:
        """List the paths to look at: the keys, and the parents of new ones."""
        keys = self._written | self._compares.keys()
        return sorted(keys | {parent for put in self._puts for parent in _above(_path(put.key))})

    def comparisons_hold(self) -> bool:
        seen = self.nodes or {}
        return all((0 if seen[path] is None else seen[path].mzxid) == at for path, at in self._compares.items())

    def operations(self) -> list[Any]:
        """List the ticket's check first, then comparisons, then parents, then each key's own."""
        version = _ANY if self._ticket.version is None else self._ticket.version
        checks = [CheckVersion(path, self._version(path)) for path in self._compares if path not in self._written]
        parents = [Create(path, b"", self._acl, _PERSISTENT) for path in self.missing_parents()]
        first = [CheckVersion(self._ticket.key, version), *checks, *parents]
        gone = [_path(gone.key) for gone in self._deletes if not self._is_absent(_path(gone.key))]
        return [*first, *map(self._put, self._puts), *(DeleteNode(path, self._version(path)) for path in gone)]

    def missing_parents(self) -> list[str]:
        """List the parents that were seen to be missing, from the root on."""
        puts = {_path(put.key) for put in self._puts}
        new = [path for path in puts if self._is_absent(path)]
        above = {parent for path in new for parent in _above(path) if self._is_absent(parent)}
        return sorted(above - puts, key=lambda path: path.count("/"))

    def _put(self, put: Put) -> Any:
        path = _path(put.key)
        if self._is_absent(path):
            return Create(path, put.value, self._acl, _PERSISTENT)
        return SetData(path, put.value, self._version(path))

    def _is_absent(self, path: str) -> bool:
        return self.nodes is not None and self.nodes[path] is None

    def _version(self, path: str) -> int:
        """The data version that was seen together with the one compared with; any where nothing is compared."""
        return self.nodes[path].version if self.nodes is not None and path in self._compares else _ANY


def _is_reason(outcome: Any) -> bool:
    """Tell whether this outcome caused the refusal. The others of a refused `multi` are rolled back or never tried."""
    return isinstance(outcome, Exception) and not isinstance(outcome, (RolledBackError, RuntimeInconsistency))


def _path(key: str) -> str:
    return key if key.startswith("/") else f"/{key}"


def _above(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
