"""The parts of the torture by themselves: fault_log, fenced store, skewed clock, verdict."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure._core.lease import Mode
from tenure.errors import StoreRefused
from tenure.testing import (
    Event,
    History,
    Kind,
    Log,
    MemoryRecorder,
    Outcome,
    Recorder,
    Report,
    check_history,
    monotonic,
)
from tests.conformance.store_worlds import eventually
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.nemeses import make
from tests.verify.torture.nemeses.kinds import Backends, Excuse
from tests.verify.torture.observers.truth import Truth
from tests.verify.torture.pulse import Pulse
from tests.verify.torture.register import Register
from tests.verify.torture.run import Trial
from tests.verify.torture.verdict import Phases, judge, too_little
from tests.verify.torture.worker.skewed import SkewedClock

# The fault_log.


def test_faults_of_one_name_are_one_stretch_however_they_overlap() -> None:
    """The stretch goes from the first beginning to the last end; each fault is counted."""
    records = MemoryRecorder()
    fault_log = RunFaultLog(records)
    one, other = fault_log.broken("cut", "w1"), fault_log.broken("cut", "w1")
    with fault_log.broken("slow"):
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        other.__exit__(None, None, None)
    told = [(event.kind.value, event.operation, event.client) for event in records.history()]
    assert told == [("fault", "slow", ""), ("fault", "cut", "w1"), ("healed", "cut", "w1"), ("healed", "slow", "")]
    assert fault_log.counts == {"cut": 2, "slow": 1}


# The pulse.


def test_pulse_records_how_long_the_machine_stood_still_and_no_less() -> None:
    """A standstill goes from the last beat before to the first one after; a beat that is a little late is none."""
    moments = iter((10.0, 10.2, 12.2, 12.4, 12.4))
    records = MemoryRecorder(lambda: next(moments))
    pulse = Pulse(records)
    for _ in range(3):
        pulse.beat()
    assert pulse.stood == pytest.approx(2.0)
    (still,) = records.history()
    assert (still.kind, still.since, still.at) == (Kind.STILL, 10.2, 12.2)


def test_pulse_beats_by_itself_and_the_files_of_a_run_tell_of_the_gap(tmp_path: Path) -> None:
    """A clock that jumps: the history has it once, and is whole when the pulse is closed."""
    jumped = threading.Event()
    with Recorder(tmp_path / "nemesis.jsonl") as recorder:
        recorder.now = lambda: monotonic() + (100.0 if jumped.is_set() else 0.0)
        with Pulse(recorder) as pulse:
            jumped.set()
            assert eventually(lambda: len(History.read(recorder.path)) > 0)
        pulse.close()
    jumps = [event for event in History.read(recorder.path) if event.at - event.earliest > 99.0]
    assert [event.kind for event in jumps] == [Kind.STILL]


def test_fault_is_healed_in_the_history_when_its_nemesis_fails() -> None:
    """An error on the way leaves nothing broken for ever."""
    records = MemoryRecorder()
    with pytest.raises(ValueError), RunFaultLog(records).broken("cut"):
        raise ValueError
    assert [event.kind for event in records.history()] == [Kind.FAULT, Kind.HEALED]


# The fenced store.


class Fenced:
    """A register, asked in a line each."""

    def __init__(self, *, fenced: bool = True) -> None:
        self._records = MemoryRecorder()
        self._register = Register(self._records, fenced=fenced)
        self._calls = 0

    def ask(self, operation: str, token: int, *, ids: str = "", mode: Mode = Mode.EXCLUSIVE, **more: Any) -> Any:
        """The answer. Any: JSON."""
        fence = f"0.{token}{ids}@torture/x"
        request = {"operation": operation, "resource": "x", "fence": fence, "client": "w", "hold": "h"}
        return self._register.answer({**request, "mode": mode.value, **more})

    def write(self, token: int, element: str, basis: int) -> bool:
        """A write and its answer, recorded as a client would."""
        now, self._calls = self._records.now(), self._calls + 1
        facts: dict[str, Any] = {"resource": "x", "call": self._calls, "value": element}
        self._records.record(Event(now, "w", Kind.INVOKE, "write", **facts))
        accepted: bool = self.ask("write", token, element=element, basis=basis)["accepted"]
        self._records.record(Event(self._records.now(), "w", Kind.OK if accepted else Kind.FAIL, "write", **facts))
        return accepted

    def s5(self) -> Outcome:
        self._register.conclude()
        return check_history(self._records.history(), ["S5"])["S5"].outcome


def test_fenced_store_refuses_what_is_older_than_a_read() -> None:
    """The younger has only read: the older one's write would be lost under its next."""
    store = Fenced()
    old = store.ask("read", 5)["basis"]
    young = store.ask("read", 7)["basis"]
    assert not store.write(5, "late", old)
    assert store.write(7, "new", young)
    assert store.s5() is Outcome.PASSED


def test_unfenced_store_loses_what_was_written_since_the_late_writer_read() -> None:
    """Read, read, write, late write: the write between is gone, and S5 sees it."""
    store = Fenced(fenced=False)
    old = store.ask("read", 5)["basis"]
    young = store.ask("read", 7)["basis"]
    assert store.write(7, "new", young)
    assert store.write(5, "late", old)
    assert store.s5() is Outcome.FAILED


def test_seats_share_and_a_dead_one_is_refused_once_its_place_is_taken() -> None:
    """Seats held together may write in any order, others may not; S5 takes neither for a crime."""
    store = Fenced()
    one, two, three = (f".{number * 20}" for number in "123")
    seat: dict[str, Any] = {"mode": Mode.SEAT, "element": "e"}
    assert store.ask("add", 6, ids=two + one, **seat)["accepted"]
    assert store.ask("add", 5, ids=one, **seat)["accepted"]
    assert store.ask("add", 7, ids=three + two, **seat)["accepted"]
    assert not store.ask("add", 5, ids=one, **seat)["accepted"]
    history = store._records.history().where(lambda event: event.operation == "write")
    assert check_history(history, ["S5"])["S5"].outcome is Outcome.PASSED


# The skewed clock.


def test_skewed_clock_runs_fast_and_jumps_and_never_goes_back() -> None:
    """The clock's seconds are compared with the machine's."""
    clock = SkewedClock()
    clock.run_at(10.0)
    own, real = clock.now(), SYSTEM_CLOCK.now()
    SYSTEM_CLOCK.wait(Signal(), real + 0.1)
    assert clock.now() - own >= 10.0 * 0.1
    assert clock.real(10.0) == 1.0
    before = clock.now()
    clock.jump(3600.0)
    assert clock.now() - before >= 3600.0
    before = clock.now()
    clock.jump(-5.0)
    clock.run_at(0.5)
    assert clock.now() >= before


def test_timers_follow_a_jump_and_fire_once() -> None:
    """A timer due in an hour is due at once when the hour has gone; a cancelled one is not."""
    clock = SkewedClock()
    fired: list[int] = []
    woken = Signal()

    def fire() -> None:
        fired.append(1)
        woken.set()

    clock.schedule(clock.now() + 3600.0, fire)
    clock.schedule(clock.now() + 3600.0, lambda: fired.append(2)).cancel()
    clock.jump(3601.0)
    clock.rearm()
    clock.rearm()
    assert woken.wait(5.0)
    assert clock.wait(Signal(), clock.now() + 0.2) is False
    assert fired == [1]


# The verdict.


class Sparing:
    """A nemesis that breaks S1 by itself, on etcd."""

    name = "sparing"
    backends: Backends = ("etcd", "zookeeper")
    needs: frozenset[Any] = frozenset()
    excuses = (Excuse("etcd", frozenset({"S1"}), "the servers do", ((3, 4, 31), (3, 5, 13))),)

    def strike(self, *_: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("backend", "version", "outcome"),
    [
        ("etcd", "3.5.1", Outcome.UNKNOWN),
        ("etcd", "3.5.12", Outcome.UNKNOWN),
        ("etcd", "3.5.13", Outcome.FAILED),
        ("etcd", "3.4.23", Outcome.UNKNOWN),
        ("etcd", "3.4.31", Outcome.FAILED),
        ("etcd", "3.3.9", Outcome.UNKNOWN),
        ("etcd", "3.6.0", Outcome.FAILED),
        ("etcd", "of an unknown version", Outcome.FAILED),
        ("zookeeper", "3.5.1", Outcome.FAILED),
    ],
)
def test_what_a_fault_breaks_by_itself_is_unknown_on_servers_with_that_defect(
    backend: Any, version: str, outcome: Outcome, tmp_path: Path
) -> None:
    """Failed elsewhere, and never passed."""
    judged = _judge(Trial(backend, 1.0, 1, tmp_path, [[Sparing()]]), Truth(()), version=version)
    assert judged["S1"].outcome is outcome


def test_truth_with_gaps_makes_unknown_what_rests_on_it(tmp_path: Path) -> None:
    """S4, S8, S9 and S11 neither pass nor fail; the rest is judged."""
    judged = _judge(Trial("zookeeper", 1.0, 1, tmp_path), Truth((), "compacted"))
    assert all(judged[name].outcome is Outcome.UNKNOWN for name in ("S4", "S8", "S9"))
    assert "compacted" in judged["S4"].reason
    assert judged["S1"].outcome is Outcome.FAILED


def test_run_that_breaks_nothing_shows_too_little(tmp_path: Path) -> None:
    """A nemesis was asked for, and no fault was injected: a doubt, and with it no pass."""
    trial = Trial("etcd", 1.0, 1, tmp_path, [[Sparing()]])
    doubts = judge(trial, History(), Truth(()), Phases(0.0, 1.0, 2.0, 3.0), {}, (), (), version="").doubts
    assert any("no fault was injected" in doubt for doubt in doubts)
    assert any("grants" in doubt for doubt in doubts)
    doubts = judge(trial, History(), Truth(()), Phases(0.0, 1.0, 2.0, 3.0), {"kill": 1}, (), (), version="").doubts
    assert "never struck: sparing; give it more seconds" in doubts


@pytest.mark.parametrize(("calm", "outcome"), [(2, Outcome.FAILED), (1, Outcome.UNKNOWN)])
def test_bound_that_is_missed_says_nothing_where_the_machine_was_too_slow_in_calm(
    calm: int, outcome: Outcome, tmp_path: Path
) -> None:
    """A waiter sleeps on: failed where there was traffic in calm, else unknown; S1 fails either way."""
    held = [
        (Event(at, "c", Kind.INVOKE, "acquire", "y", call=n), Event(at, "c", Kind.OK, "acquire", "y", call=n, token=n))
        for n, at in enumerate((0.1, 0.5)[:calm], 1)
    ]
    slept = [
        Event(3.5, "a", Kind.INVOKE, "acquire", "z", call=2),
        Event(3.6, "a", Kind.OK, "acquire", "z", call=2, hold="z", token=8),
        Event(3.7, "b", Kind.INVOKE, "acquire", "z", call=2),
        Event(3.8, "a", Kind.INVOKE, "release", "z", call=3, hold="z", token=8),
        Event(3.9, "a", Kind.OK, "release", "z", call=3, hold="z", token=8),
        Event(60.0, "c", Kind.INVOKE, "acquire", "y", call=9),
    ]
    judged = _judge(Trial("etcd", 1.0, 1, tmp_path), Truth(()), *(event for pair in held for event in pair), *slept)
    assert judged["L2"].outcome is outcome
    assert judged["S1"].outcome is Outcome.FAILED


def _judge(trial: Trial, truth: Truth, *more: Event, version: str = "3.5.1") -> Report:
    """A history in which S1 is broken."""
    events = [
        Event(1.0, "a", Kind.INVOKE, "acquire", "x", call=1),
        Event(1.1, "a", Kind.OK, "acquire", "x", call=1, hold="h", token=1, lease="l"),
        Event(2.0, "b", Kind.INVOKE, "acquire", "x", call=1),
        Event(2.1, "b", Kind.OK, "acquire", "x", call=1, hold="i", token=2),
        Event(3.1, "a", Kind.CHECK, "", "x", hold="h", token=1, held=True, since=3.0),
        Event(1.05, "a", Kind.TRUTH, "created", "x", hold="h", token=1, revision=1),
        *more,
    ]
    phases = Phases(0.0, 1.0, 2.0, 3.0)
    return judge(trial, History(events), truth, phases, {"sparing": 1}, (), (), version=version).report


def test_administrator_who_removed_nothing_has_shown_nothing(tmp_path: Path) -> None:
    """An administrator that recognised no ticket is a doubt, and with it there is no pass."""
    trial = Trial("etcd", 1.0, 1, tmp_path, [make(["admin-remove"], "etcd")])
    phases = Phases(0.0, 1.0, 2.0, 3.0)
    assert "removed nothing: admin-remove" in too_little(trial, History(), phases, {"admin-remove": 8})
    done = {"admin-remove": 8, "admin-remove: done": 1}
    assert not [doubt for doubt in too_little(trial, History(), phases, done) if "removed" in doubt]


def test_who_was_deposed_by_hand_may_believe_until_the_news_comes(tmp_path: Path) -> None:
    """An administrator removed its ticket, and said so: no crime, and counted."""
    by_hand = Event(1.5, "a", Kind.TRUTH, "removed", "x", hold="h", token=1, revision=2, cause="admin")
    verdict = _judge(Trial("etcd", 1.0, 1, tmp_path), Truth(()), by_hand)["S1"]
    assert verdict.outcome is Outcome.PASSED
    assert verdict.counts["deposed by others"] == 1


@pytest.mark.parametrize(("nemeses", "outcome"), [([[Sparing()]], Outcome.PASSED), ([], Outcome.FAILED)])
def test_lease_that_the_store_ended_against_its_promise_is_no_crime_where_servers_were_made_to_stall(
    nemeses: Any, outcome: Outcome, tmp_path: Path
) -> None:
    """The store's own word decides. Elsewhere servers have no reason to, and the client is looked at."""
    early = Event(1.5, "a", Kind.TRUTH, "lease_ended", lease="l", cause="early", since=1.4)
    judged = _judge(Trial("etcd", 1.0, 1, tmp_path, nemeses), Truth(()), early, version="3.5.16")
    assert judged["S1"].outcome is outcome
    assert ("S11" in judged.left_out) is (outcome is Outcome.PASSED), "no other end of a lease was there to judge"
    if outcome is Outcome.FAILED:
        assert judged["S11"].failed


# What is recorded.


def test_release_that_raised_is_nobody_s_answer() -> None:
    """Refused by the store, it is the reaper's: it may still happen. So S8 must not hear "gone already"."""
    records = MemoryRecorder()
    for operation in ("release", "write"):
        with pytest.raises(StoreRefused), Log(records, "w").call(operation, "x"):
            raise StoreRefused("no leader")
    assert [event.kind for event in records.history() if event.kind is not Kind.INVOKE] == [Kind.INFO, Kind.FAIL]
