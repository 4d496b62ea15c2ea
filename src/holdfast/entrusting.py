"""What owners who are not this client need of a store, beside what a lease needs: `Entrusting`, a protocol of its own.

A backend that has it shows it as `entrusting`; everybody else's works without. A hold that is entrusted lives by a
lease of its own. While its ticket waits in the line we renew that lease, as any other. From the moment the hold is
entrusted to its owner only `renew` does, which the owner asks for, of any client of the store: so it ends with its
owner, and not with us.

    open ─▶ enter … its turn ─▶ renew, unless freshly proven ─▶ entrust ─▶ told to its owner
                                                                            │
                                          any client: renew, release ◀──────┘

The laws hold for such owners too: what `Entrusting.renew` says counts from before the proof was asked for (law 2), is
told only while that very ticket stands (law 3), and nothing but that very ticket is renewed or removed (law 5).

Ended is what the store has ended. A renewal that comes after its owner stopped believing, and finds the ticket still
standing, is one: nobody else can have been admitted meanwhile.

A lease whose ticket was removed in one clean try is kept for the next one that asks for the same TTL (law 12: no lease
per try). Whatever was in doubt ends its lease: a request that is carried out late then finds none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.errors import HoldfastError, UsageError
from holdfast.lease import Lease, Ticket


class KeyReused(UsageError):
    """The idempotency key stands for another wish. Nothing was acquired; use a new key for a new wish."""


class KeySpent(HoldfastError):
    """The idempotency key was used, and its ticket is gone: released, run out, forced out. Nothing was acquired."""


@dataclass(frozen=True, slots=True)
class Once:
    """A wish that is to be granted once, whichever clients of the store are asked for it, and how often."""

    key: str
    """A word for the key: letters and digits."""
    wish: str
    """Another one for every other wish."""
    seconds: float
    """For at least so long the store remembers the key, from the first try on."""


@dataclass(frozen=True, slots=True)
class Entrusted:
    """Where a hold is: all that any client of the store needs to find it."""

    resource: str
    ticket_id: str
    token: int
    lease_id: str
    worn: bool = False
    """Its lease is for this ticket only: something about it was in doubt."""
    mark: int | None = None
    """Of who put its ticket for a `Once`, and was given it by `entrust`: by what `withdraw` knows that nobody else took
    it over. None for everybody else.
    """


@dataclass(frozen=True, slots=True)
class Proof:
    """That an entrusted hold stood, and lives on."""

    deadline: float
    """Until when its owner may believe in it, by this client's clock."""
    ttl: float
    owner: str


class OwnLease(Lease, Protocol):
    """A lease for one ticket. Renewed by us from `enter` until it is entrusted, left or abandoned."""

    def entrust(self, ticket: Ticket) -> Entrusted:
        """From now on it is its owner's to renew. Asks nobody: prove the lease before, where that was long ago."""


class Entrusting(Protocol):
    """The verbs. They block no longer than `until`, raise from the error tree, and may be called from any thread.

    Nothing in an `Entrusted` is taken on trust, as it comes from outside: a ticket of another id is not that ticket.
    """

    def open(self, ttl: float, once: Once | None) -> OwnLease:
        """A lease for one ticket. Talks to nobody yet.

        With `once` its `enter` finds the ticket that another client put for the same wish, and takes it over. From then
        on neither of them withdraws it, as either may have told its owner: its TTL ends what is nobody's. It raises
        KeyReused and KeySpent.
        """

    def renew(self, hold: Entrusted, until: float) -> Proof | None:
        """Let it live for its TTL from now on; None where that very ticket is gone."""

    def release(self, hold: Entrusted, until: float) -> bool:
        """Remove that very ticket; False where it was gone before. Repeated after a lost answer within the call."""

    def withdraw(self, hold: Entrusted, once: Once, until: float) -> bool:
        """Remove that very ticket, of which we told nobody; False where another client may have told somebody."""

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""

    def close(self, until: float) -> None:
        """End what waits and what is kept for later. Entrusted holds live on."""


@runtime_checkable
class Entrusts(Protocol):
    """A backend whose store can have holds that others renew."""

    @property
    def entrusting(self) -> Entrusting: ...
