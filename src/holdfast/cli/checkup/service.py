"""The store as a client finds it: may it do what it must, which TTLs are granted, do orphaned tickets stand.

And this machine's clock, by which holds end.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from typing import Final

import holdfast
from holdfast.cli.checkup.finding import Finding, fail, ok, warn
from holdfast.cli.tuning.renewals import Connect, ask_bounds, scratch_name
from holdfast.errors import (
    AuthenticationFailed,
    GatewayDisabled,
    HoldfastError,
    PermissionDenied,
    StoreRefused,
    TLSFailed,
)
from holdfast.options import Options, is_path

_NAMED_MAX: Final = 10
_LOOPBACK: Final = ("127.", "localhost", "::1")
_SLEPT: Final = 1.0
_SERVICES: Final = ("http", "https")
"""Schemes of stores whose endpoints are not looked at one by one."""


def look_at_clock() -> Finding:
    """Holds end by a clock that has to count the time that the machine sleeps."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        if sys.platform == "darwin":
            return ok("clock", "", "monotonic, which counts sleep on this system")
        return warn(
            "clock",
            "",
            "monotonic: it stands still while the machine sleeps, and leases do not",
            "don't let this machine sleep, and let the protected resource check tokens",
        )
    slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    told = "CLOCK_BOOTTIME, which counts sleep"
    return ok("clock", "", f"{told}; this machine has slept {slept:.0f} s since it started" if slept > _SLEPT else told)


def look_at_service(options: Options, connect: Connect) -> Iterator[Finding]:
    """In order; where a client can do nothing at all, the rest is not tried."""
    try:
        with connect(options.ttl) as client:
            writable = True
            try:
                yield from _lock(client, options)
            except StoreRefused as error:  # full, say: looking is allowed all the same
                writable = False
                yield _told(error, options)
            yield from _orphans(client)
        if writable:
            yield _bounds(options, connect)
    except HoldfastError as error:
        yield _told(error, options)


def _lock(client: holdfast.Client, options: Options) -> Iterator[Finding]:
    started = time.monotonic()
    hold = client.lock(scratch_name("doctor")).acquire(timeout=2 * options.timeout)
    token = hold.token
    hold.release()
    took = (time.monotonic() - started) * 1000
    yield _users(options)
    yield ok("lock", "", f"a lock was taken (token {token}) and given back in {took:.1f} ms")


def _users(options: Options) -> Finding:
    if options.user is not None:
        return ok("auth", "", f"user {options.user!r} may take and give back locks under {options.namespace!r}")
    if options.cert is not None:
        return ok("auth", "", "no user was needed; a client certificate was shown")
    told = "no user was needed: whoever reaches the store may take and free locks"
    if all(is_path(endpoint) or endpoint[0].startswith(_LOOPBACK) for endpoint in options.endpoints):
        return ok("auth", "", told)
    return warn("auth", "", told, "give it users (etcd) or a digest identity (ZooKeeper), or keep strangers away")


def _bounds(options: Options, connect: Connect) -> Finding:
    bounds = ask_bounds(connect)
    told = f"TTLs from {bounds.least:g} s to {'an hour and more' if bounds.most is None else f'{bounds.most:g} s'}"
    if options.ttl < bounds.least:
        return warn("ttl", "", f"{told} are granted; ttl={options.ttl:g} is less", f"ask for ttl={bounds.least:g}")
    if bounds.most is not None and options.ttl > bounds.most:
        do = "ask for less, or raise maxSessionTimeout"
        return warn("ttl", "", f"{told} are granted; ttl={options.ttl:g} is more", do)
    return ok("ttl", "", f"{told} are granted; ttl={options.ttl:g} is within")


def _orphans(client: holdfast.Client) -> Iterator[Finding]:
    """Tickets that hang on no lease, so that nothing but a removal will end them."""
    lines = orphans = 0
    for line in client.operator().lines():
        lines += 1
        for ticket in line.tickets:
            if ticket.orphaned:
                orphans += 1
                if orphans <= _NAMED_MAX:
                    yield fail(
                        "orphan",
                        "",
                        f"{line.name!r}: ticket {ticket.token} of {ticket.owner or 'a stranger'} hangs on no lease: "
                        f"it {'holds' if ticket.holds else 'waits'} for ever",
                        f"holdfast release {shlex.quote(line.name)} --token {ticket.token} --reason orphaned",
                    )
    if orphans > _NAMED_MAX:
        yield fail(
            "orphan", "", f"{orphans - _NAMED_MAX:,} more tickets hang on no lease", "free these, then look again"
        )
    if not orphans:
        yield ok("orphan", "", f"{lines:,} line{'' if lines == 1 else 's'} in use, every ticket hangs on a lease")


def _told(error: HoldfastError, options: Options) -> Finding:
    """What kept a client from its work."""
    told = " ".join(str(error).split())
    match error:
        case AuthenticationFailed():
            return fail("auth", "", told, "check user and password, before the hosts in the URL")
        case PermissionDenied():
            do = f"grant the user reading and writing under {options.namespace!r}"
            of_service = (
                "give the token the scopes acquire and read; or, at a UNIX socket, run as a user who may use it"
            )
            return fail("auth", "", told, of_service if options.scheme in _SERVICES else do)
        case TLSFailed():
            return fail("tls", "", told, "check ca, cert and key")
        case GatewayDisabled():
            return fail("gateway", "", told, "turn it on, or use etcd+grpc://")
    at_service = "see that `holdfast serve` runs where the URL says, and has its store"
    return fail("lock", "", told, at_service if options.scheme in _SERVICES else "see what the endpoints say above")
