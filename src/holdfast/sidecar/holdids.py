"""What stands in the id of a hold: enough for a replica to find it, or the one that has it.

An id is a capability: who knows it may renew and release, and nobody can guess it. To everybody else it is opaque.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.entrusting import Entrusted
from holdfast.errors import InvalidName
from holdfast.limits import FENCE_HOLDERS_MAX, TOKEN_MAX
from holdfast.names import encode
from holdfast.sidecar.errors import NoSuchHold

HoldId: TypeAlias = str
"""Text that is safe in the path of a URL."""
_LENGTH_MAX: Final = 8192
_KNOWN_MAX: Final = 1024
"""Ids that were heard of last, of at most some 20 KB each; most have a few hundred bytes."""
_known: OrderedDict[HoldId, TimedId | OwnId] = OrderedDict()
"""Kept: each request reads its id twice, and most come to this replica, again and again. Refusals are not."""
_TERSE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_TIMED: Final = "t"
_OWN: Final = "o"
_LEASE: Final = re.compile(r"[1-9a-f][0-9a-f]{0,15}\Z")
_TICKET: Final = re.compile(r"[0-9a-f]{20}\Z")


@dataclass(frozen=True, slots=True)
class TimedId:
    """Of a hold that lives by a timer of one replica."""

    resource: str
    instance: str
    """Which replica, since it was started."""
    address: str
    """Where others reach it."""
    secret: str


@dataclass(frozen=True, slots=True)
class OwnId:
    """Of a hold that lives by a lease of its own."""

    resource: str
    token: int
    lease_id: str
    worn: bool
    secret: str
    """What its ticket's id was made from: the id itself is no secret, it stands in the line."""
    held_together: tuple[str, ...] | None
    """The ids of its fence; None where a fence can't name that many."""

    @property
    def hold(self) -> Entrusted:
        return Entrusted(self.resource, ticket_id(self.secret), self.token, self.lease_id, self.worn)


def ticket_id(secret: str) -> str:
    """The id of the ticket of whoever knows `secret`."""
    return hashlib.sha256(secret.encode()).hexdigest()[:20]


def write(what: TimedId | OwnId) -> HoldId:
    """The id that says so."""
    if isinstance(what, TimedId):
        text = _text(_TIMED, [what.resource, what.instance, what.address, what.secret])
    else:
        facts = [what.resource, what.token, what.lease_id, int(what.worn), what.secret, what.held_together]
        text = _text(_OWN, facts)
    _know(text, what)
    return text


def read(text: HoldId) -> TimedId | OwnId:
    """What `write` was given. Raises NoSuchHold."""
    if not isinstance(text, str) or not 1 < len(text) <= _LENGTH_MAX or not text.isascii():
        raise _unknown()
    known = _known.get(text)
    if known is not None:
        return known
    what = _read(text)
    _know(text, what)
    return what


def _know(text: HoldId, what: TimedId | OwnId) -> None:
    _known[text] = what
    if len(_known) > _KNOWN_MAX:
        _known.popitem(last=False)


def _read(text: HoldId) -> TimedId | OwnId:
    match _facts(text):
        case [_TIMED, str(resource), str(instance), str(address), str(secret)] if _is_name(resource):
            return TimedId(resource, instance, address, secret)
        case [_OWN, str(resource), int(token), str(lease), (0 | 1) as worn, str(secret), ids] if (
            _is_name(resource) and 0 < token <= TOKEN_MAX and _LEASE.match(lease) and _are_tickets(ids)
        ):
            return OwnId(resource, token, lease, bool(worn), secret, None if ids is None else tuple(ids))
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
