"""What etcd's refusals mean, in the house's words; for both transports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.backends.etcd.words import LeaseGone, OutOfSpace
from holdfast.errors import (
    AuthenticationFailed,
    PermissionDenied,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TLSFailed,
)
from holdfast.links.session import Refusal, StaleAuth

_UNAVAILABLE: Final = (1, 4, 8, 10, 14)  # gRPC: cancelled, deadline exceeded, exhausted, aborted, unavailable
_GIVEN_UP: Final = ("proposal dropped", "raft: stopped")
"""What a leader that has just gone, or a member that stops, says with an unknown code."""


def meaning(
    where: str, user: str | None, refusal: Refusal, stranger: Callable[[str, Refusal], StoreError | None]
) -> Exception:
    """The error that it is. `stranger` gives the one of whatever does not speak like etcd at all, and None else."""
    code, message, status = refusal
    if "requested lease not found" in message:
        return LeaseGone(message)
    if "HTTPS server" in message:
        return TLSFailed(f"{where} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
    if (error := stranger(where, refusal)) is not None:
        return error
    if "invalid auth token" in message or "auth store is old" in message:
        return StaleAuth(message)
    if (
        "authentication failed" in message
        or "user name is empty" in message
        or "authentication is not enabled" in message
    ):
        return AuthenticationFailed(f"{where} does not accept this user and password: {message}")
    if code == 7 or "permission denied" in message:
        return PermissionDenied(f"user {user!r} may not do this under {where}: {message}")
    if "database space exceeded" in message:
        return OutOfSpace(f"{where} is out of space (NOSPACE): {message}. Compact, defragment and disarm the alarm.")
    if code in _UNAVAILABLE or status in (429, 503, 504) or any(said in message for said in _GIVEN_UP):
        return StoreUnavailable(f"{where} can't answer now: {message}")
    return StoreRefused(f"{where} refused ({f'HTTP {status}' if code is None else f'code {code}'}): {message}")
