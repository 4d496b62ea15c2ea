"""What a watch that began late may have missed: one look in the background, that wakes who waits.

A watch begins with what comes (see watch.py). What was written between the reading of the line and that is looked for
here, where there was anything: a ticket that has left meanwhile, or was amended, is told by nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.backends.etcd.wire import Wire
from holdfast.backends.etcd.words import Range
from holdfast.errors import ClientClosed, HoldfastError
from holdfast.lease import Surroundings, Ticket
from holdfast.signals import Signal

_LOOK_SECONDS: Final = 2.0


class CatchUp:
    """Sets `signal` unless all of `tickets` stand in `where` as they were seen. Small: there is one for each waiter."""

    __slots__ = ("_amendments", "_around", "_seen", "_signal", "_where", "_wire")

    def __init__(
        self,
        wire: Wire,
        around: Surroundings,
        where: Range,
        tickets: Sequence[Ticket],
        signal: Signal,
        *,
        amendments: bool,
    ) -> None:
        self._wire = wire
        self._around = around
        self._where = where
        self._seen = tuple((ticket.token, ticket.version) for ticket in tickets)
        self._signal = signal
        self._amendments = amendments

    def __call__(self) -> None:
        """Returns at once: the watcher's thread must hear what comes."""
        if self._signal.is_set():
            return
        try:
            self._around.workers.submit(self._look)
        except ClientClosed:
            return  # closing ends every wait
        except HoldfastError:
            self._signal.set()  # no thread to be had: who waits has one

    def _look(self) -> None:
        if self._signal.is_set():
            return
        try:
            found = self._wire.range(self._where, self._around.clock.now() + _LOOK_SECONDS)
        except HoldfastError:
            self._signal.set()  # nobody knows, so whoever waits has to look (law 11)
            return
        now = {kv.create_revision: kv.mod_revision for kv in found.key_values}
        if any(token not in now or (self._amendments and now[token] != version) for token, version in self._seen):
            self._signal.set()
