"""A failing plan made small: whatever can be left out while the same law is still broken, is.

Delta debugging on the plan: clients first, then actors, faults, sections, what is done inside of them. Since leaving
something out also moves what happens by chance, each smaller plan is tried with a few salts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.verify.simulation.plan import Actor, Client, Plan, Section, without
from tests.verify.simulation.run import Result, carry_out

RUNS_MAX: Final = 3000
_SALTS: Final = 4
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest that was found. `carry_out(plan, salt=salt)` runs it again."""

    plan: Plan
    salt: int
    result: Result
    runs: int


def shrink(plan: Plan, runs_max: int = RUNS_MAX) -> Shrunk | None:
    """The smallest plan found that breaks the law which `plan` breaks; None where that breaks none."""
    result = carry_out(plan)
    if not result.violation:
        return None
    best = Shrunk(plan, 0, result, 1)
    while (smaller := _smaller(best, runs_max)) is not None:
        best = smaller
    return best


def law(result: Result) -> str:
    """The law that was broken: S1, L2 …"""
    return result.violation.partition(":")[0]


def _smaller(best: Shrunk, runs_max: int) -> Shrunk | None:
    runs = best.runs
    for candidate in _candidates(best.plan):
        for salt in dict.fromkeys((best.salt, *range(_SALTS))):
            if runs >= runs_max:
                return None
            runs += 1
            result = carry_out(candidate, salt=salt)
            if law(result) == law(best.result):
                return Shrunk(candidate, salt, result, runs)
    return None


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Every plan that is one step smaller, the greatest step first."""
    for client in plan.clients:
        yield without(plan, clients=frozenset({client.name}))
    for client in plan.clients:
        for actor in client.actors:
            yield without(plan, actors=frozenset({actor.name}))
    for faults in _fewer(plan.faults):
        yield dataclasses.replace(plan, faults=faults)
    for number, client in enumerate(plan.clients):
        for smaller in _smaller_clients(client):
            clients = (*plan.clients[:number], smaller, *plan.clients[number + 1 :])
            yield dataclasses.replace(plan, clients=clients)


def _fewer(several: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Half of them, then all but one."""
    half = len(several) // 2
    if half > 1:
        yield several[:half]
        yield several[half:]
    for index in range(len(several)):
        yield several[:index] + several[index + 1 :]


def _smaller_clients(client: Client) -> Iterator[Client]:
    for number, actor in enumerate(client.actors):
        for sections in _smaller_programs(actor.sections):
            smaller = Actor(actor.name, sections, actor.observes)
            yield dataclasses.replace(client, actors=(*client.actors[:number], smaller, *client.actors[number + 1 :]))


def _smaller_programs(sections: tuple[Section, ...]) -> Iterator[tuple[Section, ...]]:
    yield from _fewer(sections)
    for index, section in enumerate(sections):
        for inside in _fewer(section.inside):
            yield (*sections[:index], dataclasses.replace(section, inside=inside), *sections[index + 1 :])
