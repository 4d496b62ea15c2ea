"""Events of a history, as the checkers need to know them, and the line of a file that each is written as.

    invoke             a client calls `operation`; `call` is the same number in its outcome, `timeout` its own bound
    ok  fail  info     how the call ended: it happened · it certainly did not · anything else
    check              the client asked its hold between `since` and `at`: `held`, proven until `deadline`
    told               a callback ran: lost, elected, demoted, stopped, or an observer saw a leader (observed)
    paused  resumed    the client's process stood still (SIGSTOP), or only its event loop (then `operation` is loop);
                       stamped by whoever stopped it, after it stood and before it goes on
    fault  healed      something was broken, `operation` says what, `client` whose ("" for everybody's); likewise
    died               the client's process is gone, nothing of it runs any more
    still              from `since` to `at` the machine stood still, and nobody's process ran: no excuse for a belief,
                       and no part of the seconds within which something has to happen
    truth              what the store itself says: created, removed (tickets), lease_granted, lease_ended; of a line all
                       tickets or none, in the order of `revision`
    store              a fenced store, in its own order: read, write, claim with `accepted`; at the end of the run
                       `counter` (its count), `contents` (how many elements) and `kept` (one per element, its value)
    measured           a figure (`operation`: threads, descriptors, leases …) and its `count`

The discipline of outcomes: `ok` only on a positive answer, `fail` only if it certainly did not happen, `info` for
everything else. An acquire that raised StoreUnavailable is `info`; `release() == False` is `fail` (it was gone).

A file has one JSON object per line; what has its default is left out, and numbers that may exceed 2^53 (tokens,
revisions) are texts. What it does not promise: that a reader of another version understands every field.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tenure._core.lease import Mode


class Kind(Enum):
    """The sort of an event; the module's table says what each is."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    CHECK = "check"
    TOLD = "told"
    PAUSED = "paused"
    RESUMED = "resumed"
    FAULT = "fault"
    HEALED = "healed"
    DIED = "died"
    STILL = "still"
    TRUTH = "truth"
    STORE = "store"
    MEASURED = "measured"


OUTCOMES: Final = frozenset({Kind.OK, Kind.FAIL, Kind.INFO})
ACQUIRES: Final = frozenset({"acquire", "try_acquire", "campaign"})
"""The operations whose `ok` is a hold."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event: something that happened. The fields in use depend on `kind`; the rest keep their defaults."""

    at: float
    """Seconds on the one clock of all recorders of a history: CLOCK_MONOTONIC, or the simulation's own. For what took
    a moment (a check) or was seen from afar (truth), its end: it happened no later."""
    client: str
    """Who did it, or whom it happened to; in truth the ticket's owner. Connect with `owner=` this name. A worker that
    is started anew is another client, with a name of its own."""
    kind: Kind
    operation: str = ""
    """acquire, try_acquire, campaign, release, renew, write, close · what was told, or is true · which fault. `cut`
    is the fault that leaves its `client` no way to any server."""
    resource: str = ""
    call: int | None = None
    """Which call of this client, for invoke and outcome: calls of many threads may overlap."""
    hold: str = ""
    """The id of the ticket."""
    token: int | None = None
    incarnation: int = 0
    mode: Mode = Mode.EXCLUSIVE
    weight: int = 1
    limit: int = 1
    lease: str = ""
    ttl: float | None = None
    """The granted time to live."""
    since: float | None = None
    """It happened no earlier. A check's t0; of truth seen from afar 0.0 where nothing is known; None for `at`."""
    held: bool | None = None
    """What a check was told."""
    deadline: float | None = None
    """Until when the hold was proven, as its holder computed it (ok of acquire and renew, check)."""
    timeout: float | None = None
    """Of an invoke: by when the call has to be back, in seconds from `at`."""
    accepted: bool | None = None
    """What a fenced store did with it."""
    value: str = ""
    """The element a write adds; unique in its history."""
    revision: int | None = None
    """The place in the store's own order, for truth and store events."""
    cause: str = ""
    """Why a ticket was removed, where it is known: left, lease, admin. Why a lease ended: admin, or early, where the
    store ended it before the time that it had promised a moment ago."""
    count: int | None = None
    """Of a figure, of `counter` and `contents`: how many."""
    detail: str = ""
    """For people. Never judged."""

    @property
    def earliest(self) -> float:
        """The first moment at which it can have happened."""
        return self.at if self.since is None else self.since

    @property
    def rank(self) -> tuple[int, int]:
        """The token as it compares within one line: first by incarnation. Without a token below all others."""
        return self.incarnation, -1 if self.token is None else self.token

    @property
    def acquired(self) -> bool:
        """True where the event is the handing out of a hold."""
        return self.kind is Kind.OK and self.operation in ACQUIRES

    def __str__(self) -> str:
        told = [self.client or "everybody", self.kind.value, self.operation, self.resource]
        told += [f"token {self.token}"] if self.token is not None else []
        told += [f"hold {self.hold}"] if self.hold else []
        told += [f"held={self.held}"] if self.held is not None else []
        told += [f"accepted={self.accepted}"] if self.accepted is not None else []
        return f"{self.at:.6f} {' '.join(word for word in told if word)}"


def to_line(event: Event) -> bytes:
    """The event as one line of a file. What has its default is left out."""
    fields: dict[str, object] = {"at": event.at, "client": event.client, "kind": event.kind.value}
    for name, default, write in _OPTIONAL:
        value = getattr(event, name)
        if value != default:
            fields[name] = value if write is None else write(value)
    return _JSON.encode(fields).encode() + b"\n"


def from_line(line: bytes | str) -> Event:
    """The event that `to_line` wrote. Raises ValueError with what is wrong with it."""
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    return _refuse_incomplete(Event(**{name: _read(name, value) for name, value in _with_required(raw).items()}))


def _with_required(raw: dict[str, Any]) -> dict[str, Any]:  # Any: whatever stands in the file
    missing = [name for name in ("at", "client", "kind") if name not in raw]
    if missing:
        raise ValueError(f"without {' and '.join(missing)}")
    return raw


def _read(name: str, value: object) -> Any:  # Any: each field has a type of its own, and _READ knows it
    read = _READ.get(name)
    if read is None:
        raise ValueError(f"no field is called {name!r}")
    try:
        return read(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}={value!r} can't be: {error}") from error


def _refuse_incomplete(event: Event) -> Event:
    """Refuse an event without the fields that the checkers rely on."""
    if event.kind is Kind.CHECK and (event.held is None or not event.hold):
        raise ValueError("a check says which hold was asked, and whether it is held")
    if event.acquired and (event.token is None or not event.hold):
        raise ValueError("an acquire that is ok has a hold and a token")
    if event.kind is Kind.STORE and event.operation in ("read", "write", "claim") and event.accepted is None:
        raise ValueError("a fenced store accepts or refuses")
    if event.since is not None and event.since > event.at:
        raise ValueError("it ended before it began")
    return event


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number of seconds")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("not a whole number from 0")
    return value


def _big(value: object) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit():
        raise ValueError("not a whole number written as a text")
    return int(value)


_READ: Final[Mapping[str, Callable[[object], object]]] = {
    **dict.fromkeys(("at", "since", "deadline", "timeout", "ttl"), _seconds),
    **dict.fromkeys(("client", "operation", "resource", "hold", "lease", "value", "cause", "detail"), _text),
    **dict.fromkeys(("call", "incarnation", "weight", "limit", "count"), _whole),
    **dict.fromkeys(("token", "revision"), _big),
    **dict.fromkeys(("held", "accepted"), _flag),
    "kind": Kind,
    "mode": Mode,
}
_WRITE: Final[Mapping[str, Callable[[Any], str]]] = {"token": str, "revision": str, "mode": lambda mode: mode.value}
_OPTIONAL: Final = tuple((f.name, f.default, _WRITE.get(f.name)) for f in dataclasses.fields(Event)[3:])
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
