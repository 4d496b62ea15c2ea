"""`tenure doctor` on real servers that are well, and on some that are not."""

from __future__ import annotations

import re
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import tenure
from tenure._core.base.options import parse
from tenure.cli.doctor import etcd, findings
from tenure.cli.doctor.findings import Finding, Severity
from tenure.cli.doctor.zookeeper import _sessions
from tenure.testing.servers.specs import Spec
from tests.cli.program import NOT_PLAIN, shown
from tests.cli.program import tenure as run
from tests.servers import Cluster, EtcdSpec, FaultProxy, Provider, ZooKeeperSpec, etcdctl, start

TICK = "0.2"
PASSWORD = "pa55 w/rd:%@"


@pytest.fixture(scope="module")
def make(provider: Provider) -> Iterator[Callable[[Spec], Cluster]]:
    """Clusters of this module, closed at its end."""
    made: list[Cluster] = []

    def get(spec: Spec) -> Cluster:
        made.append(start(provider, spec))
        return made[-1]

    yield get
    for cluster in made:
        cluster.close()


def url_of(cluster: Cluster, **options: str) -> str:
    extra = {"tick": TICK} if cluster.kind == "zookeeper" else {}
    return cluster.url(f"doctor-{secrets.token_hex(4)}", **(extra | options))


def checked(url: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:  # Any: JSON
    """The exit code, and what was found by check."""
    done = run("doctor", "--json", url=url)
    document = done.json
    assert document["ok"] is (done.code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in document["checks"]:
        assert one["state"] == "ok" or one["do"], one
        found.setdefault(one["check"], []).append(one)
    return done.code, found


def only(found: dict[str, list[dict[str, Any]]], check: str) -> dict[str, Any]:
    (one,) = found[check]
    return one


def states(found: dict[str, list[dict[str, Any]]]) -> dict[str, set[str]]:
    return {check: {one["state"] for one in of} for check, of in found.items()}


@pytest.mark.parametrize("kind", ["etcd", "etcd+grpc", "zookeeper"])
def test_healthy_store_passes_with_a_warning_of_its_old_version(singles: dict[str, Cluster], kind: str) -> None:
    """Checks are all reported; the versions that the tests have are ones with known bugs. Nothing stays behind."""
    cluster = singles[kind.removesuffix("+grpc")]
    url = url_of(cluster).replace("etcd://", f"{kind}://")
    code, found = checked(url)
    assert code == 0
    assert states(found).pop("version") == {"warn"}
    assert {state for check, of in states(found).items() if check != "version" for state in of} == {"ok"}
    common = {"reach", "version", "auth", "lock", "orphan", "ttl", "clock"}
    of_etcd = {"health", "space", "history"}
    own = {"etcd": {"gateway"} | of_etcd, "etcd+grpc": of_etcd, "zookeeper": {"tick", "sessions"}}
    assert found.keys() == common | own[kind]
    known = "15247" if cluster.kind == "etcd" else "ZOOKEEPER-4925"
    assert known in " ".join(only(found, "version")["details"])
    assert known not in only(found, "version")["found"]
    with tenure.connect(url) as client:
        assert list(client.operator().lines()) == []


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
@pytest.mark.parametrize("columns", [80, 200])
def test_screen_fits_the_terminal_and_says_what_to_do(singles: dict[str, Cluster], kind: str, columns: int) -> None:
    """A line a check, what to do below it, and how many there were."""
    done = shown("doctor", url=url_of(singles[kind]), columns=columns)
    plain = done.out
    assert done.code == 0, plain
    assert max(len(line) for line in plain.splitlines()) <= columns
    assert re.search(r"^ok +reach +127\.0\.0\.1:\d+ +\w", plain, re.MULTILINE)
    assert re.search(r"^warn +version", plain, re.MULTILINE)
    assert "→ run " in plain
    assert re.search(r"0 failures, 1 warning in \d+ checks of", plain)


def test_pipe_gets_one_record_a_check_and_no_escape_code(singles: dict[str, Cluster]) -> None:
    """State, check, endpoint, what was found, what to do."""
    done = run("doctor", url=url_of(singles["etcd"]))
    assert (done.code, done.err) == (0, "")
    assert not NOT_PLAIN.search(done.out.replace("\t", ""))
    assert {len(record) for record in done.records} == {5}
    assert "15247" not in done.out
    verbose = run("doctor", "-v", url=url_of(singles["etcd"]))
    assert re.search(r"^warn\tversion\t.*has known bugs \(\d\) .*: .*\(15247\); ", verbose.out, re.MULTILINE)


def test_screen_names_the_known_bugs_where_they_are_asked_for(singles: dict[str, Cluster]) -> None:
    """A finding is one sentence; -v adds each bug with its issue, in a line of its own."""
    plain, verbose = (shown("doctor", *v, url=url_of(singles["etcd"]), columns=120).out for v in ((), ("-v",)))
    assert not re.search(r"\(\d{5}\)", plain)
    assert re.search(r"^ +leases may end early after the leader stood still \(15247\)$", verbose, re.MULTILINE)


# Not well.


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_endpoint_that_is_down_is_named_and_the_others_are_looked_at(
    make: Callable[[Spec], Cluster], kind: str
) -> None:
    """A store of two servers of three works, and the doctor says that it is not whole. One of three: no quorum."""
    cluster = make(EtcdSpec(size=3) if kind == "etcd" else ZooKeeperSpec(size=3))
    down, other, last = cluster.members
    down.kill()
    cluster.leader()
    code, found = checked(url_of(cluster))
    assert code == 1
    by_endpoint = {one["endpoint"]: one for one in found["reach"]}
    assert {endpoint: one["state"] for endpoint, one in by_endpoint.items()} == {
        down.endpoint: "fail",
        other.endpoint: "ok",
        last.endpoint: "ok",
    }
    assert "refused" in by_endpoint[down.endpoint]["found"]
    assert len(found["version"]) == 2
    assert only(found, "lock")["state"] == "ok"
    other.kill()
    until = time.monotonic() + 20  # it takes the last one a moment to find out
    while time.monotonic() < until:
        code, found = checked(url_of(cluster, timeout="2"))
        check = "health" if kind == "etcd" else "reach"
        if any(one["state"] == "fail" and one["endpoint"] == last.endpoint for one in found.get(check, [])):
            break
    assert code == 1
    mine = next(one for one in found[check] if one["endpoint"] == last.endpoint)
    assert "quorum" in mine["found"] + mine["do"]
    assert "ok" not in {one["state"] for one in found["lock"]}


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_tls_with_a_certificate_that_ends_soon_is_warned_of(make: Callable[[Spec], Cluster], kind: str) -> None:
    """The tests' certificates live for a day. Without TLS in the URL, or with another authority, it says what to do."""
    cluster = make(EtcdSpec(tls="server") if kind == "etcd" else ZooKeeperSpec(tls="server"))
    code, found = checked(url_of(cluster))
    assert code == 0, found
    assert only(found, "tls")["state"] == "warn"
    assert re.search(r"TLSv1\.\d, server verified; its certificate ends in [01] days", only(found, "tls")["found"])
    endpoint = cluster.endpoints[0]
    code, found = checked(f"{kind}://{endpoint}/x?timeout=2")
    assert code == 1
    assert "add ?ca=FILE" in found["tls"][0]["do"]
    code, found = checked(f"{kind}://{endpoint}/x?tls=true&timeout=2")
    assert code == 1
    assert "handshake failed: unable to get local issuer" in found["tls"][0]["found"]


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_mutual_tls_is_passed_with_the_certificate_and_refused_without(
    make: Callable[[Spec], Cluster], kind: str
) -> None:
    """The server wants to see one."""
    cluster = make(EtcdSpec(tls="mutual") if kind == "etcd" else ZooKeeperSpec(tls="mutual"))
    code, found = checked(url_of(cluster))
    assert code == 0, found
    assert "client certificate" in only(found, "auth")["found"]
    assert cluster.tls is not None
    code, found = checked(f"{kind}://{cluster.endpoints[0]}/x?ca={cluster.tls.ca}&timeout=2")
    assert code == 1
    assert {one["state"] for one in found["tls"]} == {"fail"}
    assert "lock" not in found


def test_etcd_with_users_is_passed_with_the_right_one_and_told_with_a_wrong_one(
    make: Callable[[Spec], Cluster],
) -> None:
    """No password is shown."""
    cluster = make(EtcdSpec(auth=("root", PASSWORD)))
    code, found = checked(url_of(cluster))
    assert code == 0, found
    assert "user 'root'" in only(found, "auth")["found"]
    wrong = url_of(cluster).replace("root:", "root:wr0ng")
    done = run("doctor", url=wrong)
    assert done.code == 1
    assert "wr0ng" not in done.out + done.err
    assert re.search(r"^fail\tauth\t-\t.*does not accept this user and password", done.out, re.MULTILINE)
    code, found = checked(url_of(cluster).replace(re.sub(r".*//(.*@).*", r"\1", url_of(cluster)), ""))
    assert code == 1
    assert only(found, "auth")["state"] == "fail"


def test_zookeeper_identity_that_may_not_write_is_told(singles: dict[str, Cluster]) -> None:
    """Nodes of one identity are its own."""
    endpoint, name = singles["zookeeper"].endpoints[0], f"doctor-{secrets.token_hex(4)}"
    with tenure.connect(f"zookeeper://me:mine@{endpoint}/{name}") as client, client.lock("a"):
        code, found = checked(f"zookeeper://other:0ther@{endpoint}/{name}?tick={TICK}")
    assert code == 1
    assert only(found, "auth")["state"] == "fail"


def test_etcd_without_space_is_told_with_the_way_out(make: Callable[[Spec], Cluster]) -> None:
    """The alarm NOSPACE: leases live on, nothing can be written."""
    cluster = make(EtcdSpec(quota_bytes=8 * 1024 * 1024))
    for number in range(400):
        if etcdctl(cluster, "put", f"fill-{number}", "x" * 120_000).returncode != 0:
            break
    code, found = checked(url_of(cluster))
    assert code == 1
    quota = only(found, "quota")
    assert (quota["state"], quota["endpoint"]) == ("fail", cluster.endpoints[0])
    assert "NOSPACE" in quota["found"]
    assert "etcdctl alarm disarm" in quota["do"]
    assert only(found, "space")["state"] == "warn"
    assert only(found, "lock")["state"] == "fail"
    assert only(found, "orphan")["state"] == "ok"


def test_etcd_that_nobody_compacts_is_told_how_it_is_done(
    singles: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write stays in the store until then, so that releases fill it, too."""
    monkeypatch.setattr(etcd, "_REVISIONS_MAX", 1)
    cluster, options = singles["etcd"], parse(url_of(singles["etcd"]), {})

    def history() -> Finding:
        found, _ = etcd.look(options.endpoints[0], options, 5.0)
        return next(one for one in found if one.check == "history")

    for key in ("compacted-a", "compacted-b", "compacted-c"):
        assert etcdctl(cluster, "put", key, "").returncode == 0
    assert history().state is Severity.WARN
    assert "--auto-compaction-mode" in history().do
    revision = re.findall(r'"Revision" : (\d+)', etcdctl(cluster, "get", "x", "-w", "fields").stdout)[0]
    assert etcdctl(cluster, "compact", revision).returncode == 0
    assert history().state is Severity.OK


def test_what_is_true_of_three_endpoints_is_said_in_full_once(triples: dict[str, Cluster]) -> None:
    """Repetition is cut at the terminal; a pipe gets all of it."""
    url = url_of(triples["etcd"])
    assert shown("doctor", url=url).out.count("has known bugs") == 1
    assert shown("doctor", url=url).out.count(f"the same as {triples['etcd'].endpoints[0]}") == 2
    assert run("doctor", url=url).out.count("has known bugs") == 3


def test_etcd_with_its_gateway_off_is_told_and_grpc_does_without(make: Callable[[Spec], Cluster]) -> None:
    """The two ways out are said."""
    cluster = make(EtcdSpec(gateway=False))
    code, found = checked(url_of(cluster))
    assert code == 1
    assert {one["state"] for one in found["gateway"]} == {"fail"}
    assert "--enable-grpc-gateway=true" in found["gateway"][0]["do"]
    assert "etcd+grpc://" in found["gateway"][0]["do"]
    assert only(found, "version")["state"] == "warn"
    assert only(found, "health")["state"] == "ok"
    code, found = checked(url_of(cluster).replace("etcd://", "etcd+grpc://"))
    assert (code, only(found, "lock")["state"]) == (0, "ok")


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_orphaned_ticket_is_told_with_the_command_that_frees_it(singles: dict[str, Cluster], kind: str) -> None:
    """A ticket that hangs on no lease: nothing will ever end it. The command works as printed."""
    cluster, url = singles[kind], url_of(singles[kind])
    namespace = url.partition("?")[0].rpartition("/")[2]
    if kind == "etcd":
        etcdctl(cluster, "put", f"{namespace}/it's stuck/abc", "by hand")
    else:
        zk = KazooClient(cluster.endpoints[0])
        zk.start()
        zk.create(f"/{namespace}/it's stuck/_c_{'a' * 32}-lock-", b"by hand", sequence=True, makepath=True)
        zk.stop()
        zk.close()
    code, found = checked(url)
    assert code == 1
    orphan = only(found, "orphan")
    assert "it's stuck" in orphan["found"]
    program, *arguments = shlex.split(orphan["do"])
    assert (program, run(*arguments, "--yes", url=url).code) == ("tenure", 0)
    code, found = checked(url)
    assert (code, only(found, "orphan")["state"]) == (0, "ok")


def test_many_orphans_are_counted_and_the_first_ones_named(singles: dict[str, Cluster]) -> None:
    """A screen that nobody could read helps nobody."""
    url = url_of(singles["etcd"])
    namespace = url.partition("?")[0].rpartition("/")[2]
    for number in range(13):
        etcdctl(singles["etcd"], "put", f"{namespace}/line{number}/abc", "by hand")
    code, found = checked(url)
    assert (code, len(found["orphan"])) == (1, 11)
    assert found["orphan"][-1]["found"].startswith("3 more")
    etcdctl(singles["etcd"], "del", "--prefix", f"{namespace}/")


def test_ttl_that_the_server_does_not_grant_is_warned_of(make: Callable[[Spec], Cluster]) -> None:
    """Too short for etcd, whose shortest is one and a half election time-outs; too long for ZooKeeper."""
    code, found = checked(url_of(make(EtcdSpec(heartbeat_ms=500, election_ms=3000)), ttl="1"))
    assert (code, only(found, "ttl")["state"], only(found, "ttl")["do"]) == (0, "warn", "ask for ttl=5")
    code, found = checked(url_of(make(ZooKeeperSpec(max_session_ms=10_000)), ttl="15"))
    assert (code, only(found, "ttl")["state"]) == (0, "warn")
    assert "TTLs from 1 s to 10 s are granted; ttl=15 is more" in only(found, "ttl")["found"]


def test_zookeeper_tick_that_is_longer_than_the_client_believes_fails(make: Callable[[Spec], Cluster]) -> None:
    """Holders would believe for too long when they are cut off."""
    cluster = make(ZooKeeperSpec(tick_ms=3000))
    code, found = checked(cluster.url("x"))
    assert code == 1
    assert (only(found, "tick")["state"], only(found, "tick")["do"].partition(" to ")[0]) == ("fail", "add ?tick=3")
    code, found = checked(cluster.url("x", tick="3"))
    assert (code, only(found, "tick")["state"]) == (0, "ok")


@pytest.mark.parametrize("allowed", ["srvr", "ruok"])
def test_zookeeper_whose_words_are_not_allowed_is_said_to_be(make: Callable[[Spec], Cluster], allowed: str) -> None:
    """Checks look at as much as can be seen, and say that the rest was not."""
    cluster = make(ZooKeeperSpec())
    member = cluster.members[0]
    directory = Path(member._machine.directory)  # type: ignore[attr-defined]  # of a process: where its files are
    member.kill()
    (settings,) = [path for path in directory.iterdir() if "4lw.commands.whitelist=*" in _text(path)]
    settings.write_text(_text(settings).replace("4lw.commands.whitelist=*", f"4lw.commands.whitelist={allowed}"))
    member._machine.launch()
    url = url_of(cluster)
    with tenure.connect(url, timeout=30) as client:
        client.lock("warm").acquire(timeout=30).release()
    code, found = checked(url)
    assert (code, only(found, "lock")["state"], only(found, "reach")["state"]) == (0, "ok", "ok")
    words = only(found, "words")
    assert "conf and dump not allowed, so not looked at" in words["found"]
    assert "4lw.commands.whitelist=srvr,conf,dump" in words["found"]
    assert "version" in found
    assert "tick" not in found
    assert "sessions" not in found


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_something_else_at_the_port_and_silence_are_told_in_time(singles: dict[str, Cluster], kind: str) -> None:
    """A server that says nonsense, and one that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        code, found = checked(f"{kind}://127.0.0.1:{silent.getsockname()[1]}/x?timeout=1")
        assert (code, "fail" in states(found)["reach"] | states(found)["lock"]) == (1, True)
        assert time.monotonic() - started < 40
    other = singles["zookeeper" if kind == "etcd" else "etcd"].endpoints[0]
    code, found = checked(f"{kind}://{other}/x?timeout=1")
    assert code == 1
    assert found["reach"][0]["state"] == "fail"


def test_store_that_is_cut_off_is_told_in_time(singles: dict[str, Cluster]) -> None:
    """Connections are accepted, and no answer ever comes."""
    with FaultProxy(singles["etcd"].endpoints[0], "etcd") as proxy:
        proxy.blackhole()
        code, found = checked(f"etcd://{proxy.endpoint}/x?timeout=1")
    assert (code, only(found, "lock")["state"]) == (1, "fail")


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 78), (("--url", "memory://x"), 78), (("--url", "nonsense"), 78), (("surplus",), 64)]
)
def test_bad_input_is_one_line_and_its_code(arguments: tuple[str, ...], code: int) -> None:
    """No traceback."""
    done = run("doctor", *arguments)
    assert (done.code, done.out, bool(done.complaint)) == (code, "", True)


# The tables, and what no server here can be brought to.


@pytest.mark.parametrize(
    ("version", "state", "bugs"),
    [
        ("3.5.1", Severity.WARN, ["13766", "14110", "15247", "17780", "15271", "17529", "20590", "20418"]),
        ("3.4.23", Severity.WARN, ["15247", "17780", "15271", "17529", "20590", "20418"]),
        ("3.4.19", Severity.WARN, ["15247", "17780", "15271", "17529", "20590"]),
        ("3.4.42", Severity.OK, []),
        ("3.5.13", Severity.WARN, ["17780", "20590", "20418"]),
        ("3.5.28", Severity.OK, []),
        ("3.6.0-rc.2", Severity.WARN, ["20590", "20418"]),
        ("3.6.9", Severity.OK, []),
        ("3.7.0", Severity.OK, []),
        ("4.0.0", Severity.OK, []),
        ("3.3.10", Severity.FAIL, []),
        ("nonsense", Severity.WARN, []),
        ("", Severity.WARN, []),
    ],
)
def test_etcd_version_is_warned_of_by_its_known_bugs(version: str, state: Severity, bugs: list[str]) -> None:
    """Bugs of an etcd are as the table has them."""
    found = findings.look_at_etcd_version(version, "x")
    assert (found.state, re.findall(r"\((\d{5})\)", " ".join(found.details))) == (state, bugs)
    assert not re.search(r"\d{5}|;", found.found)


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("3.8.0", Severity.WARN, ["4785", "4394", "4925"]),
        ("3.5.9", Severity.WARN, ["4785", "needs 3.6"]),
        ("3.9.2", Severity.WARN, ["4394"]),
        ("3.9.4", Severity.OK, []),
        ("3.8.5", Severity.OK, []),
        ("3.10.0", Severity.OK, []),
        ("3.4.14", Severity.FAIL, []),
    ],
)
def test_zookeeper_version_is_warned_of_by_its_known_bugs(version: str, state: Severity, words: list[str]) -> None:
    """Bugs of a ZooKeeper are as the table has them."""
    found = findings.look_at_zookeeper_version(version, "x")
    assert found.state is state
    assert all(word in f"{found.found} {found.details}" for word in words)


def test_mixed_versions_are_warned_of() -> None:
    """Versions differ in the midst of an upgrade, or were forgotten after one."""
    assert findings.differing([("a", "3.5.1"), ("b", "3.5.1")]) is None
    mixed = findings.differing([("a", "3.5.1"), ("b", "3.5.28")])
    assert mixed is not None
    assert "a has 3.5.1, b has 3.5.28" in mixed.found


def test_node_whose_session_is_gone_is_found_in_a_dump() -> None:
    """An ephemeral node without a session blocks its line, see ZOOKEEPER-5010."""
    dump = (
        "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at Wed Nov 18 23:59:05 UTC 2026:\n\t0x10000281ee50004\n"
        "ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x10000281ee50004:\n\t/billing/a/_c_1-lock-0000000000\n"
        "0xdead:\n\t/billing/b/_c_2-lock-0000000000\n\t/elsewhere/b/_c_2-lock-0000000000\n"
        "Connections dump:\nConnections Sets (0)/(0):\n"
    )
    (found,) = _sessions(dump, "x", parse("zookeeper://x/billing", {}))
    assert (found.state, found.found) == (
        Severity.FAIL,
        "nodes stand whose session is gone: /billing/b/_c_2-lock-0000000000",
    )
    (found,) = _sessions(dump.replace("0xdead", "0x10000281ee50004"), "x", parse("zookeeper://x/billing", {}))
    assert found.state is Severity.OK
    assert _sessions("This ZooKeeper instance is not currently serving requests", "x", parse("zookeeper://x", {})) == []
