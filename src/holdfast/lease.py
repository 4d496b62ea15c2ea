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
12. After the last ticket nothing is left in the store; but notes that were asked for, see operating.py.
Life in a process
13. Two threads, tasks or objects exclude each other like two processes.
14. A forked child holds nothing.
15. Every loss is told: state, signal, callback, exception, event.
16. A clean exit gives up at once; a crash by TTL.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from holdfast.clock import Clock
from holdfast.events import Hub
from holdfast.signals import Signal


class LeaseState(enum.Enum):
    """HELD and SUSPECT alternate; LOST and CLOSED are for good."""

    HELD = "held"
    SUSPECT = "suspect"
    LOST = "lost"
    CLOSED = "closed"

    @property
    def over(self) -> bool:
        """Is there no way back?"""
        return self is LeaseState.LOST or self is LeaseState.CLOSED


class Mode(enum.Enum):
    """How a ticket stands in its line."""

    EXCLUSIVE = "exclusive"
    READ = "read"
    SEAT = "seat"


class Reach(enum.Enum):
    """How much of the line ahead of a ticket its rule needs to see."""

    PREDECESSOR = "predecessor"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is asked for: a place in the line of `resource`. The id is made before the first send."""

    resource: str
    owner: str
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    value: str = ""
    reach: Reach = Reach.PREDECESSOR
    id: str = field(default_factory=lambda: secrets.token_hex(10))


class Ticket(NamedTuple):
    """One place in a line, alive only as long as its lease. A named tuple, as Line is: they are made at every look.

    Order in `Line.tickets` is the store's order. `token` and `owner` are None where seeing the line
    did not tell them (ZooKeeper lists names only) or where the ticket is foreign; my own ticket
    always has its token.
    """

    resource: str
    id: str
    key: str
    """Where the store keeps it: a driver's business, opaque to everybody else."""
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
    """Another one after every amendment, where the store told it. Compared for equality only."""


class Line(NamedTuple):
    """The tickets of one resource at one moment, in the store's own order.

    With `Reach.PREDECESSOR` only the asker's ticket and the one before it need be present.
    """

    resource: str
    tickets: tuple[Ticket, ...]
    revision: int
    """Of `enter`: my ticket's token if and only if nothing has happened to this line since that was put; a store that
    can't tell gives another. Elsewhere the store's own, for `wait_change`."""

    def position(self, ticket_id: str) -> int | None:
        """Where the ticket stands in `tickets`, or None when it is gone."""
        for index in range(len(self.tickets) - 1, -1, -1):
            if self.tickets[index].id == ticket_id:
                return index
        return None

    def find(self, ticket_id: str) -> Ticket | None:
        index = self.position(ticket_id)
        return None if index is None else self.tickets[index]


@dataclass(frozen=True, slots=True)
class Record:
    """What stands at a key of the user's own."""

    key: str
    value: bytes
    version: int
    """Another one after every change, also after the key was deleted and put again; never 0. Only equality counts."""


@dataclass(frozen=True, slots=True)
class Put:
    """Part of a commit: `value` shall stand at `key`."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a commit: nothing shall stand at `key`."""

    key: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Condition of a commit: `key` still stands at `version`; 0 for a new key, which the same commit puts."""

    key: str
    version: int


class Fate(enum.Enum):
    """What became of a commit that was answered. All but DONE: nothing was written."""

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


class Lease(Protocol):
    """Proof of life of this client at one store; what every ticket of it lives by.

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

        True after an answer that says so; and where a try before was not answered, while the lease is believed in: then
        nothing but that try is known to end a ticket.
        """

    def abandon(self, entry: Entry) -> None:
        """Leave what became of `entry` to the reaper. Returns at once, never raises."""

    # What guards need: the user's own keys, written and read only while a ticket stands.

    def read(self, ticket: Ticket, keys: Sequence[str], until: float) -> tuple[Record | None, ...] | None:
        """What stands at `keys`, read while that very ticket stood; None when it is gone."""

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

    def on_end(self, told: Callable[[LeaseState, str], None]) -> Callable[[], None]:
        """Tell of every change of state with its reason; the returned function stops that."""

    def close(self, until: float) -> None:
        """End the lease at the store: all of its tickets go at once."""


class Backend(Protocol):
    """One store and how to reach it."""

    @property
    def name(self) -> str:
        """What to call it in messages, with endpoints, without credentials."""

    def open(self, ttl: float, lock_delay: float) -> Lease:
        """A lease of `ttl` seconds. Talks to nobody yet: the first verb does.

        The store keeps it `lock_delay` seconds longer than anybody here believes in it. Closing ends it at
        once; one that was lost is left to the store, so that the delay is kept.
        """

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""

    def close(self) -> None:
        """Give back sockets and threads. Leases are closed before."""


class Forwards(Protocol):
    """A backend that asks somebody who has the store. Fences name lines as that one does: both may have holders."""

    def line_name(self, resource: str) -> str:
        """The whole name of the line, as a fence has it. Known once a lease was granted."""

    @property
    def incarnation(self) -> int:
        """The other's, see fence.py. Known then, too."""


def forwards(backend: Backend) -> Forwards | None:
    """The backend, where it is one that forwards. By its method alone: its `incarnation` may not be known yet."""
    return cast(Forwards, backend) if callable(getattr(backend, "line_name", None)) else None


def goes_aside(backend: Backend) -> bool:
    """Do those of its leases that a service uses (each hold's own, where it has such) go aside where they would wait in
    a lane (aside.py), and hold no lock meanwhile? Of a backend that says nothing of it they block, as they may."""
    return bool(getattr(backend, "goes_aside", False))


class Workers(Protocol):
    """Background threads, bounded."""

    @property
    def crowded(self) -> bool:
        """May what was submitted last have to wait until others are done?"""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` soon. Raises ClientClosed after the client was closed, StoreUnavailable where there is no thread
        for it: then it is never run."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the house lends to a backend; `workers` for what nobody awaits, such as the reaper's tries."""

    clock: Clock
    hub: Hub
    workers: Workers
