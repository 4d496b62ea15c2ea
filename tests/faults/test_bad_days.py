"""Bad days on real servers: one clear exception type each, with what was tried and what to do, in the caller's time."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import tenure
from tenure import (
    AuthenticationFailed,
    GatewayDisabled,
    PermissionDenied,
    StoreRefused,
    StoreUnavailable,
    TenureError,
    TLSFailed,
)
from tenure._backends.etcd.gateway import Gateway
from tenure._backends.etcd.gateway.streams import PostStream
from tenure._backends.etcd.requests import WatchRequest
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.options import parse
from tenure._core.base.signals import Signal
from tenure._core.lease import BackendContext, LeaseState
from tenure._core.runtime import runtime_of
from tenure.events import Hub
from tenure.testing.servers.specs import Spec
from tests.conformance.store_worlds import eventually
from tests.faults.transports import ALL, ETCD, EtcdKind, over, wait_until_renewed
from tests.servers import Cluster, EtcdSpec, Provider, ZooKeeperSpec, etcdctl, start
from tests.unit.fakes import ImmediateWorkers

SECRET = "pa55 w/rd:%@"


@pytest.fixture(scope="module")
def make(provider: Provider) -> Iterator[Callable[[Spec], Cluster]]:
    """Clusters of this module, each made once."""
    made: dict[Spec, Cluster] = {}

    def get(spec: Spec) -> Cluster:
        if spec not in made:
            made[spec] = start(provider, spec)
        return made[spec]

    yield get
    for cluster in made.values():
        cluster.close()


def spec(kind: str, tls: str) -> Spec:
    return ZooKeeperSpec(tls=tls) if kind == "zookeeper" else EtcdSpec(tls=tls)  # type: ignore[arg-type]


def works(url: str, **options: Any) -> None:
    with tenure.connect(url, ttl=10, **options) as client:
        hold = client.lock("a").acquire(timeout=10)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.lock("a").acquire, 20.0)
            assert eventually(lambda: client.statistics()["events"].get("entered") == 2)  # type: ignore[attr-defined]
            assert hold.release() is True
            assert waiting.result().release() is True


def fails(url: str, kind: type[TenureError], match: str, **options: Any) -> str:
    started = time.monotonic()
    with tenure.connect(url, **({"timeout": 2.0} | options)) as client:
        with pytest.raises(kind, match=match) as caught:
            client.lock("a").acquire(timeout=2.0)
        assert time.monotonic() - started < 4.5, "not in its time: 5 s is that of a client that sets none"
        assert type(caught.value) is kind
        assert client.lock("a").resource == "a"
    return str(caught.value)


@ALL
def test_unreachable_store(kind: str) -> None:
    """Nobody listens there: StoreUnavailable within the deadline, naming the address and the question to ask."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = fails(f"{kind}://127.0.0.1:{port}/x", StoreUnavailable, "running")
    assert str(port) in told


@ALL
def test_host_that_does_not_resolve(kind: str) -> None:
    """A name without an address is StoreUnavailable too."""
    fails(f"{kind}://no-such-host.invalid/x", StoreUnavailable, "no-such-host.invalid")


@ALL
def test_server_that_accepts_and_says_nothing(kind: str) -> None:
    """A port that swallows everything: within the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fails(f"{kind}://127.0.0.1:{silent.getsockname()[1]}/x", StoreUnavailable, "did not answer|no session|answer")


@ALL
@pytest.mark.parametrize("tls", ["server", "mutual"])
def test_tls_works(make: Callable[[Spec], Cluster], kind: str, tls: str) -> None:
    """Server-verified and mutual TLS, requests and watches."""
    works(over(make(spec(kind, tls)), kind).url("tls"))


@ALL
def test_tls_with_an_unknown_authority(make: Callable[[Spec], Cluster], kind: str) -> None:
    """A server that can't be verified is refused."""
    cluster = make(spec(kind, "server"))
    assert cluster.tls is not None
    url = f"{kind}://{cluster.endpoints[0]}/x"
    fails(url, TLSFailed, "ca", ca=str(cluster.tls.other_ca))


@ALL
def test_tls_without_a_client_certificate(make: Callable[[Spec], Cluster], kind: str) -> None:
    """A server that wants a certificate and gets none."""
    cluster = make(spec(kind, "mutual"))
    assert cluster.tls is not None
    fails(f"{kind}://{cluster.endpoints[0]}/x", TLSFailed, "cert", ca=str(cluster.tls.ca))


@ALL
def test_plain_spoken_to_tls(make: Callable[[Spec], Cluster], kind: str) -> None:
    """No TLS towards a TLS port: the error says that the port speaks TLS."""
    cluster = make(spec(kind, "server"))
    fails(f"{kind}://{cluster.endpoints[0]}/x", TLSFailed, "speaks TLS")


@ALL
def test_tls_spoken_to_plain(singles: dict[str, Cluster], kind: str) -> None:
    """TLS towards a plain port."""
    fails(f"{kind}://{singles[kind].endpoints[0]}/x?tls=true", TLSFailed, "TLS")


@ETCD
def test_etcd_user_and_password_with_token_refresh(make: Callable[[Spec], Cluster], kind: EtcdKind) -> None:
    """Signed in, over tokens that expire while a hold is kept and a waiter waits (bug 16)."""
    cluster = over(make(EtcdSpec(auth=("root", SECRET), auth_token_ttl_seconds=1)), kind)
    with tenure.connect(cluster.url("auth"), ttl=6) as client:
        hold = client.lock("a").acquire(timeout=10)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.lock("a").acquire, 30.0)
            wait_until_renewed(hold, 2)  # two seconds apart: a token expires in between
            hold.check()
            assert hold.release() is True
            assert waiting.result().release() is True


@ETCD
def test_etcd_watches_with_users_carry_many_waiters(make: Callable[[Spec], Cluster], kind: EtcdKind) -> None:
    """Where the gateway's WebSocket is refused the streaming POST does; gRPC has one stream: waiters go on in order."""
    cluster = over(make(EtcdSpec(auth=("root", SECRET), auth_token_ttl_seconds=1)), kind)
    with tenure.connect(cluster.url("auth"), ttl=10) as client, ThreadPoolExecutor(max_workers=40) as pool:
        hold = client.lock("many").acquire(timeout=10)
        tokens: list[int] = []

        def wait() -> None:
            with client.lock("many") as mine:
                tokens.append(mine.token)

        waiting = [pool.submit(wait) for _ in range(40)]
        assert eventually(lambda: client.statistics()["events"].get("entered") == 41)  # type: ignore[attr-defined]
        hold.release()
        for future in waiting:
            future.result(30)
        assert tokens == sorted(tokens)


def test_etcd_hears_of_every_watch_in_one_long_request(make: Callable[[Spec], Cluster]) -> None:
    """The gateway answers the first watches while it still reads of the others. Where it meant to keep the connection
    it would throw away the rest of the request at that moment, and whoever stands behind those would wait for ever."""
    cluster = make(EtcdSpec(auth=("root", SECRET), auth_token_ttl_seconds=1))
    host, port = cluster.endpoints[0].rsplit(":", 1)
    context = BackendContext(SYSTEM_CLOCK, Hub(SYSTEM_CLOCK.now), ImmediateWorkers())
    gateway = Gateway(parse(cluster.url("x"), {}), context)
    watches = {number: WatchRequest(b"x/%d" % number, None, 1, True, Signal()) for number in range(1, 501)}
    token = gateway.session.token(SYSTEM_CLOCK.now() + 5.0)
    with socket.create_connection((host, int(port)), 5.0) as sock:
        stream = PostStream(sock, (host, int(port)), token, watches)
        heard: set[int] = set()
        while len(heard) < 500:
            heard |= {told.watch_id for told in stream.receive() if told.created and not told.canceled}
    gateway.close()


@ETCD
def test_etcd_wrong_password_and_no_user(make: Callable[[Spec], Cluster], kind: EtcdKind) -> None:
    """AuthenticationFailed, and the password is nowhere in the message, the repr or the log."""
    cluster = over(make(EtcdSpec(auth=("root", SECRET), auth_token_ttl_seconds=1)), kind)
    url = f"{kind}://{cluster.endpoints[0]}/x"
    told = fails(url, AuthenticationFailed, "user and password", user="root", password="wr0ng")
    assert "wr0ng" not in told
    fails(url, AuthenticationFailed, "user")


@ETCD
def test_etcd_user_without_permission(make: Callable[[Spec], Cluster], kind: EtcdKind) -> None:
    """PermissionDenied, naming the user and the namespace."""
    cluster = over(make(EtcdSpec(auth=("root", SECRET), auth_token_ttl_seconds=1)), kind)
    user = f"poor-{kind.replace('+', '-')}"
    assert etcdctl(cluster, "user", "add", f"{user}:poor").returncode == 0
    told = fails(f"{kind}://{user}:poor@{cluster.endpoints[0]}/x", PermissionDenied, "permission")
    assert f"'{user}'" in told


def test_etcd_without_its_gateway(make: Callable[[Spec], Cluster]) -> None:
    """GatewayDisabled, with the flag that turns it on."""
    fails(make(EtcdSpec(gateway=False)).url("x"), GatewayDisabled, "--enable-grpc-gateway")


@ETCD
def test_etcd_out_of_space(provider: Provider, kind: EtcdKind) -> None:
    """Bug 50: the quota alarm refuses writes: StoreRefused says what to do; a release still goes through."""
    cluster = over(provider.etcd(EtcdSpec(quota_bytes=16 * 1024 * 1024)), kind)
    try:
        with tenure.connect(cluster.url("x"), ttl=10) as client:
            hold = client.lock("held").acquire()
            big = "x" * 1_000_000
            for number in range(40):
                if etcdctl(cluster, "put", f"fill-{number}", big[:120_000]).returncode != 0:
                    break
                for other in range(8):
                    etcdctl(cluster, "put", f"fill-{number}-{other}", big[:120_000])
            with pytest.raises(StoreRefused, match="space"):
                client.lock("a").acquire(timeout=5)
            hold.check()
            assert hold.release() is True
    finally:
        cluster.close()


def test_zookeeper_digest_and_acls(singles: dict[str, Cluster]) -> None:
    """What a client with a user creates is that user's alone: another one gets PermissionDenied."""
    endpoint = singles["zookeeper"].endpoints[0]
    name = f"acl-{time.monotonic_ns():x}"
    with tenure.connect(f"zookeeper://{endpoint}/{name}", user="me", password=SECRET, ttl=10) as client:
        hold = client.lock("a").acquire()
        told = fails(f"zookeeper://me:wr0ng@{endpoint}/{name}", PermissionDenied, "ACL")
        assert "wr0ng" not in told
        fails(f"zookeeper://{endpoint}/{name}", PermissionDenied, "without user")
        assert hold.release() is True
    works(f"zookeeper://{endpoint}/{name}", user="me", password=SECRET)


@ALL
def test_credentials_never_show(
    singles: dict[str, Cluster], kind: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """repr, statistics, every log line of every logger at every level, and errors: no password in any of them."""
    url = f"{kind}://someone:{'s3cr3t'}@{singles[kind].endpoints[0]}/x-{time.monotonic_ns():x}"
    with tenure.connect(url, ttl=5, timeout=1.5) as client:
        for name in ("", "tenure", "tenure.kazoo", "kazoo", "urllib3", "etcd3gw", "websockets"):
            caplog.set_level(1, logger=name)  # after connect has imported what sets its own level
        try:
            client.lock("a").acquire(timeout=1.5).release()
        except TenureError as error:
            assert "s3cr3t" not in str(error)
        shown = repr(client) + str(client.statistics()) + repr(runtime_of(client).options)
    assert "s3cr3t" not in shown + caplog.text + "".join(capsys.readouterr())


@ALL
def test_endpoint_failover_at_the_first_call(triples: dict[str, Cluster], kind: str) -> None:
    """The first endpoints are dead or silent: the call goes on to one that answers, within its deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        first = f"127.0.0.1:{dead.getsockname()[1]},127.0.0.1:{silent.getsockname()[1]}"
        url = re.sub(r"://", f"://{first},", triples[kind].url("failover"))
        with tenure.connect(url, ttl=6) as client, client.lock("a").acquire(timeout=10) as hold:
            hold.renew()


@ETCD
def test_thread_that_can_not_be_started_is_one_calls_trouble(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, kind: EtcdKind
) -> None:
    """The process has no thread left for the watch: StoreUnavailable, no ticket stays, and the next call works."""
    with tenure.connect(singles[kind].url(f"x-{time.monotonic_ns():x}"), ttl=10) as client:
        hold = client.lock("a").acquire()
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "tenure-watch":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(StoreUnavailable, match="no thread"):
                client.lock("a").acquire(timeout=5)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.lock("a").acquire, 20.0)
            assert eventually(lambda: client.statistics()["events"].get("entered") == 3)  # type: ignore[attr-defined]
            assert hold.release() is True
            assert waiting.result().release() is True


def test_zookeeper_session_that_no_thread_can_be_started_to_end_is_ended_by_its_own_time(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo would go on keeping it alive, and its tickets at the head of their lines, for the life of the process."""
    url = singles["zookeeper"].url(f"x-{time.monotonic_ns():x}", tick=0.2)
    with tenure.connect(url, ttl=2) as client, tenure.connect(url, ttl=20) as other:
        hold = client.lock("a").acquire()
        start, refused = threading.Thread.start, list[str]()

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "tenure-zookeeper-stop":
                refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        lease: Any = next(iter(runtime_of(client)._leases.values()))
        lease._belief.end(LeaseState.LOST, "told by the test")
        assert other.lock("a").acquire(timeout=20).token > hold.token
        assert refused
        monkeypatch.undo()


@contextmanager
def silent_server() -> Iterator[tuple[str, list[bytes]]]:
    """Takes connections and whatever is sent, and says nothing: its endpoint, and what each connection began with."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as open_ones:
        server.settimeout(0.05)

        def listen() -> None:
            while not ended.is_set():
                try:
                    connection = open_ones.enter_context(server.accept()[0])
                except TimeoutError:
                    continue
                heard.append(connection.recv(1, socket.MSG_PEEK))

        ended = threading.Event()
        listening = threading.Thread(target=listen)
        listening.start()
        host, port = server.getsockname()
        try:
            yield f"{host}:{port}", heard
        finally:
            ended.set()
            listening.join()


@pytest.mark.parametrize(("timeout", "looked"), [(0.05, False), (3.0, True)])
def test_zookeeper_that_says_nothing_is_looked_at_for_tls_within_the_callers_time_only(
    timeout: float, looked: bool
) -> None:
    """Law 8: why a server is silent is looked into while the call may last, not after it."""
    with silent_server() as (endpoint, heard), tenure.connect(f"zookeeper://{endpoint}/x") as client:
        with pytest.raises(StoreUnavailable, match="no session"):
            client.lock("a").acquire(timeout=timeout)
        hellos = [first for first in heard if first == b"\x16"]
    assert bool(hellos) is looked
