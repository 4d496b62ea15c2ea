"""Delegated holds: owners who are not this client renew them. `Delegation` is the protocol of a store that can do it.

A backend that has it shows it as `delegation`; a backend without is complete, too. A delegated hold lives by a lease
that only its ticket hangs on. While the ticket waits in the line this client renews that lease, as any other. From the
moment the hold is delegated only `renew` does, which the owner asks for, at any client of the store: so the hold ends
with its owner, and not with this client.

    open ─▶ enter … its turn ─▶ renew, unless freshly proven ─▶ delegate ─▶ its owner hears of it
                                                                             │
                                           any client: renew, release ◀──────┘

The laws hold for such owners too: the deadline of `Delegation.renew` counts from before the proof was asked for (law
2), is given only while that very ticket stands (law 3), and nothing but that very ticket is renewed or removed (law 5).

A hold has ended when the store has ended it. A renewal that comes after its owner stopped believing, and finds the
ticket still standing, is a good one: nobody else can have been admitted meanwhile.

A lease whose ticket was removed in one clean try is kept for the next hold that asks for the same TTL (law 12: no lease
per try). After any doubt the lease is ended: a request that is carried out late then finds none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tenure._core.lease import Lease, Ticket
from tenure.errors import TenureError, UsageError


class KeyReused(UsageError):
    """The idempotency key stands for another request. Nothing was acquired; use a new key for a new request."""


class KeySpent(TenureError):
    """The idempotency key was used, and its ticket is gone: released, run out, forced out. Nothing was acquired."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Key of a request that is to be granted once, whichever clients of the store are asked for it, and how often."""

    key: str
    """The key: letters and digits."""
    request: str
    """Digest of the request: differs for every other one."""
    seconds: float
    """Time for which the store remembers the key at least, from the first try on."""


@dataclass(frozen=True, slots=True)
class Delegated:
    """Address of a delegated hold: all that any client of the store needs to find it."""

    resource: str
    ticket_id: str
    token: int
    lease_id: str
    single_use: bool = False
    """True where its lease must end with this ticket, because something about it was in doubt."""
    record_revision: int | None = None
    """Revision of the idempotency record, for the client that put the ticket and delegated it: by it `withdraw` knows
    that nobody else took the ticket over. None for everybody else.
    """


@dataclass(frozen=True, slots=True)
class DelegatedProof:
    """Proof that a delegated hold stood, and lives on."""

    deadline: float
    """End of what its owner may believe, by this client's clock."""
    ttl: float
    owner: str


class SingleLease(Lease, Protocol):
    """Lease for one ticket. This client renews it from `enter` until the ticket is delegated, left or abandoned."""

    def delegate(self, ticket: Ticket) -> Delegated:
        """Hand the ticket to its owner, who alone renews it from now on. Asks nobody: prove the lease before, where
        that was long ago."""


class Delegation(Protocol):
    """Verbs for delegated holds. They block no longer than `until`, raise from the error tree, and may be called from
    any thread.

    Nothing in a `Delegated` is taken on trust, as it comes from outside: a ticket of another id is not that ticket.
    """

    def open(self, ttl: float, once: IdempotencyKey | None) -> SingleLease:
        """A lease for one ticket. Talks to nobody yet.

        With `once` its `enter` finds the ticket that another client put for the same request, and takes it over. From
        then on neither of them withdraws it, as either may have answered its owner: its TTL ends a ticket that nobody
        knows of. It raises KeyReused and KeySpent.
        """

    def renew(self, hold: Delegated, until: float) -> DelegatedProof | None:
        """Prolong it by its TTL from now on; None where that very ticket is gone."""

    def release(self, hold: Delegated, until: float) -> bool:
        """Remove that very ticket; False where it was gone before. Repeated after a lost answer within the call."""

    def withdraw(self, hold: Delegated, once: IdempotencyKey, until: float) -> bool:
        """Remove that very ticket, which this client has shown to nobody; False where another client may have."""

    def statistics(self) -> dict[str, object]:
        """Numbers for operators."""

    def close(self, until: float) -> None:
        """End the leases of tickets that wait, and those kept for later. Delegated holds live on."""


@runtime_checkable
class HasDelegation(Protocol):
    """Backend whose store can have delegated holds."""

    @property
    def delegation(self) -> Delegation: ...
