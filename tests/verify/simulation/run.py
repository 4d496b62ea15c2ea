"""Run of a plan: a store, its clients, their actors, and what goes wrong.

Safety: things go wrong all the time; the run ends with its programs. Liveness: at one moment everything is healed,
and from there on whoever waits is admitted, every program comes to its end, and nothing is left in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tenure.testing.history.history import History, MemoryRecorder
from tests.verify.simulation.actors import Judges, Program
from tests.verify.simulation.client_process import ClientProcess, new_store
from tests.verify.simulation.ground_truth import GroundTruth
from tests.verify.simulation.history import HistoryWriter
from tests.verify.simulation.nemesis import Nemesis
from tests.verify.simulation.plan import FAULTS_UNTIL, Mode, Plan, plan
from tests.verify.simulation.scheduler import Scheduler
from tests.verify.simulation.seeding import seeded
from tests.verify.simulation.writes import Writes

ENDS_AFTER: Final = 60.0
CALM_LASTS_MAX: Final = 400.0
SETTLES_WITHIN: Final = 8.0
"""What is still to be reaped when every program is over."""
LEASES_END_WITHIN: Final = 8.0
"""Without faults, whatever lease is to end has ended: TTL, lock delay, and what its owner may still have sent."""
_LOOKS_EVERY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run. `violation` is "" where nothing was wrong."""

    plan: Plan
    violation: str
    trace: tuple[str, ...]
    outcomes: Counter[str]
    faults: Counter[str]
    hand_overs: Counter[str]
    setbacks: int
    """Values that an amendment carried out late put back: a known weakness, see ground_truth."""
    risen: int
    """Tickets that a late enter brought back after an administrator had removed them: known, too."""
    seconds: float
    """Of virtual time."""
    steps: int


def simulate(seed: int, mode: Mode, *, traced: bool = True) -> Result:
    """The run of a seed; the same for the same seed, always."""
    return carry_out(plan(seed, mode), traced=traced)


def carry_out(plan: Plan, *, traced: bool = True, salt: int = 0) -> Result:
    """The run of a plan. Another salt lets messages and reactions take other times."""
    with seeded(f"{plan.seed} {salt}"):
        return World(plan, traced=traced, salt=salt).run()


def recorded_run(plan: Plan) -> tuple[Result, History]:
    """A run of the plan, and its history for the checkers of tenure.testing."""
    with seeded(f"{plan.seed} recorded"):
        world = World(plan)
        records = MemoryRecorder(lambda: world.scheduler.now)
        world.write_to(HistoryWriter(records))
        return world.run(), records.history()


class World:
    """A run while it runs."""

    def __init__(self, plan: Plan, *, traced: bool = True, salt: int = 0) -> None:
        self._plan = plan
        self._lines: list[str] = []
        self._traced = traced
        self._ending = False
        self.scheduler = Scheduler()
        name, self._keeper = new_store(self.scheduler)
        store = self._keeper._backend.store  # type: ignore[attr-defined]  # a memory backend has one
        self._store = store
        self.truth = GroundTruth(store, self.scheduler, self._trace)
        writes = Writes(store, self.truth)
        self.judges = Judges(self.truth, writes, self._now, self._trace)
        self.processes = {
            client.name: ClientProcess(client, name, f"{plan.seed} {salt}", self.scheduler, self.truth)
            for client in plan.clients
        }
        self._nemesis = Nemesis(self.processes, self.scheduler, self.truth, self._trace)
        self._programs: list[tuple[ClientProcess, Program]] = []
        for process in self.processes.values():
            for actor in process.plan.actors:
                self._begin(process, Program(process, actor, self.judges), actor.name, observes=actor.observes)

    def write_to(self, writer: HistoryWriter) -> None:
        """Write down what happens; before the first step."""
        self._nemesis.writer = self.truth.writer = writer
        for process in self.processes.values():
            process.face = writer.follow(process.face, process.name)
            process.network.note_lateness = partial(writer.late, process.name)

    def _begin(self, process: ClientProcess, program: Program, name: str, *, observes: bool) -> None:
        process.begin(name, program.run, process.reaction())
        if not observes:
            self._programs.append((process, program))

    def run(self) -> Result:
        """Run to the end, or to the first violation."""
        for fault in self._plan.faults:
            self.scheduler.at(fault.at, partial(self._nemesis.befall, fault))
        self._look()
        try:
            if self._plan.mode is Mode.LIVENESS:
                self._demand_life()
            else:
                self._until_all_over(ENDS_AFTER)
            self.judges.writes.conclude()
        finally:
            for process in self.processes.values():
                process.crash()
        return self._result()

    def _demand_life(self) -> None:
        self._until(FAULTS_UNTIL)
        if not self._decided:
            self._calm()
            self._demand_an_end()

    def _demand_an_end(self) -> None:
        if not self._until_all_over(self._now() + CALM_LASTS_MAX):
            self.truth.violate("L1", "some program has not come to its end")
        self._until(self._now() + SETTLES_WITHIN)
        if self._decided:
            return
        standing = [name for name, line in self._store.lines.items() if any(self._living(t.owner or "") for t in line)]
        self._refuse_leftovers("once every program is over", standing)
        for process in self.processes.values():
            reaping = process.runtime.statistics()["backend"]
            if process.living and isinstance(reaping, dict) and reaping["reaping"]:
                self.truth.violate("L6", f"{process.name}'s reaper still has work")
            process.close()
        self._until(self._now() + LEASES_END_WITHIN)
        self._refuse_leftovers("once every client is closed", [*self._store.lines, *self._store.leases])
        self._refuse_leftovers("as a watch, once every client is closed", self._store._watches)

    def _refuse_leftovers(self, when: str, left: Iterable[str]) -> None:
        if found := list(left):
            self.truth.violate("L6", f"left in the store {when}: {', '.join(found)}")

    def _until(self, when: float) -> None:
        """Let things happen, unless something was wrong already."""
        if not self._decided:
            self.scheduler.run(when)

    def _until_all_over(self, when: float) -> bool:
        """The same, but not longer than any program runs. False where one still does."""
        self._ending = True
        self._until(when)
        self._ending = False
        self.scheduler.halted = self._decided
        return self._decided or self._all_over()

    @property
    def _decided(self) -> bool:
        """True where something was wrong, or the known weakness showed."""
        return bool(self.truth.violation or self.truth.risen)

    def _all_over(self) -> bool:
        return all(program.over or process.dead for process, program in self._programs)

    def _calm(self) -> None:
        """Heal everything; what is late still comes."""
        for process in self.processes.values():
            self._nemesis.make_whole(process)
        quiet = max([self._now(), *(process.network.late_until for process in self.processes.values())])
        self.judges.calm_since = quiet + LEASES_END_WITHIN
        self._trace("world", f"nothing goes wrong from here on, and all is calm from {self.judges.calm_since:.4f}")

    def _look(self) -> None:
        """Look at everything from time to time: a belief may go wrong without any event."""
        self.truth.look()
        if self.judges.calm_since < self._now():
            self.truth.idle(self.judges.calm_since, self._living)
        if self._ending and self._all_over():
            self.scheduler.halted = True
        self.scheduler.at(self._now() + _LOOKS_EVERY, self._look)

    def _living(self, name: str) -> bool:
        return name in self.processes and self.processes[name].living

    def _now(self) -> float:
        return self.scheduler.now

    def _trace(self, who: str, what: str) -> None:
        if self._traced:
            self._lines.append(f"{self.scheduler.now:9.4f}  {who:<9} {what}")

    def _result(self) -> Result:
        faults = sum((process.network.met for process in self.processes.values()), self._nemesis.done)
        return Result(
            self._plan,
            self.truth.violation,
            tuple(self._lines),
            self.judges.outcomes,
            faults,
            self.truth.hand_overs,
            self.truth.setbacks,
            self.truth.risen,
            self._now(),
            self.scheduler.steps,
        )
