"""The differences that the Lease protocol allows: all of them, one by one, each with the law that allows it.

What is not here is a difference. A freedom says at which stores it is taken and where, and leaves of both answers what
has to be equal all the same; so it never hides more than it names. Those about signals stand in early_signals.py.

Some things no trace does, since no store promises anything there: an id is a nonce, so one that left comes back only
where ZooKeeper's count of the line goes on (commands.KEPT), and not where a request was lost or a ticket abandoned; a
ticket is one that a store has shown, never one with another token made up (ZooKeeper tells tickets apart by their
nodes); an ended lease is not asked about tickets of others; no key stands below another (at ZooKeeper every part of a
path is a node, and so a key).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tenure._core.lease import Fate, Reach
from tests.verify.traces import commands as c
from tests.verify.traces.answers import Answer, Seen, Value
from tests.verify.traces.player import RESENT

ALL: Final = frozenset({"memory", "etcd", "zookeeper"})
ZOOKEEPER: Final = frozenset({"zookeeper"})


@dataclass(frozen=True, slots=True)
class Pair:
    """The two answers to one command, and what a freedom may have to know of the command."""

    command: c.Command | None
    ended: bool
    """The lease had been closed or revoked by an earlier command."""
    reach: Reach | None
    """Of a look, or of the entry that enters."""
    ours: Answer
    theirs: Answer

    def both(self, change: Callable[[Answer], Answer]) -> Pair:
        return dataclasses.replace(self, ours=change(self.ours), theirs=change(self.theirs))

    def alike(self, kind: str) -> Pair:
        return self.both(lambda _: Answer(kind))


@dataclass(frozen=True, slots=True)
class Freedom:
    """`leave` is given what has to be equal, and gives back what still has to be."""

    name: str
    stores: frozenset[str]
    law: str
    leave: Callable[[Pair], Pair]


def _up_to_me(pair: Pair) -> Pair:
    return pair.both(lambda answer: _lined(answer, lambda me, line: line[: _place(me, line) + 1] or line))


def _the_one_before(pair: Pair) -> Pair:
    if pair.reach is not Reach.PREDECESSOR:
        return pair
    return pair.both(lambda answer: _lined(answer, lambda _, line: line[-2:]))


def _without_me(pair: Pair) -> Pair:
    return pair.both(lambda answer: _lined(answer, lambda me, line: line if _place(me, line) >= 0 else ()))


def _names_only(pair: Pair) -> Pair:
    def leave(me: str, line: Line) -> Line:
        return tuple(ticket if ticket.name == me else _without(ticket, *_IN_THE_NODE) for ticket in line)

    return pair.both(lambda answer: _lined(answer, leave))


def _as_i_knew_it(pair: Pair) -> Pair:
    if not isinstance(pair.command, c.LookCommand):
        return pair
    return pair.both(lambda answer: _lined(answer, lambda _, line: _all_without(line, "version", "value")))


def _undated(pair: Pair) -> Pair:
    if isinstance(pair.command, c.SurveyCommand):
        return pair
    return pair.both(lambda answer: _ticketed(_lined(answer, lambda _, line: _all_without(line, "dated")), "dated"))


def _news_of_the_version(pair: Pair) -> Pair:
    return pair.both(lambda answer: _ticketed(answer, "value"))


def _over(pair: Pair) -> Pair:
    refused = pair.theirs.kind == "raised" and pair.theirs.values[0] in ("LeaseLost", "ClientClosed")
    idle = pair.ours in _OF_A_GONE_TICKET or pair.ours.kind == "line" or _fate(pair.ours) == Fate.GONE.value
    return pair.alike("of an ended lease") if pair.ended and refused and idle else pair


def _not_resent(pair: Pair) -> Pair:
    return pair.alike(RESENT) if pair.theirs.kind == RESENT and pair.ours.kind == "line" else pair


def _nothing_to_lose(pair: Pair) -> Pair:
    unheard = pair.ours == Answer("raised", ("StoreUnavailable", "unknown"))
    refused = _fate(pair.theirs) in [fate.value for fate in c.NOT_WRITTEN]
    lost = isinstance(pair.command, c.CommitCommand) and pair.command.lost
    return pair.alike("not written") if lost and unheard and refused else pair


FREEDOMS: Final = (
    Freedom(
        "those behind me",
        ALL,
        "look: `the line up to ticket`. A store that answers an entry which stood already may show the line's end, or "
        "the line up to it.",
        _up_to_me,
    ),
    Freedom(
        "more than the predecessor",
        ALL,
        "Line: `with Reach.PREDECESSOR only the asker's ticket and the one before it need be present`.",
        _the_one_before,
    ),
    Freedom(
        "the line of a gone ticket",
        ALL,
        "look: `without it when it is gone`. What else is shown is not said: who has no place has no predecessor.",
        _without_me,
    ),
    Freedom(
        "names only",
        ZOOKEEPER,
        "Ticket: `token and owner are None where seeing the line did not tell them (ZooKeeper lists names only)`, and "
        "`version … where the store told it`; nor is the value in a name. Rules need none of them.",
        _names_only,
    ),
    Freedom(
        "my ticket as I knew it",
        ZOOKEEPER,
        "Ticket: `version … where the store told it`. A list of names says that my node is there, not what is in it: "
        "look shows the ticket that was asked for. A commit tied to its old version is answered with AMENDED.",
        _as_i_knew_it,
    ),
    Freedom(
        "when it was made",
        ALL,
        "created_at: `for people to read. Never compared`. A survey has to tell it; the other verbs may.",
        _undated,
    ),
    Freedom(
        "news of the version only",
        frozenset({"etcd", "zookeeper"}),
        "touch and AMENDED tell of `the ticket as it stands`, for the next commit to be tied to: that is its version. "
        "The value is the one the asker knew.",
        _news_of_the_version,
    ),
    Freedom(
        "verbs of an ended lease",
        ZOOKEEPER,
        "A session that is over can't ask. All tickets of the lease are gone, so what the others answer (gone, and "
        "lines to read) tells a holder no more than LeaseLost and ClientClosed do.",
        _over,
    ),
    Freedom(
        "an entry entered twice",
        ZOOKEEPER,
        "Law 6: `every retry of a lost answer finds what the first try did`. A retry, within the verb: names of "
        "sequential nodes do not collide, so a second enter of a standing entry would make a second ticket. Nothing "
        "above the verbs enters an entry twice. Traces lose answers instead.",
        _not_resent,
    ),
    Freedom(
        "nothing to lose",
        ZOOKEEPER,
        "commit: `after StoreUnavailable it may have been carried out`. May: where a look told the driver that it "
        "can't be, nothing was sent that could be lost, and the reason is told.",
        _nothing_to_lose,
    ),
)


Line: TypeAlias = tuple[Seen, ...]
_IN_THE_NODE: Final = ("token", "version", "owner", "value", "lease", "dated")
_OF_A_GONE_TICKET: Final = (Answer("stood", (False,)), Answer("ticket", (None,)), Answer("records", (None,)))


def _lined(answer: Answer, change: Callable[[str, Line], Line]) -> Answer:
    """The answer with another line, where it is one, and the asker's."""
    if answer.kind != "line":
        return answer
    me, line = answer.values
    if not isinstance(me, str) or not me or not isinstance(line, tuple):
        return answer
    return Answer("line", (me, change(me, tuple(ticket for ticket in line if isinstance(ticket, Seen)))))


def _ticketed(answer: Answer, *facts: str) -> Answer:
    """The answer with less of the ticket in it, where it is a touch's or a commit's."""
    if answer.kind not in ("ticket", "committed"):
        return answer
    *others, ticket = answer.values
    left: Value = _without(ticket, *facts) if isinstance(ticket, Seen) else ticket
    return Answer(answer.kind, (*others, left))


def _all_without(line: Line, *facts: str) -> Line:
    return tuple(_without(ticket, *facts) for ticket in line)


def _without(ticket: Seen, *facts: str) -> Seen:
    changes: dict[str, None] = dict.fromkeys(facts)
    return dataclasses.replace(ticket, **changes)  # type: ignore[arg-type]  # all of these may be None


def _place(me: str, line: Line) -> int:
    return max((place for place, ticket in enumerate(line) if ticket.name == me), default=-1)


def _fate(answer: Answer) -> Value:
    return answer.values[0] if answer.kind == "committed" else None
