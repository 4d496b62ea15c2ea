"""Nemesis of the guards: who is hit, when and how. It acts on what the event files say, in the test's own thread.

About every second it strikes: a worker is stopped for longer than its TTL, a holder is deposed under its feet, a
worker is killed and another one started. And it lets those go on who stopped themselves between read and write, as
soon as a younger holder has written, or has only read, or after two and a half TTLs.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from typing import Final

from .check import GRANTS_LEAST, REFUSALS_LEAST, STOPS_LEAST, Deed
from .events import Event, What
from .stores import Store
from .workers import FencedWorker, FencedWorkers

_TICK_SECONDS: Final = 0.01
_MORE_SECONDS_MAX: Final = 20.0
_PATIENCE_SECONDS: Final = 0.5
_OTHERS: Final = (Deed.DEPOSE, Deed.KILL, Deed.DEPOSE, Deed.DEPOSE)
_HOLDER_SHARE: Final = 0.4  # of the stops and kills are aimed at a holder
_DEPOSED_SHARE: Final = 0.7  # of those that stop themselves
_WHOLE_SHARE: Final = 0.6  # of the deposed lose their lease or session, the others the ticket alone


class Nemesis:
    """The nemesis of one run; the same seed draws the same lots."""

    def __init__(self, workers: FencedWorkers, store: Store, *, ttl: float, seed: str) -> None:
        self._workers = workers
        self._store = store
        self._ttl = ttl
        self._lots = random.Random(seed)
        self._drawn: list[Deed] = []
        self._asleep: dict[str, _Sleeper] = {}
        self._youngest = {What.READ: 0, What.OK: 0}  # the highest token that has got so far
        self._hits = 0
        self._grants = 0
        self.deeds: list[Deed] = []

    def rage(self, seconds: float) -> None:
        """Go on for so long, and for a bounded while more until enough has happened. Raises ProcessFailed.

        The lots of a few seconds may hit nobody; to wait for enough makes a run as long as it must be, and hides
        nothing: whatever happens is judged.
        """
        end = time.monotonic() + seconds
        strike_at = time.monotonic() + self._lots.uniform(0.3, 0.7)
        while (now := time.monotonic()) < end or (now < end + _MORE_SECONDS_MAX and not self._is_enough()):
            for event in self._workers.news():
                self._note(event)
            self._wake()
            if now >= strike_at and self._strike(patient=now < strike_at + _PATIENCE_SECONDS):
                strike_at = now + self._lots.uniform(0.6, 1.2)
            time.sleep(_TICK_SECONDS)

    def _note(self, event: Event) -> None:
        if event.what in self._youngest:
            self._youngest[event.what] = max(self._youngest[event.what], event.token)
        elif event.what is What.STOPPING:
            self._asleep[event.worker] = self._sleeper(event)
        elif event.what is What.RESUMED:
            self._asleep.pop(event.worker, None)
            self._hits += max(self._youngest.values()) > event.token
        self._grants += event.what is What.GRANTED

    def _is_enough(self) -> bool:
        """True where there is as much as `check.too_little` wants of a run."""
        stops = self.deeds.count(Deed.STOP)
        return self._hits >= REFUSALS_LEAST and self._grants >= 2 * GRANTS_LEAST and stops >= STOPS_LEAST

    def _sleeper(self, event: Event) -> _Sleeper:
        """The sleeper of an event. Most are deposed at once, so that not every stop costs all others a TTL."""
        member = next((m for m in self._workers.living if m.name == event.worker), None)
        if member is not None and member.granted is not None and self._lots.random() < _DEPOSED_SHARE:
            self._depose(member)
        rival = self._lots.choice((What.READ, What.OK))
        return _Sleeper(event.token, rival, time.monotonic() + 2.5 * self._ttl)

    def _wake(self) -> None:
        now = time.monotonic()
        for member in self._workers.living:
            if member.frozen_until is None:
                # again at each tick until it says that it is awake: it may have told of its stop and not begun it
                if member.name in self._asleep and self._is_over(self._asleep[member.name], now):
                    member.send(signal.SIGCONT)
            elif now >= member.frozen_until:
                member.frozen_until = None
                member.send(signal.SIGCONT)

    def _is_over(self, sleeper: _Sleeper, now: float) -> bool:
        return now >= sleeper.until or self._youngest[sleeper.rival] > sleeper.token

    def _strike(self, *, patient: bool) -> bool:
        """Do what the next lot says. While `patient`, False where there is no victim at this moment."""
        if not self._drawn:
            one, two, three, four = self._lots.sample(_OTHERS, len(_OTHERS))
            self._drawn = [one, two, Deed.STOP, three, four, Deed.STOP]
        victims = self._victims(self._drawn[-1])
        if not victims and patient:
            return False
        deed = self._drawn.pop()  # from the end: a stop comes first
        if victims:
            self._hit(deed, self._lots.choice(victims))
        return True

    def _victims(self, deed: Deed) -> list[FencedWorker]:
        """The victims by their last events: workers that are awake, or that hold, even with a write on its way."""
        awake = [m for m in self._workers.living if m.frozen_until is None and m.last not in (None, What.STOPPING)]
        holders = [member for member in awake if member.last in (What.GRANTED, What.READ, What.SENT)]
        if deed is Deed.DEPOSE:
            return holders
        return holders if holders and self._lots.random() < _HOLDER_SHARE else awake

    def _hit(self, deed: Deed, victim: FencedWorker) -> None:
        if deed is Deed.STOP:
            self._stop(victim)
        elif deed is Deed.DEPOSE:
            self._depose(victim)
        else:
            self._kill(victim)

    def _stop(self, member: FencedWorker) -> None:
        member.send(signal.SIGSTOP)
        member.frozen_until = time.monotonic() + self._lots.uniform(1.5, 2.5) * self._ttl
        self.deeds.append(Deed.STOP)

    def _depose(self, member: FencedWorker) -> None:
        if member.granted is not None:
            self._store.depose(member.granted.lease, whole=self._lots.random() < _WHOLE_SHARE)
            self.deeds.append(Deed.DEPOSE)

    def _kill(self, member: FencedWorker) -> None:
        self._workers.kill(member)
        self._workers.start_one()
        self.deeds.append(Deed.KILL)


@dataclass(frozen=True, slots=True)
class _Sleeper:
    """A worker that stopped itself under `token`: until there is a `rival` event of a younger one, or that long."""

    token: int
    rival: What
    until: float
