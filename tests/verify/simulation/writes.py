"""Guarded writes, judged: what the store accepted against what their callers were told.

A write names its hold and its number under it. Accepted only while its ticket stands; never once a later exchange
of the same hold was answered (a commit that comes too late is what `touch` is for); exactly as its caller was told,
where the caller was told; and under exclusive holds in the order of their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure._core.lease import Committed, Compare, Delete, Fate, Mode, Put, Ticket
from tenure.errors import TenureError
from tests.verify.simulation.ground_truth import GroundTruth

Tag = tuple[int, int]
"""Token and number."""


class Writes:
    """Writes that were accepted, by the store's own word."""

    def __init__(self, store: Any, truth: GroundTruth) -> None:
        self.accepted = 0
        self._truth = truth
        self._store = store
        self._seen: set[Tag] = set()
        self._refused: set[Tag] = set()
        self._settled: dict[int, int] = {}  # token -> the number from which on writes may still come
        self._last: dict[str, Put] = {}
        commit = store.commit

        def judged(line: str, ticket: Ticket, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Committed:
            done: Committed = commit(line, ticket, compares, writes)
            if done.fate is Fate.DONE:
                for write in writes:
                    self._accept(ticket, write)
            return done

        store.commit = judged

    def _accept(self, ticket: Ticket, write: Put | Delete) -> None:
        if not isinstance(write, Put):
            return
        self.accepted += 1
        tag, told = _tag(write.value), f"write {write.value.decode()} to {write.key}"
        if not self._truth.stands(ticket.id):
            self._truth.violate("S5", f"{told} was accepted without its ticket")
        if tag[1] < self._settled.get(tag[0], 0):
            self._truth.violate("S5", f"{told} was carried out after a later exchange of the same hold was answered")
        if tag in self._refused:
            self._truth.violate("S5", f"{told} was carried out after its caller was told that it was not")
        last = self._last.get(write.key)
        if ticket.mode is Mode.EXCLUSIVE and last is not None and _tag(last.value)[0] > tag[0]:
            self._truth.violate("S5", f"{told} was accepted after {last.value.decode()}")
        self._seen.add(tag)
        self._last[write.key] = write

    def answered(self, token: int, number: int, *, written: bool) -> None:
        """The exchange was answered well: nothing before it may still come, and a write has happened."""
        self._settled[token] = max(self._settled.get(token, 0), number)
        if written and (token, number) not in self._seen:
            self._truth.violate("S5", f"write {token}.{number} was confirmed and never accepted")

    def failed(self, token: int, number: int, error: BaseException) -> None:
        """The exchange raised: some errors say that nothing has happened."""
        if not isinstance(error, TenureError) or error.happened != "no":
            return
        self._refused.add((token, number))
        if (token, number) in self._seen:
            self._truth.violate("S5", f"write {token}.{number} was accepted; its caller heard {type(error).__name__}")

    def conclude(self) -> None:
        """Check that each record is what was accepted last."""
        for key, last in self._last.items():
            record = self._store.records.get(key)
            if record is None or record.value != last.value:
                self._truth.violate("S5", f"{key} is {record and record.value!r}, last accepted {last.value!r}")


def _tag(value: bytes) -> Tag:
    token, _, number = value.partition(b".")
    return int(token), int(number)
