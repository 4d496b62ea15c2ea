"""The plan of one run: clients, what their actors do, and what goes wrong when. All of it follows from the seed.

A plan is data: it can be printed, and a smaller one made of it by leaving parts out (see shrink.py). What is left to
chance while it runs (how long messages and reactions take) comes from streams of each client's own, so that leaving
one client or actor out changes little for the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from tests.verify.simulation.clocks import Rate
from tests.verify.simulation.network import LATE, LOST_ANSWER, LOST_REQUEST

FAULTS_UNTIL: Final = 12.0
"""Seconds of virtual time in which things go wrong; programs may go on after that."""
CALM_FROM: Final = 26.0
"""In liveness mode every actor has one more section from about here on, when all that was late has come."""
REQUEST_SECONDS: Final = 2.0
LIMIT: Final = 3
NAMES: Final = {"lock": "L", "seat": "S", "read": "R", "write": "R", "campaign": "E"}
_TTLS: Final = (2.0, 3.0, 5.0)
_VERBS: Final = ("", "", "enter", "enter", "leave", "commit", "commit", "commit", "look", "renew", "grant", "amend")
_MOMENTS: Final = ("", "", "enter", "look", "leave", "commit", "renew", "renew")


class Mode(Enum):
    """The aim of a run: to show that nothing wrong happens, or that what shall happen does."""

    SAFETY = "safety"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True)
class Action:
    """An action while holding: stay, check, renew, amend, put, get, or look at who leads."""

    kind: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.seconds:.2f} s" if self.seconds else self.kind


@dataclass(frozen=True, slots=True)
class Section:
    """Take one thing, do something with it, give it back."""

    kind: str
    rest: float
    timeout: float | None
    """None: for as long as it takes; 0: only if it is to be had at once."""
    weight: int
    inside: tuple[Action, ...]
    scoped: bool
    """Left through `with`, not by release()."""
    at: float = 0.0
    """Not before this time."""

    def __str__(self) -> str:
        bound = "" if self.timeout is None else f" timeout={self.timeout:.2f}"
        weight = f" weight={self.weight}" if self.kind == "seat" else ""
        inside = ", ".join(map(str, self.inside)) or "nothing"
        begins = f"at {self.at:.2f} s" if self.at else f"after {self.rest:.2f} s"
        return f"{begins} {self.kind}{weight}{bound}: {inside}{' (with)' if self.scoped else ''}"


@dataclass(frozen=True, slots=True)
class Actor:
    """A thread or task of a client, with its program. An observer has none: it observes the election."""

    name: str
    sections: tuple[Section, ...]
    observes: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a run: its face, its TTLs, its clock."""

    name: str
    asyncio: bool
    ttl: float
    lock_delay: float
    rate: Rate
    actors: tuple[Actor, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at one moment, for one client."""

    at: float
    kind: str
    client: str
    seconds: float = 0.0
    what: str = ""
    """The request it hits, the actor it cancels."""
    on: str = ""
    """Not at that time, but when the client sends its next request of this verb."""

    def __str__(self) -> str:
        what = f" {self.what}" if self.what else ""
        length = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.at:.2f} {self.client}: {self.kind}{what}{length}" + (f" on {self.on}" if self.on else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run."""

    seed: int
    mode: Mode
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Clients, actors, sections and faults: what shrinking makes smaller."""
        actors = [actor for client in self.clients for actor in client.actors]
        return len(self.clients), len(actors), sum(len(a.sections) for a in actors), len(self.faults)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.mode.value}"]
        for client in self.clients:
            face = "asyncio" if client.asyncio else "blocking"
            lines.append(f"  {client.name}: {face}, ttl {client.ttl:g} s, lock delay {client.lock_delay:g} s")
            for actor in client.actors:
                lines.append(f"    {actor.name}:{' observes the election' if actor.observes else ''}")
                lines += [f"      {section}" for section in actor.sections]
        return "\n".join([*lines, *(f"  fault at {fault}" for fault in self.faults)])


def plan(seed: int, mode: Mode) -> Plan:
    """The plan that follows from the seed."""
    choices = Random(f"plan {seed} {mode.value}")
    kinds = _kinds(choices)
    delay = choices.choice((0.0, 0.0, 0.0, 1.0))
    clients = tuple(_client(number, kinds, delay, mode, choices) for number in range(choices.randint(2, 5)))
    faults = sorted(_faults(clients, choices), key=lambda fault: (fault.at, fault.client, fault.kind))
    return Plan(seed, mode, clients, tuple(faults))


def _kinds(choices: Random) -> tuple[str, ...]:
    """Few names, so that they are contended for."""
    several = (("lock",), ("seat",), ("read", "write"), ("campaign",))
    chosen = choices.sample(several, choices.choice((1, 1, 2)))
    return tuple(kind for kinds in chosen for kind in kinds)


def _client(number: int, kinds: tuple[str, ...], delay: float, mode: Mode, choices: Random) -> Client:
    name = "ABCDE"[number]
    rate = Rate(1.0 + choices.uniform(-0.002, 0.002), choices.uniform(10.0, 5000.0))
    actors = [
        Actor(f"{name}{index}", _sections(kinds, mode, choices))
        for index in range(1, choices.choice((1, 1, 2, 2, 3)) + 1)
    ]
    if "campaign" in kinds and choices.random() < 0.5:
        actors.append(Actor(f"{name}o", (), observes=True))
    return Client(name, choices.random() < 0.4, choices.choice(_TTLS), delay, rate, tuple(actors))


def _sections(kinds: tuple[str, ...], mode: Mode, choices: Random) -> tuple[Section, ...]:
    sections = [_section(kinds, choices) for _ in range(choices.randint(2, 4))]
    if mode is Mode.LIVENESS:
        last = _section(kinds, choices)
        sections.append(dataclasses.replace(last, at=CALM_FROM + last.rest))
    return tuple(sections)


def _section(kinds: tuple[str, ...], choices: Random) -> Section:
    kind = choices.choice(kinds)
    drawn = choices.random()
    timeout = None if drawn < 0.6 else 0.0 if drawn < 0.75 else choices.uniform(0.05, 4.0)
    inside = tuple(_action(kind, choices) for _ in range(choices.randint(1, 4)))
    rest = choices.uniform(0.0, 1.5) if choices.random() < 0.7 else 0.0
    return Section(kind, rest, timeout, choices.choice((1, 1, 2, 3)), inside, choices.random() < 0.4)


def _action(kind: str, choices: Random) -> Action:
    kinds = ["stay", "stay", "check", "put", "put", "get", "renew"] + ["amend", "leader"] * (kind == "campaign")
    chosen = choices.choice(kinds)
    return Action(chosen, choices.uniform(0.01, 2.5) if chosen == "stay" else 0.0)


def _faults(clients: tuple[Client, ...], choices: Random) -> list[Fault]:
    faults = []
    for _ in range(choices.randint(2, 12)):
        client = choices.choice(clients)
        at = choices.uniform(0.0, FAULTS_UNTIL)
        drawn = choices.random()
        if drawn < 0.5:
            fate = choices.choice((LOST_REQUEST, LOST_ANSWER, LATE))
            faults += [Fault(at, fate, client.name, what=choices.choice(_VERBS))] * choices.choice((1, 1, 3))
        elif drawn < 0.65:
            actor = choices.choice(client.actors).name
            faults.append(Fault(at, "cancel", client.name, what=actor, on=choices.choice(_MOMENTS)))
        elif drawn < 0.9:
            kind, seconds = choices.choice(("cut", "pause", "pause", "slow")), choices.uniform(0.2, 2.0) * client.ttl
            faults.append(Fault(at, kind, client.name, seconds, on=choices.choice(_MOMENTS)))
        else:
            kind = choices.choice(("expire", "remove", "close", "crash", "crash"))
            faults.append(Fault(at, kind, client.name, on=choices.choice(_MOMENTS)))
    return faults


def without(plan: Plan, *, clients: frozenset[str] = frozenset(), actors: frozenset[str] = frozenset()) -> Plan:
    """The plan without these, and without the faults that hit nobody then."""
    kept = tuple(
        dataclasses.replace(client, actors=tuple(a for a in client.actors if a.name not in actors))
        for client in plan.clients
        if client.name not in clients
    )
    kept = tuple(client for client in kept if client.actors)
    names = {client.name for client in kept}
    faults = tuple(f for f in plan.faults if f.client in names and f.what not in actors)
    return dataclasses.replace(plan, clients=kept, faults=faults)
