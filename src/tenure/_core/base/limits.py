"""Limits and defaults of the whole package, in one place. Durations are seconds; other units end the name."""

from __future__ import annotations

from typing import Final

NAME_BYTES_MAX: Final = 512
NAMESPACE_BYTES_MAX: Final = 512
OWNER_BYTES_MAX: Final = 256
SOCKET_PATH_BYTES_MAX: Final = 100
"""Of the path of a UNIX socket: what every system takes (macOS 103, Linux 107)."""
VALUE_BYTES_MAX: Final = 64 * 1024

TTL_DEFAULT: Final = 15.0
TTL_MIN: Final = 0.05
TTL_MAX: Final = 86_400.0
SEATS_MAX: Final = 1_000_000

TOKEN_MAX: Final = 2**63 - 1
"""Both stores count in signed 64 bits."""
INCARNATION_MAX: Final = 2**31 - 1

FENCE_HOLDERS_MAX: Final = 128
"""Tickets held together that one fence can name; at 21 bytes each it must still fit into a header."""

LOCK_DELAY_MAX: Final = 600.0

RESOURCE_BYTES_MAX: Final = 1536
"""Of a resource's name at the SQL guard: what a primary key may have on all of them (InnoDB, pages of 8 KiB)."""

LINES_REMEMBERED_MAX: Final = 100_000
"""Fences that one process remembers for HTTP, unless the caller gives another number."""

KEY_BYTES_MAX: Final = 1024
COMMIT_KEYS_MAX: Final = 64
COMMIT_BYTES_MAX: Final = 512 * 1024
"""Of one guarded commit. ZooKeeper drops a connection that sends it more than 1 MiB at once."""

REQUEST_TIMEOUT_DEFAULT: Final = 5.0
"""How long one exchange with the store may take, retries and failover included."""

EXIT_SECONDS: Final = 5.0
"""How long the end of the interpreter may take to close the clients that are still open, all together."""

LEAVE_GRACE: Final = 0.4
"""How long a call that has already failed may still spend on withdrawing its ticket itself."""

TICKET_WATCH_AFTER: Final = 0.25
"""A hold older than this has its own ticket watched, to hear of an administrator's removal."""

WATCHED_SINGLY_MAX: Final = 8
"""Tickets that one waiter watches each by itself; to watch more, it watches their whole line."""

LEASES_MAX: Final = 16
"""Leases of one client: one per TTL asked for. On ZooKeeper each is a session of its own."""

SPARE_LEASES_PER_TTL_MAX: Final = 16
SPARE_LEASES_MAX: Final = 64
"""Leases without a ticket that are kept to be used again, for holds that have one of their own."""
RENEWALS_AT_ONCE_MAX: Final = 64
"""Leases that are renewed in one exchange."""
DELEGATED_KNOWN_MAX: Final = 10_000
"""Delegated holds about which a client remembers what it knows; about others it asks the store."""

WORKERS_MAX: Final = 4
"""Threads that carry out asyncio's requests, per client."""

BACKGROUND_THREADS_MAX: Final = 2
"""Threads for what nobody awaits, per client: the reaper's tries, looks at a hold's own ticket."""

LOOP_LOOK_SECONDS: Final = 2.0
"""How often a client looks whether event loops have ended on which something is held."""

CONNECTIONS_MAX: Final = 16
"""HTTP connections to etcd at one time, per client."""

RETRY_PAUSE_FIRST: Final = 0.02
RETRY_PAUSE_MAX: Final = 0.5

REASON_BYTES_MAX: Final = 1024
"""Of the reason that an operator gives for a force release."""
AUDIT_PER_LINE_MAX: Final = 100
AUDIT_MAX: Final = 1000
"""Audit records that are kept: the newest of each line, and of all lines together."""
JOURNAL_PER_LINE_MAX: Final = 50
JOURNAL_MAX: Final = 10_000
"""Journal entries that are kept; for a moment there may be a quarter more of a line's."""
RECORDS_READ_MAX: Final = 128
"""Records about one line that are read at once, the newest: no fewer than are kept of either kind."""
JOURNAL_WAITING_MAX: Final = 1024
"""Journal entries of one client that wait to be written; more are dropped, and counted."""
JOURNAL_PAUSE: Final = 0.25
JOURNAL_PAUSE_MAX: Final = 5.0
"""For how long entries are collected, or are kept back from a store that does not take them."""
JOURNAL_CLOSE_SECONDS: Final = 1.0
"""For how long closing a client waits for its last entries to be written."""
RECORDS_AT_ONCE_MAX: Final = 32
"""In one request. etcd takes 128 operations in a transaction, and each line's count is one."""
RECORDS_BYTES_MAX: Final = 256 * 1024
"""Of the journal's texts in one request, unless a single one has more. etcd takes 1.5 MiB, `tenure serve` 1 MiB,
JSON's escapes included."""
PAGE_KEYS: Final = 500
"""How much of a long listing is asked for at once."""
REQUESTS_AT_ONCE_MAX: Final = 64
"""Requests of one listing, or of one closing, that are on their way to ZooKeeper together."""
TIMES_LEFT_MAX: Final = 64
"""Leases whose time is asked for when one line is shown: those nearest to its front."""
SNAPSHOT_PAUSE: Final = 0.2
"""At least this long between two snapshots of a watch, however much happens."""
