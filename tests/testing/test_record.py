"""Real holds, recorded and judged: sound ones pass, sabotaged ones are caught."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import HoldState, aio
from tenure._backends import memory
from tenure._backends.memory import MemoryStore
from tenure._core.hold import Holding
from tenure._core.lease import Ticket
from tenure._core.recipes.lock import LockRule
from tenure._core.turn import Blockers
from tenure.testing import Event, History, Kind, Log, MemoryRecorder, Recorder, Records, check_history, recorded
from tests.unit.rig import Background, Rig

SAFETY = ("S1", "S2", "S3", "S4", "S8", "S9", "S10")
_numbers = itertools.count(1)


def observe(store: MemoryStore, records: Records) -> None:
    """Record the store's own word: it tells under its own lock, so in its own order."""
    known: dict[str, Ticket] = {}
    tell, expire, grant = store._tell, store.expire, store.grant

    def telling(line: str, ticket_id: str, *, amended: bool, arrived: bool = False) -> None:
        if arrived:
            known[ticket_id] = store._lines[line][ticket_id]
        if not amended:
            record("created" if arrived else "removed", known[ticket_id])
        tell(line, ticket_id, amended=amended, arrived=arrived)

    def record(operation: str, ticket: Ticket) -> None:
        records.record(
            Event(
                records.now(),
                ticket.owner or "",
                Kind.TRUTH,
                operation,
                ticket.resource,
                hold=ticket.id,
                token=ticket.token,
                mode=ticket.mode,
                weight=ticket.weight,
                limit=ticket.limit,
                lease=ticket.lease_id,
            )
        )

    def ending(lease_id: str) -> None:
        with store._guard:
            if lease_id in store._leases:
                records.record(Event(records.now(), "", Kind.TRUTH, "lease_ended", lease=lease_id))
            expire(lease_id)

    def granting(ttl: float) -> str:
        lease_id = grant(ttl)
        records.record(Event(records.now(), "", Kind.TRUTH, "lease_granted", lease=lease_id, ttl=ttl))
        return lease_id

    store._tell, store.expire, store.grant = telling, ending, granting  # type: ignore[method-assign]


class ThreadedWorkers:
    """Some clients of one memory store in real time, recorded; each on a thread of its own."""

    def __init__(self) -> None:
        self.url = f"memory://recorded-{next(_numbers)}"
        self.recorder = MemoryRecorder()
        self.store = memory.store(self.url.removeprefix("memory://"), tenure._core.base.clock.SYSTEM_CLOCK)
        observe(self.store, self.recorder)

    def client(self, name: str) -> tenure.Client:
        return recorded(tenure.connect(self.url, owner=name), self.recorder, name=name)

    def work(self, rounds: int, each: Callable[[tenure.Client, int], None]) -> History:
        """Four clients, so many rounds each; the history."""
        threads = [threading.Thread(target=self._work, args=(f"w{n}", rounds, each)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return self.recorder.history()

    def _work(self, name: str, rounds: int, each: Callable[[tenure.Client, int], None]) -> None:
        with self.client(name) as client:
            for number in range(rounds):
                each(client, number)


def take(lock: Any) -> None:
    with lock as hold:
        hold.check()


def lock_round(client: tenure.Client, number: int) -> None:
    if number % 3:
        take(client.lock("x"))
    elif (hold := client.lock("x").try_acquire()) is not None:
        hold.renew()
        hold.release()


def seat_round(client: tenure.Client, number: int) -> None:
    with client.semaphore("x", limit=2).acquire(timeout=60, weight=1 + number % 2) as hold:
        hold.check()


def rwlock_round(client: tenure.Client, number: int) -> None:
    take(client.rwlock("x").read() if number % 3 else client.rwlock("x").write())


def election_round(client: tenure.Client, number: int) -> None:
    take(client.election("x", value=str(number)).campaign())


@pytest.mark.parametrize(
    ("each", "also"), [(lock_round, ()), (seat_round, ("S6",)), (rwlock_round, ()), (election_round, ("S7",))]
)
def test_real_holds_pass(each: Callable[[tenure.Client, int], None], also: tuple[str, ...]) -> None:
    """The library over its reference store, all four recipes, by four clients at once."""
    report = check_history(ThreadedWorkers().work(12, each), (*SAFETY, *also))
    assert report.outcome.value == "passed", str(report)
    assert report["S4"].counts["holds"] >= 12
    assert report["S8"].counts["removals"] >= 12


def test_real_holds_of_the_asyncio_face_pass(tmp_path: Path) -> None:
    """The same wrapper records `await`; here into a file."""

    async def work(name: str, url: str, recorder: Recorder) -> None:
        async with recorded(aio.connect(url, owner=name), recorder, name=name) as client:
            for _ in range(5):
                async with client.lock("x") as hold:
                    hold.check()
                    await hold.renew()

    async def work_together(recorder: Recorder) -> None:
        url = f"memory://recorded-{next(_numbers)}"
        await asyncio.gather(*(work(name, url, recorder) for name in ("a", "b", "c")))

    with Recorder(tmp_path / "history") as recorder:
        asyncio.run(work_together(recorder))
    history = History.read(tmp_path / "history")
    assert check_history(history, ["S1", "S2", "S3", "S10"]).outcome.value == "passed"
    operations = [(call.invoke.operation, call.ok) for call in history.calls]
    assert {known: operations.count(known) for known in set(operations)} == {
        ("acquire", True): 15,
        ("renew", True): 15,
        ("release", True): 15,
        ("close", True): 3,
    }


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


class Recorded:
    """Two recorded clients in virtual time."""

    def __init__(self, rig: Rig) -> None:
        self.recorder = MemoryRecorder(rig.clock.now)
        observe(rig.store, self.recorder)
        self.a, self.b = (recorded(rig.client(owner=n), self.recorder, name=n) for n in ("a", "b"))

    @property
    def events(self) -> tuple[tuple[str, str, str], ...]:
        own = (e for e in self.recorder.history() if e.kind is not Kind.TRUTH)
        return tuple((e.client, e.kind.value, e.operation) for e in own)

    def verdicts(self, *names: str) -> dict[str, str]:
        return {v.name: v.outcome.value for v in check_history(self.recorder.history(), names).verdicts}


def in_time(rig: Rig, call: Callable[[], Any]) -> Any:
    """Make a call that takes virtual time, and let that pass."""
    calling = Background(call)
    while not calling.joined(0.005):
        rig.clock.advance(0.5)
    return calling.result()


def test_expired_hold_that_says_so_passes(rig: Rig) -> None:
    """Cut off beyond its TTL: told of the loss, its look says no, its successor is unharmed."""
    known = Recorded(rig)
    hold = known.a.lock("x", ttl=5).acquire()
    rig.faults(known.a).cut_off = True
    rig.clock.advance(30)
    rig.await_event("lost")
    successor = known.b.lock("x").acquire()
    with pytest.raises(tenure.LeaseLost):
        hold.check()
    assert not hold.release()
    successor.release()
    assert set(known.verdicts(*SAFETY, "S11").values()) == {"passed"}
    assert ("a", "fail", "release") in known.events


def test_belief_that_never_ends_is_caught(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a holder that believes for ever."""
    known = Recorded(rig)
    hold = known.a.lock("x", ttl=5).acquire()
    rig.faults(known.a).cut_off = True
    rig.clock.advance(30)
    monkeypatch.setattr(Holding, "state", HoldState.HELD)
    known.b.lock("x").acquire()
    hold.check()
    assert known.verdicts("S1", "S11") == {"S1": "failed", "S11": "failed"}


def test_rule_that_admits_two_is_caught(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: nobody blocks anybody."""
    monkeypatch.setattr(LockRule, "blockers", lambda *_: Blockers())
    known = Recorded(rig)
    first = known.a.lock("x").acquire()
    second = known.b.lock("x").acquire()
    first.check()
    first.release()
    second.release()
    verdicts = known.verdicts("S1", "S2", "S3", "S4", "S10")
    assert verdicts == {"S1": "failed", "S2": "failed", "S3": "passed", "S4": "failed", "S10": "failed"}


def test_store_that_removes_anybodys_ticket_is_caught(rig: Rig) -> None:
    """Sabotage: a release that hits whoever is first."""
    known = Recorded(rig)
    known.a.lock("x").acquire()
    line, ticket = next((line, ticket) for line, tickets in rig.store.lines.items() for ticket in tickets)
    rig.store.leave(line, ticket.id, None)
    assert known.verdicts("S8") == {"S8": "failed"}


def test_token_that_goes_back_is_caught(rig: Rig) -> None:
    """Sabotage: a store that was restored, and a client that did not notice."""
    known = Recorded(rig)
    for _ in range(3):
        known.a.lock("x").acquire().release()
    rig.store._revision = 0
    known.b.lock("x").acquire().release()
    assert known.verdicts("S3", "S10") == {"S3": "failed", "S10": "failed"}


def test_outcomes_are_ok_fail_or_info(rig: Rig) -> None:
    """Positive answers are ok, certain ones fail, and what nobody knows is info."""
    known = Recorded(rig)
    held = known.a.lock("x").acquire()
    assert known.b.lock("x").try_acquire() is None
    with pytest.raises(tenure.AcquireTimeout):
        known.b.lock("x").acquire(timeout=0)
    rig.faults(known.a).cut_off = True
    with pytest.raises(tenure.StoreUnavailable):
        in_time(rig, held.release)
    rig.faults(known.a).cut_off = False
    in_time(rig, known.a.close)
    outcomes = [event for event in known.events if event[1] not in ("invoke", "check")]
    assert outcomes == [
        ("a", "ok", "acquire"),
        ("b", "fail", "try_acquire"),
        ("b", "fail", "acquire"),
        ("a", "info", "release"),
        ("a", "ok", "close"),
    ]


def test_with_and_the_recipes_are_recorded_too(rig: Rig) -> None:
    """Whatever a client hands out."""
    known = Recorded(rig)
    for thing in (
        known.a.semaphore("s", limit=2),
        known.a.rwlock("r").read(),
        known.a.rwlock("r").write(),
        known.a.election("e").campaign(),
    ):
        take(thing)
    holds = [event for event in known.recorder.history() if event.acquired]
    assert [(e.resource, e.operation, e.mode.value, e.limit) for e in holds] == [
        ("s", "acquire", "seat", 2),
        ("r", "acquire", "read", 1),
        ("r", "acquire", "exclusive", 1),
        ("e", "campaign", "exclusive", 1),
    ]
    assert [event.ttl for event in holds] == [15.0] * 4
    assert all(event.deadline is not None and event.deadline > event.at for event in holds)
    assert known.events.count(("a", "ok", "release")) == 4
    assert known.events.count(("a", "check", "")) == 4


def test_log_records_what_else_a_worker_does(rig: Rig) -> None:
    """A write at a fenced store, with its outcome by the same discipline."""
    recorder = MemoryRecorder(rig.clock.now)
    log = Log(recorder, "a")
    hold = rig.client(owner="a").lock("x").acquire()
    with log.call("write", hold=hold, value="one", timeout=1.0) as call:
        call.ok()
    with pytest.raises(tenure.StaleToken), log.call("write", hold=hold, value="two"):
        raise tenure.StaleToken("refused")
    with pytest.raises(OSError), log.call("write", hold=hold, value="three"):
        raise OSError("unknown")
    with log.call("write", hold=hold, value="four"):
        """No word from the caller."""
    assert log.look(hold)
    hold.release()
    assert not log.look(hold)
    log.told("demoted", hold)
    told = [(e.kind.value, e.value, e.token) for e in recorder.history() if e.kind is not Kind.INVOKE]
    assert told[:4] == [("ok", "one", hold.token), ("fail", "two", 1), ("info", "three", 1), ("info", "four", 1)]
    assert [e.held for e in recorder.history().of(Kind.CHECK)] == [True, False]
    assert recorder.history()[-1].operation == "demoted"
