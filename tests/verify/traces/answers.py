"""Answers to commands, in words that all stores share.

Names of the trace stand for ids, and nothing is left of keys and revisions, which are a store's own. Tokens and
versions are marked here as what they are, each with the range in which it may be compared; `numbered` gives tokens
their rank within their line and versions the order in which they were first seen: order and equality stay, gaps go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tenure._core.lease import Committed, Line, Mode, Record, Ticket
from tenure.errors import TenureError


@dataclass(frozen=True, slots=True)
class Token:
    """Compares within one line, by order."""

    line: str
    number: int


@dataclass(frozen=True, slots=True)
class Version:
    """Compares within one ticket or key, by equality."""

    of: str
    number: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A ticket as it was shown. A fact that was not told, or that a freedom leaves open, is None."""

    name: str
    mode: Mode
    weight: int
    limit: int
    token: Token | None
    version: Version | None
    owner: str | None
    value: str | None
    lease: str | None
    dated: bool | None


Value: TypeAlias = "bool | int | str | bytes | Token | Version | Seen | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class Answer:
    """`kind` says what the values are."""

    kind: str
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(map(_shown, self.values))}".rstrip()


NOTHING: Final = Answer("nothing to do")
DONE: Final = Answer("done")


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a command made to a line, seen from inside of the memory store; or a loss of a client's."""

    where: str
    """The line's resource; of a loss, the client."""
    kind: str
    """arrival, departure, amendment or loss."""
    ticket: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one command: its answer, and what else could be seen after it."""

    answer: Answer
    fired: tuple[str, ...] = ()
    """Watches that were set with this command; at a real store, those of them that the memory store set."""
    ends: tuple[str, ...] = ()
    leases: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        seen = [str(self.answer)]
        seen += [f"{what}: {', '.join(it)}" for what, it in (("fired", self.fired), ("told", self.ends)) if it]
        return "; ".join((*seen, f"leases: {', '.join(self.leases)}"))


class Describer:
    """The names that one playing of a trace has given."""

    def __init__(self, root: str, leases: Callable[[], Mapping[str, str]]) -> None:
        self._root = root  # of the keys
        self._leases = leases  # store's id -> name, as of now
        self.tickets: dict[str, str] = {}  # id -> name

    def line(self, line: Line, me: str = "") -> Answer:
        return Answer("line", (me, tuple(self.seen(ticket) for ticket in line.tickets)))

    def seen(self, ticket: Ticket) -> Seen:
        name = self.tickets.get(ticket.id, "?")
        token = None if ticket.token is None else Token(ticket.resource, ticket.token)
        of = f"{name} {ticket.token}"
        return Seen(
            name=name,
            mode=ticket.mode,
            weight=ticket.weight,
            limit=ticket.limit,
            token=token,
            version=None if ticket.version is None else Version(of, ticket.version),
            owner=ticket.owner,
            value=ticket.value,
            lease=self._leases().get(ticket.lease_id, "?") if ticket.lease_id else "",
            dated=ticket.created_at is not None,
        )

    def ticket(self, ticket: Ticket | None) -> Answer:
        return Answer("ticket", (None if ticket is None else self.seen(ticket),))

    def records(self, keys: Sequence[str], records: Sequence[Record | None] | None) -> Answer:
        if records is None:
            return Answer("records", (None,))
        return Answer("records", tuple(map(self._record, keys, records)))

    def _record(self, key: str, record: Record | None) -> Value:
        if record is None:
            return (key, None)
        return (key, record.key.removeprefix(self._root) == key, record.value, Version(key, record.version))

    def committed(self, committed: Committed) -> Answer:
        versions = ((key.removeprefix(self._root), version) for key, version in sorted(committed.versions.items()))
        ticket = None if committed.ticket is None else self.seen(committed.ticket)
        written = tuple((key, Version(key, version)) for key, version in versions)
        return Answer("committed", (committed.fate.value, written, ticket))


def raised(error: Exception) -> Answer:
    """The answer for an error: its type, and whether it happened. An error that is none of the library's is a bug."""
    if isinstance(error, TenureError):
        return Answer("raised", (type(error).__name__, error.happened))
    return Answer("raised", (type(error).__name__, f"none of tenure's errors: {error}"))


def numbered(answers: Sequence[Answer]) -> list[Answer]:
    """The same answers, with ranks and first-seen numbers."""
    tokens = {part for answer in answers for part in _parts(answer.values) if isinstance(part, Token)}
    ranks: dict[str, list[int]] = {}
    for token in sorted(tokens, key=lambda token: token.number):
        ranks.setdefault(token.line, []).append(token.number)
    first: dict[str, list[int]] = {}

    def change(part: Value) -> Value:
        if isinstance(part, Token):
            return Token(part.line, ranks[part.line].index(part.number) + 1)
        if isinstance(part, Version):
            seen = first.setdefault(part.of, [])
            if part.number not in seen:
                seen.append(part.number)
            return Version(part.of.split(" ")[0], seen.index(part.number) + 1)
        return part

    return [Answer(answer.kind, tuple(mapped(value, change) for value in answer.values)) for answer in answers]


def mapped(value: Value, change: Callable[[Value], Value]) -> Value:
    """`value` with each of its parts changed."""
    if isinstance(value, tuple):
        return tuple(mapped(part, change) for part in value)
    if isinstance(value, Seen):
        token, version = change(value.token), change(value.version)
        return dataclasses.replace(
            value,
            token=token if isinstance(token, Token) else None,
            version=version if isinstance(version, Version) else None,
        )
    return change(value)


def _parts(value: Value) -> Iterator[Value]:
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, Seen):
        yield from (value.token, value.version)
    else:
        yield value


def _shown(value: Value) -> str:
    match value:
        case tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case Token(_, number):
            return f"token {number}"
        case Version(_, number):
            return f"version {number}"
        case Seen():
            facts = [value.name, value.mode.value]
            facts += [f"{value.weight}/{value.limit}"] if value.mode is Mode.SEAT else []
            facts += [_shown(part) for part in (value.token, value.version) if part is not None]
            facts += [f"{what}={it!r:.30}" for what in ("owner", "value", "lease") if (it := getattr(value, what))]
            return f"<{' '.join(facts)}>"
        case _:
            return repr(value) if len(repr(value)) < 40 else f"{repr(value)[:36]}…"
