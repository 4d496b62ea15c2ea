"""ZooKeeperLease: a session, and tickets that are ephemeral sequential nodes of it.

Entering a line is one exchange: create my node and list its siblings, sent back to back. The node's
czxid is the token. Leaving deletes the node, whose name holds my ticket's id and can't be anybody else's.

SessionProof, in connection.py, says which answers prove the session (law 2).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kazoo.exceptions import NoNodeError

from tenure._backends.zookeeper import codec
from tenure._backends.zookeeper.admin import ZooKeeperAdmin
from tenure._backends.zookeeper.connection import Pending, SessionListener, SessionProof, ZooKeeperSession
from tenure._backends.zookeeper.guarded_keys import Guarded
from tenure._backends.zookeeper.lines import ZooKeeperLines, ZxidHistory
from tenure._backends.zookeeper.sweeper import Sweeper
from tenure._backends.zookeeper.watches import ArmedWatch, Watches
from tenure._core.base.clock import Timer
from tenure._core.base.limits import WATCHED_SINGLY_MAX
from tenure._core.base.options import Options
from tenure._core.base.retry import persist
from tenure._core.base.signals import Signal
from tenure._core.belief import EXPIRED, Belief, provable
from tenure._core.lease import (
    BackendContext,
    Committed,
    Compare,
    Delete,
    Entry,
    LeaseState,
    Line,
    Put,
    Reach,
    Record,
    Ticket,
)
from tenure._core.reaper import Reaper
from tenure.errors import ClientClosed, LeaseLost, StoreRefused, StoreUnavailable, TenureError

Outcome = TypeVar("Outcome")
_TICK_DEFAULT: Final = 2.0
_BEAT_MIN: Final = 0.05
_MILLISECOND: Final = 0.001
"""Precision of ZooKeeper's time-outs."""
_RECONNECT_SECONDS: Final = 1.0
"""Time for which closing waits for a connection just lost: without one the tickets stay until the session ends."""


class ZooKeeperLease:
    """A session. Connects at the first verb; timed `sync`s of our own prove that it lives."""

    def __init__(
        self, options: Options, ttl: float, lock_delay: float, context: BackendContext, history: ZxidHistory
    ) -> None:
        self._options = options
        self._context = context
        self._clock = context.clock
        self._asked_ttl = ttl
        self._lock_delay = lock_delay
        self._belief = Belief(context.clock, ttl)
        self._belief.on_change(self._changed)
        self._reaper = Reaper(self._withdraw, lambda: self.state, context)
        listener = SessionListener(self._connected, self._suspended, self._over)
        self._connection = ZooKeeperSession(options, ttl + lock_delay, context, listener)
        self._watches = Watches(self._connection)
        self._lines = ZooKeeperLines(options.namespace, self._connection, history)
        self._guarded = Guarded(self._connection, self._lines, options.namespace)
        self.admin = ZooKeeperAdmin(options.namespace, self._connection, self._lines, self._exchange, self._belief)
        self._sweeper = Sweeper(self._connection, context.clock)
        self._guard = threading.RLock()  # guards everything below
        self._started_at: float | None = None
        self._linked_since: float | None = None  # a time before the leader last (re)validated the session
        self._proof: SessionProof | None = None
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
            # The first try may have made the node although its answer was lost: a second one would stand in line twice.
            found = self._lines.find(entry, until) if tries > 1 else None
            return self._lines.enter(entry, until) if found is None else found

        line = None
        # Before the first send: a client that closes in the midst of this finds the node by its line (law 12). After
        # `_connect`, which may refuse: then no line was touched, and none is to be swept.
        self._sweeper.entering(entry.id, self._lines.path(entry.resource))
        try:
            line = self._exchange(attempt, until)
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
        line = self._exchange(lambda: self._lines.listed(ticket.resource, until), until)
        position = line.position(ticket.id)
        if position is None or line.tickets[position].key != ticket.key:
            return Line(line.resource, (), 0)
        return Line(line.resource, (*line.tickets[:position], ticket), 0)

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        return self._exchange(lambda: self._lines.survey(resource, front, until), until)

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        signal = Signal()
        amendments = amendments or not tickets  # any change
        singly = 0 < len(tickets) <= WATCHED_SINGLY_MAX
        watched = [] if singly else [self._watch_line(line, tickets, signal)]
        if singly or amendments:  # a line's node reports tickets that come and go, not their data
            watched += [self._watch_ticket(ticket, signal, amendments) for ticket in tickets or line.tickets]
        signal.on_close(_WaitEnd(self, signal, tuple(watched)))
        self._belief.add_signal(signal)  # the end of the lease ends every wait, whether a watch fires or not
        return signal

    def stop_waiting(self, signal: Signal, watched: Sequence[ArmedWatch]) -> None:
        """End a wait: nothing sets that signal any more."""
        for one in watched:
            self._watches.drop(one, signal)
        self._belief.drop_signal(signal)

    def _watch_ticket(self, ticket: Ticket, signal: Signal, amendments: bool) -> ArmedWatch:
        changed = partial(_has_changed, ticket.version or 0) if amendments else _has_left
        return self._watches.add(ticket.key, children=False, changed=changed, signal=signal)

    def _watch_line(self, line: Line, tickets: Sequence[Ticket], signal: Signal) -> ArmedWatch:
        path, awaited, there = self._lines.path(line.resource), _keys(tickets), _keys(line.tickets)

        def changed(names: Sequence[str]) -> bool:
            now = _keys(codec.read_line(line.resource, path, names))  # a line nested below is no ticket, and no news
            return not awaited <= now if awaited else now != there

        return self._watches.add(path, children=True, changed=changed, signal=signal)

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        data = codec.write_data(ticket.owner or "", value, ticket.created_at)
        return self._exchange(lambda: self._was_there(self._connection.set(ticket.key, data), until), until)

    def leave(self, ticket: Ticket, until: float) -> bool:
        self._sweeper.left(ticket.id)
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            # gone after a lost answer: that try was ours
            return self._was_there(self._connection.delete(ticket.key), until) or tries > 1

        try:
            return self._exchange(attempt, until)
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
        return self._exchange(lambda: self._guarded.read(ticket, keys, until), until)

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        # Once: a commit may have been carried out although its answer was lost; its caller finds that out.
        return self._exchange(lambda: self._guarded.commit(ticket, compares, writes, until), until, once=True)

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        return self._exchange(lambda: self._guarded.touch(ticket, until), until)

    def renew(self, until: float) -> float:
        self._connect(until)
        sent = self._clock.now()  # before any try: a proof counts from its sending (law 2)
        self._exchange(lambda: self._connection.ask(until, self._connection.sync("/")), until)
        self._prove(sent)
        if self.state.over:
            raise self._ended_error()
        return self.remaining()

    def on_end(self, callback: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        return self._belief.on_change(callback)

    def close(self, until: float) -> None:
        # By the clock it may be lost already, though `_changed` was not called yet, which would do the same.
        if self._lock_delay and self.state is LeaseState.LOST:
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
                self._context.hub.emit("lease_closed", lease_id=self.id, ttl=self.ttl)

    def _reaches(self, until: float) -> bool:
        """Tell whether a server answers."""
        try:
            persist(lambda: self._connection.ask(until, self._connection.sync("/")), until, self._clock)
        except TenureError:
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
        except TenureError:
            self._belief.end(LeaseState.LOST, "the store refused the session")
            raise
        if self.state.over:
            raise self._ended_error()

    def _start(self) -> None:
        """Start the session, with the guard held."""
        try:
            self._started_at = self._clock.now()
            self._linked_since = self._started_at
            self._connection.start()
        except BaseException:  # interrupted, or no thread for it: whoever comes next would wait for it in vain
            self._belief.end(LeaseState.LOST, "its connection could not be started")
            raise

    def _connected(self) -> None:
        """Take note that the store knows the session (again), as kazoo says. The leader validated it just now."""
        with self._guard:
            first = self._proof is None
            asked = self._asked_ttl + self._lock_delay
            negotiated = self._connection.negotiated or asked
            if self._lock_delay and negotiated < asked - _MILLISECOND:
                self._refuse(negotiated)
                return
            tick = self._options.tick or min(_TICK_DEFAULT, negotiated / 2)
            # A new one: heartbeats of the connection before may not have arrived, and prove nothing.
            self._proof = SessionProof(min(tick, negotiated / 2))
            self._tick = min(tick, negotiated / 2)
            self._beat_sent = None
            if self._linked_since is not None:  # negotiated anew: a server with a lower limit moves the end down
                self._prove_from(self._linked_since, anew=True)
            self._linked_since = None
        if first:
            self._context.hub.emit("lease_opened", lease_id=self.id, ttl=self.ttl)
            self._beat()

    def _refuse(self, negotiated: float) -> None:
        """Refuse the negotiated time-out: a shorter TTL is acceptable, a shorter lock delay would break a promise."""
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
        self.admin.disconnected()
        self._context.hub.emit("endpoint_failed", reason="the connection to ZooKeeper was lost")

    def _over(self, why: str) -> None:
        self._belief.end(LeaseState.LOST, why)

    @property
    def _interval(self) -> float:
        return max(_BEAT_MIN, min(self._tick / 2, self.ttl / 6))

    def _beat(self) -> None:
        """Send a heartbeat, unless one is on its way. On the clock's thread: blocks nowhere."""
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
            # The server swallows what is sent: given up now, another one has time left to save the session.
            with self._guard:
                self._beat_sent = None
            self._connection.drop()
        self._timer = self._clock.schedule(now + self._interval, self._beat)

    def _beat_answered(self, sent: float, answer: Pending) -> None:
        """Take the answer to a heartbeat. On one of kazoo's threads: must not block."""
        with self._guard:
            if self._beat_sent == sent:
                self._beat_sent = None
        if answer.successful():
            self._prove(sent)
        elif not self.state.over:
            reason = str(answer.exception) or type(answer.exception).__name__
            self._context.hub.emit("renewal_failed", lease_id=self.id, ttl=self.ttl, reason=reason)

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
            self._context.hub.emit("lease_lost", lease_id=self.id, ttl=self.ttl, reason=reason)

    def _ended_error(self) -> TenureError:
        if self._refused:
            return StoreRefused(self._refused)
        if self.state is LeaseState.CLOSED:
            return ClientClosed("the client is closed")
        return LeaseLost(f"session {self.id} is gone: {self._belief.reason}")

    # Exchanges.

    def _exchange(self, attempt: Callable[[], Outcome], until: float, *, once: bool = False) -> Outcome:
        """Carry out `attempt` in the session: again after each StoreUnavailable until `until`, or `once`."""
        self._connect(until)

        def attempt_unless_ended() -> Outcome:
            if self.state.over:  # asked before each try: the session may have ended in the pause between two
                raise self._ended_error()
            try:
                return attempt()
            except LeaseLost as error:
                self._belief.end(LeaseState.LOST, str(error))
                raise

        return attempt_unless_ended() if once else persist(attempt_unless_ended, until, self._clock)

    def _was_there(self, request: Pending, until: float) -> bool:
        try:
            self._connection.ask(until, request)
        except NoNodeError:
            return False
        return True

    def _withdraw(self, entry: Entry, until: float) -> bool:
        if self._started_at is None:
            return False
        found = self._exchange(lambda: self._lines.find(entry, until), until)
        if found is None:
            self._sweeper.left(entry.id)  # removed by somebody, if it ever stood
            return False
        return self.leave(found.tickets[-1], until)


def _keys(tickets: Sequence[Ticket]) -> set[str]:
    return {ticket.key for ticket in tickets}


@dataclass(slots=True)
class _WaitEnd:
    """Callback that ends a wait. Each hold has one, for its own ticket: a closure would be larger."""

    lease: ZooKeeperLease
    signal: Signal
    watched: Sequence[ArmedWatch]

    def __call__(self) -> None:
        self.lease.stop_waiting(self.signal, self.watched)


def _has_left(version: int | None) -> bool:
    return version is None


def _has_changed(known: int, version: int | None) -> bool:
    """Tell whether the ticket has left or was amended since it was seen."""
    return version is None or version > known
