"""Owners behind HTTP while everything is broken: what they believed and wrote, judged by the checkers of histories.

Five owners, each a process (owner.py), share three locks through `tenure serve`: three replicas on etcd, one on
ZooKeeper. Service, owners and store are killed and stopped, and answers get lost on their way; the store's own word is
taken beside it, and a fenced store takes what they write. No violation, and enough that happened.

`TENURE_TEST_SEED` repeats the deeds of a run, in their order.
"""

from __future__ import annotations

import dataclasses
import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from tenure.testing import Event, History, Kind, LivenessBounds, Outcome, Recorder, Report, check_history, monotonic
from tenure.testing.history.check_liveness import l2
from tests.processes import Spawner, python_module
from tests.servers import Cluster, EtcdSpec, FaultProxy, NativeProvider, ZooKeeperSpec, start_together
from tests.service.http.owner import Plan
from tests.service.http.processes import END_SECONDS, Member, Replica, stopped_holder
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.observers import Truth, observer
from tests.verify.torture.pulse import Pulse
from tests.verify.torture.verdict import stale_writes_refused

TTL: Final = 2.0
OWNERS: Final = 5
RESOURCES: Final = ["ledger", "report", "export"]
REPLICAS: Final = {"etcd": 3, "zookeeper": 1}
WARM_WAKES: Final = 3
"""Calm hand-overs to somebody who waits, before anything is broken: afterwards nothing is calm for long."""
WARM_WITHIN_SECONDS: Final = 60.0
BETWEEN_SECONDS: Final = 0.5
TAKE_OVER_SECONDS: Final = 4.0
"""Beyond the TTL: the store's expiry tick, a revocation or a session's bucket, and a machine that has more to do."""
SETTLE_SECONDS: Final = TTL + TAKE_OVER_SECONDS + 1.0
LATE_SECONDS: Final = 1.5
"""Time for which a store that was started again lets leases live on beyond their TTL: nobody could renew them."""
LOST: Final = {"requests": ("acquire", "renew", "release"), "thin client": ("enter", "renew", "leave")}
"""Answers to what get lost, by how owners speak to the service."""
LOST_SHARE: Final = 0.25
LOST_WITHIN_SECONDS: Final = 20.0
HOLDS_LEAST: Final = 40
WRITES_LEAST: Final = 50
BOUNDS: Final = LivenessBounds(take_over=TAKE_OVER_SECONDS, wake=2.0, demote=2.0, hand_overs=10)
SAFETY: Final = ("S1", "S2", "S3", "S4", "S5", "S8", "S9", "S11")
LIVENESS: Final = ("L1", "L2", "L4", "L5")


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Cluster]]:
    """A server of each kind, to be killed and stopped. Processes: ZooKeeper's record is read from its logs."""
    with closing(NativeProvider()) as provider:
        etcd, zookeeper = start_together(provider, EtcdSpec(), ZooKeeperSpec())
        yield {"etcd": etcd, "zookeeper": zookeeper}


@pytest.mark.parametrize("way", LOST)
@pytest.mark.parametrize("kind", REPLICAS)
def test_no_fault_makes_owners_behind_http_break_a_promise(
    kind: str, way: str, clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    """Kill and stop of service, owner and store, and lost answers: no violation, and everybody goes on."""
    seed = os.environ.get("TENURE_TEST_SEED", secrets.token_hex(4))
    print(f"{kind}, {way}, TENURE_TEST_SEED={seed}")
    with Ground(clusters[kind], tmp_path, seed, replicas=REPLICAS[kind], thin=way == "thin client") as ground:
        run = Run(ground, random.Random(seed), LOST[way])
        run.strike_with_everything()
        history, truth = ground.end()
    report = check_history(history, (*SAFETY, *LIVENESS), bounds=BOUNDS)
    print(report, run.counts, f"stale writes refused: {stale_writes_refused(history)}", sep="\n")
    assert truth.missing == ""
    assert truth.left["tickets"] == 0
    assert report.outcome is Outcome.PASSED, f"TENURE_TEST_SEED={seed}\n{report}"
    assert too_little(report, run) == []


@pytest.mark.parametrize("overstays", [0.0, 2 * TTL])
def test_owner_that_believes_longer_than_it_was_told_is_found(
    overstays: float, clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    """The checkers see what they are there for: owners that never renew, without a seeded bug and with it."""
    with Ground(clusters["etcd"], tmp_path, "", replicas=1, careless=1.0, overstays=overstays) as ground:
        time.sleep(5 * TTL)
        history, _ = ground.end()
    report = check_history(history, SAFETY)
    found = {verdict.name for verdict in report.verdicts if verdict.failed}
    assert found == ({"S1", "S2", "S11"} if overstays else set()), str(report)


def too_little(report: Report, run: Run) -> list[str]:
    """Why a run without a violation would show nothing."""
    figures = {
        "holds": (report["S1"].counts["holds"], HOLDS_LEAST),
        "writes": (report["S5"].counts["writes"], WRITES_LEAST),
        "releases": (report["S8"].counts["releases"], HOLDS_LEAST // 2),
        "take-overs after a death": (report["L1"].counts["take-overs"], 1),
        "wake-ups": (report["L2"].counts["wakes"], WARM_WAKES),
        "stopped holders": (report["L4"].counts["outages of holders"], 1),
        **{f"lost answers to {what}": (run.lost[what], 1) for what in run.loses},
    }
    return [f"only {found} {what}, wanted {minimum}" for what, (found, minimum) in figures.items() if found < minimum]


class Ground:
    """A store, the service on it, a proxy in front of each replica, a fenced store, and owners at work."""

    def __init__(self, cluster: Cluster, directory: Path, seed: str, *, replicas: int, **of_owners: Any) -> None:
        self.cluster = cluster
        self._directory = directory
        self._namespace = f"faults-{secrets.token_hex(4)}"
        self._undo = ExitStack()
        with ExitStack() as undo:
            self._set_up(undo, seed, replicas, of_owners)
            self._undo = undo.pop_all()

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def warm_up(self) -> None:
        """Wait until a few owners have waited and were woken, with nothing broken yet."""
        give_up = time.monotonic() + WARM_WITHIN_SECONDS
        while l2(self._history(), BOUNDS).counts["wakes"] < WARM_WAKES:
            assert time.monotonic() < give_up, f"fewer than {WARM_WAKES} wakes in {WARM_WITHIN_SECONDS:g} s"
            time.sleep(BETWEEN_SECONDS)

    def end(self) -> tuple[History, Truth]:
        """End owners, fenced store and service in good order, and collect their histories and the store's record."""
        for member in self.members:
            member.end()
        self._register.signal(signal.SIGTERM)
        assert self._register.wait(END_SECONDS) == 0
        self._services.close()
        truth = self._observer.finish()
        self.pulse.close()
        return told_by_token(self._history(), truth), truth

    def _history(self) -> History:
        return History.read(*sorted(self._directory.glob("*.jsonl")))

    def _set_up(self, undo: ExitStack, seed: str, replicas: int, of_owners: dict[str, Any]) -> None:
        options = {"tick": 0.2} if self.cluster.kind == "zookeeper" else {}
        url = self.cluster.url(self._namespace, ttl=TTL, timeout=1.5, **options)
        self._observer = observer(self.cluster, url, self._namespace)
        undo.callback(self._observer.close)
        recorder = undo.enter_context(Recorder(self._directory / "diary.jsonl"))
        self.diary = RunFaultLog(recorder)
        self.pulse = undo.enter_context(Pulse(recorder))
        self._spawner = Spawner()
        undo.callback(self._spawner.close)
        self._services = undo.enter_context(ExitStack())
        self.replicas = [Replica(url, self._directory, self._services) for _ in range(replicas)]
        self.proxies = [undo.enter_context(FaultProxy(replica.endpoint, "etcd")) for replica in self.replicas]
        self._start_register(undo)
        self.members = [self._member(number, seed, of_owners, undo) for number in range(OWNERS)]
        for member in self.members:
            member.wait_ready()

    def _start_register(self, undo: ExitStack) -> None:
        self._socket = str(self._directory / "store")
        arguments = ["--socket", self._socket, "--history", str(self._directory / "store.jsonl")]
        command = python_module("tests.verify.torture.register", *arguments)
        log = self._directory / "store.stderr"
        self._register = undo.enter_context(self._spawner.start(command, log=log, name="the fenced store"))
        self._register.wait_ready()

    def _member(self, number: int, seed: str, of_owners: dict[str, Any], undo: ExitStack) -> Member:
        addresses = [f"http://{proxy.endpoint}" for proxy in self.proxies]
        first = number % len(addresses)
        plan = Plan(
            name=f"owner{number}",
            addresses=addresses[first:] + addresses[:first],
            resources=RESOURCES,
            seed=f"{seed} {number}",
            history=str(self._directory / f"owner{number}.jsonl"),
            register=self._socket,
            ttl=TTL,
            **of_owners,
        )
        member = Member(plan, self.diary, self._spawner)
        undo.callback(member.end_at_once)
        return member


class Run:
    """Breaks one thing after the other, and mends it."""

    def __init__(self, ground: Ground, lots: random.Random, loses: Sequence[str]) -> None:
        self._ground = ground
        self.loses = loses
        self._lots = lots
        self._losing = threading.Condition()  # guards the two below: answers are lost by the proxies' threads
        self._chance = random.Random(lots.random())
        self.lost: Counter[str] = Counter()

    @property
    def counts(self) -> str:
        """Return how often each thing was broken, for people."""
        return f"{self._ground.diary.counts}, answers lost to {dict(self.lost)}"

    def strike_with_everything(self) -> None:
        """A calm beginning, a death that nothing else disturbs, all else in an order of its own, a calm end."""
        self._ground.warm_up()
        self._kill_owner()
        for deed in self._in_any_order():
            deed()
            time.sleep(BETWEEN_SECONDS)
        time.sleep(SETTLE_SECONDS)

    def _in_any_order(self) -> Sequence[Callable[[], None]]:
        deeds = [
            self._lose_answers,
            self._kill_service,
            self._stop_service,
            self._stop_owner,
            self._kill_store,
            self._stop_store,
        ]
        self._lots.shuffle(deeds)
        return deeds

    def _kill_owner(self) -> None:
        """Kill an owner that holds; the service lives on, and another has its lock when the hold's TTL is over."""
        victim = stopped_holder(self._ground.members)
        resource = victim.took_last
        victim.kill()
        died, stood = monotonic(), self._ground.pulse.stood
        self._ground.diary.count("kill owner")
        time.sleep(TTL + TAKE_OVER_SECONDS)
        others = [member for member in self._ground.members if member is not victim]
        while not any(member.took(resource, died) for member in others):
            late = monotonic() - died - TTL - TAKE_OVER_SECONDS - (self._ground.pulse.stood - stood)
            assert late < 0.0, f"{resource!r} stayed with its dead owner"
            time.sleep(BETWEEN_SECONDS)
        victim.replace()

    def _stop_owner(self) -> None:
        """Stop an owner until its hold is over by every clock. Its writes after it goes on are old."""
        victim = stopped_holder(self._ground.members)
        self._ground.diary.count("stop owner")
        time.sleep(self._lots.uniform(2.0, 2.4) * TTL)
        victim.resume()

    def _kill_service(self) -> None:
        replica = self._lots.choice(self._ground.replicas)
        with self._ground.diary.broken("kill service"):
            replica.kill()
            time.sleep(self._lots.uniform(0.2, 0.5) * TTL)
            replica.start()

    def _stop_service(self) -> None:
        """Stop a replica. It wakes up with answers that nobody waits for any more, and with holds that are over."""
        replica = self._lots.choice(self._ground.replicas)
        with self._ground.diary.broken("stop service"):
            replica.stop()
            time.sleep(self._lots.uniform(1.2, 1.6) * TTL)
            replica.resume()

    def _kill_store(self) -> None:
        (server,) = self._ground.cluster.members
        with self._ground.diary.broken("kill store"):
            server.kill()
            time.sleep(self._lots.uniform(0.2, 0.5) * TTL)
            server.start()
            time.sleep(LATE_SECONDS)

    def _stop_store(self) -> None:
        (server,) = self._ground.cluster.members
        with self._ground.diary.broken("stop store"):
            server.pause()
            time.sleep(self._lots.uniform(0.5, 1.3) * TTL)
            server.resume()
            server.wait_ready()

    def _lose_answers(self) -> None:
        """The service did what it was asked, and nobody heard of it."""
        with self._ground.diary.broken("lose answers"):
            for proxy in self._ground.proxies:
                proxy.lose_answer(self._is_unlucky, times=1_000_000)
            time.sleep(TTL)
            with self._losing:
                self._losing.wait_for(lambda: all(self.lost[what] for what in self.loses), LOST_WITHIN_SECONDS)
            for proxy in self._ground.proxies:
                proxy.forget()

    def _is_unlucky(self, method: str, path: str, _: bytes) -> bool:
        with self._losing:
            what = "release" if method == "DELETE" else path.rpartition("/")[2]
            unlucky = what in self.loses and self._chance.random() < LOST_SHARE
            self.lost[what] += unlucky
            self._losing.notify_all()
            return unlucky


def told_by_token(history: History, truth: Truth) -> History:
    """Owners behind HTTP know their holds by their tokens, and no leases: what both tell, in the same words."""
    known = {(one.resource, one.token): one.lease for one in truth.events if one.operation == "created"}

    def leased(event: Event) -> Event:
        lease = known.get((event.resource, event.token), "") if event.acquired else event.lease
        return dataclasses.replace(event, lease=lease)

    def by_token(event: Event) -> Event:
        return dataclasses.replace(event, hold=str(event.token)) if event.hold else event

    ended = map(by_token, ended_by_ttl(history, truth.events))
    return History([*map(leased, history), *ended], torn=history.torn)


def ended_by_ttl(history: History, truth: Iterable[Event]) -> Iterator[Event]:
    """The store's word; where holds share the service's lease, a ticket that the service removed when its owner had
    let it run out, and had not released it, ended as one does whose own lease ends.
    """
    until: dict[tuple[str, int | None], float] = {}
    released: dict[tuple[str, int | None], float] = {}
    for event in history:
        line = event.resource, event.token
        if event.kind is Kind.OK and event.deadline is not None:
            until[line] = max(until.get(line, 0.0), event.deadline)
        elif event.kind is Kind.INVOKE and event.operation == "release":
            released.setdefault(line, event.at)
    for event in truth:
        line = event.resource, event.token
        ran_out = until.get(line, event.at + 1.0) <= event.at < released.get(line, event.at + 1.0)
        left = event.operation == "removed" and event.cause == "left"
        yield dataclasses.replace(event, cause="lease") if left and ran_out else event
