"""ZooKeeperLease: a session, and tickets that are ephemeral sequential nodes of it.

Entering a line is one exchange: create my node and list its siblings, sent back to back. The node's
czxid is the token. Leaving deletes the node, whose name holds my ticket's id and can't be anybody else's.

What proves the session is told in proof.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kazoo.exceptions import NoNodeError

from holdfast.backends.zookeeper import codec
from holdfast.backends.zookeeper.connection import Connection, News, Pending
from holdfast.backends.zookeeper.guarded import Guarded
from holdfast.backends.zookeeper.lines import Lines
from holdfast.backends.zookeeper.operating import ZooKeeperOperating
from holdfast.backends.zookeeper.proof import History, Proof
from holdfast.backends.zookeeper.sweeper import Sweeper
from holdfast.backends.zookeeper.watches import Watched, Watches
from holdfast.belief import EXPIRED, Belief, provable
from holdfast.clock import Timer
from holdfast.errors import ClientClosed, HoldfastError, LeaseLost, StoreRefused, StoreUnavailable
from holdfast.lease import (
    Committed,
    Compare,
    Delete,
    Entry,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Surroundings,
    Ticket,
)
from holdfast.options import Options
from holdfast.reaper import Reaper
from holdfast.retry import persist
from holdfast.signals import Signal

Outcome = TypeVar("Outcome")
_TICK_USUAL: Final = 2.0
_BEAT_LEAST: Final = 0.05
_MILLISECOND: Final = 0.001
"""ZooKeeper counts in whole ones."""
_RECONNECT_SECONDS: Final = 1.0
"""For how long closing waits for a connection that was just lost: without one the tickets stay for their time."""


class ZooKeeperLease:
    """One session. Connects at the first verb; its life is told by timed `sync`s of our own."""

    def __init__(self, options: Options, ttl: float, lock_delay: float, around: Surroundings, history: History) -> None:
        self._options = options
        self._around = around
        self._clock = around.clock
        self._asked_ttl = ttl
        self._lock_delay = lock_delay
        self._belief = Belief(around.clock, ttl)
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, around)
        news = News(self._connected, self._suspended, self._over)
        self._connection = Connection(options, ttl + lock_delay, around, news)
        self._watches = Watches(self._connection)
        self._lines = Lines(options.namespace, self._connection, history)
        self._guarded = Guarded(self._connection)
        self.operating = ZooKeeperOperating(
            options.namespace, self._connection, self._lines, self._persist, self._belief
        )
        self._sweeper = Sweeper(self._connection, around.clock)
        self._guard = threading.RLock()  # guards everything below
        self._started_at: float | None = None
        self._linked_since: float | None = None  # a time before the leader last (re)validated the session
        self._proof: Proof | None = None
        self._beat_sent: float | None = None
        self._refused = ""  # why, where it was
        self._timer: Timer | None = None

    @property
    def id(self) -> str:
        return codec.session_name(self._connection.session_id)

    @property
    def ttl(self) -> float:
        negotiated = self._connection.negotiated
        return self._asked_ttl if negotiated is None else max(negotiated - self._lock_delay, 0.0)

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
        tries = 0

        def attempt() -> Line:
            nonlocal tries
            tries += 1
            found = self._lines.find(entry, until) if tries > 1 else None
            return self._lines.enter(entry, until) if found is None else found

        line = None
        self._sweeper.entering(entry.id, self._lines.path(entry.resource))
        try:
            line = self._persist(attempt, until)
        finally:
            me = None if line is None else line.find(entry.id)
            self._sweeper.entered(entry.id, None if me is None else me.key)
        if me is not None and codec.is_out_of_order(me):
            raise StoreRefused(
                f"the line of {entry.resource!r} has had so many tickets that ZooKeeper can't put another in order; "
                f"it begins anew once {self._lines.path(entry.resource)} was empty for a moment, or was deleted"
            )
        return line

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        line = self._persist(lambda: self._lines.listed(ticket.resource, until), until)
        position = line.position(ticket.id)
        if position is None or line.tickets[position].key != ticket.key:
            return Line(line.resource, (), 0)
        return Line(line.resource, (*line.tickets[:position], ticket), 0)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        return self._persist(lambda: self._lines.survey(resource, front, until), until)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        amendments = amendments or not tickets  # any change
        watched = [] if len(tickets) == 1 else [self._watch_line(line, tickets, signal)]
        if len(tickets) == 1 or amendments:  # a line's node tells of tickets that come and go, not of what is in them
            watched += [self._watch_ticket(ticket, signal, amendments) for ticket in tickets or line.tickets]
        signal.on_close(_Wait(self, signal, tuple(watched)))
        self._belief.add_wait(signal)
        return signal

    def stop_waiting(self, signal: Signal, watched: Sequence[Watched]) -> None:
        """Nothing sets that signal any more."""
        for one in watched:
            self._watches.drop(one, signal)
        self._belief.drop_wait(signal)

    def _watch_ticket(self, ticket: Ticket, signal: Signal, amendments: bool) -> Watched:
        changed = partial(_has_changed, ticket.version or 0) if amendments else _has_left
        return self._watches.add(ticket.key, children=False, changed=changed, signal=signal)

    def _watch_line(self, line: Line, tickets: Sequence[Ticket], signal: Signal) -> Watched:
        path, awaited, there = self._lines.path(line.resource), _keys(tickets), _keys(line.tickets)

        def changed(names: Sequence[str]) -> bool:
            now = _keys(codec.read_line(line.resource, path, names))  # a line nested below is no ticket, and no news
            return not awaited <= now if awaited else now != there

        return self._watches.add(path, children=True, changed=changed, signal=signal)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        data = codec.write_data(ticket.owner or "", value, ticket.created_at)
        return self._persist(lambda: self._was_there(self._connection.set(ticket.key, data), until), until)

    def leave(self, ticket: Ticket, until: float) -> bool:
        self._sweeper.left(ticket.id)
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            # gone after a lost answer: that try was ours
            return self._was_there(self._connection.delete(ticket.key), until) or tries > 1

        try:
            return self._persist(attempt, until)
        except LeaseLost as error:
            if self.state is LeaseState.CLOSED or self._belief.reason == EXPIRED:
                raise  # we ended the session, or the store has said that it ended: the ticket went with it
            raise StoreUnavailable(
                f"session {self.id} can't be proven any longer, and ZooKeeper has not told its end; its ticket in "
                f"the line of {ticket.resource!r} stands until then"
            ) from error

    def abandon(self, entry: Entry) -> None:
        self._reaper.own(entry)

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        return self._persist(lambda: self._guarded.read(ticket, keys, until), until)

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        self._connect(until)
        return self._unless_ended(lambda: self._guarded.commit(ticket, compares, writes, until))

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._persist(lambda: self._guarded.touch(ticket, until), until)

    def renew(self, until: float) -> float:
        self._connect(until)
        sent = self._clock.now()
        self._persist(lambda: self._connection.ask(until, self._connection.sync("/")), until)
        self._prove(sent)
        if self.state.over:
            raise self._ended_error()
        return self.remaining()

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(told)

    def close(self, until: float) -> None:
        if self._lock_delay and self.state is LeaseState.LOST:  # by the clock, though nobody may have told it yet
            self._connection.forsake()
        alive = not self.state.over and self._belief.proven
        self._belief.end(LeaseState.CLOSED, "the client was closed")
        try:
            if alive:
                self._sweeper.send_removals()
            if alive and self._reaches(min(until, self._clock.now() + _RECONNECT_SECONDS)):
                self._sweeper.remove_all(self._options.namespace, self._lines.made, until)
        finally:  # interrupted too: a session that nobody ends would keep its tickets for the life of the process
            if self._started_at is not None:
                self._connection.stop(until)
                self._around.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    def _reaches(self, until: float) -> bool:
        """Is there a server to tell of the end?"""
        try:
            persist(lambda: self._connection.ask(until, self._connection.sync("/")), until, self._clock)
        except HoldfastError:
            return False
        return True

    # Life and death of the session.

    def _connect(self, until: float) -> None:
        if self._belief.proven:
            if self.state.over:
                raise self._ended_error()
            return
        with self._guard:
            if self.state.over:
                raise self._ended_error()
            if self._started_at is None:
                self._start()
        try:
            self._connection.wait_connected(until)
        except StoreUnavailable:
            raise
        except HoldfastError:
            self._belief.end(LeaseState.LOST, "the store refused the session")
            raise
        if self.state.over:
            raise self._ended_error()

    def _start(self) -> None:
        """Guard held."""
        try:
            self._started_at = self._clock.now()
            self._linked_since = self._started_at
            self._connection.start()
        except BaseException:  # interrupted, or no thread for it: whoever comes next would wait for it in vain
            self._belief.end(LeaseState.LOST, "its connection could not be started")
            raise

    def _connected(self) -> None:
        """kazoo says that the session is (again) known to the store. The leader validated it just now."""
        with self._guard:
            first = self._proof is None
            asked = self._asked_ttl + self._lock_delay
            negotiated = self._connection.negotiated or asked
            if self._lock_delay and negotiated < asked - _MILLISECOND:
                self._refuse(negotiated)
                return
            tick = self._options.tick or min(_TICK_USUAL, negotiated / 2)
            self._proof = Proof(min(tick, negotiated / 2))
            self._tick = min(tick, negotiated / 2)
            self._beat_sent = None
            if self._linked_since is not None:  # negotiated anew: a server with a lower limit moves the end down
                self._prove_from(self._linked_since, anew=True)
            self._linked_since = None
        if first:
            self._around.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
            self._beat()

    def _refuse(self, negotiated: float) -> None:
        """A shorter TTL may be lived with, a shorter delay would be a promise broken."""
        self._refused = (
            f"{self._options.display} grants sessions of at most {negotiated:g} s, and a ttl of {self._asked_ttl:g} "
            f"with a lock_delay of {self._lock_delay:g} needs more: give less, or raise the server's maxSessionTimeout"
        )
        self._belief.end(LeaseState.LOST, "the server does not grant sessions of ttl + lock_delay")

    def _suspended(self) -> None:
        with self._guard:
            self._linked_since = self._clock.now()
            self._beat_sent = None
            if self._proof is not None:
                self._proof.restart()
        self.operating.disconnected()
        self._around.hub.emit("endpoint_failed", reason="the connection to ZooKeeper was lost")

    def _over(self, why: str) -> None:
        self._belief.end(LeaseState.LOST, why)

    @property
    def _interval(self) -> float:
        return max(_BEAT_LEAST, min(self._tick / 2, self.ttl / 6))

    def _beat(self) -> None:
        """One heartbeat, unless one is on its way. On the clock's thread: blocks nowhere."""
        if self.state.over:
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
        elif not self.state.over:
            reason = str(answer.exception) or type(answer.exception).__name__
            self._around.hub.emit("renewal_failed", lease_id=self.id, ttl=self.ttl, reason=reason)

    def _prove(self, sent: float) -> None:
        with self._guard:  # also while it is believed: a reconnect in between may have been granted less
            proven = self._proof.answered(sent) if self._proof is not None and self._linked_since is None else None
            if proven is not None:
                self._prove_from(proven)

    def _prove_from(self, when: float, *, anew: bool = False) -> None:
        self._belief.prove(when, provable(self.ttl), lag=self._tick + self._interval, anew=anew)

    def _changed(self, state: LeaseState, reason: str) -> None:
        if state.over:
            self._sweeper.stop()
            if self._timer is not None:
                self._timer.cancel()
        if state is LeaseState.LOST:
            # before anybody hears of it, who might close the client: whoever comes next has to wait for the store
            if self._lock_delay and self._belief.proven:
                self._connection.forsake()
            else:
                self._connection.stop(self._clock.now())
            self._around.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)

    def _ended_error(self) -> HoldfastError:
        if self._refused:
            return StoreRefused(self._refused)
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"session {self.id} is gone: {self._belief.reason}")

    # Exchanges.

    def _persist(self, attempt: Callable[[], Outcome], until: float) -> Outcome:
        self._connect(until)
        return persist(lambda: self._unless_ended(attempt), until, self._clock)

    def _unless_ended(self, attempt: Callable[[], Outcome]) -> Outcome:
        if self.state.over:
            raise self._ended_error()
        try:
            return attempt()
        except LeaseLost as error:
            self._belief.end(LeaseState.LOST, str(error))
            raise

    def _was_there(self, request: Pending, until: float) -> bool:
        try:
            self._connection.ask(until, request)
        except NoNodeError:
            return False
        return True

    def _withdraw(self, entry: Entry, until: float) -> bool:
        if self._started_at is None:
            return False
        found = self._persist(lambda: self._lines.find(entry, until), until)
        if found is None:
            self._sweeper.left(entry.id)  # removed by somebody, if it ever stood
            return False
        return self.leave(found.tickets[-1], until)


def _keys(tickets: Sequence[Ticket]) -> set[str]:
    return {ticket.key for ticket in tickets}


@dataclass(slots=True)
class _Wait:
    """The end of one, as its signal calls it. Each hold has one, for its own ticket: a closure would be the larger."""

    lease: ZooKeeperLease
    signal: Signal
    watched: Sequence[Watched]

    def __call__(self) -> None:
        self.lease.stop_waiting(self.signal, self.watched)


def _has_left(version: int | None) -> bool:
    return version is None


def _has_changed(known: int, version: int | None) -> bool:
    """Since it was seen."""
    return version is None or version > known
