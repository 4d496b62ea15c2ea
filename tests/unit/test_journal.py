"""The journal on the memory store: bounded, and never in anybody's way."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import tenure
from tenure import Ending, InvalidOption, StoreRefused
from tenure._admin.protocol import StoredRecord
from tenure._backends import memory
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.limits import JOURNAL_WAITING_MAX, RECORDS_BYTES_MAX
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually


def journal_of(client: tenure.Client) -> Any:
    return client.statistics()["journal"]


def faults_of(client: tenure.Client) -> Any:
    backend: Any = runtime_of(client)._backend
    return backend.faults


def test_waiting_entries_are_bounded_and_the_dropped_counted() -> None:
    """A store that takes no notes costs bounded room; what found none is counted, and the holds go on."""
    with tenure.connect("memory://journal-bounded", journal=True) as client:
        faults_of(client).lose_request("write", times=10**6)
        for number in range(JOURNAL_WAITING_MAX + 10):
            client.lock(f"a{number}").acquire().release()
        told = journal_of(client)
        assert (told["waiting"], told["written"]) == (JOURNAL_WAITING_MAX, 0)
        assert told["dropped"] >= 10
        faults_of(client).forget()
        assert eventually(lambda: journal_of(client)["waiting"] == 0, 30.0)


def test_end_that_comes_while_the_start_is_written_is_written_after_it() -> None:
    """The last word about a hold is its end."""
    with tenure.connect("memory://journal-order", journal=True) as client:
        hold = client.lock("a").acquire()
        backend: Any = runtime_of(client)._backend
        carry = backend.faults.carry
        released: list[bool] = []

        def carry_slowly(operation: str, request: Any) -> Any:
            if operation == "write" and not released:
                released.append(True)
                hold.release()
            return carry(operation, request)

        backend.faults.carry = carry_slowly
        assert eventually(lambda: [e.ended for e in client.operator().history("a")] == [Ending.RELEASED])


def test_interrupted_writing_is_tried_again() -> None:
    """A request that got lost is not the end of the journal."""
    with tenure.connect("memory://journal-again", journal=True, timeout=0.1) as client:
        faults_of(client).lose_request("write", times=5)
        client.lock("a").acquire().release()
        assert eventually(lambda: len(client.operator().history("a")) == 1)


class Refusing:
    """The store's verbs, but for notes about one line, which it refuses, and requests of more than it takes at once."""

    def __init__(self, verbs: Any, line: str = "", text_bytes_max: int = 10**9) -> None:
        self._verbs = verbs
        self._line = line
        self._text_bytes_max = text_bytes_max

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._verbs, verb)

    def write(self, notes: Sequence[StoredRecord], until: float) -> Mapping[str, int]:
        if any(note.resource == self._line for note in notes):
            raise InvalidOption("this note is too large")
        if sum(len(note.text.encode()) for note in notes) > self._text_bytes_max:
            raise StoreRefused("request is too large")
        written: Mapping[str, int] = self._verbs.write(notes, until)
        return written


def refuse(client: tenure.Client, **what: Any) -> None:
    journal: Any = runtime_of(client)._journal
    admin = journal._admin
    journal._admin = lambda: Refusing(admin(), **what)


def test_entry_that_the_store_refuses_is_dropped_alone_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It would be refused each time: those behind it are written, and the first of its kind stands in the log."""
    with tenure.connect("memory://journal-refused", journal=True) as client:
        refuse(client, line="bad")
        for name in ("before", "bad", "behind"):
            client.lock(name).acquire().release()
        assert eventually(lambda: journal_of(client)["waiting"] == 0)
        client.lock("bad").acquire().release()
        assert eventually(lambda: journal_of(client)["waiting"] == 0)
        assert journal_of(client)["dropped"] >= 2
        assert [len(client.operator().history(name)) for name in ("before", "bad", "behind")] == [1, 0, 1]
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "'bad'" in told.getMessage()
    assert "this note is too large" in told.getMessage()


def test_store_that_is_away_costs_no_entry_of_those_it_would_take() -> None:
    """What was refused is dropped, what was not answered is kept."""
    with tenure.connect("memory://journal-away", journal=True, timeout=5.0) as client:
        refuse(client, line="bad")
        faults_of(client).lose_request("write", times=3)
        for name in ("before", "bad", "behind"):
            client.lock(name).acquire().release()
        assert eventually(lambda: journal_of(client)["waiting"] == 0, 30.0)
        assert [len(client.operator().history(name)) for name in ("before", "bad", "behind")] == [1, 0, 1]


def test_refusal_that_is_not_about_the_entries_costs_none_of_them() -> None:
    """A proxy that answers in the store's place, a password that was changed: all are refused, and none is dropped."""
    with tenure.connect("memory://journal-proxy", journal=True) as client:
        journal: Any = runtime_of(client)._journal
        admin = journal._admin
        refuse(client, text_bytes_max=0)
        for name in ("one", "two", "three"):
            client.lock(name).acquire().release()
        assert eventually(lambda: journal_of(client)["failed"] > 1)
        assert journal_of(client)["dropped"] == 0
        journal._admin = admin
        assert eventually(lambda: journal_of(client)["waiting"] == 0, 30.0)
        assert [len(client.operator().history(name)) for name in ("one", "two", "three")] == [1, 1, 1]


def test_one_request_is_bounded_by_bytes() -> None:
    """Each of the entries is taken, all of them at once would not be."""
    with tenure.connect("memory://journal-bytes", journal=True) as client:
        refuse(client, text_bytes_max=RECORDS_BYTES_MAX)
        holds = [client.election(f"e{n}", value="v" * 60_000).campaign().acquire() for n in range(30)]
        assert eventually(lambda: journal_of(client)["waiting"] == 0)
        assert journal_of(client) == {"written": 30, "waiting": 0, "dropped": 0, "failed": 0}
        assert all(hold.release() for hold in holds)


def test_closing_writes_what_is_left_and_does_not_wait_for_ever() -> None:
    """The holds that end with the client are written down, if the store takes them."""
    store = memory.store("journal-close", SYSTEM_CLOCK)
    client = tenure.connect("memory://journal-close/ns", journal=True)
    client.lock("a").acquire()
    client.close()
    (note,) = store.notes.values()
    assert '"ended":"closed"' in note.text
    client = tenure.connect("memory://journal-close/other", journal=True)
    client.lock("a").acquire()
    faults_of(client).lose_request("write", times=10**6)
    started = SYSTEM_CLOCK.now()
    client.close()
    assert SYSTEM_CLOCK.now() - started < 10.0
    assert len(store.notes) == 1


def test_child_writes_nothing_of_its_parents_holds() -> None:
    """Law 14, for the journal."""
    with tenure.connect("memory://journal-fork", journal=True) as client:
        hold = client.lock("a").acquire()
        journal: Any = runtime_of(client)._journal
        child = os.fork()
        if child == 0:
            before = dict(journal._waiting)
            hold._watch.finish(tenure.HoldState.RELEASED, "")
            journal.close(SYSTEM_CLOCK.now() + 1.0)
            os._exit(0 if dict(journal._waiting) == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hold.release() is True


@pytest.mark.parametrize(
    ("url", "options", "on"), [("?journal=1", {}, True), ("", {"journal": True}, True), ("", {}, False)]
)
def test_journal_is_an_option_of_the_url_and_of_connect(url: str, options: dict[str, Any], on: bool) -> None:
    """Off unless asked for."""
    with tenure.connect(f"memory://journal-options{url}", **options) as client:
        assert ("journal" in client.statistics()) is on


def test_journal_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(InvalidOption, match="journal must be true or false"):
        tenure.connect("memory://x?journal=perhaps")


def test_backend_without_anything_for_operators_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend of somebody else's may be without; its clients work, its operators hear why they don't."""
    monkeypatch.delattr(memory.MemoryBackend, "open")
    monkeypatch.setattr(memory.MemoryBackend, "open", lambda self, ttl, lock_delay: object(), raising=False)
    client = tenure.connect("memory://bare")
    with pytest.raises(tenure.StoreRefused, match="nothing for operators"):
        client.operator().line("a")
    runtime_of(client)._admin_lease = None
    client.close()
