"""The journal: who held what, for how long, and how it ended; written by the holders' clients that have it on, by a
service for its thin clients.

What it promises: a hold's client writes an entry in the background after the turn has come, and again when the hold
has ended; no caller ever waits for it, and no hold depends on it. The newest `JOURNAL_PER_LINE_MAX` entries of a line
are kept, and about `JOURNAL_MAX` in all.

What it does not: to be complete. What the store does not answer to is kept for a while, in bounded room, and then
dropped; what it refuses while it takes others is dropped at once (`statistics()["journal"]` counts both, and the first
refusal is logged as a warning); clients with the journal off write nothing; a process that is killed writes no end. The
end is derived by whoever reads (operator.py): an entry without an end whose ticket does not stand any more. For who was
forced out, ask the audit: that is complete.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias

from tenure._admin.models import Ending, JournalEntry, kind_of, stored_entry
from tenure._admin.protocol import RecordKind, StoreAdmin, StoredRecord, wall_time
from tenure._core.base.clock import Clock
from tenure._core.base.limits import (
    JOURNAL_CLOSE_SECONDS,
    JOURNAL_MAX,
    JOURNAL_PAUSE,
    JOURNAL_PAUSE_MAX,
    JOURNAL_PER_LINE_MAX,
    JOURNAL_WAITING_MAX,
    RECORDS_AT_ONCE_MAX,
    RECORDS_BYTES_MAX,
)
from tenure._core.base.retry import jittered
from tenure._core.base.threads import generation, take
from tenure._core.hold import Holding
from tenure._core.lease import Workers
from tenure.errors import ClientClosed, ForkedClient, LeaseLost, StoreUnavailable, TenureError, UsageError

_log = logging.getLogger("tenure")
_TRIM_AT: Final = JOURNAL_PER_LINE_MAX + JOURNAL_PER_LINE_MAX // 4
_TRIM_ALL_EVERY: Final = 256
_NO_REFUSALS: Final = (StoreUnavailable, LeaseLost, ClientClosed, ForkedClient)
"""Errors that say nothing of what was to be written: another try may succeed, or there is none."""
_Batch: TypeAlias = list[tuple[JournalEntry, StoredRecord]]


class Journal:
    """The entries of one client that wait to be written, and their writing. Thread-safe."""

    def __init__(
        self,
        admin: Callable[[], StoreAdmin],
        clock: Clock,
        workers: Workers,
        request_seconds: float,
        prefix: str = "",
        keep: int = JOURNAL_MAX,
    ) -> None:
        """Keep at most `keep` entries about lines below `prefix`."""
        self._admin = admin
        self._prefix = prefix
        self._keep = keep
        self._clock = clock
        self._workers = workers
        self._request_seconds = request_seconds
        self._born = generation()
        self._guard = threading.RLock()  # guards everything below; a signal handler may re-enter
        self._waiting: OrderedDict[tuple[str, int], JournalEntry] = OrderedDict()  # by line and token
        self._scheduled = False
        self._pause = JOURNAL_PAUSE
        self._since_trim = 0
        self._written = 0
        self._dropped = 0
        self._failed = 0
        self._warned = False
        self._writing = threading.Lock()  # one batch at a time: of one hold the end is written last

    def follow(self, hold: Holding) -> None:
        """Write down `hold`, now and when it ends. Returns at once, never raises."""
        # Not the hold itself: one that is kept here is never forgotten.
        watch, ticket, waited = hold._watch, hold._ticket, hold._waited_seconds
        kind = kind_of((ticket,))
        if kind is None:  # not of one ticket
            return
        acquired_at = wall_time()
        entry = JournalEntry(
            hold.resource, kind, hold.owner, hold.token, hold.value, acquired_at, waited, ticket_id=hold.id
        )
        self.add(entry)

        def ended(how: Ending, reason: str, seconds: float) -> None:
            end = dataclasses.replace(entry, value=watch.ticket.value, held=seconds, ended=how, reason=reason)
            self.add(end)

        watch.on_end(ended)

    def statistics(self) -> dict[str, object]:
        """Entries written, waiting, and dropped, for want of room or refused; tries that failed."""
        with self._guard:
            return {
                "written": self._written,
                "waiting": len(self._waiting),
                "dropped": self._dropped,
                "failed": self._failed,
            }

    def close(self, until: float) -> None:
        """Write what is left, for a bounded time; drop the rest."""
        if self._born != generation():
            return
        until = min(until, self._clock.now() + JOURNAL_CLOSE_SECONDS)
        try:
            self._write_all(until)
        except TenureError as error:
            _log.debug("the last entries of the journal were not written: %s", error)
        with self._guard:
            self._dropped += len(self._waiting)
            self._waiting.clear()

    def add(self, entry: JournalEntry) -> None:
        """Have an entry written, in place of one about the same hold. Returns at once, never raises."""
        if self._born != generation():
            return
        key = (entry.resource, entry.token)
        with self._guard:
            if key not in self._waiting and len(self._waiting) >= JOURNAL_WAITING_MAX:
                self._dropped += 1
                return
            self._waiting[key] = entry
            schedule, self._scheduled = not self._scheduled, True
        if schedule:
            self._write_later(JOURNAL_PAUSE)

    def _write_later(self, pause: float) -> None:
        try:
            self._clock.schedule(self._clock.now() + jittered(pause), self._write_soon)
        except RuntimeError:  # the process may have no more threads: the next entry tries again
            with self._guard:
                self._scheduled = False

    def _write_soon(self) -> None:
        try:
            self._workers.submit(self._write)
        except TenureError:  # closed: `close` writes what is left; or no thread to be had
            with self._guard:
                self._scheduled = False

    def _write(self) -> None:
        try:
            self._write_all(self._clock.now() + self._request_seconds)
        except ClientClosed:
            return
        except TenureError as error:
            with self._guard:
                self._failed += 1
                pause = self._pause = min(self._pause * 2, JOURNAL_PAUSE_MAX)
            _log.debug("the journal could not be written, and will be tried again: %s", error)
            self._write_later(pause)
            return
        with self._guard:
            self._pause = JOURNAL_PAUSE
            self._scheduled = again = bool(self._waiting)
        if again:
            self._write_later(JOURNAL_PAUSE)

    def _write_all(self, until: float) -> None:
        taken: list[bool] = []
        try:
            if not take(self._writing.acquire, until - self._clock.now(), taken):
                return  # the one that is writing goes on
            while batch := self._batch():
                self._write_batch(batch, until)
        finally:
            if taken and taken[0]:
                self._writing.release()

    def _batch(self) -> _Batch:
        with self._guard:
            waiting = list(islice(self._waiting.values(), RECORDS_AT_ONCE_MAX))
        batch: _Batch = []
        room = RECORDS_BYTES_MAX
        for entry in waiting:
            stored = stored_entry(entry)
            room -= len(stored.text.encode())
            if batch and room < 0:
                break
            batch.append((entry, stored))
        return batch

    def _write_batch(self, batch: _Batch, until: float) -> None:
        try:
            admin = self._admin()
            counts = admin.write([stored for _, stored in batch], until)
        except _NO_REFUSALS:
            raise
        except TenureError as error:
            if len(batch) > 1:
                self._write_each(batch, until)
            elif isinstance(error, UsageError):
                self._drop(batch[0], error)
            else:
                raise
            return
        with self._guard:
            self._written += len(batch)
            self._since_trim += len(batch)
            self._forget(batch)
            trim_all = self._since_trim >= _TRIM_ALL_EVERY
            self._since_trim = 0 if trim_all else self._since_trim
        for resource, count in counts.items():
            if count > _TRIM_AT:
                admin.trim(RecordKind.JOURNAL, resource, JOURNAL_PER_LINE_MAX, until)
        if trim_all:
            admin.trim_all(RecordKind.JOURNAL, self._prefix, self._keep, until)

    def _write_each(self, batch: _Batch, until: float) -> None:
        """Write each entry of a batch that was refused as a whole, and drop those that are refused alone."""
        # An entry that is refused while others are taken would be refused each time, and hold up those after it. Where
        # all are refused, that says nothing about the entries: then none is dropped, and the error goes on.
        refused: list[tuple[tuple[JournalEntry, StoredRecord], TenureError]] = []
        for one in batch:
            try:
                self._write_batch([one], until)
            except _NO_REFUSALS:
                raise
            except TenureError as error:
                refused.append((one, error))
        if len(refused) == len(batch):
            raise refused[0][1]
        for one, why in refused:
            self._drop(one, why)

    def _drop(self, refused: tuple[JournalEntry, StoredRecord], error: TenureError) -> None:
        with self._guard:
            self._dropped += 1
            self._forget([refused])
            warned, self._warned = self._warned, True
        if not warned:
            _log.warning(
                "the journal's entry about %r was refused and is dropped (later ones are only counted): %s",
                refused[0].resource,
                error,
            )

    def _forget(self, batch: _Batch) -> None:
        """Drop from the waiting what was written; not an entry whose end came meanwhile, which waits in its place."""
        for entry, _ in batch:
            key = (entry.resource, entry.token)
            if self._waiting.get(key) is entry:
                del self._waiting[key]
