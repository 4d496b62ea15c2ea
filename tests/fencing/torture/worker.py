"""Worker, one of eight: `python -m tests.fencing.torture.worker PLAN`, the plan as JSON. SIGTERM ends it in good order.

It does what the documentation asks of nobody: it never looks whether it still holds the lock, and goes on after a
loss. So does every program that is stopped between its last look and its write. Now and then it stops itself there,
after it has told so in its event file; the nemesis lets it go on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import tenure
from tenure import AcquireTimeout, Hold, LeaseLost, StoreError

from .events import EventFile, What
from .resources import resource
from .stores import options_of, told_of

LOCK: Final = "counter"
_ACQUIRE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.04
_LONG_PAUSE_SECONDS: Final = 0.25
_LONG_SHARE: Final = 0.15
_LATE_SHARE: Final = 0.2
_TURNS_PER_STOP: Final = 7


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a worker."""

    name: str
    kind: str
    address: str
    store: str
    ttl: float
    guarded: bool
    seed: str
    directory: str

    def __str__(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    """Turns, one after the other, until it is told to end."""

    def __init__(self, plan: Plan) -> None:
        random.seed(plan.seed)
        self._name = plan.name
        self._events = EventFile(Path(plan.directory), plan.name)
        self._client = tenure.connect(plan.store, owner=plan.name, ttl=plan.ttl, **options_of(plan.store))
        self._lock = self._client.lock(LOCK)
        self._resource = resource(plan.kind, plan.address, guarded=plan.guarded)
        self._elements = 0
        self._stop_at = random.randrange(1, _TURNS_PER_STOP)
        self._ending = False
        signal.signal(signal.SIGTERM, lambda *_: self._end())

    def run(self) -> None:
        self._events.write(What.READY)
        while not self._ending:
            self._turn()
        self._resource.close()
        self._client.close()
        self._events.write(What.LEFT)
        self._events.close()

    def _end(self) -> None:
        self._ending = True

    def _turn(self) -> None:
        try:
            hold = self._lock.acquire(timeout=_ACQUIRE_SECONDS)
        except (AcquireTimeout, LeaseLost, StoreError) as error:
            self._events.write(What.UNGRANTED, told=type(error).__name__)
            return
        self._events.write(What.GRANTED, token=hold.token, lease=told_of(hold))
        try:
            self._add(hold)
        finally:
            self._resource.turn_over()
            self._leave(hold)

    def _add(self, hold: Hold) -> None:
        if random.random() < _LATE_SHARE:
            _pause()  # deposed here, it is refused when it reads
        count = self._read(hold)
        if count is None:
            return
        self._elements += 1
        if self._elements >= self._stop_at and not self._ending:
            self._stop(hold)
        else:
            _pause()
        element = f"{self._name}-{self._elements}"
        self._events.write(What.SENT, token=hold.token, element=element, count=count + 1)
        try:
            self._resource.write(hold, count + 1, element)
        except Exception as error:  # sorted out below; what is nobody's known error ends the worker, and the test
            self._events.write(self._end_of(error), token=hold.token, element=element, told=type(error).__name__)
        else:
            self._events.write(What.OK, token=hold.token, element=element)

    def _read(self, hold: Hold) -> int | None:
        try:
            count = self._resource.read(hold)
        except Exception as error:  # as in `_add`
            self._end_of(error)
            self._events.write(What.UNREAD, token=hold.token, told=type(error).__name__)
            return None
        self._events.write(What.READ, token=hold.token, count=count)
        return count

    def _end_of(self, error: Exception) -> What:
        known = self._resource.end_of(error)
        if known is None:
            raise error
        return known

    def _stop(self, hold: Hold) -> None:
        """Stop in the window that all is about, until the nemesis lets it go on."""
        self._stop_at = self._elements + random.randrange(1, 2 * _TURNS_PER_STOP)
        self._events.write(What.STOPPING, token=hold.token)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._events.write(What.RESUMED, token=hold.token)

    def _leave(self, hold: Hold) -> None:
        self._events.write(What.LEAVING, token=hold.token)
        try:
            hold.release()
        except StoreError:
            return  # the reaper goes on


def _pause() -> None:
    time.sleep(random.random() * (_LONG_PAUSE_SECONDS if random.random() < _LONG_SHARE else _PAUSE_SECONDS))


if __name__ == "__main__":
    Worker(Plan(**json.loads(sys.argv[1]))).run()
