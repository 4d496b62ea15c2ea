"""A torture run, from the first worker to the verdict.

    warm     no faults: how much goes on when nothing is broken
    faults   one group of nemeses after the other, until the seconds are over; those of a group strike together
    settle   everything is mended, and stays so for long enough to see everybody recover
    end      the workers close their clients, the fenced store tells what it kept, the observer what it saw
    judge    all histories together, by every property that has something to say here

A run that shows too little is unknown, never passed: too few grants before the faults, too few hand-overs during them,
no fault at all, a truth with gaps, a server that did not come back. A worker that ends by itself fails the run.
"""

from __future__ import annotations

import gzip
import random
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import History, Recorder, monotonic
from tenure.testing.history.verdicts import Outcome
from tenure.testing.servers import Condition, ServerFailed, ZooKeeperSpec
from tests.processes import ProcessFailed, Spawner, WorkerProcess, python_module
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.observers import Observer, Truth, observer
from tests.verify.torture.observers.zookeeper import transaction_logs
from tests.verify.torture.parts import Nemesis, Rig
from tests.verify.torture.pulse import Pulse
from tests.verify.torture.rig.urls import by_transport
from tests.verify.torture.verdict import Judgement, Phases, judge, take_over
from tests.verify.torture.versions import version_of
from tests.verify.torture.worker.plan import Face, Plan
from tests.verify.torture.workers import RunWorker, RunWorkers

NAMESPACE: Final = "torture"
CLIENTS: Final = 5
TTL_SECONDS: Final = 2.0
WARM_SECONDS: Final = 4.0
_REQUEST_SECONDS: Final = 2.0
_STRIKE_TTLS: Final = (2.0, 4.0)
_STRIKE_MIN_SECONDS: Final = 1.5
_BETWEEN_SECONDS: Final = (0.5, 2.0)
_STRIKE_OVERDUE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.2
_SETTLE_MORE_SECONDS: Final = 2.0
_GONE_SECONDS: Final = 1.5
_REGISTER_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The settings of a run."""

    backend: Literal["etcd", "zookeeper"]
    seconds: float
    seed: int
    directory: Path
    """Where the histories go. Empty, or not there yet."""
    nemeses: Sequence[Sequence[Nemesis]] = ()
    """Groups that strike one after the other; those of a group together. None at all: a calm run."""
    clients: int = CLIENTS
    ttl: float = TTL_SECONDS
    fenced: bool = True
    actors: int = 3
    transport: Literal["gateway", "grpc"] = "gateway"
    """How the workers speak to etcd."""
    careless: float = 0.1
    """How often workers think for long before they write, without a look: see Plan."""
    warm: float = WARM_SECONDS
    """How long it goes on before anything is broken."""


def torture(trial: Trial, rig: Rig) -> Judgement:
    """Run it on this rig, which stays up, and judge what happened."""
    trial.directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        return _Run(trial, rig, undo).run()


@dataclass(slots=True)
class _Findings:
    """Findings about what went wrong beside the properties."""

    broke: list[str] = field(default_factory=list)
    """Fails the run."""
    doubts: list[str] = field(default_factory=list)
    """Leaves it unknown."""


class _Run:
    def __init__(self, trial: Trial, rig: Rig, undo: ExitStack) -> None:
        self._trial = trial
        self._rig = rig
        self._lots = random.Random(trial.seed)
        self._findings = _Findings()
        self._version = version_of(rig.cluster)
        self._recorder = undo.enter_context(Recorder(trial.directory / "nemesis.jsonl"))
        self._fault_log = RunFaultLog(self._recorder)
        self._pulse = undo.enter_context(Pulse(self._recorder))
        self._spawner = Spawner()
        undo.callback(self._spawner.close)
        self._observer: Observer = observer(rig.cluster, rig.truth_url, NAMESPACE)
        undo.callback(self._observer.close)
        self._socket = str(Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="torture-"))) / "store")
        self._register = self._start_register(undo)
        self._workers = RunWorkers()
        undo.callback(self._workers.close)

    def run(self) -> Judgement:
        self._measure({"tickets": 0, "leases": 0})
        begun = monotonic()
        self._start_workers()
        self._watch_for(self._trial.warm)
        broken_at = monotonic()
        self._strike_until(time.monotonic() + self._trial.seconds)
        self._mend()
        mended_at = monotonic()
        if self._trial.nemeses:
            self._watch_for(self._settle_seconds)
        settled_at = monotonic()
        truth = self._end()
        self._pulse.close()
        phases = Phases(begun, broken_at, mended_at, settled_at)
        findings = (tuple(self._findings.broke), tuple(self._findings.doubts))
        history = History.read(*sorted(self._trial.directory.glob("*.jsonl")))
        judgement = judge(self._trial, history, truth, phases, self._fault_log.counts, *findings, version=self._version)
        if judgement.outcome is not Outcome.PASSED:
            self._keep_logs()
        return judgement

    # Beginning.

    def _start_register(self, undo: ExitStack) -> WorkerProcess:
        arguments = ["--socket", self._socket, "--history", str(self._trial.directory / "store.jsonl")]
        arguments += [] if self._trial.fenced else ["--unfenced"]
        command = python_module("tests.verify.torture.register", *arguments)
        log = self._trial.directory / "store.stderr"
        process = undo.enter_context(self._spawner.start(command, log=log, name="the fenced store"))
        process.wait_ready()
        return process

    def _start_workers(self) -> None:
        for number in range(self._trial.clients):
            place = f"client-{number}"
            plan = self._plan(number, place)
            self._workers.all.append(RunWorker(plan, place, self._rig, self._fault_log, self._spawner))
        for worker in self._workers.all:
            worker.wait_ready()

    def _plan(self, number: int, place: str) -> Plan:
        face: Face = "asyncio" if number % 5 in (1, 3) else "blocking"
        options: dict[str, Any] = {"namespace": NAMESPACE, "ttl": self._trial.ttl, "timeout": _REQUEST_SECONDS}
        spec = self._rig.cluster.spec
        if isinstance(spec, ZooKeeperSpec):
            options["tick"] = spec.tick_ms / 1000.0
        return Plan(
            name=f"w{number}",
            face=face,
            url=by_transport(self._rig.url(place), self._trial.transport),
            options=options,
            seed=f"{self._trial.seed} w{number}",
            history=str(self._trial.directory / f"w{number}.jsonl"),
            register=self._socket,
            actors=self._trial.actors,
            careless=self._trial.careless,
        )

    # Breaking and mending.

    def _strike_until(self, until: float) -> None:
        if not self._trial.nemeses:
            self._watch_for(until - time.monotonic())
            return
        turn = 0
        while (left := until - time.monotonic()) > _STRIKE_MIN_SECONDS and not self._findings.broke:
            group = self._trial.nemeses[turn % len(self._trial.nemeses)]
            self._strike(group, min(left, self._trial.ttl * self._lots.uniform(*_STRIKE_TTLS)), turn)
            self._watch_for(min(self._lots.uniform(*_BETWEEN_SECONDS), max(0.0, until - time.monotonic())))
            turn += 1

    def _strike(self, group: Sequence[Nemesis], seconds: float, turn: int) -> None:
        threads = [
            threading.Thread(target=self._strike_one, args=(nemesis, seconds, turn), name=nemesis.name, daemon=True)
            for nemesis in group
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + _STRIKE_OVERDUE_SECONDS)
            if thread.is_alive():
                self._findings.doubts.append(f"nemesis {thread.name} did not come to an end")

    def _strike_one(self, nemesis: Nemesis, seconds: float, turn: int) -> None:
        lots = random.Random(f"{self._trial.seed} {nemesis.name} {turn}")
        try:
            nemesis.strike(self._rig, self._workers, self._fault_log, lots, seconds)
        except (ServerFailed, ProcessFailed) as error:
            self._findings.doubts.append(f"nemesis {nemesis.name}: {error}")
        except Exception:  # a nemesis that fails has shown nothing; the run goes on to tell what it saw
            self._findings.doubts.append(f"nemesis {nemesis.name} failed: {traceback.format_exc()}")

    def _mend(self) -> None:
        """Nemeses mend what they broke; here is what they could not, or forgot."""
        self._rig.network.heal()
        for member in self._rig.cluster.members:
            if member.condition is Condition.PAUSED:
                member.resume()
        try:
            self._rig.cluster.start_all()
        except ServerFailed as error:
            self._findings.doubts.append(f"a server did not come back: {error}")
        for worker in self._workers.all:
            worker.resume()
            worker.replace()

    def _watch_for(self, seconds: float) -> None:
        """Let it go on, and see that nobody ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0.0:
            if not self._findings.broke:
                try:
                    self._workers.check_running()
                except ProcessFailed as error:
                    self._findings.broke.append(str(error))
            time.sleep(min(left, _LOOK_SECONDS))

    @property
    def _settle_seconds(self) -> float:
        return self._trial.ttl + take_over(self._trial.backend) + _SETTLE_MORE_SECONDS

    # Ending.

    def _end(self) -> Truth:
        for failure in self._workers.end():
            if failure not in self._findings.broke:
                self._findings.broke.append(failure)
        self._check_servers()
        self._register.signal(signal.SIGTERM)
        self._register.wait(_REGISTER_SECONDS)
        time.sleep(_GONE_SECONDS)  # what is to be gone by now has to be seen to be gone
        truth = self._observer.finish().told_of(self._fault_log.removals)
        with Recorder(self._trial.directory / "truth.jsonl") as recorder:
            for event in truth.events:
                recorder.record(event)
        if not truth.missing:  # else nobody has counted
            self._measure(truth.left)
        return truth

    def _check_servers(self) -> None:
        """Doubt the run where a server ended by itself after it was mended last: that was no fault of ours."""
        for member in self._rig.cluster.members:
            try:
                member.check_alive()
            except ServerFailed as error:
                self._findings.doubts.append(str(error))

    def _keep_logs(self) -> None:
        """Keep what the servers said and, of ZooKeeper, what they logged, beside the histories."""
        for number, member in enumerate(self._rig.cluster.members):
            (self._trial.directory / f"server-{number}.log").write_text(member.log())
            if self._trial.backend == "zookeeper":
                for path in transaction_logs(member):  # allocated ahead, and so mostly zeros
                    kept = self._trial.directory / f"server-{number}-{path.name}.gz"
                    kept.write_bytes(gzip.compress(path.read_bytes(), 1))

    def _measure(self, figures: dict[str, int]) -> None:
        for what, count in figures.items():
            self._recorder.record(Event(self._recorder.now(), "the store", Kind.MEASURED, operation=what, count=count))
