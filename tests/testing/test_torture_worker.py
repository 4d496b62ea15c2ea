"""Workers of the torture, one at a time, as real processes, on the store in their own memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.testing import Event, History, Kind, MemoryRecorder, Recorder
from tenure.testing.history.intervals import spans
from tests.processes import ProcessFailed, Spawner, python_module
from tests.servers import Cluster, zookeeper_counters
from tests.testing.torture_rig import PlainRig
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.tail import Tail
from tests.verify.torture.worker.plan import Face, Plan
from tests.verify.torture.workers import RunWorker, RunWorkers

WITHIN_SECONDS = 60.0
FACES: tuple[Face, ...] = ("blocking", "asyncio")


class Stage:
    """A fenced store, a fault_log, and whoever is started."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        self.fault_records = MemoryRecorder()
        self.fault_log = RunFaultLog(self.fault_records)
        self.spawner = Spawner()
        self.workers = RunWorkers()
        self._rig = PlainRig(cluster)
        arguments = ("--socket", str(directory / "store"), "--history", str(directory / "store.jsonl"))
        command = python_module("tests.verify.torture.register", *arguments)
        self.register = self.spawner.start(command, log=directory / "store.stderr")
        self.register.wait_ready()

    def start(self, face: Face = "blocking", url: str = "memory://torture/", **options: object) -> RunWorker:
        """Start one worker, and wait until it is at work."""
        plan = Plan(
            name="w",
            face=face,
            url=url,
            options={"ttl": 1.0, **options},
            seed="7",
            history=str(self.directory / "w.jsonl"),
            register=str(self.directory / "store"),
        )
        member = RunWorker(plan, "client-0", self._rig, self.fault_log, self.spawner)
        self.workers.all.append(member)
        member.wait_ready()
        return member

    def history(self) -> History:
        """The history that all workers wrote so far."""
        return History.read(*(path for member in self.workers.all for path in member.histories))

    def wait_for(self, what: Callable[[History], bool]) -> History:
        """Wait until the history shows it. Fails after a bound."""
        until = time.monotonic() + WITHIN_SECONDS
        while not what(history := self.history()):
            assert time.monotonic() < until, "it did not happen"
            time.sleep(0.02)
        return history

    def wait_for_grants(self, count: int = 5) -> History:
        """Wait until it is at work: so many more grants than now."""
        before = _grants(self.history())
        return self.wait_for(lambda history: _grants(history) >= before + count)

    def close(self) -> None:
        self.workers.close()
        self.register.close()
        self.spawner.close()


@pytest.fixture
def stage(tmp_path: Path, singles: dict[str, Cluster]) -> Iterator[Stage]:
    with closing(Stage(tmp_path, singles["zookeeper"])) as made:
        yield made


def _grants(history: History) -> int:
    return sum(event.acquired for event in history)


@pytest.mark.parametrize("face", FACES)
def test_worker_uses_everything_and_ends_in_good_order(stage: Stage, face: Face) -> None:
    """Locks, seats, both sides of a read/write lock, an election and its observer; SIGTERM closes the client."""
    stage.start(face)
    wanted = {"lock-a", "lock-b", "seats", "config", "leader"}

    def everything(history: History) -> bool:
        held = {event.resource for event in history if event.acquired}
        observed = any(event.operation == "observed" for event in history.of(Kind.TOLD))
        return held == wanted and observed and _grants(history) > 40

    stage.wait_for(everything)
    assert stage.workers.end() == []
    history = stage.history()
    operations = {(call.invoke.operation, call.ok) for call in history.calls}
    assert operations >= {("acquire", True), ("try_acquire", True), ("campaign", True), ("release", True)}
    assert operations >= {("write", True), ("renew", True), ("close", True)}
    figures = [(event.operation, event.count) for event in history.of(Kind.MEASURED)]
    assert figures[:2] == figures[2:], "threads or descriptors were left behind"


@pytest.mark.parametrize("face", FACES)
def test_stall_keeps_the_whole_process(stage: Stage, face: Face) -> None:
    """Within a stall nobody of the process does anything at all."""
    member = stage.start(face)
    stage.wait_for_grants()
    member.order("stall 0.7")
    history = stage.wait_for(lambda history: bool(history.of(Kind.RESUMED)))
    (pause,) = spans(history, Kind.PAUSED, Kind.RESUMED)
    start, end = pause.start[0], pause.end[0]
    assert end - start >= 0.7
    assert [event for event in history if start + 0.05 < event.at < end - 0.05] == []


def test_stalled_loop_is_told_apart(stage: Stage) -> None:
    """A stalled loop is told apart in the history, for L4 must not take it for an outage."""
    member = stage.start("asyncio")
    stage.wait_for_grants()
    member.order("stall-loop 0.5")
    history = stage.wait_for(lambda history: bool(history.of(Kind.RESUMED)))
    assert [event.operation for event in history.of(Kind.PAUSED, Kind.RESUMED)] == ["loop", "loop"]
    stage.wait_for_grants()


@pytest.mark.parametrize("face", FACES)
def test_jump_ends_every_belief_at_once(stage: Stage, face: Face) -> None:
    """The first look after a suspend longer than the time to live says no."""
    member = stage.start(face)
    stage.wait_for_grants()

    def lost(history: History) -> bool:
        member.order("jump 100")
        return any(event.held is False for event in history.of(Kind.CHECK))

    history = stage.wait_for(lost)
    no = next(event for event in history.of(Kind.CHECK) if event.held is False)
    assert not [e for e in history.of(Kind.CHECK) if e.hold == no.hold and e.held and e.earliest > no.earliest]
    stage.wait_for_grants()


def test_fast_clock_is_told_in_true_seconds(stage: Stage) -> None:
    """A hold is proven for a quarter of the time at four times the speed, and the history knows it."""
    member = stage.start()
    stage.wait_for_grants()
    member.order("clock 4")
    history = stage.wait_for_grants(20)
    last = [event for event in history if event.acquired][-1]
    assert last.deadline is not None
    assert 0.0 < last.deadline - last.at < 0.3


@pytest.mark.parametrize("face", FACES)
def test_forked_child_is_refused_and_the_worker_goes_on(stage: Stage, face: Face) -> None:
    """The child finds its copy dead; were it not, the worker would end with a status of its own."""
    member = stage.start(face)
    for _ in range(3):
        stage.wait_for_grants(3)
        member.order("fork")
    stage.wait_for_grants()
    assert stage.workers.end() == []


@pytest.mark.parametrize(("face", "error"), [("blocking", "Interrupted"), ("asyncio", "CancelledError")])
def test_cancelled_call_is_recorded_and_the_worker_goes_on(stage: Stage, face: Face, error: str) -> None:
    """A call that was broken off is neither a success nor a failure."""
    member = stage.start(face)

    def cancelled(history: History) -> bool:
        member.order("cancel")
        return any(event.detail == error for event in history.of(Kind.INFO))

    stage.wait_for(cancelled)
    stage.wait_for_grants()
    assert stage.workers.end() == []


@pytest.mark.parametrize("face", FACES)
def test_hop_breaks_the_session_s_connection(stage: Stage, face: Face, singles: dict[str, Cluster]) -> None:
    """The server sees a connection dropped and a new one come, and the worker goes on."""
    cluster = singles["zookeeper"]
    member = stage.start(face, cluster.url(), namespace="hop", tick=0.2, ttl=2.0)
    stage.wait_for_grants()
    endpoint = cluster.members[0].metrics_endpoint
    before = zookeeper_counters(endpoint)["zk_connection_drop_count"]
    member.order("hop")
    stage.wait_for(lambda _: zookeeper_counters(endpoint)["zk_connection_drop_count"] > before)
    stage.wait_for_grants()
    assert stage.workers.end() == []


def test_what_is_no_order_is_left_undone(stage: Stage) -> None:
    """A worker says so, and goes on."""
    member = stage.start()
    for words in ("dance", "stall", "clock fast"):
        member.order(words)
    stage.wait_for_grants()
    assert stage.workers.end() == []
    assert (stage.directory / "w.stderr").read_text().count("not an order: ") == 3


def test_killed_worker_leaves_a_history_and_is_replaced_under_a_new_name(stage: Stage) -> None:
    """The file of a killed worker ends where it died, and can be read; the new one is another client."""
    member = stage.start()
    stage.wait_for_grants()
    member.kill()
    assert [event.kind for event in stage.fault_records.history()] == [Kind.DIED]
    died = stage.history()
    member.replace()
    assert member.name == "w-1"
    stage.wait_for_grants()
    assert stage.workers.end() == []
    assert stage.history().clients == ("w", "w-1")
    assert [e for e in stage.history() if e.client == "w"] == list(died)


def test_stopped_worker_is_stamped_while_it_stands(stage: Stage) -> None:
    """A stopped worker stamps nothing between paused and resumed."""
    member = stage.start()
    stage.wait_for_grants()
    member.stop()
    time.sleep(0.3)
    member.resume()
    stage.wait_for_grants()
    paused, resumed = stage.fault_records.history()
    assert (paused.kind, resumed.kind) == (Kind.PAUSED, Kind.RESUMED)
    assert [event for event in stage.history() if paused.at < event.at < resumed.at] == []


def test_worker_that_ends_by_itself_is_noticed(stage: Stage) -> None:
    """Without its fenced store it can't go on: the workers tells, with what the worker said."""
    stage.start()
    stage.wait_for_grants()
    stage.register.kill()

    def ended() -> bool:
        try:
            stage.workers.check_running()
        except ProcessFailed as error:
            assert "ended by itself" in str(error)
            assert "Error" in str(error)
            return True
        return False

    stage.wait_for(lambda _: ended())


def test_workers_know_who_holds(tmp_path: Path) -> None:
    """A hold is seen from its ok to its release, from what stands in the file, half a line or not."""
    with Recorder(tmp_path / "w.jsonl") as recorder:
        tail = Tail(tmp_path / "w.jsonl")
        assert tail.held_at() == 0.0
        recorder.record(Event(1.0, "w", Kind.INVOKE, "acquire", "x", call=1))
        recorder.record(Event(2.0, "w", Kind.OK, "acquire", "x", call=1, hold="h", token=1))
        assert tail.held_at() == 2.0
        with (tmp_path / "w.jsonl").open("ab") as file:
            file.write(b'{"at":3.0,')
            file.flush()
            assert tail.held_at() == 2.0
            file.write(b'"client":"w","kind":"invoke","operation":"release","hold":"h"}\n')
        assert tail.held_at() == 0.0
