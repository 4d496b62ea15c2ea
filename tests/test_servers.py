"""The test harness itself, against real servers: it starts them, breaks them as told, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import urllib3
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Create
from kazoo.security import OPEN_ACL_UNSAFE

from tenure.testing.servers import native as native_module
from tenure.testing.servers.framing import HttpConversation, Piece, ZooKeeperConversation
from tenure.testing.servers.processes import free_port
from tests.servers import (
    Cluster,
    EtcdSpec,
    FaultProxy,
    NativeProvider,
    ServerFailed,
    ServersMissing,
    TlsFiles,
    ZooKeeperSpec,
    choose,
    etcd_counters,
    etcdctl,
    etcdctl_popen,
    start,
    start_together,
    zk_four_letter,
    zookeeper_counters,
)

ROOT = Path(__file__).resolve().parent.parent
WAIT_SECONDS = 10.0
PUT, RANGE, WATCH = "/v3/kv/put", "/v3/kv/range", "/v3/watch"
ZK_CREATES = (1, 15)  # create, create2
Made = TypeVar("Made", EtcdSpec, ZooKeeperSpec)


@dataclass(frozen=True)
class Clusters:
    etcd: Cluster
    etcd_trio: Cluster
    zookeeper: Cluster
    zookeeper_trio: Cluster
    begun: list[float]
    ready: list[float]


class TimedProvider:
    """Makes clusters, and notes when each was begun and when it was ready."""

    def __init__(self, provider: NativeProvider) -> None:
        self.begun: list[float] = []
        self.ready: list[float] = []
        self._provider = provider

    def etcd(self, spec: EtcdSpec) -> Cluster:
        return self._timed(self._provider.etcd, spec)

    def zookeeper(self, spec: ZooKeeperSpec) -> Cluster:
        return self._timed(self._provider.zookeeper, spec)

    def close(self) -> None:
        self._provider.close()

    def _timed(self, make: Callable[[Made], Cluster], spec: Made) -> Cluster:
        self.begun.append(time.monotonic())
        cluster = make(spec)
        self.ready.append(time.monotonic())
        return cluster


@pytest.fixture(scope="module")
def provider() -> Iterator[NativeProvider]:
    made = NativeProvider()
    yield made
    made.close()


@pytest.fixture(scope="module")
def clusters(provider: NativeProvider) -> Clusters:
    timed = TimedProvider(provider)
    specs = EtcdSpec(), EtcdSpec(size=3), ZooKeeperSpec(), ZooKeeperSpec(size=3)
    etcd, etcd_trio, zookeeper, zookeeper_trio = start_together(timed, *specs)
    return Clusters(etcd, etcd_trio, zookeeper, zookeeper_trio, timed.begun, timed.ready)


@pytest.fixture(params=["etcd", "zookeeper"])
def trio(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.etcd_trio if request.param == "etcd" else clusters.zookeeper_trio


# --- clusters and members


def test_four_clusters_started_together_come_up_at_the_same_time(clusters: Clusters) -> None:
    assert len(clusters.begun) == len(clusters.ready) == 4
    assert max(clusters.begun) < min(clusters.ready)
    assert [len(c.endpoints) for c in (clusters.etcd, clusters.etcd_trio, clusters.zookeeper_trio)] == [1, 3, 3]


def test_a_single_member_is_its_own_leader(clusters: Clusters) -> None:
    assert clusters.etcd.leader() is clusters.etcd.members[0]
    assert clusters.zookeeper.leader() is clusters.zookeeper.members[0]


def test_url_lists_every_endpoint_the_namespace_and_the_options(clusters: Clusters) -> None:
    first, second, third = clusters.etcd_trio.endpoints
    assert clusters.etcd_trio.url("a/b", ttl=5) == f"etcd://{first},{second},{third}/a/b?ttl=5"
    assert clusters.zookeeper.url() == f"zookeeper://{clusters.zookeeper.endpoints[0]}/"


def test_killed_leader_is_replaced_and_comes_back_with_its_data(trio: Cluster) -> None:
    write(trio, "kept")
    old = trio.leader()
    old_pid = old.pid
    old.kill()
    assert is_gone(old_pid)
    assert trio.leader() is not old
    old.start()
    assert old.pid != old_pid
    assert read(trio, old.endpoint) == "kept"


def test_paused_leader_is_replaced_and_resumes_as_a_follower(trio: Cluster) -> None:
    old = trio.leader()
    old.pause()
    assert trio.leader() is not old
    old.resume()
    old.wait_ready()
    assert old in trio.followers()


def test_members_killed_together_start_one_by_one_without_a_quorum(trio: Cluster) -> None:
    for member in trio.members:
        member.kill()
    trio.members[0].start()
    with pytest.raises(ServerFailed, match="killed"):
        trio.members[1].pause()
    trio.start_all()
    assert trio.leader() in trio.members


def test_starting_a_member_that_runs_is_refused(clusters: Clusters) -> None:
    with pytest.raises(ServerFailed, match="it is running"):
        clusters.etcd.members[0].start()


def test_log_tail_shows_what_the_server_wrote(clusters: Clusters) -> None:
    assert "etcd" in clusters.etcd.members[0].log_tail()
    assert "zookeeper" in clusters.zookeeper.members[0].log_tail()


def test_a_port_somebody_else_took_is_replaced_by_another(
    provider: NativeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken: list[int] = [squatter.getsockname()[1]]
        monkeypatch.setattr(native_module, "free_port", lambda: taken.pop() if taken else free_port())
        cluster = provider.etcd(EtcdSpec())
        assert cluster.endpoints[0] != f"127.0.0.1:{squatter.getsockname()[1]}"
        cluster.close()


# --- TLS, login, options


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_server_tls_admits_whoever_trusts_the_right_ca(provider: NativeProvider, kind: str) -> None:
    cluster = start(provider, EtcdSpec(tls="server") if kind == "etcd" else ZooKeeperSpec(tls="server"))
    assert cluster.tls is not None
    assert talk_tls(cluster, trusting(cluster.tls.ca))
    with pytest.raises(ssl.SSLCertVerificationError):
        talk_tls(cluster, trusting(cluster.tls.other_ca))
    assert "cert=" not in cluster.url()
    cluster.close()


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_mutual_tls_admits_only_who_shows_a_certificate(provider: NativeProvider, kind: str) -> None:
    cluster = start(provider, EtcdSpec(tls="mutual") if kind == "etcd" else ZooKeeperSpec(tls="mutual"))
    assert cluster.tls is not None
    assert talk_tls(cluster, trusting(cluster.tls.ca, shows=cluster.tls))
    assert not talk_tls(cluster, trusting(cluster.tls.ca))
    assert "cert=" in cluster.url()
    assert "key=" in cluster.url()
    cluster.close()


def test_auth_demands_the_login_that_the_url_carries(provider: NativeProvider) -> None:
    cluster = provider.etcd(EtcdSpec(auth=("root", "se:cret")))
    assert cluster.url().startswith("etcd://root:se%3Acret@127.0.0.1:")
    assert gateway(cluster.endpoints[0], RANGE, {"key": b64("k")})[0] != 200
    status, answer = gateway(cluster.endpoints[0], "/v3/auth/authenticate", {"name": "root", "password": "se:cret"})
    assert status == 200
    assert json.loads(answer)["token"]
    cluster.close()


def test_gateway_switched_off_answers_no_json(provider: NativeProvider) -> None:
    cluster = provider.etcd(EtcdSpec(gateway=False))
    assert gateway(cluster.endpoints[0], RANGE, {"key": b64("k")})[0] == 404
    assert etcdctl(cluster, "put", "k", "v").stdout == "OK\n"
    cluster.close()


def test_zookeeper_grants_sessions_within_the_limits_of_the_spec(provider: NativeProvider) -> None:
    cluster = provider.zookeeper(ZooKeeperSpec(min_session_ms=700, max_session_ms=1500))
    settings = zk_four_letter(cluster.endpoints[0], "conf")
    assert "minSessionTimeout=700\n" in settings
    assert "maxSessionTimeout=1500\n" in settings
    cluster.close()


def test_empty_container_nodes_vanish_within_the_check_interval(clusters: Clusters) -> None:
    client = zookeeper_client(clusters.zookeeper.endpoints[0])
    gone = threading.Event()
    create_container(client, "/box")
    client.create("/box/child")
    assert client.exists("/box", watch=lambda _: gone.set())
    client.delete("/box/child")
    assert gone.wait(WAIT_SECONDS)
    end(client)


# --- counters and etcdctl


def test_etcd_counts_calls_by_method(clusters: Clusters) -> None:
    member = clusters.etcd.members[0]
    before = etcd_counters(member.metrics_endpoint)["started:Put"]
    etcdctl(clusters.etcd, "put", "k", "v")
    assert etcd_counters(member.metrics_endpoint)["started:Put"] == before + 1


def test_zookeeper_counts_ephemerals_and_packets(clusters: Clusters) -> None:
    endpoint = clusters.zookeeper.endpoints[0]
    client = zookeeper_client(endpoint)
    before = zookeeper_counters(endpoint)
    client.create("/short", ephemeral=True)
    after = zookeeper_counters(endpoint)
    assert after["zk_ephemerals_count"] == before["zk_ephemerals_count"] + 1
    assert after["zk_packets_received"] > before["zk_packets_received"]
    end(client)


def test_etcdctl_popen_streams_until_it_is_ended(clusters: Clusters) -> None:
    with etcdctl_popen(clusters.etcd, "watch", "streamed") as watching:
        assert watching.stdout is not None
        puts = threading.Thread(target=put_until, args=(clusters.etcd, "streamed", watching))
        puts.start()
        assert watching.stdout.readline() == "PUT\n"
        watching.kill()
        puts.join(WAIT_SECONDS)


# --- the proxy before etcd


@pytest.fixture
def etcd_proxy(clusters: Clusters) -> Iterator[FaultProxy]:
    with FaultProxy(clusters.etcd.endpoints[0], "etcd") as proxy:
        yield proxy


@pytest.fixture
def http(etcd_proxy: FaultProxy) -> Iterator[urllib3.HTTPConnectionPool]:
    host, port = etcd_proxy.endpoint.split(":")
    with urllib3.HTTPConnectionPool(host, int(port), retries=False, timeout=1.0) as pool:
        yield pool


def is_put(method: str, path: str, body: bytes) -> bool:
    return method == "POST" and path == PUT and b"key" in body


def test_requests_pass_and_are_counted_by_path(etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool) -> None:
    put(http, "p", "1")
    put(http, "p", "2")
    assert etcd_proxy.requests == {PUT: 2}
    assert etcd_proxy.connections == 1


def test_a_lost_answer_leaves_the_request_done(
    clusters: Clusters, etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool
) -> None:
    fired = etcd_proxy.lose_answer(is_put)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        put(http, "lost-answer", "done")
    assert fired.is_set()
    assert get(clusters.etcd, "lost-answer") == "done"
    put(http, "lost-answer", "later")


def test_a_lost_request_is_not_done(
    clusters: Clusters, etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool
) -> None:
    fired = etcd_proxy.lose_request(is_put, times=2)
    for _ in range(2):
        assert not fired.is_set()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            put(http, "lost-request", "never")
    assert fired.is_set()
    assert get(clusters.etcd, "lost-request") == ""


def test_a_held_answer_comes_when_released(
    clusters: Clusters, etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool
) -> None:
    held = etcd_proxy.hold_answer(is_put)
    answered = threading.Event()

    def ask() -> None:
        put(http, "held", "done")
        answered.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert held.arrived.wait(WAIT_SECONDS)
    assert get(clusters.etcd, "held") == "done"
    assert not answered.is_set()
    held.release()
    asking.join(WAIT_SECONDS)
    assert answered.is_set()


def test_forgotten_faults_do_not_fire(etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool) -> None:
    fired = etcd_proxy.lose_request(is_put)
    etcd_proxy.forget()
    put(http, "forgotten", "1")
    assert not fired.is_set()


@pytest.mark.parametrize(("to_server", "to_client", "done"), [(True, False, ""), (False, True, "1"), (True, True, "")])
def test_a_blackhole_swallows_its_direction_and_heals_by_reset(
    clusters: Clusters,
    etcd_proxy: FaultProxy,
    http: urllib3.HTTPConnectionPool,
    to_server: bool,
    to_client: bool,
    done: str,
) -> None:
    key = f"blackhole-{to_server}-{to_client}"
    put(http, "before", "1")
    etcd_proxy.blackhole(to_server=to_server, to_client=to_client)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        put(http, key, "1")
    etcd_proxy.heal()
    assert get(clusters.etcd, key) == done
    put(http, key, "2")
    assert get(clusters.etcd, key) == "2"


def test_a_blackhole_accepts_new_connections_and_resets_them_at_heal(etcd_proxy: FaultProxy) -> None:
    etcd_proxy.blackhole()
    with connect(etcd_proxy.endpoint) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: etcd_proxy.connections == 1)
        etcd_proxy.heal()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_an_idle_connection_survives_a_blackhole(etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool) -> None:
    put(http, "idle", "1")
    etcd_proxy.blackhole()
    etcd_proxy.heal()
    put(http, "idle", "2")
    assert http.num_connections == 1


def test_refuse_resets_and_refuses_until_healed(etcd_proxy: FaultProxy) -> None:
    with connect(etcd_proxy.endpoint) as connection:
        wait_for(lambda: etcd_proxy.connections == 1)
        etcd_proxy.refuse()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(etcd_proxy.endpoint)
    etcd_proxy.heal()
    connect(etcd_proxy.endpoint).close()


def test_reset_ends_open_connections_only(etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool) -> None:
    with connect(etcd_proxy.endpoint) as connection:
        wait_for(lambda: etcd_proxy.connections == 1)
        etcd_proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    put(http, "after-reset", "1")


def test_delays_of_both_directions_add_up(etcd_proxy: FaultProxy, http: urllib3.HTTPConnectionPool) -> None:
    put(http, "delayed", "0")
    etcd_proxy.delay(to_client=0.2, to_server=0.3)
    began = time.monotonic()
    put(http, "delayed", "1")
    assert time.monotonic() - began >= 0.5


def test_streamed_answers_flow_before_they_end(http: urllib3.HTTPConnectionPool) -> None:
    body = json.dumps({"create_request": {"key": b64("streamed")}})
    answer = http.request("POST", WATCH, body=body, preload_content=False)
    assert json.loads(next(answer.stream()))["result"]["created"]
    answer.close()


def test_websocket_frames_are_counted_in_both_directions(etcd_proxy: FaultProxy) -> None:
    with connect(etcd_proxy.endpoint) as connection:
        upgrade_to_websocket(connection)
        connection.sendall(masked_text(json.dumps({"create_request": {"key": b64("ws")}})))
        wait_for(lambda: etcd_proxy.websocket_frames.to_client == 1)
    assert etcd_proxy.websocket_frames == (1, 1)
    assert etcd_proxy.requests == {WATCH: 1}


def test_a_match_that_raises_is_told_by_close(clusters: Clusters) -> None:
    proxy = FaultProxy(clusters.etcd.endpoints[0], "etcd")
    proxy.lose_answer(lambda *_: bool(1 / 0))
    assert gateway(proxy.endpoint, PUT, {"key": b64("k"), "value": b64("v")})[0] == 200
    with pytest.raises(ZeroDivisionError):
        proxy.close()


def test_a_closed_proxy_leaves_no_thread_and_refuses_orders(clusters: Clusters) -> None:
    before = set(threading.enumerate())
    proxy = FaultProxy(clusters.etcd.endpoints[0], "etcd")
    proxy.close()
    proxy.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="closed"):
        proxy.heal()


def test_a_proxy_before_a_dead_server_resets() -> None:
    reset = pytest.raises(ConnectionResetError)  # the proxy may be so quick that connect() hears of it
    with FaultProxy(f"127.0.0.1:{free_port()}", "raw") as proxy, reset, connect(proxy.endpoint) as connection:
        connection.recv(1)


def test_a_raw_proxy_passes_tls(provider: NativeProvider) -> None:
    cluster = provider.etcd(EtcdSpec(tls="server"))
    assert cluster.tls is not None
    with FaultProxy(cluster.endpoints[0], "raw") as proxy:
        assert talk_tls(cluster, trusting(cluster.tls.ca), endpoint=proxy.endpoint)
    cluster.close()


# --- the proxy before ZooKeeper


@pytest.fixture
def zookeeper_proxy(clusters: Clusters) -> Iterator[FaultProxy]:
    with FaultProxy(clusters.zookeeper.endpoints[0], "zookeeper") as proxy:
        yield proxy


@pytest.fixture
def kazoo(zookeeper_proxy: FaultProxy) -> Iterator[KazooClient]:
    client = zookeeper_client(zookeeper_proxy.endpoint)
    yield client
    end(client)


def is_create(opcode: int, frame: bytes) -> bool:
    return opcode in ZK_CREATES and len(frame) > 8


def test_frames_are_counted_by_opcode(zookeeper_proxy: FaultProxy, kazoo: KazooClient) -> None:
    kazoo.exists("/")
    counted = zookeeper_proxy.requests
    assert counted[0] == 1
    assert counted[3] == 1


def test_a_lost_zookeeper_answer_leaves_the_node_created(zookeeper_proxy: FaultProxy, kazoo: KazooClient) -> None:
    fired = zookeeper_proxy.lose_answer(is_create)
    with pytest.raises(ConnectionLoss):
        kazoo.create("/lost-answer")
    assert fired.is_set()
    assert kazoo.retry(kazoo.exists, "/lost-answer")


def test_a_lost_zookeeper_request_creates_nothing(zookeeper_proxy: FaultProxy, kazoo: KazooClient) -> None:
    zookeeper_proxy.lose_request(is_create)
    with pytest.raises(ConnectionLoss):
        kazoo.create("/lost-request")
    assert kazoo.retry(kazoo.exists, "/lost-request") is None


def test_a_held_zookeeper_answer_comes_when_released(zookeeper_proxy: FaultProxy, kazoo: KazooClient) -> None:
    held = zookeeper_proxy.hold_answer(is_create)
    creating = kazoo.create_async("/held")
    assert held.arrived.wait(WAIT_SECONDS)
    assert not creating.ready()
    held.release()
    assert creating.get(timeout=WAIT_SECONDS) == "/held"


def test_a_zookeeper_session_survives_a_blackhole_shorter_than_itself(
    zookeeper_proxy: FaultProxy, kazoo: KazooClient
) -> None:
    suspended = threading.Event()
    kazoo.add_listener(lambda state: suspended.set() if state == "SUSPENDED" else None)
    session = kazoo.client_id
    zookeeper_proxy.blackhole()
    assert suspended.wait(WAIT_SECONDS)
    zookeeper_proxy.heal()
    kazoo.retry(kazoo.exists, "/")
    assert kazoo.client_id == session


def test_four_letter_words_pass_the_zookeeper_proxy(zookeeper_proxy: FaultProxy) -> None:
    assert zk_four_letter(zookeeper_proxy.endpoint, "ruok") == "imok"


# --- framing, byte by byte


def test_http_pieces_do_not_depend_on_how_bytes_arrive() -> None:
    request = b"POST /v3/kv/put?x=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    counted = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    talk = HttpConversation()
    asked = byte_by_byte(talk.requests, request * 2)
    answered = byte_by_byte(talk.answers, chunked + counted)
    assert [p.request.arguments for p in asked if p.request] == [("POST", "/v3/kv/put?x=1", b"abc")] * 2
    assert b"".join(p.data for p in answered) == chunked + counted
    assert b"".join(p.data for p in answered if p.request and p.request.number == 2) == counted


def test_zookeeper_answers_pair_by_xid_and_watch_events_with_nothing() -> None:
    talk = ZooKeeperConversation()
    frames = [b"connect", xid(1) + xid(4), xid(2) + xid(3)]
    asked = byte_by_byte(talk.requests, b"".join(map(framed, frames)))
    answers = [b"connected", xid(-1) + b"event", xid(2) + b"second", xid(1) + b"first"]
    answered = byte_by_byte(talk.answers, b"".join(map(framed, answers)))
    assert [p.request.label for p in asked if p.request] == [0, 4, 3]
    assert [p.request.number if p.request else None for p in answered] == [1, None, 3, 2]


# --- nothing is left behind


def test_close_ends_every_process_and_removes_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    provider = NativeProvider()
    clusters = start_together(provider, EtcdSpec(), ZooKeeperSpec(), EtcdSpec(size=3))
    pids = [member.pid for cluster in clusters for member in cluster.members]
    clusters[2].members[0].pause()
    clusters[2].members[1].kill()
    assert list(tmp_path.iterdir())
    provider.close()
    provider.close()
    assert all(map(is_gone, pids))
    assert not list(tmp_path.iterdir())


def test_servers_die_with_a_killed_test_process_but_not_with_the_thread_that_started_them(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        "from tests.servers import *\n"
        "made = []\n"
        "def start(): made.extend(start_together(NativeProvider(), EtcdSpec(), ZooKeeperSpec()))\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        "for cluster in made: cluster.wait_ready()\n"
        "sys.stdout.write(' '.join(str(c.members[0].pid) for c in made) + '\\n'); sys.stdout.flush()\n"
        "sys.stdin.read()\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(map(is_gone, pids))
        parent.send_signal(signal.SIGKILL)
        parent.wait(WAIT_SECONDS)
    wait_for(lambda: all(map(is_gone, pids)))


def test_a_forked_child_that_closes_harms_nothing(clusters: Clusters) -> None:
    child = os.fork()
    if child == 0:
        try:
            clusters.etcd.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    clusters.etcd.wait_ready()
    assert etcdctl(clusters.etcd, "put", "k", "v").stdout == "OK\n"


# --- choosing, and servers that are not there


def test_containers_without_docker_are_missing_and_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(ServersMissing, match=r"tests/servers/install\.sh"):
        choose("containers")


def test_auto_without_docker_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    chosen = choose("auto")
    assert isinstance(chosen, NativeProvider)
    chosen.close()


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="native"):
        choose("nonsense")


def test_native_without_programs_says_what_to_do(
    provider: NativeProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tenure.testing.servers.control.find_spec", lambda _: None)
    for spec in (EtcdSpec(), ZooKeeperSpec()):
        with pytest.raises(ServersMissing, match=r"tests/servers/install\.sh"):
            start(provider, spec)


def test_external_servers_are_used_but_not_broken(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TEST_ETCD", ",".join(clusters.etcd_trio.endpoints))
    monkeypatch.delenv("TENURE_TEST_ZOOKEEPER", raising=False)
    external = choose("external")
    cluster = external.etcd(EtcdSpec(size=3))
    assert cluster.leader().endpoint == clusters.etcd_trio.leader().endpoint
    with pytest.raises(ServerFailed, match="cannot kill an external server"):
        cluster.members[0].kill()
    assert cluster.leader()
    with pytest.raises(ServersMissing, match="TENURE_TEST_ZOOKEEPER"):
        external.zookeeper(ZooKeeperSpec())


def test_install_without_root_or_sudo_says_so(tmp_path: Path) -> None:
    for name, body in (("id", "echo 1000"), ("python3", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tests/servers/install.sh")],
        env={"PATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "run this script as root" in done.stderr


# --- helpers


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def put(http: urllib3.HTTPConnectionPool, key: str, value: str) -> None:
    answer = http.request("POST", PUT, body=json.dumps({"key": b64(key), "value": b64(value)}))
    assert answer.status == 200


def get(cluster: Cluster, key: str) -> str:
    return etcdctl(cluster, "get", "--print-value-only", key).stdout.strip()


def put_until(cluster: Cluster, key: str, ended: subprocess.Popen[str]) -> None:
    """A watch has no sign of being ready, so put until it has seen one and been ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while ended.poll() is None and time.monotonic() < deadline:
        etcdctl(cluster, "put", key, "v")


def gateway(endpoint: str, path: str, body: dict[str, str]) -> tuple[int, bytes]:
    with urllib3.PoolManager(retries=False, timeout=WAIT_SECONDS) as pool:
        answer = pool.request("POST", f"http://{endpoint}{path}", body=json.dumps(body))
        return answer.status, answer.data


def write(cluster: Cluster, value: str) -> None:
    if cluster.kind == "etcd":
        assert etcdctl(cluster, "put", "value", value).returncode == 0
        return
    client = zookeeper_client(",".join(cluster.endpoints))
    client.ensure_path("/value")
    client.set("/value", value.encode())
    end(client)


def read(cluster: Cluster, endpoint: str) -> str:
    if cluster.kind == "etcd":
        return get(cluster, "value")
    client = zookeeper_client(endpoint)
    value = bytes(client.get("/value")[0]).decode()
    end(client)
    return value


def zookeeper_client(hosts: str) -> KazooClient:
    client = KazooClient(hosts=hosts, timeout=4.0)
    client.start(timeout=WAIT_SECONDS)
    return client


class CreateContainer(Create):  # type: ignore[misc]  # kazoo has no types
    """The request kazoo lacks: opcode 19, mode 4; its answer begins with the path, as create's does."""

    type = 19

    def serialize(self) -> bytes:
        return bytes(super().serialize()[:-4] + (4).to_bytes(4, "big"))


def create_container(client: KazooClient, path: str) -> None:
    created = client.handler.async_result()
    client._call(CreateContainer(path, b"", OPEN_ACL_UNSAFE, 0), created)
    assert created.get(timeout=WAIT_SECONDS) == path


def end(client: KazooClient) -> None:
    client.stop()
    client.close()


def trusting(ca: Path, *, shows: TlsFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if shows:
        context.load_cert_chain(str(shows.cert), str(shows.key))
    return context


def talk_tls(cluster: Cluster, context: ssl.SSLContext, *, endpoint: str | None = None) -> bool:
    """Whether the server answers over TLS; a client refused under TLS 1.3 learns it on reading, before that at once.

    Raises ssl.SSLCertVerificationError when it is the client who refuses.
    """
    question = b"ruok" if cluster.kind == "zookeeper" else b"GET /version HTTP/1.0\r\n\r\n"
    expected = b"imok" if cluster.kind == "zookeeper" else b"etcdserver"
    with connect(endpoint or cluster.endpoints[0]) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                connection.sendall(question)
                return expected in read_to_end(connection)
        except ssl.SSLCertVerificationError:
            raise
        except OSError:
            return False


def read_to_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def connect(endpoint: str) -> socket.socket:
    host, port = endpoint.split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)


def upgrade_to_websocket(connection: socket.socket) -> None:
    connection.sendall(
        b"GET /v3/watch HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")


def masked_text(text: str) -> bytes:
    """A short client frame with a mask of zeros."""
    payload = text.encode()
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload


def byte_by_byte(feed: Callable[[bytes], list[Piece]], data: bytes) -> list[Piece]:
    return [piece for byte in data for piece in feed(bytes([byte]))]


def xid(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def framed(payload: bytes) -> bytes:
    return xid(len(payload)) + payload


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie nobody has waited for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
