"""Bounds of the service, all of them. Durations are seconds; other units end the name."""

from __future__ import annotations

from typing import Final

HEAD_BYTES_MAX: Final = 16 * 1024
"""Request line and headers together."""
HEAD_SECONDS: Final = 10.0
"""Time for a client to send them, from the connection or from their first byte."""
BODY_BYTES_MAX: Final = 128 * 1024
"""A value of 64 KiB fits, with room for what JSON escapes."""
BODY_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 75
"""Time after which an idle connection is closed: longer than the usual load balancers', so that they close first."""
SEND_SECONDS: Final = 20.0
"""Time after which a client that does not read is cut off."""
HANDSHAKE_SECONDS: Final = 10.0
CONNECTIONS_MAX: Final = 20_000
PROBE_CONNECTIONS_MAX: Final = 32
DESCRIPTORS_KEPT_MAX: Final = 2048
"""Descriptors that connections leave to the store and to probes; at most a quarter of all."""
LOG_CHARACTERS_MAX: Final = 1024 * 1024
"""Of lines of the log that wait for their reader; more are dropped."""
LOG_END_SECONDS: Final = 1.0
"""Time at the end for lines of the log that were not read yet."""

HOLD_TTL_MIN: Final = 1.0
"""The shortest TTL of a hold: a shorter one may be over before its owner has read the answer."""
WAIT_SECONDS_MAX: Final = 3600.0
KEY_CHARACTERS_MAX: Final = 200
"""Characters of an idempotency key."""

LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1000
SHOWN_MAX: Final = 1000
"""Holders, and waiters, in the answer about one line; their number is in it as well."""
HOLDERS_LISTED_MAX: Final = 10
"""Holders of each line in a list of lines."""
CURSOR_CHARACTERS_MAX: Final = 4096

PULSE_SECONDS: Final = 10.0
"""Time between two signs of life on a stream of events. No proxy of note gives up before that."""
LOOKED_AT_MAX: Final = 1024
"""Elections whose last known leader is remembered."""
STREAMS_MAX: Final = 1000
"""Streams of events of one tenant."""

LEASES_OF_TENANT_MAX: Final = 1000
"""Leases that clients of one tenant have here: one per client and TTL."""
LEFT_KNOWN_SECONDS: Final = 120.0
"""Time for which a ticket of a remote lease is remembered when it has gone, so that an `enter` that was delayed on its
way, and comes after its ticket has left, puts none. No request is delayed longer: see HEAD_SECONDS, BODY_SECONDS."""
LEFT_KNOWN_MAX: Final = 10_000
"""Tickets of one lease that are remembered when they have gone: some 140 bytes each."""
WAITED_FOR_MAX: Final = 300
"""Tickets that one wait of a client may name: they fit into a body."""
WAITS_AT_ONCE_MAX: Final = 500
WAITS_OF_STREAM_MAX: Final = 20_000
COMMIT_BODY_BYTES_MAX: Final = 1024 * 1024
"""Half a megabyte of values, in base64, and their keys."""
WAITS_BODY_BYTES_MAX: Final = 1024 * 1024
"""Many waits in one request, each with the handles of its tickets."""

RATE_DEFAULT: Final = 5000.0
"""Requests a second of one tenant; twice as many may come at once."""
HOLDS_DEFAULT: Final = 10_000
VALUE_BYTES_DEFAULT: Final = 4096
"""Bytes of a hold's value."""
WRITE_RATE_DEFAULT: Final = 512 * 1024.0
"""Bytes of names, owners, values and keys a second that one tenant has written to the store, which keeps all of them
until it is compacted: see `tenure doctor`."""
WRITE_BURST_SECONDS: Final = 16
"""So many seconds' bytes may come at once: several commits of the largest size."""
KEY_RECORD_BYTES: Final = 256
"""What an idempotency key takes in the store, about."""
WAITING_DEFAULT: Final = 5000
FAILURES_RATE: Final = 1.0
"""Refused tokens a second from one address, beyond the first `FAILURES_BURST`, that are answered with 401."""
FAILURES_BURST: Final = 20.0
ADDRESSES_MAX: Final = 10_000

TOKENS_MAX: Final = 10_000
TOKEN_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
TOKEN_FILE_SECONDS: Final = 2.0
"""Time between two looks at whether the file of tokens has changed."""

STAND_AGAIN_SECONDS: Final = 1.0
"""Time between the end of a candidacy and the next one."""
DRAIN_SECONDS_DEFAULT: Final = 20.0
"""Time at the end for requests under way and for releases. Beliefs that must end first may take a TTL."""
