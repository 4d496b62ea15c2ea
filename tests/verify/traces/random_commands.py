"""Commands at random, one at a time: each speaks of leases, tickets and watches of commands before it.

Mostly of the last ones, and of a ticket mostly over its own lease; what is left to chance is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from tenure._core.lease import Mode, Reach
from tests.verify.traces.commands import (
    KEPT,
    KEYS,
    RESOURCES,
    AbandonCommand,
    Again,
    AmendCommand,
    Close,
    Command,
    CommitCommand,
    Deafen,
    EnterCommand,
    Known,
    LeaveCommand,
    LookCommand,
    Lost,
    Open,
    Pick,
    ReadCommand,
    Remove,
    RenewCommand,
    Revoke,
    SurveyCommand,
    TouchCommand,
    Unwatch,
    View,
    WatchCommand,
)

Chosen = TypeVar("Chosen")
_CLIENTS: Final = ("A", "B")
_TTLS: Final = (15.0, 20.0, 25.0)
_DELAYS: Final = (0.0, 0.0, 2.0)
_OWNERS: Final = ("me", "zoë 🔒", "10.0.0.7:8080")
TEXTS: Final = ("", "one", "two", '{"owner":1}', "ä 🔒 \n", "long " * 300)
VALUES: Final = (b"", b"1", b"two", b"\x00\xff\xfe")


class RandomCommands:
    """The choices of one seed, and the names given so far."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.reuses_ids = random.random() < 0.5  # not where something is abandoned or lost: see freedom.py
        self._leases: list[str] = []
        self._entered: list[tuple[str, str, str]] = []  # ticket, lease, resource
        self._watches: list[str] = []
        self._makers: Mapping[Callable[[], Command], int] = {
            self.enter: 14,
            self.again: 14 if self.reuses_ids else 0,
            self.look: 7,
            self.survey: 7,
            self.amend: 8,
            self.leave: 7,
            self.abandon: 3,
            self.read: 5,
            self.commit: 14,
            self.touch: 5,
            self.renew: 2,
            self.watch: 11,
            self.unwatch: 2,
            self.deafen: 1,
            self.close: 2,
            self.revoke: 2,
            self.remove: 3,
            self.open: 3,
        }

    def any(self) -> Command:
        """Any command, by weight. There is a lease by now, and a ticket."""
        make = self.random.choices(list(self._makers), list(self._makers.values()))[0]
        return make()

    # Leases.

    def open(self) -> Open:
        name = f"L{len(self._leases) + 1}"
        self._leases.append(name)
        return Open(name, self.of(_CLIENTS), self.of(_TTLS), self.of(_DELAYS))

    def renew(self) -> RenewCommand:
        return RenewCommand(self.of(self._leases))

    def deafen(self) -> Deafen:
        return Deafen(self.of(self._leases))

    def close(self) -> Close:
        return Close(self.of(self._leases))

    def revoke(self) -> Revoke:
        return Revoke(self.of(self._leases))

    # Tickets.

    def enter(self, resource: str = "") -> EnterCommand:
        ticket, lease = f"t{len(self._entered) + 1}", self.of(self._leases[-3:])
        resource = resource or self.of((KEPT, *RESOURCES))
        self._entered.append((ticket, lease, resource))
        mode = self.of((Mode.EXCLUSIVE, Mode.EXCLUSIVE, Mode.READ, Mode.SEAT))
        limit = self.of((1, 3, 1000)) if mode is Mode.SEAT else 1
        weight = self.random.randint(1, min(limit, 3))
        owner, value, reach = self.of(_OWNERS), self.of(TEXTS), self.of(list(Reach))
        return EnterCommand(lease, ticket, resource, mode, weight, limit, owner, value, reach, self.lost())

    def again(self) -> Command:
        reusable = [(ticket, lease) for ticket, lease, resource in self._entered if resource == KEPT]
        if not reusable:
            return self.enter()
        ticket, lease = self.of(reusable[-3:])
        return Again(lease, ticket)

    def look(self) -> Command:
        lease, ticket = self._one()
        return LookCommand(lease, ticket, self._view(), self.of(list(Reach)))

    def survey(self, resource: str = "") -> SurveyCommand:
        return SurveyCommand(
            self.of(self._leases[-3:]), resource or self.of(RESOURCES), self.of((None, None, None, 1, 2))
        )

    def amend(self) -> AmendCommand:
        lease, ticket = self._one()
        return AmendCommand(lease, ticket, self._view(), self.of(TEXTS), self.lost())

    def leave(self) -> LeaveCommand:
        lease, ticket = self._one()
        return LeaveCommand(lease, ticket, self._view(), self.lost())

    def touch(self) -> TouchCommand:
        lease, ticket = self._one()
        return TouchCommand(lease, ticket, self._view(), self.lost())

    def abandon(self) -> Command:
        lease, ticket = self._one()
        return self.leave() if self.reuses_ids else AbandonCommand(lease, ticket)

    def remove(self) -> Remove:
        return Remove(self._one()[1])

    def _one(self) -> tuple[str, str]:
        """A lease and a ticket, mostly its own, mostly one of the last."""
        recent = self._entered[-self.of((1, 1, 3, 3, 30)) :]
        ticket, lease, _ = self.of(recent)
        return (lease if self.random.random() < 0.8 else self.of(self._leases)), ticket

    def _view(self) -> View:
        older = [View.OLDER, View.OLDER] if self.reuses_ids else []
        return self.of([View.LATEST, View.LATEST, View.ENTERED, *older])

    # Keys.

    def read(self) -> ReadCommand:
        lease, ticket = self._one()
        return ReadCommand(lease, ticket, self._view(), tuple(self._some(KEYS)))

    def commit(self) -> CommitCommand:
        """A commit; with a loss every key is compared: such a commit is sent once by every driver, or not at all."""
        lease, ticket = self._one()
        writes = tuple((key, self.of((None, None, *VALUES))) for key in self._some(KEYS))
        compared = self._some(KEYS) if self.random.random() < 0.5 else []
        put = {key for key, value in writes if value is not None}
        compares = tuple((key, self._known(new=key in put)) for key in compared)
        lost = self.lost()
        if lost:
            compares = tuple((key, Known.LATEST) for key, _ in writes)
        return CommitCommand(lease, ticket, self._view(), compares, writes, lost)

    def _known(self, *, new: bool) -> Known:
        return self.of((Known.LATEST,) * 4 + (Known.OLDER, Known.WRONG) + ((Known.NEW,) * 3 if new else ()))

    # Watches.

    def watch(self, lease: str = "", resource: str = "") -> WatchCommand:
        name = f"w{len(self._watches) + 1}"
        self._watches.append(name)
        if not lease:
            _, lease, resource = self.of(self._entered[-3:])
        return WatchCommand(name, lease, resource, self.of([*Pick, Pick.ALL]), self.random.random() < 0.7)

    def unwatch(self) -> Command:
        return Unwatch(self.of(self._watches)) if self._watches else self.watch()

    # Chance.

    def lost(self) -> Lost:
        if self.reuses_ids or self.random.random() < 0.75:
            return ""
        return self.of(("request", "answer"))

    def _some(self, several: tuple[str, ...]) -> list[str]:
        return self.random.sample(several, self.random.randint(1, len(several)))

    def of(self, several: Sequence[Chosen]) -> Chosen:
        return several[self.random.randrange(len(several))]
