"""Stores that know their users: who may not, or is not who it says, is told so in one line, with code 77."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure as library
from tests.cli.program import LOOKING_AND_MENDING, Done, shown, tenure
from tests.faults.transports import ETCD, EtcdKind, over
from tests.servers import Cluster, EtcdSpec, Provider, etcdctl

SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def with_users(provider: Provider) -> Iterator[Cluster]:
    """An etcd with users: root; a reader of `billing` who may not write; one who may do nothing."""
    cluster = provider.etcd(EtcdSpec(auth=("root", SECRET)))
    steps = (
        ("role", "add", "reader"),
        ("role", "grant-permission", "reader", "read", "--prefix=true", "billing/"),
        ("user", "add", f"reader:{SECRET}"),
        ("user", "grant-role", "reader", "reader"),
        ("user", "add", f"poor:{SECRET}"),
    )
    for step in steps:
        done = etcdctl(cluster, *step)
        assert done.returncode == 0, done.stderr
    yield cluster
    cluster.close()


def refused(done: Done, who: str) -> None:
    assert done.code == 77
    assert done.out == ""
    assert who in done.complaint
    assert SECRET not in done.err
    assert "wr0ng" not in done.err


@ETCD
def test_etcd_who_may_do_nothing(with_users: Cluster, kind: EtcdKind) -> None:
    """Commands end with 77, naming the user."""
    url = f"{kind}://poor:{SECRET}@{with_users.endpoints[0]}/billing"
    for command in LOOKING_AND_MENDING:
        refused(tenure(*command, url=url), "poor")


@ETCD
def test_etcd_wrong_password_and_nobody(with_users: Cluster, kind: EtcdKind) -> None:
    """77: it says that it is the sign-in; the password is not in it."""
    refused(tenure("ls", url=f"{kind}://root:wr0ng@{with_users.endpoints[0]}/billing"), "user and password")
    refused(tenure("ls", url=f"{kind}://{with_users.endpoints[0]}/billing"), "user")
    assert "77" not in shown("ls", url=f"{kind}://root:{SECRET}@{with_users.endpoints[0]}/billing").out


@ETCD
def test_etcd_who_may_only_read_can_look_and_not_mend(with_users: Cluster, kind: EtcdKind) -> None:
    """A role that may read the namespace is enough for whatever only looks; release is refused, and nobody is out."""
    name = f"ledger-{kind}"
    reader = f"{kind}://reader:{SECRET}@{with_users.endpoints[0]}/billing"
    with library.connect(over(with_users, kind).url("billing"), ttl=20, owner="worker-1", journal=True) as client:
        hold = client.lock(name).acquire()
        for command in (("ls", name), ("show", name), ("why", name), ("audit",)):
            done = tenure(*command, url=reader)
            assert (done.code, done.err) == (0, ""), command
        assert tenure("show", name, url=reader).records[0][3] == str(hold.token)
        done = tenure("release", name, "--token", str(hold.token), "--reason", "x", "--yes", url=reader)
        refused(done, "reader")
        hold.check()
        assert client.operator().audit(name) == ()
        assert hold.release() is True


def test_etcd_role_of_the_guide_is_enough_and_leads_nowhere_else(with_users: Cluster) -> None:
    """The commands in deploy/README.md make a user that can do all below its namespace, and nothing beside it."""
    guide = (Path(__file__).parent.parent.parent / "deploy" / "README.md").read_text()
    steps = [line.split()[1:] for line in guide.splitlines() if line.startswith("      etcdctl ")]
    assert steps.pop() == ["auth", "enable"]
    for step in steps:
        done = etcdctl(with_users, *step)
        assert done.returncode == 0, done.stderr
    url = f"etcd://tenure:PASSWORD@{with_users.endpoints[0]}"
    with library.connect(f"{url}/locks", ttl=20, journal=True) as client, client.lock("a").acquire() as hold:
        hold.store.put("x", b"1")
        with pytest.raises(library.PermissionDenied):
            hold.store.absolute.put("elsewhere/x", b"1")
        stuck = client.lock("b").acquire()
        client.operator().force_release("b", token=stuck.token, reason="stuck")
        assert client.operator().history("a") is not None
        hold.store.delete("x")
    with library.connect(f"{url}/billing", ttl=20) as client, pytest.raises(library.PermissionDenied):
        client.lock("a").acquire()


def test_zookeeper_what_is_another_identitys_alone(singles: dict[str, Cluster]) -> None:
    """Others may not look at what a client with a user created: 77, with and without a user of their own."""
    endpoint = singles["zookeeper"].endpoints[0]
    place = f"{endpoint}/cli-acl?tick=0.2"
    with library.connect(f"zookeeper://me:{SECRET}@{place}", ttl=20, owner="worker-1") as client:
        hold = client.lock("ledger").acquire()
        forced = client.lock("mail").acquire()
        client.operator().force_release("mail", token=forced.token, reason="so that there is an audit", actor="me")
        for command in LOOKING_AND_MENDING:
            if command[0] == "release":
                command = ("release", "ledger", "--token", str(hold.token), "--reason", "x", "--yes")
            for who in ("", "you:wr0ng@"):
                refused(tenure(*command, url=f"zookeeper://{who}{place}"), "ACL" if who else "user")
        assert tenure("show", "ledger", url=f"zookeeper://me:{SECRET}@{place}").records[0][3] == str(hold.token)
        hold.check()
        assert hold.release() is True


@pytest.mark.parametrize("command", [("run",), ("elect", "--once")])
def test_password_of_the_store_does_not_reach_cmd(with_users: Cluster, command: tuple[str, ...]) -> None:
    """Unless it is handed on under another name: whoever may run CMD reads its environment."""
    url = f"etcd://root:{SECRET}@{with_users.endpoints[0]}/billing"
    look = ("sh", "-c", 'tr "\\0" "\\n" < /proc/self/environ; tr "\\0" "\\n" < /proc/$PPID/environ')
    done = tenure(*command, "report", "--", *look, url=url)
    assert "TENURE_TOKEN=" in done.out
    assert SECRET not in done.out
    assert tenure(*command, "report", "--", "printenv", "STORE", url=url, given={"STORE": url}).out == f"{url}\n"
