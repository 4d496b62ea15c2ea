"""ZooKeeperLease: a session, and tickets that are ephemeral sequential nodes of it.

Entering a line is one exchange: create my node and list its siblings, sent back to back. The node's
czxid is the token. Leaving deletes the node, whose name holds my ticket's id and can't be anybody else's.

When is the session proven? An answered ping or read proves nothing: a follower that is cut off from its
leader answers them. An answered `sync` went through the leader, so at that time the follower was linked
to it. What keeps the session alive at the leader is the follower's report, once per half tick, of who has
been heard from. So a heartbeat counts from its sending once a later `sync`, sent at least a tick after it,
was answered: the report in between has carried it.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError

from holdfast.backends.zookeeper import codec
from holdfast.backends.zookeeper.connection import Connection, News, Pending
from holdfast.backends.zookeeper.watches import Watches
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.clock import Timer
from holdfast.errors import ClientClosed, HoldfastError, LeaseLost, StoreUnavailable, StoreWentBack
from holdfast.lease import Entry, LeaseState, Line, Reach, Surroundings, Ticket
from holdfast.limits import OWN_WATCH_AFTER
from holdfast.options import Options
from holdfast.reaper import Reaper
from holdfast.retry import persist
from holdfast.signals import Signal

Outcome = TypeVar("Outcome")
_ENDED: Final = (LeaseState.LOST, LeaseState.CLOSED)
_TICK_USUAL: Final = 2.0
_BEAT_LEAST: Final = 0.05
_SWEEP_AFTER: Final = 4 * OWN_WATCH_AFTER
"""A line's node that was not used for so long is removed if it is empty; a busy one is left in place."""


class History:
    """Law 4: tokens of later tickets are higher. One that is not tells of a store that went back."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._guard = threading.RLock()  # guards the two below
        self._highest = 0
        self._broken: StoreWentBack | None = None

    @property
    def highest(self) -> int:
        """The highest token seen so far. Read it before sending."""
        if self._broken is not None:
            raise self._broken
        return self._highest

    def check(self, token: int, least: int) -> None:
        with self._guard:
            if token <= least:
                self._broken = StoreWentBack(
                    f"{self._store} gave token {token} after this client had seen {least}: it was restored or "
                    "replaced. Its tokens would repeat, so this client stops. Fence what it protected, then connect "
                    "anew."
                )
                raise self._broken
            self._highest = max(self._highest, token)


class Proof:
    """Which heartbeat the leader must have heard of by now. See the top of this file."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._heard: collections.deque[float] = collections.deque(maxlen=256)

    def restart(self) -> None:
        """A new connection: what was sent on the old one may not have arrived."""
        self._heard.clear()

    def answered(self, sent: float) -> float | None:
        """The `sync` sent at `sent` was answered: the latest time from which the session is proven, if any."""
        self._heard.append(sent)
        proven = None
        while self._heard and self._heard[0] <= sent - self._tick:
            proven = self._heard.popleft()
        return proven


class ZooKeeperLease:
    """One session. Connects at the first verb; its life is told by timed `sync`s of our own."""

    def __init__(self, options: Options, ttl: float, around: Surroundings, history: History) -> None:
        self._options = options
        self._around = around
        self._clock = around.clock
        self._history = history
        self._asked_ttl = ttl
        self._belief = Belief(around.clock, ttl)
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        news = News(self._connected, self._suspended, self._expired)
        self._connection = Connection(options, ttl, around, news)
        self._watches = Watches(self._connection)
        self._guard = threading.RLock()  # guards everything below
        self._started_at: float | None = None
        self._linked_since: float | None = None  # a time before the leader last (re)validated the session
        self._proof: Proof | None = None
        self._beat_sent: float | None = None
        self._timer: Timer | None = None
        self._nodes: dict[str, str] = {}  # my tickets' nodes by id, and the lines used, for sweeping
        self._lines: dict[str, float] = {}
        self._entering: dict[str, str] = {}  # lines of tickets whose nodes are not known yet, by id
        self._sweeper: Timer | None = None

    @property
    def id(self) -> str:
        return f"{self._connection.session_id & 2**64 - 1:x}" if self._connection.session_id else ""

    @property
    def ttl(self) -> float:
        return self._connection.negotiated or self._asked_ttl

    @property
    def state(self) -> LeaseState:
        return self._belief.state

    @property
    def reaping(self) -> int:
        return self._reaper.owned

    @property
    def watches(self) -> int:
        return self._watches.count

    def remaining(self) -> float:
        return self._belief.remaining()

    # The verbs.

    def enter(self, entry: Entry, until: float) -> Line:
        self._connect(until)
        path = codec.line_path(self._options.namespace, entry.resource)
        tries = 0

        def attempt() -> Line:
            nonlocal tries
            tries += 1
            found = self._find(entry, path, until) if tries > 1 else None
            return self._create(entry, path, until) if found is None else found

        with self._guard:
            self._entering[entry.id] = path
            self._lines[path] = self._clock.now()
        try:
            return self._persist(attempt, until)
        finally:
            self._entering.pop(entry.id, None)
            self._sweep_later()

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        path = codec.line_path(self._options.namespace, ticket.resource)
        line = self._persist(lambda: self._list(ticket.resource, path, until), until)
        mine = tuple(ticket if t.id == ticket.id else t for t in line.tickets)
        position = line.position(ticket.id)
        return Line(line.resource, mine[: 0 if position is None else position + 1], 0)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        self._connect(until)
        path = codec.line_path(self._options.namespace, resource)
        return self._persist(lambda: self._survey(resource, path, front, until), until)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        if len(tickets) == 1:
            known = tickets[0].version or 0
            stop = self._watches.add(
                tickets[0].key,
                children=False,
                changed=lambda stat: stat is None or (amendments and stat.version > known),
                signal=signal,
            )
        else:
            awaited = {t.key.rpartition("/")[2] for t in tickets}
            there = {t.key.rpartition("/")[2] for t in line.tickets}
            stop = self._watches.add(
                codec.line_path(self._options.namespace, line.resource),
                children=True,
                changed=lambda names: not awaited <= set(names) or (not awaited and set(names) != there),
                signal=signal,
            )

        def close() -> None:
            stop()
            self._belief.drop_wait(signal)

        signal.on_close(close)
        self._belief.add_wait(signal)
        return signal

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        data = codec.write_data(ticket.owner or "", value, ticket.created_at)
        return self._persist(lambda: self._was_there(self._connection.set(ticket.key, data), until), until)

    def leave(self, ticket: Ticket, until: float) -> bool:
        self._nodes.pop(ticket.id, None)
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            # gone after a lost answer: that try was ours
            return self._was_there(self._connection.delete(ticket.key), until) or tries > 1

        return self._persist(attempt, until)

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def renew(self, until: float) -> float:
        self._connect(until)
        sent = self._clock.now()
        self._persist(lambda: self._connection.ask(until, self._connection.sync("/")), until)
        self._prove(sent)
        if self.state in _ENDED:
            raise self._ended_error()
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        alive = self.state not in _ENDED and self._belief.proven and self._linked_since is None
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        if alive:
            self._empty_lines(until)
        if self._started_at is not None:
            self._connection.stop(until)
            self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    # Life and death of the session.

    def _connect(self, until: float) -> None:
        if self._belief.proven:
            if self.state in _ENDED:
                raise self._ended_error()
            return
        with self._guard:
            if self.state in _ENDED:
                raise self._ended_error()
            if self._started_at is None:
                self._started_at = self._clock.now()
                self._linked_since = self._started_at
                self._connection.start()
        try:
            self._connection.wait_connected(until)
        except StoreUnavailable:
            raise
        except HoldfastError:
            self._belief.end(LeaseState.LOST, "the store refused the session")
            raise
        if self.state in _ENDED:
            raise self._ended_error()

    def _connected(self) -> None:
        """kazoo says that the session is (again) known to the store. The leader validated it just now."""
        with self._guard:
            first = self._proof is None
            negotiated = self._connection.negotiated or self._asked_ttl
            tick = self._options.tick or min(_TICK_USUAL, negotiated / 2)
            self._proof = Proof(min(tick, negotiated / 2))
            self._tick = min(tick, negotiated / 2)
            self._beat_sent = None
            if self._linked_since is not None:
                self._prove_from(self._linked_since)
            self._linked_since = None
        if first:
            self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
            self._beat()

    def _suspended(self) -> None:
        with self._guard:
            self._linked_since = self._clock.now()
            self._beat_sent = None
            if self._proof is not None:
                self._proof.restart()
        self._around.hub.emit("endpoint_failed", reason="the connection to ZooKeeper was lost")

    def _expired(self) -> None:
        self._belief.end(LeaseState.LOST, EXPIRED)

    @property
    def _interval(self) -> float:
        return max(_BEAT_LEAST, min(self._tick / 2, self.ttl / 6))

    def _beat(self) -> None:
        """One heartbeat, unless one is on its way. On the clock's thread: blocks nowhere."""
        if self.state in _ENDED:
            return
        now = self._clock.now()
        with self._guard:
            waiting_since = self._beat_sent
            if waiting_since is None and self._linked_since is None:
                self._beat_sent = now
        if waiting_since is None and self._beat_sent == now:
            self._connection.sync("/").rawlink(lambda answer: self._beat_answered(now, answer))
        elif waiting_since is not None and now - waiting_since > self.ttl / 3:
            with self._guard:
                self._beat_sent = None
            self._connection.drop()
        self._timer = self._clock.schedule(now + self._interval, self._beat)

    def _beat_answered(self, sent: float, answer: Pending) -> None:
        """On one of kazoo's threads: must not block."""
        with self._guard:
            if self._beat_sent == sent:
                self._beat_sent = None
        if answer.successful():
            self._prove(sent)

    def _prove(self, sent: float) -> None:
        with self._guard:
            proven = self._proof.answered(sent) if self._proof is not None and self._linked_since is None else None
        if proven is not None:
            self._prove_from(proven)

    def _prove_from(self, when: float) -> None:
        self._belief.prove(when, provable(self.ttl), lag=self._tick + self._interval)

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state in _ENDED and self._timer is not None:
            self._timer.cancel()
        if state is LeaseState.LOST:
            self._around.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)
            self._connection.stop(self._clock.now())

    def _ended_error(self) -> HoldfastError:
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"session {self.id} is gone: {self._belief.reason}")

    # Exchanges.

    def _persist(self, attempt: Callable[[], Outcome], until: float) -> Outcome:
        def unless_over() -> Outcome:
            if self.state in _ENDED:
                raise self._ended_error()
            return attempt()

        try:
            return persist(unless_over, until, self._clock)
        except LeaseLost:
            self._belief.end(LeaseState.LOST, EXPIRED)
            raise

    def _create(self, entry: Entry, path: str, until: float) -> Line:
        """Create my node and list its siblings, in one exchange; with its parents where they are missing."""
        connection = self._connection
        while True:
            least = self._history.highest
            created = connection.create_ticket(
                f"{path}/{codec.node_prefix(entry)}", codec.write_data(entry.owner, entry.value)
            )
            listed = connection.children(path)
            try:
                (_, stat), children = connection.ask(until, created, listed)
            except NoNodeError:
                self._make_parents(path, until)
                continue
            self._history.check(stat.czxid, least)
            return self._line_with_mine(entry, path, children, stat.czxid)

    def _find(self, entry: Entry, path: str, until: float) -> Line | None:
        """What an earlier try of `enter` left: its answer was lost. The sync shows it even on another server."""
        try:
            _, children = self._connection.ask(until, self._connection.sync(path), self._connection.children(path))
        except NoNodeError:
            return None
        mine = next((c for c in children if c.startswith(f"_c_{entry.id}-")), None)
        if mine is None:
            return None
        stat = self._connection.ask(until, self._connection.exists(f"{path}/{mine}"))[0]
        if stat is None or stat.ephemeralOwner != self._connection.session_id:
            return None
        return self._line_with_mine(entry, path, children, stat.czxid)

    def _line_with_mine(self, entry: Entry, path: str, children: list[str], token: int) -> Line:
        """My own ticket carries its token; listing names did not tell it."""
        tickets = codec.read_line(entry.resource, path, children)
        position = next((i for i, t in enumerate(tickets) if t.id == entry.id), None)
        if position is None:
            return Line(entry.resource, (), 0)
        with self._guard:
            self._nodes[entry.id] = tickets[position].key
        return Line(entry.resource, (*tickets[:position], codec.mine(tickets[position], entry, token, self.id)), 0)

    def _list(self, resource: str, path: str, until: float) -> Line:
        try:
            children = self._connection.ask(until, self._connection.children(path))[0]
        except NoNodeError:
            children = []
        return Line(resource, codec.read_line(resource, path, children), 0)

    def _survey(self, resource: str, path: str, front: int | None, until: float) -> Line:
        connection = self._connection
        try:
            _, children = connection.ask(until, connection.sync(path), connection.children(path))
        except NoNodeError:
            return Line(resource, (), 0)
        tickets: list[Ticket] = []
        waiting = list(codec.read_line(resource, path, children))
        while waiting and (front is None or len(tickets) < front):
            batch, waiting = waiting[: front or len(waiting)], waiting[front or len(waiting) :]
            requests = [connection.get(ticket.key) for ticket in batch]
            for ticket, request in zip(batch, requests, strict=True):
                try:
                    data, stat = connection.ask(until, request)[0]
                except NoNodeError:
                    continue  # it left between the listing and the reading
                tickets.append(codec.described(ticket, data, stat))
        return Line(resource, tuple(tickets[:front]), 0)

    def _was_there(self, request: Pending, until: float) -> bool:
        try:
            self._connection.ask(until, request)
        except NoNodeError:
            return False
        return True

    def _make_parents(self, path: str, until: float) -> None:
        parts = path.split("/")[1:]
        requests = [self._connection.create_container("/" + "/".join(parts[: i + 1])) for i in range(len(parts))]
        for request in requests:
            try:
                self._connection.ask(until, request)
            except NodeExistsError:
                continue

    def _withdraw(self, entry: Entry, until: float) -> bool:
        if self._started_at is None:
            return False
        path = codec.line_path(self._options.namespace, entry.resource)
        self._connect(until)
        found = self._persist(lambda: self._find(entry, path, until), until)
        return found is not None and self.leave(found.tickets[-1], until)

    # Nothing is left behind: a line's node goes with its last ticket. It is a container, so the server removes
    # it in time even if nobody here lives to do it; we don't wait for that.

    def _sweep_later(self) -> None:
        with self._guard:
            if self._sweeper is None and self.state not in _ENDED:
                self._sweeper = self._clock.schedule(self._clock.now() + _SWEEP_AFTER, self._sweep)

    def _sweep(self) -> None:
        """Remove the lines not used for a while, if empty. On the clock's thread: sends, and does not wait."""
        now = self._clock.now()
        with self._guard:
            self._sweeper = None
            used = {key.rpartition("/")[0] for key in self._nodes.values()}
            used |= set(self._entering.values())
            idle = [path for path, at in self._lines.items() if path not in used and now - at >= _SWEEP_AFTER]
            for path in idle:
                del self._lines[path]
        for path in idle:
            self._connection.delete(path)  # not empty, not there, not connected: all the same here
        if self._lines:
            self._sweep_later()

    def _empty_lines(self, until: float) -> None:
        """At the end: my tickets first, then their lines. Best effort; the session's end removes the tickets."""
        with self._guard:
            nodes, lines = list(self._nodes.values()), list(self._lines)
            entering = dict(self._entering)
        nodes += self._arrived(entering, until)
        requests = [self._connection.delete(path) for path in (*nodes, *lines)]
        namespace = self._options.namespace.split("/")
        requests += [self._connection.delete("/" + "/".join(namespace[:i])) for i in range(len(namespace), 0, -1)]
        for request in requests:
            try:
                self._connection.ask(until, request)
            except (NotEmptyError, NoNodeError, KazooException):
                continue
            except HoldfastError:
                return

    def _arrived(self, entering: dict[str, str], until: float) -> list[str]:
        """The nodes of tickets that were entering when the end came: what was sent before this is answered before."""
        found: list[str] = []
        for path in set(entering.values()):
            try:
                children: list[str] = self._connection.ask(until, self._connection.children(path))[0]
            except (KazooException, HoldfastError):
                continue
            found += [f"{path}/{c}" for c in children if any(c.startswith(f"_c_{i}-") for i in entering)]
        return found
