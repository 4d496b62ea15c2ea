"""What the service raises of its own, below the library's tree.

HoldfastError
├── UsageError
│   ├── NoSuchHold      a text that is no hold's id
│   └── KeyReused       the idempotency key stands for another wish
├── HoldGone            the hold has ended, for good
└── HeldElsewhere       another replica has it; `address` says which
"""

from __future__ import annotations

from holdfast.entrusting import KeyReused
from holdfast.errors import HoldfastError, UsageError

__all__ = ["HeldElsewhere", "HoldGone", "KeyReused", "NoSuchHold", "gone"]


class NoSuchHold(UsageError):
    """A text that is no hold's id. Nothing was asked of the store."""


class HoldGone(HoldfastError):
    """The hold has ended for good: released, run out, forced out, or lost with its lease. Acquire again."""


class HeldElsewhere(HoldfastError):
    """Another replica has the hold, and only that one can renew or release it. Nothing was done."""

    retry = True

    def __init__(self, message: str, *, address: str) -> None:
        super().__init__(message)
        self.address = address

    def __reduce__(self) -> tuple[object, ...]:
        return _held_elsewhere, (str(self), self.address)


def _held_elsewhere(message: str, address: str) -> HeldElsewhere:
    return HeldElsewhere(message, address=address)


def gone() -> HoldGone:
    """The error for a hold that is not there any more."""
    return HoldGone("this hold has ended: released, run out, forced out, or lost with its lease. Acquire again")
