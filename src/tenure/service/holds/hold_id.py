"""The id of a hold: text with enough in it for a replica to find the hold, or the replica that has it.

An id is a capability: a caller that knows it may renew and release, and nobody can guess it. For owners it is opaque.

Errors for an id that leads to no hold here, beside the library's:

    TenureError
    ├── UsageError
    │   └── NoSuchHold      the text is no hold's id
    ├── HoldGone            the hold has ended, for good
    └── HeldElsewhere       another replica has it; `address` says which
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tenure._core.base.limits import FENCE_HOLDERS_MAX, TOKEN_MAX
from tenure._core.base.validation import encode
from tenure._core.delegation import Delegated
from tenure.errors import InvalidName, TenureError, UsageError

HoldId: TypeAlias = str
"""Text that is safe in the path of a URL."""
_LENGTH_MAX: Final = 8192
_KNOWN_MAX: Final = 1024
"""Ids in the cache, of at most some 20 KB each; most have a few hundred bytes."""
_known: OrderedDict[HoldId, TimedId | DelegatedId] = OrderedDict()
"""Cache of ids that could be read: each request reads its id twice, and an owner sends the same one again and again."""
_TERSE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_TIMED: Final = "t"
_DELEGATED: Final = "o"
_LEASE: Final = re.compile(r"[1-9a-f][0-9a-f]{0,15}\Z")
_TICKET: Final = re.compile(r"[0-9a-f]{20}\Z")


@dataclass(frozen=True, slots=True)
class TimedId:
    """The id of a hold that is ended by a timer of one replica."""

    resource: str
    instance: str
    """The replica, from its start to its end: another one after a restart."""
    address: str
    """The URL at which clients reach that replica."""
    secret: str


@dataclass(frozen=True, slots=True)
class DelegatedId:
    """The id of a hold that has a store lease of its own."""

    resource: str
    token: int
    lease_id: str
    single_use: bool
    secret: str
    """The text whose hash is the ticket's id. The ticket's id itself is no secret: it stands in the line."""
    held_together: tuple[str, ...] | None
    """The tickets in its fence; None where a fence can't name that many."""

    @property
    def hold(self) -> Delegated:
        """The hold, as the store's `Delegation` knows it."""
        return Delegated(self.resource, ticket_id(self.secret), self.token, self.lease_id, self.single_use)


def ticket_id(secret: str) -> str:
    """Return the id of the ticket whose owner knows `secret`."""
    return hashlib.sha256(secret.encode()).hexdigest()[:20]


def write_id(what: TimedId | DelegatedId) -> HoldId:
    """Write an id as text."""
    if isinstance(what, TimedId):
        text = _text(_TIMED, [what.resource, what.instance, what.address, what.secret])
    else:
        facts = [what.resource, what.token, what.lease_id, int(what.single_use), what.secret, what.held_together]
        text = _text(_DELEGATED, facts)
    _know(text, what)
    return text


def read_id(text: HoldId) -> TimedId | DelegatedId:
    """Read what `write_id` wrote. Raises NoSuchHold."""
    if not isinstance(text, str) or not 1 < len(text) <= _LENGTH_MAX or not text.isascii():
        raise _unknown()
    known = _known.get(text)
    if known is not None:
        return known
    what = _read(text)
    _know(text, what)
    return what


def _know(text: HoldId, what: TimedId | DelegatedId) -> None:
    _known[text] = what
    if len(_known) > _KNOWN_MAX:
        _known.popitem(last=False)


def _read(text: HoldId) -> TimedId | DelegatedId:
    match _facts(text):
        case [_TIMED, str(resource), str(instance), str(address), str(secret)] if _is_name(resource):
            return TimedId(resource, instance, address, secret)
        case [_DELEGATED, str(resource), int(token), str(lease), (0 | 1) as single_use, str(secret), ids] if (
            _is_name(resource) and 0 < token <= TOKEN_MAX and _LEASE.match(lease) and _are_tickets(ids)
        ):
            return DelegatedId(resource, token, lease, bool(single_use), secret, None if ids is None else tuple(ids))
    raise _unknown()


def _text(kind: str, facts: list[Any]) -> HoldId:  # Any: JSON
    return kind + base64.urlsafe_b64encode(_TERSE.encode(facts).encode()).decode().rstrip("=")


def _facts(text: HoldId) -> list[Any]:  # Any: JSON of anybody's
    body = text[1:]
    try:
        facts = json.loads(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True).decode())
    except (ValueError, RecursionError):
        raise _unknown() from None
    return [text[0], *facts] if isinstance(facts, list) else []


def _is_name(resource: str) -> bool:
    try:
        encode(resource)
    except InvalidName:
        return False
    return True


def _are_tickets(ids: object) -> bool:
    if ids is None:
        return True
    if not isinstance(ids, list) or len(ids) > FENCE_HOLDERS_MAX:
        return False
    return all(isinstance(one, str) and _TICKET.match(one) for one in ids)


def _unknown() -> NoSuchHold:
    return NoSuchHold("this is no id of a hold; give the one that acquire answered with, whole and unchanged")


class NoSuchHold(UsageError):
    """The text is no hold's id. Nothing was asked of the store."""


class HoldGone(TenureError):
    """The hold has ended for good: released, run out, forced out, or lost with its lease. Acquire again."""


class HeldElsewhere(TenureError):
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
    """Make the error for a hold that has ended."""
    return HoldGone("this hold has ended: released, run out, forced out, or lost with its lease. Acquire again")
