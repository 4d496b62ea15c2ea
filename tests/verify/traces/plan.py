"""Plan of a trace from its seed: the same on every machine, in every version of Python that keeps `random`'s promises.

The plan knows names, not states: what stands and what is gone turns out when the trace is played. Commands at random
would mostly find nothing to work on, and seldom meet what they are for; so most of a trace are scenes, of a few
commands each that belong together, with others at random in between.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tenure._core.lease import Reach
from tests.verify.traces.commands import (
    KEPT,
    KEYS,
    RESOURCES,
    AbandonCommand,
    Again,
    AmendCommand,
    Command,
    CommitCommand,
    EnterCommand,
    Known,
    LeaveCommand,
    LookCommand,
    ReadCommand,
    Remove,
    SurveyCommand,
    TouchCommand,
    Trace,
    View,
)
from tests.verify.traces.random_commands import TEXTS, VALUES, RandomCommands

LENGTH: Final = 40
_AT_RANDOM: Final = 0.45


def trace(seed: int, length: int = LENGTH) -> Trace:
    """The trace of `seed`: two leases and a ticket first, then whatever comes, `length` commands in all."""
    return Trace(seed, _Plan(Random(f"trace {seed}")).commands(length))


class _Plan:
    """The scenes of one seed."""

    def __init__(self, random: Random) -> None:
        self._make = RandomCommands(random)
        self._of = self._make.of

    def commands(self, length: int) -> tuple[Command, ...]:
        planned: list[Command] = [self._make.open(), self._make.open(), self._make.enter()]
        scene: list[Command] = []
        while len(planned) < length:
            if self._make.random.random() < _AT_RANDOM:
                planned.append(self._make.any())
            else:
                scene = scene or self._scene()
                planned.append(scene.pop(0))
        return tuple(planned)

    def _scene(self) -> list[Command]:
        scenes = [self._changed_under_watch] * 3 + [self._rewritten]
        return self._of([*scenes, *[self._of_yesterday if self._make.reuses_ids else self._gone] * 2])()

    def _changed_under_watch(self) -> list[Command]:
        """A line is read, changes and is watched, in this order or the other."""
        resource = self._of(RESOURCES)
        first, second = self._make.enter(resource), self._make.enter(resource)
        look = LookCommand(second.lease, second.ticket, View.LATEST, Reach.AHEAD)
        readings: list[SurveyCommand | LookCommand | EnterCommand] = [self._make.survey(resource), look, second]
        reading = self._of(readings)
        watch, change = self._make.watch(reading.lease, resource), self._change(resource, self._of([first, second]))
        then: list[Command] = [watch, change] if self._make.random.random() < 0.6 else [change, watch]
        return [first, second, *([] if reading is second else [reading]), *then]

    def _change(self, resource: str, one: EnterCommand) -> Command:
        """Something happens to the line, mostly to that ticket."""
        lease, ticket, view, text, lost = one.lease, one.ticket, View.LATEST, self._of(TEXTS), self._make.lost()
        changes: list[Command] = [
            AmendCommand(lease, ticket, view, text, lost),
            TouchCommand(lease, ticket, view, lost),
            LeaveCommand(lease, ticket, view, lost),
            Remove(ticket),
            self._make.enter(resource),
        ]
        return self._of(changes)

    def _rewritten(self) -> list[Command]:
        """A key is put, deleted and put again, and compared with versions of before."""
        one = self._make.enter()
        key, other = self._make.random.sample(KEYS, 2)
        put, gone, again = ((key, self._of(VALUES)),), ((key, None),), ((key, self._of(VALUES)),)
        known = self._of(list(Known))
        return [
            one,
            *(self._written(one, key, writes) for writes in (put, gone, again)),
            CommitCommand(one.lease, one.ticket, View.LATEST, ((key, known),), (*again, (other, b"compared"))),
            ReadCommand(one.lease, one.ticket, View.LATEST, KEYS),
        ]

    def _written(self, one: EnterCommand, key: str, writes: tuple[tuple[str, bytes | None], ...]) -> CommitCommand:
        """A write; with a loss the key is compared: see RandomCommands.commit."""
        lost = self._make.lost()
        return CommitCommand(one.lease, one.ticket, View.LATEST, ((key, Known.LATEST),) if lost else (), writes, lost)

    def _gone(self) -> list[Command]:
        """A ticket goes, in one way or the other, and is spoken of all the same, also by requests that get lost."""
        one = self._make.enter()
        lease, ticket, view = one.lease, one.ticket, View.LATEST
        goes: list[Command] = [
            LeaveCommand(lease, ticket, view, self._make.lost()),
            AbandonCommand(lease, ticket),
            Remove(ticket),
        ]
        late: list[Command] = [
            LeaveCommand(lease, ticket, view, "request"),
            LeaveCommand(lease, ticket, view, "answer"),
            AmendCommand(lease, ticket, view, "late", self._make.lost()),
            CommitCommand(lease, ticket, view, (), ((KEYS[0], b"late"),)),
        ]
        return [one, self._of(goes), self._of(late), self._of(late)]

    def _of_yesterday(self) -> list[Command]:
        """A ticket leaves and is entered again, and then its older self has something to say."""
        one = self._make.enter(KEPT)
        lease, ticket, view = one.lease, one.ticket, View.OLDER
        late: list[Command] = [
            *[LeaveCommand(lease, ticket, view)] * 3,
            AmendCommand(lease, ticket, view, "late"),
            TouchCommand(lease, ticket, view),
            LookCommand(lease, ticket, view, self._of(list(Reach))),
            ReadCommand(lease, ticket, view, KEYS),
            CommitCommand(lease, ticket, view, (), ((KEYS[0], b"late"),)),
        ]
        return [
            one,
            LeaveCommand(lease, ticket, View.LATEST),
            Again(lease, ticket),
            self._of(late),
            SurveyCommand(lease, KEPT, None),
        ]
