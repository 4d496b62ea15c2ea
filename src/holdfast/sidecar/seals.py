"""Seals: where the store keeps a ticket, written so that a client can hand it back and make up none.

A client that waits for others' tickets to change names them by what it was told. What stands in a seal is for its own
tenant, and only this replica, for as long as it lives, takes it for its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import Final

from holdfast.lease import Ticket
from holdfast.sidecar.tenants import Tenant

_MAC_BYTES: Final = 16


class BrokenSeal(Exception):
    """None of ours, or another tenant's."""


class Seals:
    """Those of one replica."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def seal(self, tenant: Tenant, ticket: Ticket) -> str:
        """Of a ticket under the name that the store has for its line."""
        told = json.dumps((ticket.resource, ticket.id, ticket.key), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(tenant, told) + told).decode()

    def open(self, tenant: Tenant, seal: str) -> Ticket:
        """The ticket, as far as its place goes. Raises BrokenSeal."""
        try:
            raw = base64.b64decode(seal, altchars=b"-_", validate=True)
        except ValueError:
            raise BrokenSeal from None
        mac, told = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(tenant, told)):
            raise BrokenSeal
        resource, ticket_id, key = json.loads(told)
        return Ticket(resource, ticket_id, key, None)

    def _mac(self, tenant: Tenant, told: bytes) -> bytes:
        keyed = hashlib.blake2b(told, digest_size=_MAC_BYTES, key=self._secret, person=b"ticket")
        keyed.update(b"\0" + tenant.name.encode())
        return keyed.digest()
