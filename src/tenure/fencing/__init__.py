"""Guards: they sit at the protected resource and refuse a stale holder.

A lock says "I believe I own this"; the guard lets the resource decide. Every guard has the same words: `claim(fence)`
registers a fence for a resource, and refuses one that is older than what it has seen with StaleToken. Reads claim
too: claim first, then read, then write, so that a late write of an older holder can't slip in between.

    _fence    Fence, and `admit`: the rule of every guard
    sql       SQLAlchemy Core, inside your own transaction: PostgreSQL, MariaDB, MySQL, SQLite
    redis     one Lua script, alone or around your own
    http      an ASGI middleware for the server, a hook for httpx for the client
    file      an atomic replace of one file

The strongest guard needs none of these: `hold.store` writes to the store the hold came from, in one transaction that
commits only while this very ticket stands.

`subscribe(fn)` reports every stale token that a guard of this process refuses: `tenure.metrics` counts them.

Nothing here imports SQLAlchemy, redis or httpx before you import the module that needs it.
"""

from tenure.errors import FenceMismatch, GuardBusy, InvalidFence, StaleToken
from tenure.fencing._fence import Fence, admit, line_name, subscribe

__all__ = ["Fence", "FenceMismatch", "GuardBusy", "InvalidFence", "StaleToken", "admit", "line_name", "subscribe"]
