"""etcd's word: a watch of all keys from the present revision on, and what it lists as leases, asked again and again.

The watch is of the whole keyspace because then the revisions that arrive have no gaps, and a record that was lost (by
a compaction, by a server's mistake) shows as one. Every member is watched, and who tells of a revision first is
believed: a member that was cut off tells nothing, and when it is back, a compaction may have taken what it missed. A
watch that broke off is taken up again where the furthest one stands.

A revision happened after the last linearizable read that had not reached it was sent, and before the first that had
was answered, or the watch told of it. A lease is seen to have ended when a member that has just answered such a read
lists it no more: so late, but never too early. Who removed a key the store does not tell. How long a lease still has
it tells: one that ended before that was ended by the store itself, or by somebody who revoked it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tenure._core.base.options import parse
from tenure.testing.history.history import monotonic
from tenure.testing.servers import ServerFailed
from tests.verify.torture.observers.gateway import Gateway
from tests.verify.torture.observers.moments import Moments
from tests.verify.torture.observers.tickets import Lease, Telling
from tests.verify.torture.observers.truth import Truth

_ASK_EVERY_SECONDS: Final = 0.1
_ASK_TIMES_EVERY: Final = 3
"""Every how manieth question is also for how long each lease has."""
_RETRY_SECONDS: Final = 0.1
_BEHIND_SECONDS: Final = 2.0
"""Without news while the store went on: the watches are opened anew. What was compacted, and no member told of within
this time, is missing."""
_CATCH_UP_SECONDS: Final = 15.0
_ALL: Final = "AA=="  # the byte 0: as key and as range_end "from the first key to the last"


class EtcdObserver:
    """Observes from the moment it is made."""

    def __init__(self, url: str, namespace: str) -> None:
        options = parse(url, {})
        self._namespace = namespace
        self._endpoints = options.endpoints
        self._login = (options.user, options.password or "") if options.user else None
        self._moments = Moments()
        self._stopping = threading.Event()
        self._guard = threading.Lock()  # guards everything below
        self._seen = 0
        self._seen_at = monotonic()  # or opened anew
        self._compacted_at: float | None = None  # the first that was refused for a compaction, and nothing seen since
        self._changes: list[tuple[float, dict[str, Any]]] = []
        self._last: set[tuple[str, str]] = set()
        self._leases: dict[int, list[Lease]] = {}  # each may live more than once, see _list
        self._others: frozenset[int] = frozenset()  # leases that were there before
        self._missing = ""
        self._streams: dict[int, Gateway] = {}  # by the place of the endpoint
        self._begin()
        jobs: list[Callable[[], None]] = [self._ask]
        jobs += [partial(self._watch, place) for place in range(len(self._endpoints))]
        self._threads = [threading.Thread(target=job, name="etcd-observer") for job in jobs]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Truth:
        """The truth up to the store's present revision."""
        self._catch_up()
        self.close()
        with self._guard:
            leases = {number: lives for number, lives in self._leases.items() if number not in self._others}
            return Telling(self._namespace, self._moments, leases).tell(self._changes, self._missing)

    def close(self) -> None:
        self._stopping.set()
        self._break_streams()
        for thread in self._threads:
            thread.join()

    def _begin(self) -> None:
        """Read the revision at which the store stands. Raises ServerFailed."""
        until = monotonic() + _CATCH_UP_SECONDS
        while True:
            gateway = Gateway(*self._endpoints[0], self._login)
            try:
                self._ask_once(gateway)
            except (OSError, ValueError) as error:
                if monotonic() > until:
                    raise ServerFailed(f"{self._endpoints[0]} does not answer the observer: {error}") from error
                self._stopping.wait(_RETRY_SECONDS)
                continue
            finally:
                gateway.close()
            self._seen = self._moments.furthest
            self._others = frozenset(self._leases)
            return

    def _catch_up(self) -> None:
        asked_at = monotonic()
        until = asked_at + _CATCH_UP_SECONDS
        while monotonic() < until:
            goal = self._moments.furthest if self._asked_since(asked_at) else None
            with self._guard:
                if goal is not None and (self._seen >= goal or self._missing):
                    return
            self._stopping.wait(_RETRY_SECONDS)
        with self._guard:
            self._missing = self._missing or f"the watch stood at revision {self._seen}, the store did not"

    def _asked_since(self, moment: float) -> bool:
        return self._moments.since(1 << 62) >= moment

    # The watch.

    def _watch(self, place: int) -> None:
        while not self._stopping.is_set():
            gateway = Gateway(*self._endpoints[place], self._login)
            with self._guard:
                self._streams[place], start = gateway, self._seen + 1
            try:
                request = {"key": _ALL, "range_end": _ALL, "start_revision": str(start)}
                for answer in gateway.stream("/v3/watch", {"create_request": request}):
                    if not self._take(answer.get("result", {})):
                        break
            except Exception:  # however it broke off: what it did not tell shows as a gap
                pass
            finally:
                gateway.close()
            self._stopping.wait(_RETRY_SECONDS)

    def _take(self, result: dict[str, Any]) -> bool:
        """False where the watch is over."""
        now = monotonic()
        with self._guard:
            compacted = int(result.get("compact_revision", 0))
            if compacted > self._seen and self._untold(now):
                self._missing = f"revisions up to {compacted} were compacted before the observer had seen them"
                self._seen = compacted - 1
            for event in result.get("events", ()):
                self._add(now, event)
        return not (compacted or result.get("canceled"))

    def _untold(self, now: float) -> bool:
        """Nor have the other members told anything for a while: they won't any more."""
        self._compacted_at = now if self._compacted_at is None else self._compacted_at
        return now - self._compacted_at > _BEHIND_SECONDS

    def _add(self, now: float, event: dict[str, Any]) -> None:
        revision, key = int(event["kv"]["mod_revision"]), event["kv"]["key"]
        if revision < self._seen or (revision == self._seen and (key, str(revision)) in self._last):
            return  # told before, by another member
        if revision > self._seen + 1 and not self._missing:
            self._missing = f"the store did not tell of revisions {self._seen + 1} to {revision - 1}"
        if revision > self._seen:
            self._last.clear()
        self._last.add((key, str(revision)))
        self._seen, self._seen_at, self._compacted_at = revision, now, None
        self._changes.append((now, event))

    def _break_streams(self) -> None:
        with self._guard:
            streams = list(self._streams.values())
        for stream in streams:
            stream.break_off()

    # The questions.

    def _ask(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            gateway = Gateway(*self._endpoints[turn % len(self._endpoints)], self._login)
            try:
                for number in itertools.count():
                    if self._stopping.wait(_ASK_EVERY_SECONDS):
                        break
                    self._ask_once(gateway)
                    if number % _ASK_TIMES_EVERY == 0:
                        self._ask_times(gateway)
            except Exception:  # however it failed: what is asked seldom is known less exactly
                turn += 1
            finally:
                gateway.close()

    def _ask_once(self, gateway: Gateway) -> None:
        asked_at = monotonic()
        read = gateway.call("/v3/kv/range", {"key": _ALL, "limit": "1"})
        revision = int(read["header"]["revision"])
        leases = gateway.call("/v3/lease/leases", {})
        now = monotonic()
        went_back = revision < self._moments.furthest
        self._moments.answered(revision, asked_at=asked_at, answered_at=now)
        with self._guard:
            if went_back:
                self._missing = self._missing or "the store went back to an older revision"
            self._list({int(lease["ID"]) for lease in leases.get("leases", ())}, asked_at, now)
            behind = revision > self._seen and now - self._seen_at > _BEHIND_SECONDS
            self._seen_at = now if behind else self._seen_at
        if behind:
            self._break_streams()

    def _ask_times(self, gateway: Gateway) -> None:
        with self._guard:
            living = [(number, lives[-1]) for number, lives in self._leases.items() if lives[-1].ended is None]
        for number, life in living:
            asked_at = monotonic()
            left = int(gateway.call("/v3/lease/timetolive", {"ID": str(number)}).get("TTL", 0))
            with self._guard:
                life.promised = max(life.promised, asked_at + left)

    def _list(self, listed: set[int], asked_at: float, now: float) -> None:
        """A lease's id is its client's choice: a grant that was sent twice can arrive once more after its end."""
        for number in listed:
            lives = self._leases.setdefault(number, [])
            if not lives or lives[-1].ended is not None:
                lives.append(Lease(asked_at))
            lives[-1].asked_at = asked_at
        for number, lives in self._leases.items():
            if number not in listed and lives[-1].ended is None:
                lives[-1].ended = now
