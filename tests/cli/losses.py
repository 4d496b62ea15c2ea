"""Losses by the dozen: two candidates for each lock, each with a CMD that ignores SIGTERM and forks away, and causes.

Who ran when is written down by the CMDs themselves, into one file a lock, with the boot clock: that they start, that
they live (every few milliseconds), and whether a process of their predecessor is still there when they start.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

import tenure
from tenure._client import Operator
from tenure.cli.supervise.watchdog import descendants
from tests.cli.program import PROGRAM, environment
from tests.servers import Cluster, FaultProxy, etcdctl

TTL = 3.0
PATIENCE_SECONDS = 300.0
BY_TIME = ("kill", "stop", "cut")
"""Causes that end a hold by the clock: nobody else may start before CMD is dead."""
BY_HAND = ("force", "revoke")
"""Causes that the store carries out at once, and tells the holder afterwards."""

CMD = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
record = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND | os.O_CREAT)
def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
before = [line.split() for line in os.pread(record, 1 << 28, 0).decode().splitlines() if line.startswith("start")]
alive = [pid for line in before[-1:] for pid in line[2:4] if lives(pid)]
me, ready = os.getpid(), os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.write(ready[1], str(os.getpid()).encode())
else:
    away = os.read(ready[0], 20).decode()
    os.write(record, f"start {sys.argv[2]} {me} {away} {now()} {','.join(alive)}\\n".encode())
while True:
    os.write(record, f"beat {me} {now()}\\n".encode())
    time.sleep(0.01)
"""


@dataclass
class Run:
    """Life of a CMD, as it and what it forked away wrote it down."""

    slot: int
    pids: tuple[int, int]
    started: float
    alive_before: str
    last_beat: float = 0.0


@dataclass
class Loss:
    """A loss: why, when, who, and how tenure ended."""

    cause: str
    at: float
    victim: int
    died: float = 0.0
    code: int | None = None
    said: str = ""


@dataclass
class Findings:
    """Results of many losses. `by itself`: a machine that is too busy to renew in time."""

    causes: Counter[str] = field(default_factory=Counter)
    overlaps: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """Seconds from a predecessor's last sign of life to its successor's first, where time ended the hold."""
    after_removal: list[float] = field(default_factory=list)
    """Seconds from a removal by hand to the death of CMD."""
    overlaps_by_hand: int = 0
    wrong_codes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add the findings of another lock."""
        self.causes += other.causes
        self.overlaps += other.overlaps
        self.gaps += other.gaps
        self.after_removal += other.after_removal
        self.overlaps_by_hand += other.overlaps_by_hand
        self.wrong_codes += other.wrong_codes
        self.failures += other.failures

    def __str__(self) -> str:
        nearest = min(self.gaps, default=float("nan"))
        lags = sorted(self.after_removal)
        middle, worst = (lags[len(lags) // 2], lags[-1]) if lags else (float("nan"), float("nan"))
        return (
            f"{sum(self.causes.values())} losses ({', '.join(f'{n} {c}' for c, n in sorted(self.causes.items()))}): "
            f"{len(self.overlaps)} overlaps by time, nearest {nearest * 1000:.0f} ms; by hand: CMD dead after "
            f"{middle * 1000:.0f} ms in the middle, {worst * 1000:.0f} ms at worst, {self.overlaps_by_hand} overlaps"
        )


def now() -> float:
    """The clock of all stamps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Candidate:
    """A slot: a tenure that waits or runs CMD, with its own way to the store."""

    def __init__(self, slot: int, name: str, record: Path, cluster: Cluster, namespace: str) -> None:
        self.slot = slot
        self._name = name
        self._record = record
        self.proxy = FaultProxy(cluster.endpoints[0], "etcd" if cluster.kind == "etcd" else "zookeeper")
        tick = "&tick=0.2" if cluster.kind == "zookeeper" else ""
        self.owner = f"candidate-{slot}"
        self.said = ""
        self._url = f"{cluster.kind}://{self.proxy.endpoint}/{namespace}?timeout=1&owner={self.owner}{tick}"
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Stand in line (again)."""
        self.process = subprocess.Popen(
            [
                *PROGRAM, "run", self._name, "--ttl", str(TTL), "--grace", "0.3", "--",
                sys.executable, "-I", "-S", "-c", CMD, str(self._record), str(self.slot),
            ],
            env=environment({"TENURE_URL": self._url}),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self.process

    def __repr__(self) -> str:
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            state = next(line for line in status.splitlines() if line.startswith("State"))
            below = [Path(f"/proc/{pid}/cmdline").read_text()[:60] for pid in descendants(self.process.pid)]
        except OSError as error:
            return f"<{self.owner} {self.process.poll()} {error}>"
        return f"<{self.owner} {self.process.poll()} {state!r} {below} before: {self.said!r}>"

    def close(self) -> None:
        """End it: its watchdog ends the rest."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()
        self.proxy.close()


class Battle:
    """A lock, its two candidates, and a loss after the other."""

    def __init__(self, cluster: Cluster, scratch: Path, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._name = f"battle-{seed}"
        self._namespace = f"losses-{uuid.uuid4().hex}"
        self._record = scratch / f"{self._name}.txt"
        self._record.touch()
        self._read_to = 0
        self._partial = ""
        self._candidates: list[Candidate] = []
        self.runs: list[Run] = []
        self.losses: dict[int, Loss] = {}
        self._unsure: set[int] = set()

    def fight(self, causes: list[str]) -> Findings:
        """Lose the lock once for each of `causes`."""
        tick = {"tick": 0.2} if self._cluster.kind == "zookeeper" else {}
        url = self._cluster.url(self._namespace, **tick)
        failed = ""
        try:
            for slot in (0, 1):
                self._candidates.append(Candidate(slot, self._name, self._record, self._cluster, self._namespace))
            with tenure.connect(url, owner="operator") as client:
                for cause in causes:
                    until = now() + PATIENCE_SECONDS
                    while not self._lose(cause, client.operator()):
                        assert now() < until, f"{self._name}: no {cause} hit anybody"
                self._successor()
        except AssertionError as failure:
            failed = f"{self._name}: {failure}"
        finally:
            for candidate in self._candidates:
                candidate.close()
        findings = self._judge()
        findings.failures += [failed] if failed else []
        return findings

    def _lose(self, cause: str, operator: Operator) -> bool:
        """False where the run that was chosen had ended by itself before."""
        run = self._successor()
        time.sleep(self._random.uniform(0.05, 0.8))  # a hold is lost at any age
        candidate = self._candidates[run.slot]
        try:
            watched = [os.pidfd_open(pid) for pid in run.pids]
        except ProcessLookupError:
            self._wait_for_run(run)
            return False
        loss = Loss(cause, now(), run.pids[0])
        try:
            if not self._strike(cause, candidate, operator):
                return False
        except (tenure.TenureError, subprocess.SubprocessError, KazooException, KazooTimeoutError) as error:
            print(f"{self._name}: {cause} failed: {error!r}")  # a store, or a machine, that is too busy
            self._unsure.add(run.pids[0])
            return False
        if cause in BY_HAND:
            loss.at = now()  # from here on it is surely gone
        for pidfd in watched:
            ended, _, _ = select.select([pidfd], [], [], PATIENCE_SECONDS)
            assert ended, f"CMD lives on after {cause}"
            os.close(pidfd)
        loss.died = now()
        self.losses[run.pids[0]] = loss
        if cause == "stop":
            self._wait_for_run(run, but_not=candidate)  # the other one has it before this one wakes
            candidate.process.send_signal(signal.SIGCONT)
        _, loss.said = candidate.process.communicate(timeout=PATIENCE_SECONDS)
        loss.code = candidate.process.returncode
        candidate.proxy.heal()
        candidate.start()
        return True

    def _strike(self, cause: str, candidate: Candidate, operator: Operator) -> bool:
        """False where somebody else has come to hold it meanwhile."""
        if cause == "kill":
            candidate.process.kill()
        elif cause == "stop":
            candidate.process.send_signal(signal.SIGSTOP)
        elif cause == "cut":
            candidate.proxy.blackhole()
        else:
            holders = operator.line(self._name).holders
            if not holders or holders[0].owner != candidate.owner:
                return False
            if cause == "force":
                operator.force_release(self._name, token=holders[0].token, reason="a loss for the test", actor="test")
            elif self._cluster.kind == "etcd":
                etcdctl(self._cluster, "lease", "revoke", holders[0].lease_id)
            else:
                while any(h.lease_id == holders[0].lease_id for h in operator.line(self._name).holders):
                    end_session(self._cluster, int(holders[0].lease_id, 16))  # its owner may win it back in between
        return True

    def _successor(self) -> Run:
        """The run after the last loss."""
        last = self.runs[-1] if self.runs else None
        return last if last and last.pids[0] not in self.losses else self._wait_for_run(last)

    def _wait_for_run(self, after: Run | None, but_not: Candidate | None = None) -> Run:
        """The next one. Who has lost by itself stands in line again, `but_not` that one."""
        until = now() + PATIENCE_SECONDS
        while not self.runs or self.runs[-1] is after:
            assert now() < until, (
                f"nobody ran CMD again after {after}: {self._candidates}, {list(self.losses.items())[-2:]}"
            )
            time.sleep(0.02)
            self._read()
            for candidate in self._candidates:
                if candidate is not but_not and candidate.process.poll() is not None:
                    _, candidate.said = candidate.process.communicate()
                    candidate.start()
        return self.runs[-1]

    def _read(self) -> None:
        with self._record.open("rb") as record:
            record.seek(self._read_to)
            got = record.read()
        self._read_to += len(got)
        *lines, self._partial = (self._partial + got.decode()).split("\n")
        for line in lines:
            kind, *facts = line.split(" ")
            if kind == "start":
                slot, me, away, at, alive = facts
                self.runs.append(Run(int(slot), (int(me), int(away)), float(at), alive, float(at)))
            else:
                for run in self.runs[-4:]:
                    if run.pids[0] == int(facts[0]):
                        run.last_beat = max(run.last_beat, float(facts[1]))

    def _judge(self) -> Findings:
        self._read()
        findings = Findings(Counter(loss.cause for loss in self.losses.values()))
        for before, after in itertools.pairwise(self.runs):
            loss = self.losses.get(before.pids[0])
            gap = after.started - before.last_beat
            overlap = bool(after.alive_before) or gap <= 0
            if loss is None and before.pids[0] in self._unsure:
                continue  # a removal that may have been carried out
            if loss is None:
                findings.causes["by itself"] += 1
            if loss is not None and loss.cause in BY_HAND:
                findings.after_removal.append(loss.died - loss.at)
                findings.overlaps_by_hand += overlap
            else:
                findings.gaps.append(gap)
                if overlap:
                    findings.overlaps.append(f"{self._name}: {loss}, then {after} after {before}")
        for loss in self.losses.values():
            if loss.code != (-signal.SIGKILL if loss.cause == "kill" else 76):
                findings.wrong_codes.append(f"{self._name}: {loss}")
        return findings


def fight(cluster: Cluster, scratch: Path, losses: int, locks: int, seed: int) -> Findings:
    """`losses` in all, of a mixture of causes, on `locks` locks at once."""
    chosen = random.Random(seed)
    mixture = [(*BY_TIME, *BY_HAND)[number % 5] for number in range(losses)]
    chosen.shuffle(mixture)
    findings = Findings()
    with ThreadPoolExecutor(locks) as pool:
        battles = [Battle(cluster, scratch, seed + number) for number in range(locks)]
        for found in pool.map(Battle.fight, battles, [mixture[number::locks] for number in range(locks)]):
            findings.add(found)
    return findings


def end_session(cluster: Cluster, session: int) -> None:
    """Close somebody's session, as a client that claims it: a server's session passwords are made from the ids."""
    thief = KazooClient(cluster.endpoints[0], client_id=(session, _password(session)), timeout=4.0)
    thief.start()
    thief.stop()
    thief.close()


def _password(session: int) -> bytes:
    """Session password, as ZooKeeper makes it: sixteen bytes of java.util.Random, seeded with the id and a constant."""
    bits = (1 << 48) - 1
    state = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & bits
    made = b""
    while len(made) < 16:
        state = (state * 0x5DEECE66D + 0xB) & bits
        made += (state >> 16).to_bytes(4, "little")
    return made
