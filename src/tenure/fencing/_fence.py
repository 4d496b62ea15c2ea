"""The fence: a token as a value that can leave the process, and the one rule by which guards decide.

    0.33@billing/tenant_123:billing-close                  a lock, a leader, a writer
    0.41.<my id>.<id of a co-holder>@api/seats             a seat, a reader: who may share with whom

A token counts only within one line and one incarnation of the store, so both travel with it. The incarnation is
a number that the operator raises (`incarnation=` of `connect`) when a store was restored or replaced and its tokens
may repeat: every fence of a higher incarnation is younger than all of a lower one.

Why the ids. Seats of a semaphore and readers are held together, under different tokens: "refuse what is below the
highest token" would refuse lawful co-holders. But a line admits its tickets in order, so whoever is held together
with me and was admitted before me stands ahead of me at that moment. Their ids travel with my fence; a guard that
has seen it knows which of the older ones still counted then, and refuses all others. So a dead seat is refused from the
moment at which a holder that took its place has claimed: that one stands behind all who were admitted beside the dead
one. (One admitted beside it, whose fence still names it, may let it in again until then.) For a lock there is nobody
ahead, and the rule is the plain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.limits import FENCE_HOLDERS_MAX, INCARNATION_MAX, TOKEN_MAX
from tenure._core.base.validation import decode, encode, namespace_path
from tenure.errors import FenceMismatch, InvalidFence, StaleToken
from tenure.events import Hub, Subscriber

_UNSAFE: Final = re.compile(r'[ ",;\\]')  # what a header field, a cookie or a shell would take apart
_LINE: Final = re.compile(r"(?:[!#$&-+\-.:<-\[\]-~0-9]|%[0-9A-F]{2})+(?:/(?:[!#$&-+\-.:<-\[\]-~0-9]|%[0-9A-F]{2})+)+\Z")
_ID: Final = re.compile(r"[0-9a-f]{20}\Z")
_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.([1-9][0-9]{0,18})((?:\.[0-9a-f]{20})*)@([!-~]+)\Z")
_LINE_CHARACTERS_MAX: Final = 4096
_refusals: Final = Hub(SYSTEM_CLOCK.now)
"""One for the process: guards know no client."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A token with what it counts in. `str(fence)` and `Fence.parse` carry it through headers and messages.

    `<` and its kin compare tokens; fences of different lines or incarnations refuse with FenceMismatch. A guard does
    not compare: it asks `admit`.
    """

    line: str
    """Which line: namespace and name, as `line_name` writes them."""
    token: int
    incarnation: int = 0
    ids: tuple[str, ...] = ()
    """Of a shared hold: its own ticket, then those that were held together with it at its admission."""

    def __post_init__(self) -> None:
        if not isinstance(self.line, str) or len(self.line) > _LINE_CHARACTERS_MAX or not _LINE.match(self.line):
            raise InvalidFence(
                f"not the name of a line: {str(self.line)[:60]!r}; line_name(namespace, name) writes one"
            )
        _refuse_outside(self.token, "token", 1, TOKEN_MAX)
        _refuse_outside(self.incarnation, "incarnation", 0, INCARNATION_MAX)
        if not isinstance(self.ids, tuple):  # else equal fences would differ, or have no hash
            raise InvalidFence(f"the ids of a fence are a tuple, not {type(self.ids).__name__}")
        if len(self.ids) > FENCE_HOLDERS_MAX:
            raise InvalidFence(
                f"{len(self.ids)} tickets are held together in {self.line}, and a fence carries at most "
                f"{FENCE_HOLDERS_MAX}; give each slot a lock of its own, or write through `hold.store`"
            )
        if not all(isinstance(one, str) and _ID.match(one) for one in self.ids):
            raise InvalidFence("the id of a ticket is 20 hexadecimal digits")

    @classmethod
    def parse(cls, text: str) -> Fence:
        """The fence that `str()` wrote. Nothing else is read. Raises InvalidFence."""
        if not isinstance(text, str):
            raise InvalidFence(f"a fence's text is a str, not {type(text).__name__}")
        match = _TEXT.match(text)
        if match is None:
            raise InvalidFence(f"not a fence: {text[:60]!r}; it looks like '0.33@namespace/name': pass hold.fence")
        incarnation, token, ids, line = match.groups()
        return cls(line, int(token), int(incarnation), tuple(ids.split(".")[1:]))

    @classmethod
    def of(cls, given: FenceLike) -> Fence:
        """`given`, parsed where it is a text, asked for its fence where it is a hold. Raises InvalidFence."""
        found = cls.parse(given) if isinstance(given, str) else getattr(given, "fence", given)
        if not isinstance(found, Fence):
            raise InvalidFence(f"a guard takes a hold or its fence, not {type(given).__name__}: pass hold.fence")
        return found

    @property
    def shared(self) -> bool:
        """True for a hold that others may share (a seat, a reader)."""
        return bool(self.ids)

    def __str__(self) -> str:
        return ".".join((str(self.incarnation), str(self.token), *self.ids)) + "@" + self.line

    def __lt__(self, other: Fence) -> bool:
        return self.token < _comparable(self, other).token

    def __le__(self, other: Fence) -> bool:
        return self.token <= _comparable(self, other).token

    def __gt__(self, other: Fence) -> bool:
        return self.token > _comparable(self, other).token

    def __ge__(self, other: Fence) -> bool:
        return self.token >= _comparable(self, other).token


class FencedHold(Protocol):
    """The part of a hold that guards read, blocking or asyncio's: nothing that talks to the store."""

    @property
    def fence(self) -> Fence:
        """The token as a value."""

    def remaining(self) -> float:
        """Seconds for which the hold is still proven."""

    def check(self) -> None:
        """Raise LeaseLost when the hold can't be proven."""


FenceLike: TypeAlias = Fence | str | FencedHold


def admit(seen: Fence | None, offered: Fence) -> Fence:
    """The rule of every guard: what to remember after `seen`, now that `offered` has come.

    The same fence is admitted again, and so is an older one that was held together with the youngest seen. Raises
    StaleToken, or FenceMismatch where they are of different lines.
    """
    youngest = admitted(seen, offered)
    if youngest is None:
        raise stale(seen, offered)
    return youngest


def admitted(seen: Fence | None, offered: Fence) -> Fence | None:
    """Decide as `admit` does, and tell no subscriber: None where `offered` is stale. Raises FenceMismatch."""
    if seen is None:
        return offered
    if seen.line != offered.line:
        raise other_line(seen, offered)
    if offered.incarnation != seen.incarnation:
        return offered if offered.incarnation > seen.incarnation else None
    if offered.token > seen.token:
        return offered
    if offered.token == seen.token or (offered.shared and offered.ids[0] in seen.ids):
        return seen
    return None


def stale(seen: Fence | None, offered: Fence, *, written: str = "Nothing was written.") -> StaleToken:
    """The error for `offered`, in the words that every guard uses. `written` is what is known of its writes.

    The caller must raise it: the refusal is logged and sent to subscribers here.
    """
    if seen is None:
        reason = "its ticket is gone from the store"
    elif seen.incarnation != offered.incarnation:
        reason = (
            f"incarnation {seen.incarnation} (token {seen.token}) was seen, and this is of incarnation "
            f"{offered.incarnation}: give this client the same `incarnation=`"
        )
    else:
        reason = f"token {seen.token} was seen (if the store was restored or replaced since, raise `incarnation=`)"
    _refusals.emit("stale_refused", resource=_name_in(offered.line), token=offered.token, reason=reason)
    return StaleToken(
        f"token {offered.token} of {offered.line} is stale: {reason}. {written} Stop the protected work.",
        offered=str(offered),
        seen="" if seen is None else str(seen),
    )


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Hear of every stale token that guards of this process refuse, `hold.store` among them; what it gives ends that.

    The event is `stale_refused`: `resource` and `token` are the refused fence's, `reason` is what was seen instead. It
    is sent in the refusing thread, within the guard: a subscriber must be quick and call nothing of tenure.
    """
    return _refusals.subscribe(subscriber)


def _name_in(line: str) -> str:
    """The name that was locked; as it is written where that can't be read."""
    segment = line.rpartition("/")[2]
    try:
        return decode(segment)
    except ValueError:
        return segment


def other_line(seen: Fence, offered: Fence) -> FenceMismatch:
    """The error for a fence of another line than the one that protects a resource."""
    return FenceMismatch(
        f"a fence of {offered.line} was offered for what {seen.line} protects; tokens of two lines can't be compared. "
        "Use one lock name for one resource"
    )


def line_name(namespace: str, name: str) -> str:
    """Write a fence's name for the line of `name` under `namespace`. Raises InvalidName."""
    return line_of(namespace_path(namespace), name)


@lru_cache(maxsize=4096)
def line_of(stored_namespace: str, name: str) -> str:
    """Write the same, for a namespace in its stored form."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", f"{stored_namespace}/{encode(name)}")


def ticket_ids(mine: str, ahead: Iterable[str]) -> tuple[str, ...]:
    """The `ids` of a shared fence. A ticket whose id is none of ours can't be told apart, and is left out."""
    return (mine, *(one for one in ahead if _ID.match(one)))


def _comparable(fence: Fence, other: Fence) -> Fence:
    if not isinstance(other, Fence):
        raise TypeError(f"a Fence does not compare with {type(other).__name__}")
    if fence.line != other.line:
        raise other_line(fence, other)
    if fence.incarnation != other.incarnation:
        raise FenceMismatch(
            f"tokens of incarnations {fence.incarnation} and {other.incarnation} of {fence.line} can't be compared: "
            "the store was restored or replaced between them"
        )
    return other


def _refuse_outside(value: object, what: str, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidFence(
            f"the {what} of a fence is a whole number from {minimum} to {maximum}, not {str(value)[:40]!r}"
        )
