"""tenure: a hold on a named thing, granted by etcd or ZooKeeper, that knows when it ends.

    import tenure

    client = tenure.connect("etcd://127.0.0.1:2379/billing")
    with client.lock("tenant_123:billing-close") as hold:
        ledger.close(period, token=hold.token)   # the ledger refuses older tokens
        hold.check()                             # raises LeaseLost when no longer provable

Public, and promised, is what stands at the top level without an underscore:

    aio             the same face for asyncio
    errors          the tree of everything that is raised
    events          what happens to holds, as it happens; metrics.py, tracing.py and jsonlog.py pass it on
    metrics         Prometheus
    tracing         OpenTelemetry
    jsonlog         log records as JSON
    fencing/        guards: SQL, Redis, HTTP and files refuse what comes with an older token
    backends        `register`, for a store of your own
    testing/        for your tests: stores in virtual time, faults, checkers, a conformance suite
    cli/            the command line
    service/        `tenure serve`: holds for programs in any language

How it works, in reading order:

    _core/          leases, turns and holds; begin there, with lease.py and the laws
    _admin/         what operators see and do
    _transport/     HTTP exchanges, for every backend that speaks it
    _backends/      memory, etcd, ZooKeeper, and the service as a store
    _client         the blocking face

Lifetimes: a client as long as you keep it; a lease per TTL from its first use until it is lost or the
client closes; a ticket from `enter` to `leave` or the end of its lease; a hold from its turn until it is
released or lost.

Importing this package imports no store's client; the first `connect` of a kind does.
"""

import typing

from tenure._admin.models import AuditRecord, Ending, Explanation, JournalEntry, Kind, LineInfo, LinePage, TicketInfo
from tenure._client import Client, Election, Hold, Lock, Operator, RWLock, Semaphore, Store, assert_held, connect
from tenure._core.hold import Deadline
from tenure._core.hold_watch import HoldState
from tenure._core.lease import Compare, Delete, Put, Record
from tenure._core.recipes.election import Leader
from tenure._core.runtime import on_sigterm
from tenure.errors import (
    AcquireTimeout,
    AuthenticationFailed,
    ClientClosed,
    CompareFailed,
    FenceMismatch,
    ForkedClient,
    GatewayDisabled,
    GuardBusy,
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
    TenureError,
    TLSFailed,
    UsageError,
)
from tenure.events import Event
from tenure.fencing._fence import Fence

if typing.TYPE_CHECKING:
    from tenure import aio

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
    "TenureError",
    "TicketInfo",
    "UsageError",
    "aio",
    "assert_held",
    "connect",
    "on_sigterm",
]


def __getattr__(name: str) -> typing.Any:
    """`tenure.aio` is imported at its first use: half of the time to import tenure would be asyncio's."""
    if name == "aio":
        from importlib import import_module

        return import_module("tenure.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
