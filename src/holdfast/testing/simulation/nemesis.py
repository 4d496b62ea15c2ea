"""What goes wrong: the faults of a plan, each at its time or at the moment of a request."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from holdfast.testing.event import Kind
from holdfast.testing.simulation.diary import Diary
from holdfast.testing.simulation.ground import ADMINISTRATOR, Ground
from holdfast.testing.simulation.network import LATE, LOST_ANSWER, LOST_REQUEST
from holdfast.testing.simulation.plan import Fault
from holdfast.testing.simulation.site import Site
from holdfast.testing.simulation.strands import Scheduler

_SLOWER_BY = 20.0


class Nemesis:
    """Carries out faults, counts those that were, and makes everything whole again."""

    def __init__(
        self, sites: Mapping[str, Site], scheduler: Scheduler, ground: Ground, trace: Callable[[str, str], None]
    ) -> None:
        self.done: Counter[str] = Counter()
        self.diary: Diary | None = None
        self._sites = sites
        self._scheduler = scheduler
        self._ground = ground
        self._trace = trace

    def befall(self, fault: Fault) -> None:
        """Let it happen, now or when its request is sent. A client that is closed or dead is left alone."""
        site = self._sites[fault.client]
        if not site.living:
            return
        if fault.on:
            at_once = dataclasses.replace(fault, on="")
            site.network.when_sent(fault.on, lambda: self.befall(at_once))
        elif fault.kind in (LOST_REQUEST, LOST_ANSWER, LATE):
            site.network.plan(fault.kind, fault.what)
        else:
            self.done[fault.kind] += 1
            length = f" for {fault.seconds:.2f} s" * (fault.seconds > 0)
            self._trace("fault", f"{fault.client}: {fault.kind} {fault.what}{length}")
            self._carry_out(fault, site)

    def make_whole(self, site: Site) -> None:
        """Nothing goes wrong with this client any more; what is late already still comes."""
        site.network.forget()
        self._heal(site)
        self._resume(site)

    def _carry_out(self, fault: Fault, site: Site) -> None:
        match fault.kind:
            case "cut" | "slow":
                self._impede(fault, site)
            case "pause":
                site.pause()
                self._note(Kind.PAUSED, site)
                self._scheduler.at(self._scheduler.now + fault.seconds, lambda: self._resume(site))
            case "cancel":
                self._scheduler.at(self._scheduler.now + site.reaction(), lambda: site.cancel(fault.what), site)
            case "close":
                self._note(Kind.INVOKE, site, "close")
                site.close()
            case "crash":
                site.crash()
                self._note(Kind.DIED, site)
            case _:
                self._administer(fault, site)

    def _impede(self, fault: Fault, site: Site) -> None:
        """For a while. Of several the one that is over first ends them all."""
        if fault.kind == "cut":
            site.network.cut_off = True
        else:
            site.network.slowness = _SLOWER_BY
        self._note(Kind.FAULT, site, fault.kind)
        self._scheduler.at(self._scheduler.now + fault.seconds, lambda: self._heal(site))

    def _heal(self, site: Site) -> None:
        for kind in ("cut",) * site.network.cut_off + ("slow",) * (site.network.slowness > 1.0):
            self._note(Kind.HEALED, site, kind)
        site.heal()

    def _resume(self, site: Site) -> None:
        if site.paused:
            self._note(Kind.RESUMED, site)
            site.resume()

    def _administer(self, fault: Fault, site: Site) -> None:
        """Somebody ends a lease of this client (expire), or takes its first ticket away (remove)."""
        self._ground.cause = ADMINISTRATOR
        try:
            if fault.kind == "expire":
                for lease in site.leases[:1]:
                    site.store.expire(lease)
            else:
                self._remove_first(site)
        finally:
            self._ground.cause = ""

    def _remove_first(self, site: Site) -> None:
        for line, tickets in site.store.lines.items():
            for ticket in tickets:
                if ticket.owner == site.name:
                    site.store.leave(line, ticket.id, ticket.token)
                    return

    def _note(self, kind: Kind, site: Site, operation: str = "") -> None:
        if self.diary is not None:
            self.diary.tell(kind, site.name, operation=operation)
