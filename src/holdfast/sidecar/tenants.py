"""Tenants: each has the names that begin with its own and a slash, and sees and touches no others.

The lock `ledger` of the tenant `billing` stands in the store as `billing/ledger`, one name and one segment like any
other. A tenant's name has no slash in it, so that no tenant's names begin like another's; and what a client writes
after it, `../` or what it likes, is part of that one name. The tenant `*` has the whole namespace, under plain names:
what programs with the library hold there are its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.limits import NAME_BYTES_MAX
from holdfast.sidecar.fields import InvalidField

WHOLE: Final = "*"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")


def is_tenant(name: str) -> bool:
    """Can a tenant be called so?"""
    return name == WHOLE or bool(_NAME.match(name))


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose names they are."""

    name: str
    prefix: str
    """With what its names begin in the store."""

    @classmethod
    def of(cls, name: str) -> Tenant:
        """The tenant of that name. Raises ValueError."""
        if not is_tenant(name):
            raise ValueError(f"{name[:80]!r} can't be a tenant: letters, digits, '.', '_' and '-', at most 64; or '*'")
        return cls(name, "" if name == WHOLE else f"{name}/")

    def inside(self, name: str) -> str:
        """How the store calls what this tenant calls `name`. Raises InvalidField."""
        stored = self.prefix + name
        if len(stored.encode()) > NAME_BYTES_MAX:
            most = NAME_BYTES_MAX - len(self.prefix)
            raise InvalidField(f"a name may have at most {most} bytes here, this one has {len(name.encode())}")
        return stored

    def has(self, stored: str) -> bool:
        """Is what the store calls so one of its own?"""
        return stored.startswith(self.prefix) and len(stored) > len(self.prefix)

    def outside(self, stored: str) -> str:
        """How this tenant calls what the store calls `stored`, one of its own."""
        return stored.removeprefix(self.prefix)


EVERYBODY: Final = Tenant(WHOLE, "")
