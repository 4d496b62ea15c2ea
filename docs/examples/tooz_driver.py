"""Driver of tenure for tooz: its locks and leader election, for a program that moves to tenure step by step.

    [project.entry-points."tooz.backends"]
    "tenure+etcd" = "tooz_driver:TenureDriver"
    "tenure+zookeeper" = "tooz_driver:TenureDriver"

    coordinator = tooz.coordination.get_coordinator("tenure+etcd://127.0.0.1:2379/billing", b"10.0.0.7")

What comes after `tenure+` is a URL of tenure's, options included. Nothing has to beat, and what is held is known by the
clock: `lock.acquired` is false once it can't be proven, without asking. `lock.hold` is tenure's own, with its token.
Groups are left out; an election needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import tooz
from tooz import coordination, locking, utils
from tooz.coordination import Characteristics

import tenure


@contextmanager
def translated() -> Iterator[None]:
    """tooz's errors for tenure's."""
    try:
        yield
    except tenure.StoreError as error:
        raise coordination.ToozConnectionError(str(error)) from error
    except tenure.TenureError as error:
        raise tooz.ToozError(str(error)) from error


class TenureLock(locking.Lock):  # type: ignore[misc]  # tooz's classes are unknown where it is not installed
    """Lock of tooz: a read/write lock, as `shared=True` asks for. One object may be used by many threads."""

    def __init__(self, name: bytes, client: tenure.Client) -> None:
        super().__init__(name)
        self._operator = client.operator()
        self._rwlock = client.rwlock(f"locks/{text(name)}")
        self._holds: list[tenure.Hold] = []

    @property
    def hold(self) -> tenure.Hold | None:
        """The hold that was acquired last, for its token; None without any."""
        return self._holds[-1] if self._holds else None

    @property
    def acquired(self) -> bool:
        """True while it is held and can be proven. Asks nobody."""
        return any(self._holds)

    def is_still_owner(self) -> bool:
        """The same."""
        return self.acquired

    def acquire(self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None) -> bool:
        """Wait for it, for so many seconds, or not at all; False where it is not to be had by then."""
        blocking, timeout = utils.convert_blocking(blocking, timeout)
        side = self._rwlock.read() if shared else self._rwlock.write()
        with translated():
            try:
                self._holds.append(side.acquire(timeout=timeout if blocking else 0.0))
            except tenure.AcquireTimeout:
                return False
        return True

    def release(self) -> bool:
        """Give up what was acquired last; False where that is lost, or nothing."""
        with translated(), suppress(IndexError):
            return self._holds.pop().release()
        return False

    def break_(self) -> bool:
        """Force out whoever holds it; they learn it at once."""
        with translated():
            holders = self._operator.line(self._rwlock.resource).holders
            for ticket in holders:
                with suppress(tenure.NoSuchTicket):
                    self._operator.force_release(ticket.resource, token=ticket.token, reason="broken through tooz")
            return bool(holders)


class TenureDriver(coordination.CoordinationDriver):  # type: ignore[misc]  # as above
    """Coordinator of tooz: a client of tenure."""

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, list[str]]) -> None:
        super().__init__(member_id, parsed_url, options)
        self._url = parsed_url._replace(query=urlencode(options, doseq=True)).geturl().removeprefix("tenure+")
        self._leads: dict[bytes, tenure.Hold] = {}
        self.CHARACTERISTICS = [Characteristics.DISTRIBUTED_ACROSS_THREADS, Characteristics.LINEARIZABLE]
        if not self._url.startswith("memory:"):  # which each process has for itself
            self.CHARACTERISTICS += [
                Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
                Characteristics.DISTRIBUTED_ACROSS_HOSTS,
            ]

    def _start(self) -> None:
        self._client = tenure.connect(self._url, owner=text(self._member_id))
        try:
            with translated():
                self._client.operator().line("locks")  # any: is the store there?
        except tooz.ToozError:
            self._client.close()
            raise

    def _stop(self) -> None:
        self._leads.clear()
        self._client.close()

    def get_lock(self, name: bytes) -> TenureLock:
        """The lock of that name."""
        return TenureLock(name, self._client)

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Stand in the elections that are watched; there is nothing else to watch."""
        self.run_elect_coordinator()
        return []

    def run_elect_coordinator(self) -> None:
        """Lead each group whose election is watched, unless another one does."""
        for group, hooks in list(self._hooks_elected_leader.items()):
            if not self._leads.get(group):
                with translated():
                    hold = self._election(group).campaign().try_acquire()
                if hold is not None:
                    self._leads[group] = hold
                    hooks.run(coordination.LeaderElected(group, self._member_id))

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Let another one lead; False where this one did not."""
        with translated(), suppress(KeyError):
            return self._leads.pop(group_id).release()
        return False

    def get_leader(self, group_id: bytes) -> Any:
        """The member that leads, or None; looked up at once."""
        found: Future[bytes | None] = Future()
        try:
            with translated():
                leader = self._election(group_id).leader()
                found.set_result(leader.value.encode() if leader else None)
        except tooz.ToozError as error:
            found.set_exception(error)
        return coordination.CoordinatorResult(found)

    def _election(self, group_id: bytes) -> tenure.Election:
        return self._client.election(f"groups/{text(group_id)}", value=text(self._member_id))


def text(name: bytes | str) -> str:
    """The name as tenure has it."""
    return name if isinstance(name, str) else name.decode()
