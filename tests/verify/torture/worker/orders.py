"""Orders to a worker on its standard input, one per line (see parts.Worker.order).

Orders are carried out in a thread of their own, one after the other. A broken promise of the library that shows here
(a forked child whose copy still works) ends the worker with BROKEN_PROMISE, which fails the run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, TextIO

from tenure._core.hold_watch import HoldState
from tenure._core.runtime import runtime_of
from tenure.errors import ForkedClient
from tenure.testing.history.event import Kind
from tests.verify.torture.worker.faces import Troupe
from tests.verify.torture.worker.skewed import SkewedClock

BROKEN_PROMISE: Final = 70
_CHILD_SECONDS: Final = 10
_MICROSECONDS: Final = 1e6


class Orders:
    """Hears and obeys."""

    def __init__(self, troupe: Troupe, clock: SkewedClock) -> None:
        self._troupe = troupe
        self._clock = clock
        self._hands: dict[str, Callable[..., None]] = {
            "stall": self._stall,
            "stall-loop": self._stall_loop,
            "clock": self._run_clock_at,
            "jump": self._jump,
            "fork": self._fork,
            "cancel": troupe.cancel,
            "hop": self._hop,
        }

    def listen(self, words: TextIO) -> None:
        """Obey orders until the end of the input: then their giver is gone, and the worker ends too."""
        for line in words:
            self.obey(line)
        self._troupe.end()

    def obey(self, line: str) -> None:
        """Obey one order. What can't be understood is said on stderr, and left undone."""
        order, *arguments = line.split() or [""]
        try:
            self._hands[order](*map(float, arguments))
        except (KeyError, TypeError, ValueError) as error:
            print(f"not an order: {line.strip()!r} ({type(error).__name__}: {error})", file=sys.stderr, flush=True)

    def _stall(self, seconds: float) -> None:
        """Keep the GIL, and with it every thread."""
        log = self._troupe.scene.log
        log.record(Kind.PAUSED)
        ctypes.PyDLL(None).usleep(int(seconds * _MICROSECONDS))  # PyDLL, not CDLL: it does not let go of the GIL
        log.record(Kind.RESUMED)

    def _stall_loop(self, seconds: float) -> None:
        """Keep only the event loop; where there is none, the GIL."""
        if not self._troupe.has_loop:
            self._stall(seconds)
            return
        log = self._troupe.scene.log
        log.record(Kind.PAUSED, operation="loop")
        self._troupe.freeze_loop(seconds)
        log.record(Kind.RESUMED, operation="loop")

    def _run_clock_at(self, rate: float) -> None:
        self._clock.run_at(rate)
        self._clock.rearm()

    def _jump(self, seconds: float) -> None:
        """Let the clock jump, as after a suspend.

        Holders look before anything else happens: the history then knows when belief ended.
        """
        self._clock.jump(seconds)
        for hold in list(self._troupe.scene.holds):
            self._troupe.scene.log.look(hold, lambda hold=hold: type(hold).check(hold))  # type: ignore[misc]
        self._clock.rearm()

    def _hop(self) -> None:
        """Break the connection of every ZooKeeper session, as the driver does itself when a server falls silent: it
        goes on at another server, or at the same one. etcd has no session to move."""
        for lease in list(runtime_of(self._troupe.client)._leases.values()):
            connection = getattr(lease, "_connection", None)
            if connection is not None:
                connection.drop()

    def _fork(self) -> None:
        """A child of this process may do nothing with its copy of the client and the holds."""
        holds = list(self._troupe.scene.holds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point here
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_CHILD_SECONDS)
            os._exit(_still_usable(self._troupe.client, holds))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            print(f"a forked child found its copy usable, or hung (status {code})", file=sys.stderr, flush=True)
            os._exit(BROKEN_PROMISE)


def _still_usable(client: Any, holds: list[Any]) -> int:
    """The exit status of the child: 0 where everything refuses.

    Nothing here may wait for a thread: there is only this one.
    """
    try:
        runtime_of(client).lease(1.0)
    except ForkedClient:
        pass
    else:
        return 1
    for hold in holds:
        if hold.state not in (HoldState.LOST, HoldState.RELEASED) or hold.remaining() > 0.0:
            return 2
        try:
            type(hold).check(hold)
        except ForkedClient:
            continue
        return 3
    return 0


def listening(orders: Orders, words: TextIO) -> None:
    """Hear orders in a thread of their own, which ends with the process."""
    threading.Thread(target=orders.listen, args=(words,), name="orders", daemon=True).start()
