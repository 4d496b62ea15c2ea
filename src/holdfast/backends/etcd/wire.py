"""The wire: what an etcd lease needs of a transport, and what both transports have in common.

The seam is `Transport`: one try, one answer, in the words of words.py. Two stand behind it, the JSON gateway
(gateway.py) and gRPC (grpc/); everything above is the same for both. Here are the retries, the store's history
and the watches. All requests but one may be sent twice without harm, and are: they go on until they are
answered, refused, or `until` has come. `txn_once` is sent once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from holdfast.backends.etcd.history import History
from holdfast.backends.etcd.watch import OpensStreams, Watcher
from holdfast.backends.etcd.words import Answer, Header, Life, Range, Txn, Watching
from holdfast.errors import HoldfastError, StoreError
from holdfast.lease import Surroundings
from holdfast.links.session import Session
from holdfast.options import Options, shown
from holdfast.retry import persist

Outcome = TypeVar("Outcome")
_GREETING_SECONDS: Final = 5.0
_warned_of: set[str] = set()  # once a process is enough
_log = logging.getLogger("holdfast")


class Transport(OpensStreams, Protocol):
    """One way to speak to one cluster. Each verb is one try, and raises StoreError; thread-safe."""

    @property
    def session(self) -> Session[Any]:  # Any: whatever is spoken
        """Endpoints, failover, users."""

    def txn(self, txn: Txn, until: float) -> Answer: ...

    def range(self, asked: Range, until: float) -> Answer:
        """Read, without a transaction; the quorum answers."""

    def delete(self, key: bytes, until: float) -> bool:
        """Delete a key, without a transaction; was it there?"""

    def grant(self, number: int, ttl: int, until: float) -> float:
        """A lease of this number; its granted TTL."""

    def life(self, number: int, keys: bool, until: float) -> Life:
        """What the store knows of a lease, its keys where asked for. Raises LeaseGone."""

    def keep_alive(self, number: int, until: float) -> float:
        """Renew a lease: its TTL from now on; 0.0, or LeaseGone, where the store does not know it."""

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        """The same for many; 0.0 for those that the store does not know. Those it said nothing of are left out."""

    def revoke(self, number: int, until: float) -> None:
        """End a lease. Raises LeaseGone."""

    def version(self, until: float) -> str:
        """The server's."""

    def position(self, until: float) -> Header:
        """How far the store's history has come, as its quorum knows."""

    def close(self) -> None: ...


class Wire:
    """A transport, its retries, and the client's watches."""

    def __init__(self, options: Options, around: Surroundings, transport: Transport) -> None:
        self._around = around
        self._clock = around.clock
        self._greeted = False
        self._transport = transport
        self._history = History(options.display)
        self._watcher = Watcher(transport.session, around, transport, self._probe)
        transport.session.on_move = self._watcher.reconnect

    @property
    def goes_aside(self) -> bool:
        """Does an exchange in a lane leave its thread to others while it waits?"""
        return self._transport.session.goes_aside

    def txn(self, txn: Txn, until: float) -> Answer:
        """Carry out one transaction that may be sent twice without harm."""
        tries = 0

        def attempt() -> Answer:
            nonlocal tries
            tries += 1
            answer = self.txn_once(txn, until)
            return answer if tries == 1 else answer._replace(tries=tries)

        return persist(attempt, until, self._clock)

    def txn_once(self, txn: Txn, until: float) -> Answer:
        """Carry out one that may not. After StoreUnavailable its fate is unknown."""
        least = self._history.revision
        answer = self._transport.txn(txn, until)
        self._history.check(answer.header, least)
        return answer

    def range(self, asked: Range, until: float) -> Answer:
        """Read what the quorum knows.

        Not by a transaction: one that only reads takes an older etcd (3.5 before 3.5.5) down when its client hangs up
        in the midst of it (etcd issue 14110); and without space etcd refuses transactions, but not this.
        """

        def attempt() -> Answer:
            least = self._history.revision
            answer = self._transport.range(asked, until)
            self._history.check(answer.header, least)
            return answer

        return persist(attempt, until, self._clock)

    def delete(self, key: bytes, until: float) -> bool:
        """Delete a key, without a transaction: that goes through where those don't. Was it there, at the last try?"""
        return self._persist(lambda: self._transport.delete(key, until), until)

    def grant(self, number: int, ttl: int, until: float) -> float:
        """A lease of this number; its granted TTL."""
        return self._persist(lambda: self._transport.grant(number, ttl, until), until)

    def grant_or_find(self, number: int, ttl: int, until: float) -> tuple[float, bool]:
        """The same, where a try whose answer was lost may have been granted it: True then. Raises LeaseGone."""
        try:
            return self.grant(number, ttl, until), False
        except StoreError as error:
            if "lease already exists" not in str(error):
                raise
        return self.life(number, until).granted_ttl, True

    def life(self, number: int, until: float, *, keys: bool = False) -> Life:
        """What the store knows of a lease. Raises LeaseGone."""
        return self._persist(lambda: self._transport.life(number, keys, until), until)

    def keep_alive(self, number: int, until: float) -> float:
        """Renew a lease: its TTL from the last send on; 0.0, or LeaseGone, where the store does not know it."""
        return self._persist(lambda: self._transport.keep_alive(number, until), until)

    def keep_alives(self, numbers: Sequence[int], until: float) -> Mapping[int, float]:
        """The same for many, in one exchange; those that nothing was heard of are left out."""
        return self._persist(lambda: self._transport.keep_alives(numbers, until), until)

    def revoke(self, number: int, until: float) -> None:
        """End a lease. Raises LeaseGone."""
        self._persist(lambda: self._transport.revoke(number, until), until)

    def watch(self, watching: Watching) -> Callable[[], None]:
        """Set `watching.signal` on its first event, and when the watch ends; the returned function stops it."""
        return self._watcher.add(watching)

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
            self._around.workers.submit(self._look_at_version)

    def _look_at_version(self) -> None:
        until = self._clock.now() + _GREETING_SECONDS
        try:
            version = self._persist(lambda: self._transport.version(until), until)
        except HoldfastError:
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
        """Does the current endpoint still reach the quorum? Moves on where it does not. Raises StoreError."""
        least = self._history.revision
        self._history.check(self._transport.position(until), least)


def _has_known_bugs(version: str) -> bool:
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdigit())
    return bool(numbers) and (numbers < (3, 5, 28) or (3, 6) <= numbers < (3, 6, 9))
