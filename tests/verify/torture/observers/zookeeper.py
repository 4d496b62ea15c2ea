"""ZooKeeper's word: the transaction logs of all servers together, read when the run is over and everybody is quiet.

They hold everything that was committed, in order, with the session that asked for it. A server that was down may lack a
stretch (it got a snapshot instead), another has it; zxids count one by one within an epoch, so a gap would show. A log
may also hold what was never committed: a leader that was deposed while it stood still goes on proposing when it wakes
up, and what it logged then may stay on its disk. So the end of an epoch is what a majority of the logs has.

A transaction was made after the wall clock in it, and committed before the first moment at which a server, asked again
and again, said it had it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tenure._core.base.options import parse
from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import monotonic
from tenure.testing.servers import Cluster, Member, zk_four_letter
from tests.verify.torture.observers.jute import Transaction, read_log
from tests.verify.torture.observers.moments import Moments
from tests.verify.torture.observers.truth import Truth, line_and_place

_ASK_EVERY_SECONDS: Final = 0.1
_CLOCK_STEP_SECONDS: Final = 0.005
_CLOCK_GRAIN_SECONDS: Final = 0.002
"""The log has whole milliseconds, and the two clocks are not read at the same moment."""
_EPOCH: Final = 32
_ZXID: Final = re.compile(r"^Zxid: 0x([0-9a-f]+)$", re.MULTILINE)
_TICKET: Final = re.compile(r"_c_([0-9a-f]{20})(?:-(read)|-seat\.(\d+)\.(\d+))?-lock-(-?\d{10})\Z")
_ANYBODYS: Final = re.compile(r".*lock(?:-|__)-?\d{10}\Z", re.DOTALL)


class ZooKeeperObserver:
    """Observes from the moment it is made."""

    def __init__(self, cluster: Cluster, url: str, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._moments = Moments()
        self._stopping = threading.Event()
        self._offsets = [_offset()]
        endpoints = [f"{host}:{port}" for host, port in parse(url, {}).endpoints]
        for endpoint in endpoints:
            self._ask_once(endpoint)
        self._start = self._moments.furthest
        self._threads = [
            threading.Thread(target=self._ask, args=(endpoint,), name="zookeeper-observer") for endpoint in endpoints
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Truth:
        """The truth in the logs. Every server has to be up, and no client at work."""
        self.close()
        logs = [
            {one.zxid: one for path in transaction_logs(member) for one in read_log(path) if one.zxid > self._start}
            for member in self._cluster.members
        ]
        found = committed(logs)
        in_order = [found[zxid] for zxid in sorted(found)]
        telling = _Telling(self._namespace, self._moments, self._true_offset())
        events = [event for transaction in in_order for event in telling.tell(transaction)]
        return Truth(tuple(events), _gap(self._start, sorted(found)), telling.left)

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, endpoint: str) -> None:
        while not self._stopping.wait(_ASK_EVERY_SECONDS):
            self._ask_once(endpoint)

    def _ask_once(self, endpoint: str) -> None:
        try:
            answer = zk_four_letter(endpoint, "srvr")
        except OSError:
            return
        now = monotonic()
        self._offsets.append(_offset())
        if (match := _ZXID.search(answer)) is not None:
            self._moments.answered(int(match[1], 16), asked_at=None, answered_at=now)

    def _true_offset(self) -> float | None:
        """The seconds by which the wall clock is ahead of the recorders' clock;

        None where it was set during the run.
        """
        minimum, maximum = min(self._offsets), max(self._offsets)
        return maximum if maximum - minimum < _CLOCK_STEP_SECONDS else None


class _Telling:
    """Events, transaction by transaction; and what stands after the last."""

    def __init__(self, namespace: str, moments: Moments, offset: float | None) -> None:
        self._namespace = namespace
        self._moments = moments
        self._offset = offset
        self._standing: dict[str, Event] = {}  # by path
        self._open: dict[int, float] = {}  # sessions and their time-outs
        self._owners: dict[int, str] = {}

    @property
    def left(self) -> dict[str, int]:
        """Tickets, and sessions that had any."""
        return {"tickets": len(self._standing), "leases": sum(session in self._owners for session in self._open)}

    def tell(self, transaction: Transaction) -> Iterator[Event]:
        if transaction.opens is not None:
            self._open[transaction.session] = transaction.opens
        for change in transaction.changes:
            if change.made:
                yield from self._made(transaction, change.path, change.data)
            elif (created := self._standing.pop(change.path, None)) is not None:
                own = created.lease == _name(transaction.session)
                yield self._removed(transaction, created, "left" if own else "")
        if transaction.closes:
            yield from self._closed(transaction)

    def _made(self, transaction: Transaction, path: str, data: bytes) -> Iterator[Event]:
        found = line_and_place(path, self._namespace)
        if found is None or not _ANYBODYS.match(found[1]):
            return
        created = self._created(transaction, *found, _owner(data))
        self._standing[path] = created
        if transaction.session not in self._owners:
            self._owners[transaction.session] = created.client
            yield self._event(transaction, created.client, "lease_granted", lease=created.lease, since=0.0)
        yield created

    def _created(self, transaction: Transaction, line: str, place: str, owner: str) -> Event:
        match = _TICKET.match(place)
        ticket, read, weight, limit = match.groups()[:4] if match else (place, None, None, None)
        return self._event(
            transaction,
            owner,
            "created",
            resource=line,
            hold=ticket,
            token=transaction.zxid,
            revision=transaction.zxid,
            lease=_name(transaction.session),
            mode=Mode.READ if read else Mode.SEAT if weight else Mode.EXCLUSIVE,
            weight=int(weight or 1),
            limit=int(limit or 1),
        )

    def _removed(self, transaction: Transaction, created: Event, cause: str) -> Event:
        facts = {"resource": created.resource, "hold": created.hold, "token": created.token, "lease": created.lease}
        return self._event(transaction, created.client, "removed", revision=transaction.zxid, cause=cause, **facts)

    def _closed(self, transaction: Transaction) -> Iterator[Event]:
        """The session's tickets go with it."""
        self._open.pop(transaction.session, None)
        name = _name(transaction.session)
        for path in [path for path, created in self._standing.items() if created.lease == name]:
            yield self._removed(transaction, self._standing.pop(path), "lease")
        owner = self._owners.get(transaction.session)
        if owner is not None:
            cause = "left" if transaction.by_client else "lease"
            yield self._event(transaction, owner, "lease_ended", lease=name, cause=cause)

    def _event(self, transaction: Transaction, client: str, operation: str, **facts: Any) -> Event:  # Any: of Event
        since = 0.0
        if self._offset is not None:
            since = transaction.wall_clock - self._offset - _CLOCK_GRAIN_SECONDS
        at = self._moments.by(transaction.zxid)
        at = max(since, monotonic() if at is None else at)
        return Event(at, client, Kind.TRUTH, operation, **{"since": since, **facts})


def _offset() -> float:
    return time.time() - monotonic()


def _name(session: int) -> str:
    return f"{session:x}"


def _owner(data: bytes) -> str:
    try:
        value = json.loads(data)
    except ValueError:
        return ""
    return str(value.get("owner", "")) if isinstance(value, dict) else ""


def committed(logs: Sequence[Mapping[int, Transaction]]) -> dict[int, Transaction]:
    """The transactions of each epoch up to the last that a majority has logged: all before a committed one are
    committed.
    """
    copies = Counter(zxid for log in logs for zxid in log)
    last: dict[int, int] = {}
    for zxid, count in copies.items():
        if count > len(logs) // 2:
            last[zxid >> _EPOCH] = max(zxid, last.get(zxid >> _EPOCH, 0))
    return {zxid: one for log in logs for zxid, one in log.items() if zxid <= last.get(zxid >> _EPOCH, 0)}


def transaction_logs(member: Member) -> Iterator[Path]:
    """Every transaction log of one member. Where they are stands in its settings."""
    directory: Path = member._machine.directory  # type: ignore[attr-defined]  # of a server that is a process here
    settings = dict(line.split("=", 1) for line in (directory / "zoo.cfg").read_text().splitlines() if "=" in line)
    data = Path(settings.get("dataLogDir", settings["dataDir"]))
    yield from sorted((data / "version-2").glob("log.*"))


def _gap(before: int, zxids: Iterable[int]) -> str:
    """A sentence on what is missing after `before`, up to the last that was logged; "" where nothing is."""
    for zxid in zxids:
        follows = zxid == before + 1 or (zxid >> _EPOCH > before >> _EPOCH and zxid & 0xFFFFFFFF <= 1)
        if not follows:
            return f"no server has the transactions between 0x{before:x} and 0x{zxid:x}"
        before = zxid
    return ""
