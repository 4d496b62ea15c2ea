"""holdfast: a hold on a named thing, granted by etcd or ZooKeeper, that knows when it ends.

    import holdfast

    client = holdfast.connect("etcd://127.0.0.1:2379/billing")
    with client.lock("tenant_123:billing-close") as hold:
        ledger.close(period, token=hold.token)   # the ledger refuses older tokens
        hold.check()                             # raises LeaseLost when no longer provable

The map of the house, in reading order:

    lease.py        THE CORE: Lease and Backend protocols, Ticket, Line, the sixteen laws in prose
    belief.py       what can be proven about one lease, by the clock alone
    turn.py         the only waiting loop, a generator that decides and does no I/O
    drivers.py      carries its steps out in a thread; aiodriver.py on asyncio
    recipes/        lock, rwlock, semaphore, election: one pure rule over the line each
    hold.py         what the winner has; keys.py, the user's own keys while it stands
    operating.py    what operators need of a store; reports.py, what they get to see; desk.py, what they do
    journal.py      what clients write down of their holds
    fence.py        the token as a value, and the rule of every guard; fencing/, the guards
    house.py        one backend, its leases and helper threads: what a client is made of
    client.py aio.py  the two faces
    backends/       memory, etcd, zookeeper: a dozen verbs each
    cli/            the command line, an ordinary user of all this; jsonlog.py, log records as JSON

Lifetimes: a client as long as you keep it; a lease per TTL from its first use until it is lost or the
client closes; a ticket from `enter` to `leave` or the end of its lease; a hold from its turn until it is
released or lost.

Importing this package imports no store's client; the first `connect` of a kind does.
"""

import typing

from holdfast.client import Client, Election, Hold, Lock, Operator, RWLock, Semaphore, Store, assert_held, connect
from holdfast.errors import (
    AcquireTimeout,
    AuthenticationFailed,
    ClientClosed,
    CompareFailed,
    FenceMismatch,
    ForkedClient,
    GatewayDisabled,
    GuardBusy,
    HoldfastError,
    InvalidFence,
    InvalidName,
    InvalidOption,
    InvalidURL,
    LeaseLost,
    LineMismatch,
    NoSuchTicket,
    NotHeld,
    PermissionDenied,
    ServerMissing,
    StaleToken,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
    TLSFailed,
    UsageError,
)
from holdfast.events import Event
from holdfast.fence import Fence
from holdfast.hold import Deadline, HoldState
from holdfast.lease import Compare, Delete, Put, Record
from holdfast.recipes.election import Leader
from holdfast.reports import AuditRecord, Ending, Explanation, JournalEntry, Kind, LineInfo, LinePage, TicketInfo

if typing.TYPE_CHECKING:
    from holdfast import aio

__all__ = [
    "AcquireTimeout",
    "AuditRecord",
    "AuthenticationFailed",
    "Client",
    "ClientClosed",
    "Compare",
    "CompareFailed",
    "Deadline",
    "Delete",
    "Election",
    "Ending",
    "Event",
    "Explanation",
    "Fence",
    "FenceMismatch",
    "ForkedClient",
    "GatewayDisabled",
    "GuardBusy",
    "Hold",
    "HoldState",
    "HoldfastError",
    "InvalidFence",
    "InvalidName",
    "InvalidOption",
    "InvalidURL",
    "JournalEntry",
    "Kind",
    "Leader",
    "LeaseLost",
    "LineInfo",
    "LineMismatch",
    "LinePage",
    "Lock",
    "NoSuchTicket",
    "NotHeld",
    "Operator",
    "PermissionDenied",
    "Put",
    "RWLock",
    "Record",
    "Semaphore",
    "ServerMissing",
    "StaleToken",
    "Store",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "StoreWentBack",
    "TLSFailed",
    "TicketInfo",
    "UsageError",
    "aio",
    "assert_held",
    "connect",
]


def __getattr__(name: str) -> typing.Any:
    """`holdfast.aio` is imported at its first use: half of the time to import holdfast would be asyncio's."""
    if name == "aio":
        from importlib import import_module

        return import_module("holdfast.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
