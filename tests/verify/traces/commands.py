"""Commands, of which a trace is made. Values only.

Everything is called by a name of the trace's own (leases L1 …, tickets t1 …, watches w1 …), so that a trace means the
same at every store, and still means something with commands left out: one whose lease or ticket is not there has
nothing to do, everywhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tenure._core.lease import Fate, Mode, Reach

RESOURCES: Final = ("a", "b", "c/ä %")
KEPT: Final = "a"
"""The line whose place in the store stays while it is empty: only there an id is entered once more after it left."""
KEYS: Final = ("k0", "k1", "k2")
Lost: TypeAlias = Literal["", "request", "answer"]
"""What is lost on its way, of this command's first try."""


class View(enum.Enum):
    """A choice among the tickets that were seen under one name."""

    ENTERED = "as entered"
    LATEST = "as last seen"
    OLDER = "of the generation before"


class Known(enum.Enum):
    """The version that a comparison asks for."""

    LATEST = "as last known"
    OLDER = "one before"
    NEW = "0"
    WRONG = "none that ever was"


class Pick(enum.Enum):
    """The tickets of the line last read that a watch is for."""

    LAST = "the last"
    BEFORE = "the one before the last"
    ALL = "all"
    NONE = "none: any change"


@dataclass(frozen=True, slots=True)
class Open:
    lease: str
    client: str
    ttl: float
    lock_delay: float


@dataclass(frozen=True, slots=True)
class EnterCommand:
    lease: str
    ticket: str
    resource: str
    mode: Mode
    weight: int
    limit: int
    owner: str
    value: str
    reach: Reach
    lost: Lost = ""


@dataclass(frozen=True, slots=True)
class Again:
    """The very same entry once more: resent while it stands, another generation after it left."""

    lease: str
    ticket: str


@dataclass(frozen=True, slots=True)
class LookCommand:
    lease: str
    ticket: str
    view: View
    reach: Reach


@dataclass(frozen=True, slots=True)
class SurveyCommand:
    lease: str
    resource: str
    front: int | None


@dataclass(frozen=True, slots=True)
class AmendCommand:
    lease: str
    ticket: str
    view: View
    value: str
    lost: Lost = ""


@dataclass(frozen=True, slots=True)
class LeaveCommand:
    lease: str
    ticket: str
    view: View
    lost: Lost = ""


@dataclass(frozen=True, slots=True)
class AbandonCommand:
    lease: str
    ticket: str


@dataclass(frozen=True, slots=True)
class ReadCommand:
    lease: str
    ticket: str
    view: View
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitCommand:
    """`writes` are keys with what is put there, None to delete it."""

    lease: str
    ticket: str
    view: View
    compares: tuple[tuple[str, Known], ...]
    writes: tuple[tuple[str, bytes | None], ...]
    lost: Lost = ""


@dataclass(frozen=True, slots=True)
class TouchCommand:
    lease: str
    ticket: str
    view: View
    lost: Lost = ""


@dataclass(frozen=True, slots=True)
class RenewCommand:
    lease: str


@dataclass(frozen=True, slots=True)
class WatchCommand:
    """A signal on the line as this lease last read it. What it does is told with every command from then on."""

    watch: str
    lease: str
    resource: str
    pick: Pick
    amendments: bool


@dataclass(frozen=True, slots=True)
class Unwatch:
    watch: str


@dataclass(frozen=True, slots=True)
class Deafen:
    """Stop telling of this lease's ends."""

    lease: str


@dataclass(frozen=True, slots=True)
class Close:
    lease: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """An administrator ends the lease at the store; then its client asks, and hears of it."""

    lease: str


@dataclass(frozen=True, slots=True)
class Remove:
    """An administrator removes the ticket."""

    ticket: str


OfTicket: TypeAlias = LookCommand | AmendCommand | LeaveCommand | ReadCommand | CommitCommand | TouchCommand
Command: TypeAlias = (
    Open
    | EnterCommand
    | Again
    | SurveyCommand
    | OfTicket
    | AbandonCommand
    | RenewCommand
    | WatchCommand
    | Unwatch
    | Deafen
    | Close
    | Revoke
    | Remove
)


def verb(command: Command) -> str:
    """The name of what a command does, as tables of coverage have it: `Enter`, `Open`."""
    return type(command).__name__.removesuffix("Command")


NOT_WRITTEN: Final = (Fate.GONE, Fate.AMENDED, Fate.DIFFERS)


@dataclass(frozen=True, slots=True)
class Trace:
    """Commands in their order. `seed` is where they came from, for people."""

    seed: int
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        return "\n".join(f"{number:3} {command}" for number, command in enumerate(self.commands))
