"""Nemesis of a simulation: the faults of a plan, each at its time or at the moment of a request."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from tenure.testing.history.event import Kind
from tests.verify.simulation.client_process import ClientProcess
from tests.verify.simulation.ground_truth import ADMINISTRATOR, GroundTruth
from tests.verify.simulation.history import HistoryWriter
from tests.verify.simulation.network import LATE, LOST_ANSWER, LOST_REQUEST
from tests.verify.simulation.plan import Fault
from tests.verify.simulation.scheduler import Scheduler

_SLOWER_BY = 20.0


class Nemesis:
    """Carries out faults, counts those that were, and makes everything whole again."""

    def __init__(
        self,
        processes: Mapping[str, ClientProcess],
        scheduler: Scheduler,
        truth: GroundTruth,
        trace: Callable[[str, str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        self.writer: HistoryWriter | None = None
        self._processes = processes
        self._scheduler = scheduler
        self._truth = truth
        self._trace = trace

    def befall(self, fault: Fault) -> None:
        """Let it happen, now or when its request is sent. A client that is closed or dead is left alone."""
        process = self._processes[fault.client]
        if not process.living:
            return
        if fault.on:
            at_once = dataclasses.replace(fault, on="")
            process.network.when_sent(fault.on, lambda: self.befall(at_once))
        elif fault.kind in (LOST_REQUEST, LOST_ANSWER, LATE):
            process.network.plan(fault.kind, fault.what)
        else:
            self.done[fault.kind] += 1
            length = f" for {fault.seconds:.2f} s" * (fault.seconds > 0)
            self._trace("fault", f"{fault.client}: {fault.kind} {fault.what}{length}")
            self._carry_out(fault, process)

    def make_whole(self, process: ClientProcess) -> None:
        """End all that is wrong with this client; what is late already still comes."""
        process.network.forget()
        self._heal(process)
        self._resume(process)

    def _carry_out(self, fault: Fault, process: ClientProcess) -> None:
        match fault.kind:
            case "cut" | "slow":
                self._impede(fault, process)
            case "pause":
                process.pause()
                self._note(Kind.PAUSED, process)
                self._scheduler.at(self._scheduler.now + fault.seconds, lambda: self._resume(process))
            case "cancel":
                self._scheduler.at(
                    self._scheduler.now + process.reaction(), lambda: process.cancel(fault.what), process
                )
            case "close":
                self._note(Kind.INVOKE, process, "close")
                process.close()
            case "crash":
                process.crash()
                self._note(Kind.DIED, process)
            case _:
                self._administer(fault, process)

    def _impede(self, fault: Fault, process: ClientProcess) -> None:
        """Cut off or slow down a client for a while. Among several such faults the first to be over ends them all."""
        if fault.kind == "cut":
            process.network.cut_off = True
        else:
            process.network.slowness = _SLOWER_BY
        self._note(Kind.FAULT, process, fault.kind)
        self._scheduler.at(self._scheduler.now + fault.seconds, lambda: self._heal(process))

    def _heal(self, process: ClientProcess) -> None:
        for kind in ("cut",) * process.network.cut_off + ("slow",) * (process.network.slowness > 1.0):
            self._note(Kind.HEALED, process, kind)
        process.heal()

    def _resume(self, process: ClientProcess) -> None:
        if process.paused:
            self._note(Kind.RESUMED, process)
            process.resume()

    def _administer(self, fault: Fault, process: ClientProcess) -> None:
        """End a lease of this client (expire), or take its first ticket away (remove), as an administrator does."""
        self._truth.cause = ADMINISTRATOR
        try:
            if fault.kind == "expire":
                for lease in process.leases[:1]:
                    process.store.expire(lease)
            else:
                self._remove_first(process)
        finally:
            self._truth.cause = ""

    def _remove_first(self, process: ClientProcess) -> None:
        for line, tickets in process.store.lines.items():
            for ticket in tickets:
                if ticket.owner == process.name:
                    process.store.leave(line, ticket.id, ticket.token)
                    return

    def _note(self, kind: Kind, process: ClientProcess, operation: str = "") -> None:
        if self.writer is not None:
            self.writer.tell(kind, process.name, operation=operation)
