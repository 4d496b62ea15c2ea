"""The rig of a torture run: it comes up and goes down without a trace, and breaks exactly what it is told to.

As root all three ways are tested: namespaces, namespaces with proxies, and loopback. Otherwise there is loopback only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

import tenure
from tenure.testing.servers import EtcdSpec, ServerFailed, etcd_counters, etcdctl, zk_four_letter
from tenure.testing.servers.specs import Kind
from tests.verify.torture.parts import Need, Network, Rig
from tests.verify.torture.rig import RigMissing, choice, make_rig, namespaces, possible
from tests.verify.torture.rig.leftovers import DIRECTORY_PREFIX, mounts_below, sweep_directories, sweep_namespaces
from tests.verify.torture.rig.leftovers import namespaces as all_namespaces
from tests.verify.torture.rig.loopback import LoopbackRig

ROOT = os.geteuid() == 0
WAYS = ("direct", "proxied", "loopback") if ROOT else ("loopback",)
CLIENTS = 2
SERVERS = ("server-0", "server-1", "server-2")
SILENCE_SECONDS = 0.6
"""How long to listen for what is cut off."""
WAIT_SECONDS = 10.0
DATAGRAMS = 400

over = pytest.mark.parametrize


@pytest.fixture(scope="module")
def rigs() -> Iterator[dict[str, Rig]]:
    """The rigs of this machine, one etcd each, all at the same time. A test that breaks one heals it."""
    with ExitStack() as stack:
        made: dict[str, Rig] = {}
        for way in WAYS:
            made[way] = stack.enter_context(closing(make(way)))
        yield made


def make(way: str) -> Rig:
    if way == "loopback":
        spec = EtcdSpec(size=3)
        return LoopbackRig(spec, clients=CLIENTS, has=frozenset({"proxies", "etcd"}), seed=0)
    needs: frozenset[Need] = frozenset({"proxies"}) if way == "proxied" else frozenset()
    return make_rig("etcd", clients=CLIENTS, needs=needs, seed=0)


# --- a client at a place: its requests go over one connection, made before anything is broken

CLIENT = """
import socket, sys
host, port, body = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
try:
    connection = socket.create_connection((host, port), timeout=float(sys.argv[4]))
except OSError as error:
    print(type(error).__name__, flush=True)
    sys.exit()
print("connected", flush=True)
for seconds in sys.stdin:
    connection.settimeout(float(seconds))
    head = f"POST /v3/kv/put HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    try:
        connection.sendall(head.encode() + body)
        print("answered" if connection.recv(65536) else "closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


class Putter:
    """A process at a client's place that puts one key through one server."""

    def __init__(self, rig: Rig, place: str, server: int, key: str, seconds: float) -> None:
        addresses = endpoints(rig, place)
        host, _, port = addresses[server].partition(":")
        body = json.dumps({"key": b64encode(key.encode()).decode(), "value": "eA=="})
        command = [*rig.command(place), sys.executable, "-c", CLIENT, host, port, body, str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.connected = self._read()

    def put(self, seconds: float = WAIT_SECONDS) -> str:
        """answered, closed, or the name of the error."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def endpoints(rig: Rig, place: str) -> list[str]:
    """Under which address a place sees server 0, 1 and 2. URLs begin with another server for each client."""
    found = re.findall(r"[\d.]+:\d+", rig.url(place))
    first = int(place.removeprefix("client-")) % len(SERVERS)
    return [found[(n - first) % len(SERVERS)] for n in range(len(SERVERS))]


@contextmanager
def putter(
    rig: Rig, place: str = "client-0", server: int = 0, key: str = "", seconds: float = WAIT_SECONDS
) -> Iterator[Putter]:
    with closing(Putter(rig, place, server, key or unique(), seconds)) as made:
        yield made


def unique() -> str:
    return f"k{time.monotonic_ns():x}"


def is_there(rig: Rig, key: str) -> bool:
    return etcdctl(rig.cluster, "get", key, "--keys-only").stdout.strip() == key


# --- up and down


@over("backend", ["etcd", "zookeeper"])
def test_a_ground_comes_up_serves_every_place_and_leaves_nothing(backend: Kind) -> None:
    before, disks = traces(), frozenset[Need]({"tmpfs"})
    with closing(make_rig(backend, clients=CLIENTS, needs=disks & possible(backend))) as rig:
        assert rig.clients == ("client-0", "client-1")
        assert backend in rig.has
        assert ("namespaces" in rig.has) is ROOT
        for url in (rig.truth_url, rig.url("client-1")):
            with tenure.connect(url, ttl=5) as client, client.lock("here").acquire(timeout=5):
                pass
        pids = [member.pid for member in rig.cluster.members]
        assert traces() != before
    rig.close()
    assert traces() == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def traces() -> list[str]:
    """The traces that a rig of this process may leave on this machine."""
    mine = f"-{os.getpid()}-"
    links = [path.name for path in Path("/sys/class/net").iterdir() if path.name.endswith(f"-{os.getpid()}")]
    directories = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}{os.getpid()}-*")]
    mounts = [point for directory in directories for point in mounts_below(Path(directory))]
    return sorted([name for name in all_namespaces() if mine in name] + links + directories + mounts)


KILLED = """
import sys, time
from tests.verify.torture.rig import make_rig, possible
rig = make_rig("etcd", clients=1, needs=frozenset({"tmpfs"}) & possible("etcd"))
print(*(member.pid for member in rig.cluster.members), flush=True)
time.sleep(1000)
"""


def test_what_a_killed_run_left_is_swept_and_its_servers_ended_with_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pids = [int(pid) for pid in child.stdout.readline().split()]
    assert len(pids) == 3
    child.send_signal(signal.SIGKILL)
    child.communicate()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert left_by(child.pid)
    sweep_namespaces()
    sweep_directories()
    assert left_by(child.pid) == []


def left_by(pid: int) -> list[str]:
    directories = [path.name for path in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}{pid}-*")]
    return directories + [name for name in all_namespaces() if f"-{pid}-" in name]


def wait_until(come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not come():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_living_run_has_is_not_swept(rigs: dict[str, Rig]) -> None:
    before = traces()
    assert before
    sweep_namespaces()
    sweep_directories()
    assert traces() == before


# --- what a rig can do


def test_needs_that_cannot_be_met_are_named_with_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RigMissing, match="auth: not with zookeeper; quota: not with zookeeper"):
        make_rig("zookeeper", needs=frozenset({"auth", "quota"}))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    choice._no_namespaces.cache_clear()
    try:
        with pytest.raises(RigMissing, match="namespaces: network namespaces take root; tmpfs: takes root"):
            make_rig("etcd", needs=frozenset({"namespaces", "tmpfs"}))
    finally:
        choice._no_namespaces.cache_clear()


def test_without_root_the_ground_is_loopback_with_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with closing(make_rig("zookeeper", clients=1)) as rig:
        assert isinstance(rig, LoopbackRig)
        assert "proxies" in rig.has
        assert not rig.has & {"namespaces", "root", "tmpfs"}
        assert rig.command("client-0") == ()
        assert all("imok" in zk_four_letter(proxy.endpoint, "ruok") for proxy in rig.proxies.values())


def test_loopback_says_what_it_cannot_break(rigs: dict[str, Rig]) -> None:
    network = rigs["loopback"].network.layer()
    with pytest.raises(RigMissing, match="between server-0 and server-1 can't be broken: run as root"):
        network.cut("server-0", "server-1")
    with pytest.raises(RigMissing, match="no packets of client-0 can be lost: run as root"):
        network.lose("client-0", 0.5)


def test_settings_of_the_servers_follow_the_needs() -> None:
    needs: frozenset[Need] = frozenset({"auth", "quota"})
    with closing(make_rig("etcd", clients=1, needs=needs)) as rig:
        assert rig.truth_url.startswith("etcd://root:torture@")
        with tenure.connect(rig.url("client-0"), ttl=5) as client, client.lock("here").acquire(timeout=5):
            pass
        samples = etcd_counters(rig.cluster.members[0].metrics_endpoint)
        assert samples["etcd_server_quota_backend_bytes"] == choice.QUOTA_BYTES


# --- faults of the links


@over("way", WAYS)
def test_a_cut_from_client_to_server_stops_requests_and_nothing_else(rigs: dict[str, Rig], way: str) -> None:
    rig, key = rigs[way], unique()
    with putter(rig, key=key) as cut, putter(rig, server=1) as other, putter(rig, "client-1") as neighbour:
        with broken(rig) as network:
            network.cut("client-0", "server-0")
            assert cut.put(SILENCE_SECONDS) == "TimeoutError"
            assert not is_there(rig, key)
            assert other.put() == "answered"
            assert neighbour.put() == "answered"


@over("way", WAYS)
def test_a_cut_from_server_to_client_stops_answers_and_nothing_else(rigs: dict[str, Rig], way: str) -> None:
    rig, key = rigs[way], unique()
    with putter(rig, key=key) as cut, putter(rig, server=1) as other, broken(rig) as network:
        network.cut("server-0", "client-0")
        assert cut.put(SILENCE_SECONDS) == "TimeoutError"
        assert is_there(rig, key)
        assert other.put() == "answered"


@over("way", WAYS)
def test_healed_links_carry_again_and_another_layer_stays_broken(rigs: dict[str, Rig], way: str) -> None:
    rig = rigs[way]
    with broken(rig) as mine, broken(rig) as others:
        for network in (mine, others):
            network.cut("client-0", "server-0")
        others.cut("client-0", "server-1")
        mine.heal()
        assert not puts(rig, server=0, seconds=SILENCE_SECONDS)
        assert not puts(rig, server=1, seconds=SILENCE_SECONDS)
        others.heal()
        assert puts(rig, server=0)
        assert puts(rig, server=1)


@over("way", WAYS)
def test_a_reset_breaks_what_stands_and_refuses_what_is_new(rigs: dict[str, Rig], way: str) -> None:
    rig = rigs[way]
    with putter(rig) as standing, putter(rig, server=1) as other:
        assert "server-0" in rig.reached("client-0")
        with broken(rig) as network:
            network.reset("client-0", "server-0")
            assert standing.put() in ("ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError")
            with putter(rig) as late:
                assert late.connected == "ConnectionRefusedError"
            assert other.put() == "answered"
            assert list(rig.reached("client-0")) == ["server-1"]
    assert puts(rig, server=0)


def puts(rig: Rig, *, server: int, seconds: float = WAIT_SECONDS) -> bool:
    with putter(rig, server=server, seconds=seconds) as made:
        return made.connected == "connected" and made.put(seconds) == "answered"


@contextmanager
def broken(rig: Rig) -> Iterator[Network]:
    network = rig.network.layer()
    try:
        yield network
    finally:
        network.heal()


# --- faults that take namespaces


SENDER = """
import socket, sys
plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[3])):
    try:
        plug.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
    except PermissionError:
        pass  # dropped where it begins
"""
COUNTER = """
import socket, sys
plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
plug.bind(("0.0.0.0", 9999))
print(flush=True)
count = 0
sys.stdin.readline()
plug.setblocking(False)
try:
    while plug.recv(10):
        count += 1
except BlockingIOError:
    print(count)
"""


def datagrams(rig: Rig, sender: str, receiver: str) -> int:
    """Send datagrams and return how many arrive."""
    command = [*rig.command(receiver), sys.executable, "-c", COUNTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as counter:
        assert counter.stdout is not None
        counter.stdout.readline()
        to = address(rig, receiver)
        subprocess.run([*rig.command(sender), sys.executable, "-c", SENDER, to, "9999", str(DATAGRAMS)], check=True)
        return int(counter.communicate("\n")[0])


def address(rig: Rig, place: str) -> str:
    command = [*rig.command(place), "ip", "-json", "address", "show", "eth0"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return str(shown[0]["addr_info"][0]["local"])


if ROOT:

    @over(("sender", "receiver"), [("server-0", "server-1"), ("client-0", "server-0"), ("server-0", "client-0")])
    def test_a_cut_is_of_one_direction_of_one_link(rigs: dict[str, Rig], sender: str, receiver: str) -> None:
        rig = rigs["direct"]
        with broken(rig) as network:
            network.cut(sender, receiver)
            assert datagrams(rig, sender, receiver) == 0
            assert datagrams(rig, receiver, sender) == DATAGRAMS
            assert datagrams(rig, sender, "server-2") == DATAGRAMS
        assert datagrams(rig, sender, receiver) == DATAGRAMS

    def test_loss_loses_about_its_share_both_ways_and_heals(rigs: dict[str, Rig]) -> None:
        rig = rigs["direct"]
        with broken(rig) as network:
            network.lose("server-0", 0.3)
            for sender, receiver in (("server-0", "client-0"), ("client-0", "server-0")):
                assert 0.55 * DATAGRAMS < datagrams(rig, sender, receiver) < 0.85 * DATAGRAMS
        assert datagrams(rig, "client-0", "server-0") == DATAGRAMS

    @over("way", ["direct", "proxied"])
    def test_no_fault_reaches_the_way_of_the_truth(rigs: dict[str, Rig], way: str) -> None:
        rig = rigs[way]
        with broken(rig) as network:
            for place in (*rig.clients, *SERVERS):
                network.lose(place, 1.0)
            for client in rig.clients:
                for server in SERVERS:
                    network.cut(client, server)
                    network.cut(server, client)
            for endpoint in rig.cluster.endpoints:
                with urllib.request.urlopen(f"http://{endpoint}/version", timeout=WAIT_SECONDS) as answer:
                    assert b"etcdserver" in answer.read()
        rig.cluster.wait_ready()

    def test_a_leader_that_is_cut_off_from_the_others_is_replaced(rigs: dict[str, Rig]) -> None:
        rig = rigs["direct"]
        old = rig.cluster.leader()
        name = f"server-{rig.cluster.members.index(old)}"
        with broken(rig) as network:
            for other in set(SERVERS) - {name}:
                network.cut(name, other)
                network.cut(other, name)
            wait_until(lambda: rig.cluster.leader() is not old)
        rig.cluster.wait_ready()

    def test_two_grounds_do_not_meet(rigs: dict[str, Rig]) -> None:
        one, other = rigs["direct"], rigs["proxied"]
        assert address(one, "client-0") != address(other, "client-0")
        with socket.socket() as plug:
            plug.settimeout(SILENCE_SECONDS)
            assert plug.connect_ex((address(one, "server-0"), 1)) != 0
        command = [*one.command("client-0"), "ip", "route", "get", address(other, "server-0")]
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0

    def test_a_ground_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise ServerFailed("no servers today")

        before = traces()
        monkeypatch.setattr(namespaces, "start", fail)
        with pytest.raises(ServerFailed, match="no servers today"):
            make_rig("etcd", clients=CLIENTS)
        assert traces() == before
