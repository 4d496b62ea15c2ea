"""Everything tenure raises on purpose, as one tree.

    TenureError
    ├── UsageError (ValueError)      your call is wrong; nothing was sent
    │   ├── InvalidName              a name, namespace or owner that can't be one
    │   ├── InvalidURL               a scheme, host, option or credential that can't be read
    │   ├── InvalidOption            a ttl, limit, weight, timeout or value out of range
    │   ├── InvalidFence             a text that is no fence
    │   └── NotHeld                  assert_held() where nothing of that name is held
    ├── AcquireTimeout (TimeoutError)  the turn did not come in time; the ticket has been given up
    ├── LeaseLost                    the hold or the wait can no longer be proven
    ├── LineMismatch                 the name is in use with another limit or another kind
    ├── StaleToken                   a guard has seen a younger holder: nothing was written
    ├── FenceMismatch                fences of different lines or incarnations don't compare
    ├── NoSuchTicket                 no ticket of that token stands in the line: nobody was forced out
    ├── CompareFailed                a key was not at the version the commit asked for: nothing was written
    ├── GuardBusy (TimeoutError)     another holder's guarded write is in the way
    ├── ClientClosed                 the client was closed, here or under a waiting call or a `with` body
    ├── ForkedClient                 the client or hold belongs to the parent process
    └── StoreError                   the store's side
        ├── StoreUnavailable         no answer in time; the request may or may not have happened
        ├── StoreRefused             the store understood and said no (quota, limits, corrupt, …)
        ├── AuthenticationFailed     wrong user or password
        ├── PermissionDenied         the user may not touch this prefix
        ├── TLSFailed                the TLS handshake can't succeed with these settings
        ├── GatewayDisabled          this etcd has no JSON gateway
        ├── ServerMissing            a needed Python package or server program is not installed
        └── StoreWentBack            the store lost history: its tokens can't be trusted

Every error answers two questions: `happened` (did the thing that was asked for happen: "no" or
"unknown") and `retry` (may the same call be made again without harm and with hope).
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

Happened = Literal["no", "unknown"]
DISTRIBUTION: Final = "tenure"
"""The name on the package index."""


def how_to_install(extra: str) -> str:
    """The command that installs tenure with what one of its parts needs."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class TenureError(Exception):
    """Root of the tree: catch this to catch all that tenure raises on purpose."""

    happened: ClassVar[Happened] = "no"
    retry: ClassVar[bool] = False


class UsageError(TenureError, ValueError):
    """The call itself is wrong. Nothing was sent; fix the caller."""


class InvalidName(UsageError):
    """A resource name, namespace or owner that can't be used."""


class InvalidURL(UsageError):
    """A connection URL that can't be understood. The message never shows its password."""


class InvalidOption(UsageError):
    """A number or value outside its range: ttl, timeout, limit, weight, value."""


class InvalidFence(UsageError):
    """A text or number that is no fence."""


class NotHeld(UsageError):
    """`assert_held` was called where nothing of that name was entered: the caller forgot to take it."""


class AcquireTimeout(TenureError, TimeoutError):
    """The turn did not come before the caller's deadline. The ticket was withdrawn.

    Where the store could not confirm the withdrawal, a background reaper owns the ticket until it
    or its lease is gone.
    """

    retry = True


class LeaseLost(TenureError):
    """The hold (or the wait for it) can no longer be proven. Stop the protected work.

    Another client may hold the resource by now. What was done before may be complete; what is
    still to be done must not be. Acquire again for a new hold with a higher token.
    """

    happened: ClassVar[Happened] = "unknown"
    retry = True


class LineMismatch(TenureError):
    """The name is in use with another limit or as another kind of thing. No seat was taken."""


class StaleToken(TenureError):
    """A guard refused this holder: a younger one has been seen, or its ticket is gone. This try wrote nothing.

    `offered` and `seen` are the two fences as text; `seen` is "" where no younger one is known.
    """

    def __init__(self, message: str, *, offered: str = "", seen: str = "") -> None:
        super().__init__(message)
        self.offered = offered
        self.seen = seen

    def __reduce__(self) -> tuple[object, ...]:
        return _stale_token, (str(self), self.offered, self.seen)


def _stale_token(message: str, offered: str, seen: str) -> StaleToken:
    return StaleToken(message, offered=offered, seen=seen)


class FenceMismatch(TenureError):
    """Two fences of different lines or incarnations: which is younger can't be said. Nothing was written."""


class NoSuchTicket(TenureError):
    """No ticket of that token stands in the line (any more). Nobody was forced out; the message says who is there."""


class CompareFailed(TenureError):
    """A key did not stand at the version the commit was to find. Nothing was written; read again."""


class GuardBusy(TenureError, TimeoutError):
    """A guarded write of another holder is in the way of this one, or has just been. Nothing was written; try again.

    It did not end in time, or it ended after this transaction had begun to read.
    """

    retry = True


class ClientClosed(TenureError):
    """The client was closed. Its holds were given up; connect again for new ones.

    At the edge of a `with` body: it was closed by another thread or task while the body ran. What the body did before
    that was protected; what it did after, if it went on, was not.
    """


class ForkedClient(TenureError):
    """A client or hold of the parent process was used in a forked child. Connect again in the child."""


class StoreError(TenureError):
    """The store's side of the conversation went wrong."""


class StoreUnavailable(StoreError):
    """No usable answer before the deadline. The request may have reached the store."""

    happened: ClassVar[Happened] = "unknown"
    retry = True


class StoreRefused(StoreError):
    """The store understood the request and refused it (quota alarm, limits, corruption, …)."""


class AuthenticationFailed(StoreError):
    """The store does not accept this user and password."""


class PermissionDenied(StoreError):
    """The user is known but may not read or write under this namespace."""


class TLSFailed(StoreError):
    """The TLS handshake can't succeed with these settings."""


class GatewayDisabled(StoreError):
    """The etcd server answers, but not on its JSON gateway."""


class ServerMissing(StoreError):
    """A Python package or server program that is needed is not installed."""


class StoreWentBack(StoreError):
    """The store's history is older than, or another than, what this client has already seen.

    It was restored from a snapshot or replaced. Tokens from it could repeat or fall below tokens
    that are already out, so this client stops for good.
    """
