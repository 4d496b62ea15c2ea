"""Every nemesis strikes once, on real servers: what it says it breaks is seen to be broken, and whole afterwards.

The workers are processes that sleep, and take down what they are ordered. Tickets for others to remove come from a
client of the library. Without root there are no namespaces: then those that need them are not among the cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

import tenure
from tenure.testing.servers import Condition, Member, ServerFailed, etcdctl, zk_four_letter
from tenure.testing.servers import cluster as cluster_module
from tenure.testing.servers.specs import Kind
from tests.conformance.store_worlds import eventually
from tests.verify.torture.nemeses import (
    NEMESES,
    UnknownNemesis,
    administration,
    disk,
    links,
    make,
    needs_of,
    network,
    processes,
    upheaval,
)
from tests.verify.torture.nemeses.catalogue import SINGLES
from tests.verify.torture.nemeses.claims import all_servers, one_server, wait_serving
from tests.verify.torture.nemeses.control import statuses
from tests.verify.torture.nemeses.machines import data_of
from tests.verify.torture.nemeses.mixed import All
from tests.verify.torture.nemeses.removals import session_password
from tests.verify.torture.parts import Need, Rig, Worker
from tests.verify.torture.rig import make_rig, possible

SECONDS = 0.4
WRITES_SECONDS = 4.0
"""Of a fault that only a write shows: a traced server takes its time until the next one comes."""
CLIENTS = 2
BACKENDS: tuple[Kind, ...] = ("etcd", "zookeeper")
SHARED: frozenset[Need] = frozenset({"proxies", "tmpfs", "quota"})  # auth makes every etcdctl slow
LOOK_SECONDS = 0.02
WAIT_SECONDS = 10.0
Seen = TypeVar("Seen")


# --- the workers and the fault_log


class SleepingWorker:
    """A worker that does nothing and writes down its orders."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.name = place
        self.orders: list[str] = []
        self.deeds: list[str] = []
        self.process = subprocess.Popen(["sleep", "1000"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        self.deeds.append("stop")
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.deeds.append("resume")
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.deeds.append("kill")
        self.process.kill()
        self.process.wait()

    def replace(self) -> None:
        self.deeds.append("replace")
        self.process = subprocess.Popen(["sleep", "1000"])

    def order(self, words: str) -> None:
        self.orders.append(words)


class SleepingWorkers:
    """Workers at the places of a rig; the first one is the holder."""

    def __init__(self, places: Sequence[str]) -> None:
        self.sleepers = [SleepingWorker(place) for place in places]
        self.all: Sequence[Worker] = self.sleepers

    def holder(self) -> Worker | None:
        return self.all[0]

    def close(self) -> None:
        for worker in self.sleepers:
            worker.process.kill()
            worker.process.wait()

    @property
    def orders(self) -> list[str]:
        return [words for worker in self.sleepers for words in worker.orders]

    @property
    def deeds(self) -> list[str]:
        return [deed for worker in self.sleepers for deed in worker.deeds]


@dataclass
class ListedFaultLog:
    """The fault log as lists: faults in order, what is broken now, tickets that an administrator removes."""

    begun: list[tuple[str, str]] = field(default_factory=list)
    now: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    removed: list[str] = field(default_factory=list)

    @contextmanager
    def broken(self, fault: str, client: str = "") -> Iterator[None]:
        self.begun.append((fault, client))
        self.counts[fault] += 1
        self.now[fault, client] += 1
        try:
            yield
        finally:
            self.now[fault, client] -= 1

    def count(self, fault: str) -> None:
        self.counts[fault] += 1

    def removing(self, *, ticket: str = "", lease: str = "") -> None:
        self.removed.append(ticket or lease)


# --- the scene


@pytest.fixture(scope="module")
def rigs() -> Iterator[dict[str, Rig]]:
    """The rigs, one per store for all tests of this module. Every nemesis mends what it breaks, so they share it."""
    with ExitStack() as stack:
        yield {
            backend: stack.enter_context(
                closing(make_rig(backend, clients=CLIENTS, needs=SHARED & possible(backend), seed=1))
            )
            for backend in BACKENDS
        }


@pytest.fixture
def workers() -> Iterator[SleepingWorkers]:
    with closing(SleepingWorkers([f"client-{n}" for n in range(CLIENTS)])) as made:
        yield made


@contextmanager
def looking(look: Callable[[], object]) -> Iterator[list[object]]:
    """Look again and again while the block runs, and collect what is seen; nothing where looking itself fails."""
    seen: list[object] = []
    ended = threading.Event()

    def keep_looking() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError, ServerFailed):
                seen.append(look())
            ended.wait(LOOK_SECONDS)

    thread = threading.Thread(target=keep_looking, name="looking")
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def looking_once(monkeypatch: pytest.MonkeyPatch, look: Callable[[], Seen], *modules: ModuleType) -> list[Seen]:
    """Look once while a fault of these modules lasts: each lasts until it was looked at, and no longer."""
    seen: list[Seen] = []
    for module in modules:
        monkeypatch.setattr(module, "last", lambda _: seen.append(look()))
    return seen


@contextmanager
def traffic(rig: Rig) -> Iterator[None]:
    """A client that takes and gives back locks through the first place's proxies, whatever happens to them; it has
    begun to when this yields.
    """
    begun, ended = threading.Event(), threading.Event()

    def use() -> None:
        with tenure.connect(rig.url("client-0"), ttl=5, timeout=1) as client:
            while not ended.is_set():
                with contextlib.suppress(tenure.TenureError):
                    with client.lock("traffic").acquire(timeout=1):
                        begun.set()
                        ended.wait(0.05)

    thread = threading.Thread(target=use, name="traffic")
    thread.start()
    try:
        assert begun.wait(WAIT_SECONDS), "nobody got a lock before anything was broken"
        yield
    finally:
        ended.set()
        thread.join()


def write_and_read(rig: Rig) -> None:
    """The store takes a write and gives it back."""
    text = f"{time.monotonic_ns():x}"
    if rig.cluster.kind == "etcd":
        assert etcdctl(rig.cluster, "put", "probe", text).stdout == "OK\n"
        assert etcdctl(rig.cluster, "get", "probe", "--print-value-only").stdout == f"{text}\n"
        return
    client = KazooClient(hosts=",".join(rig.cluster.endpoints))
    client.start(10)
    try:
        client.ensure_path("/probe")
        client.set("/probe", text.encode())
        assert client.get("/probe")[0] == text.encode()
    finally:
        client.stop()
        client.close()


def rules(rig: Rig) -> list[str]:
    """The rules of iptables at any place, in a rig of namespaces."""
    if "namespaces" not in rig.has:
        return []
    places = [*rig.clients, *(f"server-{n}" for n in range(len(rig.cluster.members)))]
    return [rule for place in places for rule in rules_at(rig, place)]


def rules_at(rig: Rig, place: str) -> list[str]:
    namespace = [*rig.command("client-0")][-1].replace("client-0", place)
    command = ["ip", "netns", "exec", namespace, "iptables", "-S"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith("-A")]


def status(pid: int, line: str) -> str:
    """A line of the kernel's word on a process."""
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    return next(found.partition("\t")[2] for found in text.splitlines() if found.startswith(f"{line}:"))


def pids(rig: Rig) -> list[int]:
    return [member.pid for member in rig.cluster.members]


def stopped(rig: Rig) -> bool:
    return any(status(pid, "State").startswith("T") for pid in pids(rig))


def traced(rig: Rig) -> bool:
    return any(status(pid, "TracerPid") != "0" for pid in pids(rig))


def strike(
    name: str,
    rig: Rig,
    workers: SleepingWorkers,
    look: Callable[[], object] = lambda: None,
    *,
    seconds: float = SECONDS,
) -> Struck:
    """Let one nemesis strike, and see to it that nothing is broken afterwards."""
    fault_log = ListedFaultLog()
    with looking(look) as seen:
        NEMESES[name]().strike(rig, workers, fault_log, Random(f"{name}/{rig.cluster.kind}"), seconds)
    assert_whole(rig, workers, fault_log)
    return Struck(fault_log, seen)


@dataclass
class Struck:
    """The outcome of a strike."""

    fault_log: ListedFaultLog
    seen: list[object]


def assert_whole(rig: Rig, workers: SleepingWorkers, fault_log: ListedFaultLog) -> None:
    """Assert that everything serves, and nothing of any fault is left."""
    assert all(member.condition is Condition.RUNNING for member in rig.cluster.members)
    assert not stopped(rig)
    assert not traced(rig)
    assert rules(rig) == []
    assert not +fault_log.now
    assert all(worker.process.poll() is None for worker in workers.sleepers)
    assert all(not status(worker.pid, "State").startswith("T") for worker in workers.sleepers)
    write_and_read(rig)


def cases(*names: str) -> list[tuple[Kind, str]]:
    """The nemeses of these names with each store they are for, where this machine can do what they need."""
    return [
        (backend, name)
        for backend in BACKENDS
        for name in names
        if backend in NEMESES[name].backends and NEMESES[name].needs <= possible(backend)
    ]


over = pytest.mark.parametrize


# --- the catalogue


def test_as_root_every_nemesis_is_among_the_cases() -> None:
    """Nemeses that a machine can't do are left out of these tests; as root none is."""
    if os.geteuid() == 0:
        left_out = {k.name for k in SINGLES for b in BACKENDS if b in k.backends and not k.needs <= possible(b)}
        assert left_out == set()
    assert {"kill", "stop", "partition", "reset", "churn", "all"} <= NEMESES.keys()


def test_every_nemesis_tells_in_one_line_what_it_does() -> None:
    for kind in NEMESES.values():
        first, _, _ = (kind.__doc__ or "").partition("\n")
        assert re.fullmatch(r"[A-Z].{20,}", first), kind


def test_names_that_are_none_and_stores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnknownNemesis, match=r"no nemesis is called 'kil'; there are .*kill-leader"):
        make(["kil"], "etcd")
    with pytest.raises(UnknownNemesis, match="compaction is not for zookeeper"):
        needs_of(["compaction"], "zookeeper")


def test_a_run_needs_what_its_nemeses_need_and_all_needs_what_the_machine_has() -> None:
    assert needs_of(["kill", "drop-answers", "auth-expiry"], "etcd") == {"proxies", "auth"}
    wanted = needs_of(["all"], "etcd")
    assert "proxies" in wanted
    assert wanted <= possible("etcd")
    assert not wanted & {"auth", "quota"}


# --- processes


@over(("backend", "name"), cases("kill", "stop", "suspend"))
def test_a_worker_that_dies_is_replaced_and_one_that_stands_goes_on(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    struck = strike(name, rigs[backend], workers)
    assert workers.deeds == (["kill", "replace"] if name == "kill" else ["stop", "resume"])
    assert struck.fault_log.counts[name] == 1
    assert [words.split()[0] for words in workers.orders] == (["jump"] if name == "suspend" else [])


@over(("backend", "name"), cases("kill-server", "kill-leader", "rolling-restart", "full-stop"))
def test_killed_servers_are_started_again(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    rig = rigs[backend]
    before, leader = pids(rig), rig.cluster.leader()
    at = rig.cluster.members.index(leader)
    strike(name, rig, workers)
    new = [n for n, (old, now) in enumerate(zip(before, pids(rig), strict=True)) if old != now]
    assert len(new) == (3 if name in ("rolling-restart", "full-stop") else 1)
    assert name != "kill-leader" or new == [at]


@over(("backend", "name"), cases("stop-server", "stop-leader"))
def test_stopped_servers_stand_still_and_go_on(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs[backend]
    leader = rig.cluster.leader()

    def standing() -> list[Member]:
        assert eventually(lambda: stopped(rig))  # a signal takes its time to reach a process
        return [member for member in rig.cluster.members if status(member.pid, "State").startswith("T")]

    seen = looking_once(monkeypatch, standing, processes)
    strike(name, rig, workers)
    ((stood,),) = seen
    assert name != "stop-leader" or stood is leader


# --- orders


@over(
    ("backend", "name"),
    cases("stall", "stall-loop", "clock-rate", "clock-jump", "fork", "cancel", "session-move"),
)
def test_orders_reach_a_worker_and_clocks_are_set_right_again(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    struck = strike(name, rigs[backend], workers)
    words = {"clock-rate": "clock", "clock-jump": "jump", "session-move": "hop"}.get(name, name)
    assert {order.split()[0] for order in workers.orders} == {words}
    assert name != "clock-rate" or workers.orders[-1] == "clock 1"
    assert struck.fault_log.counts[name] > 0


# --- links


LINKS = (
    "partition-client", "partition-member", "partition-leader", "partition-halves", "partition-ring",
    "isolate-follower", "one-way-to-servers", "one-way-to-client", "one-way-from-leader", "reset", "blackhole",
    "loss", "partition", "partition-one-way",
)  # fmt: skip
CUT_OFF = {"partition-client", "one-way-to-servers", "one-way-to-client", "reset"}


@over(("backend", "name"), cases(*LINKS))
def test_links_are_broken_and_mended(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links are broken: what that does to a connection is tested with the rig."""
    rig = rigs[backend]
    seen = looking_once(monkeypatch, lambda: len(rules(rig)), links, network)
    with connections(rig) if name == "partition-member" else contextlib.nullcontext():
        struck = strike(name, rig, workers)
    if "namespaces" in rig.has:
        assert max(seen) > 0
    cut = [client for fault, client in struck.fault_log.begun if fault == "cut"]
    assert len(cut) == (name in CUT_OFF) or name.startswith("partition")
    assert struck.fault_log.begun[0][0] in (name, *LINKS)


@contextmanager
def connections(rig: Rig) -> Iterator[None]:
    """A client at each place that has a connection to its member."""
    program = "import socket, sys; s = socket.create_connection(sys.argv[1:]); print(flush=True); sys.stdin.read()"
    with ExitStack() as stack:
        for place in rig.clients:
            match = re.search(r"//(?:.*@)?([\d.]+):(\d+)", rig.url(place))
            assert match
            command = [*rig.command(place), sys.executable, "-c", program, match[1], match[2]]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(child.communicate)
            assert child.stdout is not None
            child.stdout.readline()
        yield


# --- the wire


@over(("backend", "name"), cases("drop-answers", "drop-requests"))
def test_one_in_ten_requests_fails_and_the_others_do_not(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    outcomes = requests_while(rigs[backend], workers, name)
    assert 0 < outcomes.count(None) < len(outcomes) / 2


@over(("backend", "name"), cases("delay", "hold-answers"))
def test_answers_come_late(rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str) -> None:
    outcomes = [took for took in requests_while(rigs[backend], workers, name) if took is not None]
    assert max(outcomes) > SECONDS / 4

    def is_prompt() -> bool:
        took = request(rigs[backend])
        return took is not None and took < SECONDS / 4

    assert eventually(is_prompt)


def requests_while(rig: Rig, workers: SleepingWorkers, name: str) -> list[float | None]:
    """The seconds that each of many requests took at the first place, before, during and after;

    None where it failed.
    """
    took: list[float | None] = []
    with looking(lambda: took.append(request(rig))):
        fault_log = ListedFaultLog()
        NEMESES[name]().strike(rig, workers, fault_log, Random(3), 3 * SECONDS)
        time.sleep(SECONDS)  # the last ones find everything whole
    assert_whole(rig, workers, fault_log)
    return took


def request(rig: Rig) -> float | None:
    """Send a request through the first place's first proxy on a connection of its own; None where that breaks."""
    host, _, port = rig.proxies["client-0", "server-0"].endpoint.partition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as connection:
            return time.monotonic() - began if ask(connection, rig.cluster.kind) else None
    except OSError:
        return None


def ask(connection: socket.socket, kind: Kind) -> bool:
    """Read something harmless; whether there was an answer."""
    if kind == "etcd":
        body = b'{"key":"cHJvYmU="}'
        head = f"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return bool(connection.recv(65536))
    greeting = struct.pack(">iqiqi16s", 0, 0, 1000, 0, 16, bytes(16))
    connection.sendall(struct.pack(">i", len(greeting)) + greeting)
    listing = struct.pack(">iii1sB", 1, 12, 1, b"/", 0)
    if not connection.recv(65536):
        return False
    connection.sendall(struct.pack(">i", len(listing)) + listing)
    return bool(connection.recv(65536))


# --- disks


if "strace" in possible("etcd"):

    @over(("backend", "name"), cases("slow-disk"))
    def test_servers_are_traced_while_their_disks_are_slow(
        rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
    ) -> None:
        rig, before = rigs[backend], pids(rigs[backend])
        with traffic(rig):
            struck = strike(name, rig, workers, lambda: traced(rig))
        assert True in struck.seen
        assert pids(rig) == before

    @over(("backend", "name"), cases("failing-disk", "no-space"))
    def test_a_server_complains_of_its_failing_disk_and_is_started_again(
        rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
    ) -> None:
        """etcd may be dead before anybody sees it traced: its log is the witness."""
        rig, before, said = rigs[backend], pids(rigs[backend]), logs(rigs[backend])
        with traffic(rig):
            strike(name, rig, workers, seconds=WRITES_SECONDS)
        complaint = "input/output error" if name == "failing-disk" else "no space left on device"
        news = [text.removeprefix(old) for old, text in zip(said, logs(rig), strict=True)]
        assert [complaint in text for text in news].count(True) == 1
        assert sum(old != now for old, now in zip(before, pids(rig), strict=True)) == 1

    def logs(rig: Rig) -> list[str]:
        """The logs that the servers have written so far, in small letters."""
        return [(data_of(m).parent / "log").read_text("utf-8", "replace").lower() for m in rig.cluster.members]


if "tmpfs" in possible("etcd"):

    @over(("backend", "name"), cases("disk-full"))
    def test_a_full_disk_has_space_again(
        rigs: dict[str, Rig],
        workers: SleepingWorkers,
        backend: Kind,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        rig = rigs[backend]
        disks = [data_of(member) for member in rig.cluster.members]
        seen = looking_once(monkeypatch, lambda: min(shutil.disk_usage(path).free for path in disks), disk)
        with traffic(rig):
            strike(name, rig, workers)
        assert seen == [0]
        assert min(shutil.disk_usage(path).free for path in disks) > 0


# --- the cluster, and what administrators do


@over(("backend", "name"), cases("churn"))
def test_the_leader_changes(rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str) -> None:
    """The leader changes by the store's own count: one may lead again before another is seen."""
    rig = rigs[backend]
    rig.cluster.leader()
    before = term(rig)
    strike(name, rig, workers)
    rig.cluster.leader()
    assert term(rig) > before


def term(rig: Rig) -> int:
    """etcd's raft term, ZooKeeper's epoch: it grows with every election."""
    if rig.cluster.kind == "etcd":
        return max(int(one["Status"]["raftTerm"]) for one in statuses(rig.cluster))
    said = zk_four_letter(rig.cluster.leader().metrics_endpoint, "srvr")
    (zxid,) = re.findall(r"^Zxid: 0x([0-9a-f]+)$", said, re.MULTILINE)
    return int(zxid, 16) >> 32


@over(("backend", "name"), cases("replace-member"))
def test_a_replaced_member_begins_with_an_empty_disk(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    rig = rigs[backend]
    marks = [data_of(member) / "mark" for member in rig.cluster.members]
    for mark in marks:
        mark.touch()
    strike(name, rig, workers)
    assert [mark.exists() for mark in marks].count(False) == 1


@over(("backend", "name"), cases("compaction"))
def test_compaction_makes_the_store_forget(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    rig = rigs[backend]
    with traffic(rig):
        struck = strike(name, rig, workers)
    assert struck.fault_log.counts["compacted"] > 0
    assert "compacted" in etcdctl(rig.cluster, "get", "probe", "--rev=1").stderr


@over(("backend", "name"), cases("quota"))
def test_a_full_store_refuses_writes_until_it_is_emptied(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs[backend]
    seen = looking_once(monkeypatch, lambda: etcdctl(rig.cluster, "put", "probe", "").stderr, administration)
    strike(name, rig, workers)
    (complaint,) = seen
    assert "space exceeded" in complaint
    assert etcdctl(rig.cluster, "alarm", "list").stdout == ""


def test_logins_end_and_the_store_still_takes_new_ones(workers: SleepingWorkers) -> None:
    needs: frozenset[Need] = frozenset({"auth"})
    with closing(make_rig("etcd", clients=CLIENTS, needs=needs)) as rig:
        user, password = rig.cluster.auth or ("", "")
        login = post(rig, "/v3/auth/authenticate", {"name": user, "password": password})["token"]
        assert "error" not in post(rig, "/v3/kv/range", {"key": "eA=="}, str(login))
        with tenure.connect(rig.truth_url, ttl=5) as client, client.lock("kept").acquire(timeout=5) as hold:
            struck = strike("auth-expiry", rig, workers)
            hold.renew()
        assert "invalid auth token" in str(post(rig, "/v3/kv/range", {"key": "eA=="}, str(login))["error"])
    assert struck.fault_log.counts["logins ended"] > 0


def post(rig: Rig, path: str, body: dict[str, str], login: str = "") -> dict[str, object]:
    """Return what the gateway of the first server answers, an error too."""
    url, headers = f"http://{rig.cluster.endpoints[0]}{path}", {"Authorization": login} if login else {}
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=WAIT_SECONDS) as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            told = json.load(error)
    assert isinstance(told, dict)
    return told


def test_no_leader_is_moved_while_none_is_known(rigs: dict[str, Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """etcdctl leaves out what is zero, and fails while a server is gone."""
    told: list[object] = [[{"Status": {"header": {"member_id": 7}}}], []]
    moved: list[object] = []
    monkeypatch.setattr(upheaval, "statuses", lambda _: told.pop())
    monkeypatch.setattr(upheaval, "try_control", lambda *words: moved.append(words))
    upheaval._move_leader(rigs["etcd"], Random(1))
    upheaval._move_leader(rigs["etcd"], Random(1))
    assert told == []
    assert moved == []


@over(("backend", "name"), cases("admin-remove", "lease-revoke", "session-kill"))
def test_a_removed_ticket_is_lost_to_its_holder_and_the_diary_knows_whose_hand_it_was(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind, name: str
) -> None:
    rig = rigs[backend]
    with tenure.connect(rig.truth_url, ttl=20) as client:
        hold = client.lock("taken").acquire(timeout=5)
        struck = strike(name, rig, workers)
        assert hold.lost.wait(5)
    assert struck.fault_log.removed == [hold.id if name == "admin-remove" else hold.lease_id]
    assert struck.fault_log.counts[f"{name}: done"] == 1


def test_a_session_password_is_the_one_that_the_server_gave(rigs: dict[str, Rig]) -> None:
    client = KazooClient(hosts=rigs["zookeeper"].cluster.endpoints[0])
    client.start(10)
    try:
        session, password = client.client_id
        assert session_password(session) == password
    finally:
        client.stop()
        client.close()


# --- several at a time


@over("backend", BACKENDS)
def test_a_mixture_has_no_two_that_touch_the_same(rigs: dict[str, Rig], backend: Kind) -> None:
    rig = rigs[backend]
    sizes = set()
    for seed in range(200):
        chosen = All().choose(rig, Random(seed))
        touched = [thing for kind in chosen for thing in kind.touches]
        assert len(touched) == len(set(touched))
        assert all(kind.needs <= rig.has and backend in kind.backends for kind in chosen)
        sizes.add(len(chosen))
    assert sizes == {1, 2, 3}


@over("backend", BACKENDS)
def test_all_strikes_with_several_and_leaves_everything_whole(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind
) -> None:
    rig, fault_log = rigs[backend], ListedFaultLog()
    for seed in (5, 6):
        NEMESES["all"]().strike(rig, workers, fault_log, Random(seed), SECONDS)
        assert_whole(rig, workers, fault_log)
    assert len(fault_log.counts) > 2


@over("backend", BACKENDS)
def test_two_that_break_servers_at_the_same_time_take_different_ones(
    rigs: dict[str, Rig], workers: SleepingWorkers, backend: Kind
) -> None:
    """Together they may leave no quorum; both mend, and the servers serve."""
    rig, fault_log, failed = rigs[backend], ListedFaultLog(), []

    def strike_too() -> None:
        try:
            NEMESES["stop-leader"]().strike(rig, workers, fault_log, Random(1), SECONDS)
        except ServerFailed as error:
            failed.append(error)

    other = threading.Thread(target=strike_too)
    other.start()
    NEMESES["kill-leader"]().strike(rig, workers, fault_log, Random(2), SECONDS)
    other.join()
    assert failed == []
    assert {fault for fault, _ in fault_log.begun} == {"stop-leader", "kill-leader"}
    assert_whole(rig, workers, fault_log)


def test_a_claimed_server_is_nobody_elses(rigs: dict[str, Rig]) -> None:
    rig, random = rigs["etcd"], Random(1)
    with one_server(rig, random, "leader") as first, one_server(rig, random, "leader") as second:
        assert first is rig.cluster.leader()
        assert second is not first
        wait_serving(rig)
    claimed: list[Sequence[Member]] = []

    def claim_all() -> None:
        with all_servers(rig) as members:
            claimed.append(members)

    with one_server(rig, random):
        waiting = threading.Thread(target=claim_all)
        waiting.start()
        waiting.join(0.1)
        assert claimed == []
    waiting.join(WAIT_SECONDS)
    assert len(claimed) == 1


def test_a_nemesis_whose_servers_do_not_come_back_says_so(
    rigs: dict[str, Rig], workers: SleepingWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, fault_log = rigs["etcd"], ListedFaultLog()
    with monkeypatch.context() as patch:
        patch.setattr(cluster_module, "READY_SECONDS", 0.0)
        with pytest.raises(ServerFailed, match="not ready within"):
            NEMESES["kill-server"]().strike(rig, workers, fault_log, Random(1), 0.0)
    rig.cluster.wait_ready()
    assert_whole(rig, workers, fault_log)
