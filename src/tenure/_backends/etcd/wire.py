"""The wire: the protocol of a transport, and everything that both transports have in common.

The seam is `Transport`: one try, one answer, in the values of requests.py. Two stand behind it, the JSON gateway
(gateway/) and gRPC (grpc/); everything above is the same for both. Here are the retries, the store's history (law 4)
and the watches. All requests but one may be sent twice without harm, and are: they go on until they are
answered, refused, or `until` has come. `txn_once` is sent once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from tenure._backends.etcd.requests import Header, Life, Range, Txn, TxnResult, WatchRequest
from tenure._backends.etcd.watch import OpensStreams, Watcher
from tenure._core.base.options import TRIAL, Options, shown
from tenure._core.base.retry import persist
from tenure._core.lease import BackendContext
from tenure._transport.session import ConnectionPool
from tenure.errors import StoreError, StoreRefused, StoreUnavailable, StoreWentBack, TenureError

Outcome = TypeVar("Outcome")
_GREETING_SECONDS: Final = 5.0
_warned_of: set[str] = set()  # once a process is enough
_log = logging.getLogger("tenure")


class Transport(OpensStreams, Protocol):
    """A way to speak to one cluster. Each verb is one try, and raises StoreError; thread-safe."""

    @property
    def session(self) -> ConnectionPool[Any]:  # Any: whatever is spoken
        """The connection pool: endpoints, failover, users."""

    def txn(self, txn: Txn, until: float) -> TxnResult: ...

    def range(self, asked: Range, until: float) -> TxnResult:
        """Read, without a transaction; the quorum answers."""

    def delete(self, key: bytes, until: float) -> bool:
        """Delete a key, without a transaction; was it there?"""

    def grant(self, number: int, ttl: int, until: float) -> float:
        """Have a lease of this number granted, and return its TTL."""

    def life(self, number: int, keys: bool, until: float) -> Life:
        """Ask for the state of a lease, with its keys where wanted. Raises LeaseGone."""

    def keep_alive(self, number: int, until: float) -> float:
        """Renew a lease: its TTL from now on; 0.0, or LeaseGone, where the store does not know it."""

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        """Renew many leases: 0.0 for those that the store does not know; those it said nothing of are left out."""

    def revoke(self, number: int, until: float) -> None:
        """End a lease. Raises LeaseGone."""

    def version(self, until: float) -> str:
        """The server's version."""

    def position(self, until: float) -> Header:
        """Ask the quorum how far the store's history has come."""

    def close(self) -> None: ...


class Wire:
    """A transport, its retries, and the client's watches."""

    def __init__(self, options: Options, context: BackendContext, transport: Transport) -> None:
        self._context = context
        self._clock = context.clock
        self._greeted = (*(host for host, _ in options.endpoints), options.namespace) == TRIAL
        self._transport = transport
        self._history = RevisionHistory(options.display)
        self._watcher = Watcher(transport.session, context, transport, self._probe)
        transport.session.on_move = self._watcher.reconnect

    @property
    def goes_aside(self) -> bool:
        """True where an exchange in a lane leaves its thread to others while it waits."""
        return self._transport.session.goes_aside

    def txn(self, txn: Txn, until: float) -> TxnResult:
        """Carry out a transaction that may be sent twice without harm."""
        tries = 0

        def attempt() -> TxnResult:
            nonlocal tries
            tries += 1
            answer = self.txn_once(txn, until)
            return answer if tries == 1 else answer._replace(tries=tries)

        return persist(attempt, until, self._clock)

    def txn_once(self, txn: Txn, until: float) -> TxnResult:
        """Carry out a transaction, sent once. After StoreUnavailable its fate is unknown."""
        minimum = self._history.revision
        answer = self._transport.txn(txn, until)
        self._history.check(answer.header, minimum)
        return answer

    def range(self, asked: Range, until: float) -> TxnResult:
        """Read what the quorum knows.

        Not by a transaction: one that only reads takes an older etcd (3.5 before 3.5.5) down when its client hangs up
        in the midst of it (etcd issue 14110); and without space etcd refuses transactions, but not this.
        """

        def attempt() -> TxnResult:
            minimum = self._history.revision
            answer = self._transport.range(asked, until)
            self._history.check(answer.header, minimum)
            return answer

        return persist(attempt, until, self._clock)

    def delete(self, key: bytes, until: float) -> bool:
        """Delete a key, without a transaction: that goes through where those don't. Was it there, at the last try?"""
        return self._persist(lambda: self._transport.delete(key, until), until)

    def grant(self, number: int, ttl: int, until: float) -> float:
        """Have a lease of this number granted, and return its TTL."""
        return self._persist(lambda: self._transport.grant(number, ttl, until), until)

    def grant_or_find(self, number: int, ttl: int, until: float) -> tuple[float, bool]:
        """Have a lease granted; True where an earlier try had been, and its answer was lost. Raises LeaseGone."""
        try:
            return self.grant(number, ttl, until), False
        except StoreError as error:
            if "lease already exists" not in str(error):
                raise
        return self.life(number, until).granted_ttl, True

    def life(self, number: int, until: float, *, keys: bool = False) -> Life:
        """Ask for the state of a lease. Raises LeaseGone."""
        return self._persist(lambda: self._transport.life(number, keys, until), until)

    def keep_alive(self, number: int, until: float) -> float:
        """Renew a lease: its TTL from the last send on; 0.0, or LeaseGone, where the store does not know it."""
        return self._persist(lambda: self._transport.keep_alive(number, until), until)

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        """Renew many leases in one exchange; those that nothing was heard of are left out."""
        return self._persist(lambda: self._transport.keep_alives(numbers, until), until)

    def revoke(self, number: int, until: float) -> None:
        """End a lease. Raises LeaseGone."""
        self._persist(lambda: self._transport.revoke(number, until), until)

    def watch(self, watch: WatchRequest) -> Callable[[], None]:
        """Set `watch.signal` on its first event, and when the watch ends; the returned function stops it."""
        return self._watcher.add(watch)

    def close(self) -> None:
        self._watcher.close()
        self._transport.close()

    def statistics(self) -> dict[str, object]:
        return {
            "endpoint": shown(self._transport.session.endpoint),
            "endpoints_failed": self._transport.session.generation,
            "watches": self._watcher.watches,
            "watch_connections": self._watcher.connections,
        }

    def greet(self) -> None:
        """Look at the server's version in the background, once; warn of one with known lease bugs."""
        if not self._greeted:
            self._greeted = True
            self._context.workers.submit(self._look_at_version)

    def _look_at_version(self) -> None:
        until = self._clock.now() + _GREETING_SECONDS
        try:
            version = self._persist(lambda: self._transport.version(until), until)
        except TenureError:
            return  # a courtesy; whatever is wrong shows where it matters
        if _has_known_bugs(version) and version not in _warned_of:
            _warned_of.add(version)
            _log.warning(
                "etcd %s has known bugs that can end leases early or show stale reads; run 3.5.28, 3.6.9 or later, and "
                "have the protected resource check tokens",
                version,
            )

    def _persist(self, attempt: Callable[[], Outcome], until: float) -> Outcome:
        def unbroken() -> Outcome:
            self._history.check_unbroken()
            return attempt()

        return persist(unbroken, until, self._clock)

    def _probe(self, until: float) -> None:
        """Check that the current endpoint still reaches the quorum; moves on where it does not. Raises StoreError."""
        minimum = self._history.revision
        self._history.check(self._transport.position(until), minimum)


def _has_known_bugs(version: str) -> bool:
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdigit())
    return bool(numbers) and (numbers < (3, 5, 28) or (3, 6) <= numbers < (3, 6, 9))


class RevisionHistory:
    """Law 4 for etcd: the store never goes back behind what this client has already seen."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._guard = threading.RLock()  # guards everything below
        self._cluster: int | None = None
        self._revision = 0
        self._behind = 0
        self._broken = ""  # why, once it is; an error is made for each who asks: one would keep all their frames

    @property
    def revision(self) -> int:
        """The highest revision seen so far. Read it before sending: an answer must not be below."""
        self.check_unbroken()
        return self._revision

    def check_unbroken(self) -> None:
        """Raise StoreWentBack where that was found out before."""
        if self._broken:
            raise StoreWentBack(self._broken)

    def check(self, header: Header, minimum: int) -> None:
        """Check an answer. Raises StoreWentBack for good, StoreUnavailable if stale, StoreRefused without a cluster."""
        cluster, revision = header
        if not cluster:  # says nothing of the store's history; the client must not stop for good because of it
            raise StoreRefused(f"{self._store} answered without saying which cluster it is")
        with self._guard:
            if self._cluster is None:
                self._cluster = cluster
            if cluster != self._cluster:
                self._broken = (
                    f"{self._store} is another cluster now (id {cluster}, was {self._cluster}): it was restored or "
                    "replaced. Tokens of the two can't be compared, so this client stops. Fence what it protected, "
                    "then connect anew."
                )
                raise StoreWentBack(self._broken)
            if revision >= minimum:
                self._behind = 0
                self._revision = max(self._revision, revision)
                return
            self._behind += 1
            if self._behind < 3:
                # One member may answer from its past once (etcd #20418). A store that went back does so always.
                raise StoreUnavailable(f"{self._store} answered from its past (revision {revision} after {minimum})")
            self._broken = (
                f"{self._store} went back to revision {revision} after this client had seen {minimum}: it was restored "
                "from a snapshot. Its tokens would repeat, so this client stops. Fence what it protected, then connect "
                "anew."
            )
            raise StoreWentBack(self._broken)
