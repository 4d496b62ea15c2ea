"""The checks of one store, in order: each endpoint, the store as a client finds it, and this machine's clock.

As a client finds it: may it do what it must, which TTLs are granted, do orphaned tickets stand. Holds end by the
clock.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import tenure
from tenure._core.base.options import Options, is_path, shown
from tenure.cli.doctor import etcd, zookeeper
from tenure.cli.doctor.findings import Finding, differing, fail, ok, warn
from tenure.cli.tuning import Connect, ask_bounds, scratch_name
from tenure.errors import AuthenticationFailed, GatewayDisabled, PermissionDenied, StoreRefused, TenureError, TLSFailed

_AT_ONCE_MAX: Final = 8
_NAMED_MAX: Final = 10
_LOOPBACK: Final = ("127.", "localhost", "::1")
_SLEPT: Final = 1.0
_SERVICES: Final = ("http", "https")
"""Schemes of stores whose endpoints are not looked at one by one."""


def findings(options: Options, connect: Connect) -> Iterator[Finding]:
    """Findings as they come: the endpoints first, then the store as a client finds it, then this machine."""
    look = {"etcd": etcd.look, "etcd+grpc": etcd.look, "zookeeper": zookeeper.look}.get(options.scheme)
    known = []
    if look is not None:  # a backend of somebody else's: only a client knows how to reach it
        with ThreadPoolExecutor(_AT_ONCE_MAX) as pool:
            looks = [pool.submit(look, endpoint, options, options.timeout) for endpoint in options.endpoints]
            for endpoint, done in zip(options.endpoints, looks, strict=True):
                found, version = done.result()
                yield from found
                if version is not None:
                    known.append((shown(endpoint), version))
    mixed = differing(known)
    if mixed is not None:
        yield mixed
    yield from look_at_service(options, connect)
    yield look_at_clock()


def look_at_clock() -> Finding:
    """Check the clock that holds end by: it has to count the time that the machine sleeps."""
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
    found = "CLOCK_BOOTTIME, which counts sleep"
    return ok(
        "clock", "", f"{found}; this machine has slept {slept:.0f} s since it started" if slept > _SLEPT else found
    )


def look_at_service(options: Options, connect: Connect) -> Iterator[Finding]:
    """Check the store as a client finds it; where a client can do nothing at all, the rest is not tried."""
    try:
        with connect(options.ttl) as client:
            writable = True
            try:
                yield from _lock(client, options)
            except StoreRefused as error:  # full, say: looking is allowed all the same
                writable = False
                yield _failure(error, options)
            yield from _orphans(client)
        if writable:
            yield _bounds(options, connect)
    except TenureError as error:
        yield _failure(error, options)


def _lock(client: tenure.Client, options: Options) -> Iterator[Finding]:
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
    found = "no user was needed: whoever reaches the store may take and free locks"
    if all(is_path(endpoint) or endpoint[0].startswith(_LOOPBACK) for endpoint in options.endpoints):
        return ok("auth", "", found)
    return warn("auth", "", found, "give it users (etcd) or a digest identity (ZooKeeper), or keep strangers away")


def _bounds(options: Options, connect: Connect) -> Finding:
    bounds = ask_bounds(connect)
    found = (
        f"TTLs from {bounds.minimum:g} s to {'an hour and more' if bounds.maximum is None else f'{bounds.maximum:g} s'}"
    )
    if options.ttl < bounds.minimum:
        return warn("ttl", "", f"{found} are granted; ttl={options.ttl:g} is less", f"ask for ttl={bounds.minimum:g}")
    if bounds.maximum is not None and options.ttl > bounds.maximum:
        do = "ask for less, or raise maxSessionTimeout"
        return warn("ttl", "", f"{found} are granted; ttl={options.ttl:g} is more", do)
    return ok("ttl", "", f"{found} are granted; ttl={options.ttl:g} is within")


def _orphans(client: tenure.Client) -> Iterator[Finding]:
    """Look for tickets that hang on no lease, so that nothing but a removal will end them."""
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
                        f"tenure release {shlex.quote(line.name)} --token {ticket.token} --reason orphaned",
                    )
    if orphans > _NAMED_MAX:
        yield fail(
            "orphan", "", f"{orphans - _NAMED_MAX:,} more tickets hang on no lease", "free these, then look again"
        )
    if not orphans:
        yield ok("orphan", "", f"{lines:,} line{'' if lines == 1 else 's'} in use, every ticket hangs on a lease")


def _failure(error: TenureError, options: Options) -> Finding:
    """The error that kept a client from its work, as a finding."""
    found = " ".join(str(error).split())
    match error:
        case AuthenticationFailed():
            return fail("auth", "", found, "check user and password, before the hosts in the URL")
        case PermissionDenied():
            do = f"grant the user reading and writing under {options.namespace!r}"
            of_service = (
                "give the token the scopes acquire and read; or, at a UNIX socket, run as a user who may use it"
            )
            return fail("auth", "", found, of_service if options.scheme in _SERVICES else do)
        case TLSFailed():
            return fail("tls", "", found, "check ca, cert and key")
        case GatewayDisabled():
            return fail("gateway", "", found, "turn it on, or use etcd+grpc://")
    at_service = "see that `tenure serve` runs where the URL says, and has its store"
    return fail("lock", "", found, at_service if options.scheme in _SERVICES else "see what the endpoints say above")
