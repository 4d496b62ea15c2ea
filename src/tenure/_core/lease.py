"""THE CORE: a lease is a promise with an end; a line is the tickets of one resource.

A `Backend` opens leases. A `Lease` puts tickets into lines and takes them out. Everything a user
sees (locks, semaphores, elections) is a rule over a line; everything a store must do is below.
Adding a recipe changes no backend, and adding a backend changes no recipe.

The laws every backend keeps. The conformance suite has one test for each:

Safety
 1. Two tickets that exclude each other are never both held as far as their holders can tell.
 2. A lease's deadline is the clock read *before* the request that proved it was sent, plus the
    *granted* TTL, less a margin for drift. Only an answer that proves the lease extends it. Expiry
    needs no network, no thread and no callback.
 3. "Acquired" is said only while my ticket is seen in the line, under my lease, deadline ahead.
 4. Tokens strictly grow along a line; a store that went back stops the client.
 5. Every removal names the ticket by its token: nobody else's ticket can be hit.
 6. Every retry of a lost answer finds what the first try did, by the ticket's id.
Liveness
 7. Every way out of a wait removes the ticket, or leaves it to the reaper until it or its lease is gone.
 8. One deadline per call, over all its steps and retries.
 9. First come, first served.
10. Nothing grows with the number of waiters but the line itself.
11. A watch that ends without an event is a reason to look, never a success.
12. After the last ticket nothing is left in the store but records that were asked for, see _admin/protocol.py.
Life in a process
13. Two threads, tasks or objects exclude each other like two processes.
14. A forked child holds nothing; a client that its parent never used works there.
15. Every loss is announced: state, signal, callback, exception, event.
16. A clean exit gives up at once; a crash by TTL.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from tenure._core.base.clock import Clock
from tenure._core.base.signals import Signal
from tenure.events import Hub


class LeaseState(enum.Enum):
    """State of a lease. HELD and SUSPECT alternate; LOST and CLOSED are for good."""

    HELD = "held"
    # Still proven, but the last renewals went unanswered: a warning, that a single lost packet does not give.
    SUSPECT = "suspect"
    LOST = "lost"
    CLOSED = "closed"

    @property
    def over(self) -> bool:
        """True where no later state can follow."""
        return self is LeaseState.LOST or self is LeaseState.CLOSED


class Mode(enum.Enum):
    """Kind of claim that a ticket makes in its line."""

    EXCLUSIVE = "exclusive"
    READ = "read"
    SEAT = "seat"


class Reach(enum.Enum):
    """Part of the line ahead of a ticket that its rule needs to see."""

    # The cheap one: a store reads one ticket however long the line is (law 10).
    PREDECESSOR = "predecessor"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class Entry:
    """Request for a ticket in the line of `resource`. The id is made before the first send."""

    resource: str
    owner: str
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    value: str = ""
    reach: Reach = Reach.PREDECESSOR
    # A nonce, not a counter: by it a retry finds what its own first try did, and nobody else's (law 6).
    id: str = field(default_factory=lambda: secrets.token_hex(10))


class Ticket(NamedTuple):
    """Ticket in a line, alive only as long as its lease. A named tuple, as Line is: they are made at every look.

    Order in `Line.tickets` is the store's order. `token` and `owner` are None where reading the line
    did not show them (ZooKeeper lists names only) or where the ticket is foreign; my own ticket
    always has its token.
    """

    resource: str
    id: str
    key: str
    """The ticket's key in the store: known to its backend, opaque to everybody else."""
    token: int | None
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    owner: str | None = None
    value: str = ""
    lease_id: str = ""
    created_at: float | None = None
    """Wall-clock seconds at the owner, for people to read. Never compared."""
    version: int | None = None
    """Changes with every amendment; None where the store did not show it. Compared for equality only."""


class Line(NamedTuple):
    """The tickets of one resource at one moment, in the store's own order.

    With `Reach.PREDECESSOR` only the asker's ticket and the one before it need be present.
    """

    resource: str
    tickets: tuple[Ticket, ...]
    revision: int
    """After `enter`: my ticket's token if and only if nothing has happened to this line since the ticket was put; a
    store that can't tell gives another number. After any other read: the store's own revision, for `wait_change`."""

    def position(self, ticket_id: str) -> int | None:
        """Index of the ticket in `tickets`, or None when it is gone."""
        # From the end: what `enter` and `look` return ends with the asker's own ticket.
        for index in range(len(self.tickets) - 1, -1, -1):
            if self.tickets[index].id == ticket_id:
                return index
        return None

    def find(self, ticket_id: str) -> Ticket | None:
        index = self.position(ticket_id)
        return None if index is None else self.tickets[index]


@dataclass(frozen=True, slots=True)
class Record:
    """Value at a key of the user's own."""

    key: str
    value: bytes
    version: int
    """Changes with every write, also when the key is deleted and put again; never 0. Compared for equality only."""


@dataclass(frozen=True, slots=True)
class Put:
    """Part of a commit: write `value` at `key`."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a commit: delete `key`, where it is there."""

    key: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Condition of a commit: `key` still stands at `version`; 0 for a new key, which the same commit puts."""

    key: str
    version: int


class Fate(enum.Enum):
    """Outcome of a commit that was answered. DONE is the only one after which something was written."""

    DONE = "done"
    DIFFERS = "differs"
    """A comparison did not hold."""
    AMENDED = "amended"
    """The ticket stands, at another version than the commit was tied to."""
    GONE = "gone"
    """The ticket does not stand any more."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to a commit: `versions` of what was put (DONE), or the `ticket` at its version of now (AMENDED)."""

    fate: Fate
    versions: Mapping[str, int] = field(default_factory=dict)
    ticket: Ticket | None = None


# The verbs of a lease. Each keeps law 8 by `until`: an absolute reading of the client's clock, the same through all
# retries and endpoints, so that no layer adds a time-out of its own to that of the layer above.


class Lease(Protocol):
    """Proof of life of this client at one store; every ticket of it lives by it.

    Verbs that talk to the store block for no longer than `until` and raise from the error tree.
    All of them may be called from any thread, at the same time.
    """

    @property
    def id(self) -> str:
        """The store's name for the lease; "" before it was granted."""

    @property
    def ttl(self) -> float:
        """The granted time to live in seconds; the asked one before anything was granted."""

    @property
    def state(self) -> LeaseState:
        """Computed from the clock at every reading."""

    def remaining(self) -> float:
        """Seconds for which the lease is still proven; 0.0 when it is not. Asks nobody."""

    def enter(self, entry: Entry, until: float) -> Line:
        """Put a ticket at the end of the line and return the line with it, in one round trip.

        However often the request has to be sent within this call, it makes one ticket: `entry.id` is a nonce.
        """

    # Only the quorum's answer may decide (law 3): a member of the store that lags behind could still show a ticket
    # that was removed.

    def look(self, ticket: Ticket, reach: Reach, until: float) -> Line:
        """The line up to `ticket`, decided by the store's quorum; without it when it is gone."""

    def survey(self, resource: str, until: float, *, front: int | None = None) -> Line:
        """The whole line (or its first `front` tickets) with owners, values and tokens."""

    def wait_change(self, line: Line, tickets: Sequence[Ticket], *, amendments: bool) -> Signal:
        """A signal set when one of `tickets` has left since `line` was read (or was amended).

        It may be set early and for nothing; it never misses. It is also set when the lease ends
        and when the watch behind it does. With no tickets: any change of the line. Close it after use.
        """

    def amend(self, ticket: Ticket, value: str, until: float) -> bool:
        """Change the ticket's value if that very ticket still stands; False when it is gone."""

    def leave(self, ticket: Ticket, until: float) -> bool:
        """Remove that very ticket. False when it was gone already, or may have gone with its lease.

        True after an answer that says so; and where an earlier try of this call went unanswered while the lease is
        believed in: nothing but that try is then known to have removed the ticket.
        """

    def abandon(self, entry: Entry) -> None:
        """Hand `entry` to the reaper, whatever became of it. Returns at once, never raises."""

    # What guards need: the user's own keys, written and read only while a ticket stands. The store itself compares, in
    # the transaction that writes: a holder that was paused after its own check must not get a write through.

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        """The records at `keys`, read while that very ticket stood; None when the ticket is gone."""

    def commit(
        self, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete], until: float
    ) -> Committed:
        """Write all or nothing, only while that very ticket stands, at its `version` where that is known.

        Sent once: after StoreUnavailable it may have been carried out, or may be later, until the ticket
        is touched.
        """

    def touch(self, ticket: Ticket, until: float) -> Ticket | None:
        """Move the ticket on from its `version`, value unchanged, so that no commit tied to that is carried out later.

        The ticket at the version at which it stands then, moved on by whomever (its value may be as it was known);
        None when it is gone.
        """

    def renew(self, until: float) -> float:
        """Prove the lease now; the new `remaining()`. Raises LeaseLost when it is gone."""

    # `on_end` calls from the thread that found out, be it the clock's, a renewal's or a caller's: no listener may
    # block there, or other leases would go unrenewed meanwhile.

    def on_end(self, listener: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        """Call `listener` with every change of state and its reason; the returned function stops that."""

    def close(self, until: float) -> None:
        """End the lease at the store: all of its tickets go at once."""


class Backend(Protocol):
    """Store that opens leases, and the way to reach it."""

    @property
    def name(self) -> str:
        """Name for messages, with endpoints, without credentials."""

    def open(self, ttl: float, lock_delay: float) -> Lease:
        """A lease of `ttl` seconds. Talks to nobody yet: the first verb does.

        The store keeps it `lock_delay` seconds longer than anybody here believes in it. Closing ends it at
        once; a lost one is left to the store, so that the delay is kept.
        """

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""

    def close(self) -> None:
        """Give back sockets and threads. The client closes its leases before that."""


class Forwards(Protocol):
    """Backend that forwards to a service which has the store. Fences name lines as the service does: both may have
    holders of one line."""

    def line_name(self, resource: str) -> str:
        """The whole name of the line, as a fence has it. Known once a lease was granted."""

    @property
    def incarnation(self) -> int:
        """The service's incarnation, see fencing/_fence.py. Known once a lease was granted."""


def forwards(backend: Backend) -> Forwards | None:
    """The backend where it is one that forwards, else None."""
    # By the method alone: reading `incarnation` of a service that has granted nothing yet would raise.
    return cast(Forwards, backend) if callable(getattr(backend, "line_name", None)) else None


def goes_aside(backend: Backend) -> bool:
    """True where the backend's leases yield in a lane instead of blocking it, and hold no lock while they wait.

    Asked for the leases that a service uses: those of single tickets, where the backend has such. See
    base/yielding.py.
    """
    # A backend that says nothing about it may block: then its requests go to worker threads.
    return bool(getattr(backend, "goes_aside", False))


class Workers(Protocol):
    """Bounded number of background threads."""

    @property
    def crowded(self) -> bool:
        """True where the work submitted last may have to wait until other work is done."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` soon. Raises ClientClosed after the client was closed, StoreUnavailable where no thread can be
        started for it: such work is never run."""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """Parts of the client's runtime that a backend may use."""

    clock: Clock
    hub: Hub
    # For work that no caller awaits, such as the reaper's tries. They are few, and a silent store may block all of them
    # for a while: so no caller's request ever waits for one.
    workers: Workers
