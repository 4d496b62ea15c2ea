"""A store that went back stops its client, and guards refuse its tokens until the operator raises the incarnation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import tenure
from tenure import Fence, LeaseLost, StaleToken, StoreWentBack
from tenure.fencing.sql import SQLGuard
from tests.servers import Cluster, EtcdSpec, Provider, ZooKeeperSpec, etcd_restore, etcdctl


def etcd_goes_back(cluster: Cluster, past: Path, work: Callable[[], None]) -> None:
    """Snapshot, `work`, restore."""
    member = cluster.members[0]
    etcdctl(cluster, "snapshot", "save", str(past))
    work()
    member.kill()
    etcd_restore(cluster, member, past)
    member.start()


def zookeeper_goes_back(cluster: Cluster, past: Path, work: Callable[[], None]) -> None:
    """A copy of the data directory, `work`, the copy put back."""
    member = cluster.members[0]
    data = member._machine.directory / "data"  # type: ignore[attr-defined]  # a process, here
    member.kill()
    shutil.copytree(data, past)
    member.start()
    work()
    member.kill()
    shutil.rmtree(data)
    shutil.copytree(past, data)
    member.start()


BOTH = pytest.mark.parametrize(
    ("kind", "goes_back"), [("etcd", etcd_goes_back), ("zookeeper", zookeeper_goes_back)], ids=["etcd", "zookeeper"]
)


@BOTH
def test_store_that_went_back_stops_its_client_and_the_guard_refuses_the_old_incarnation(
    provider: Provider, tmp_path: Path, kind: str, goes_back: Callable[[Cluster, Path, Callable[[], None]], None]
) -> None:
    """Tokens would repeat. The client says so; a new one's are refused until the operator raises the incarnation."""
    cluster = provider.etcd(EtcdSpec()) if kind == "etcd" else provider.zookeeper(ZooKeeperSpec())
    engine, guard = create_engine(f"sqlite:///{tmp_path / 'ledger.db'}"), SQLGuard()
    guard.create(engine)
    fences: list[Fence] = []
    options = {"tick": 0.2} if kind == "zookeeper" else {}

    def write(client: tenure.Client) -> None:
        with client.lock("ledger") as hold, guard.transaction(engine, hold.fence):
            fences.append(hold.fence)

    try:
        with tenure.connect(cluster.url("back", **options), ttl=5) as before:
            write(before)
            goes_back(cluster, tmp_path / "past", lambda: _until_written(before, write, 40))
            with pytest.raises(StoreWentBack, match="connect anew"):
                _until_written(before, write, 5)
            with pytest.raises(StoreWentBack):
                before.lock("other").try_acquire()
        youngest = fences[-1]
        with tenure.connect(cluster.url("back", **options), ttl=5) as unaware:  # has seen nothing, so it can't know
            with unaware.lock("ledger") as hold:
                assert hold.fence < youngest, "the store did not go back: the scene was not set"
            with pytest.raises(StaleToken, match="raise `incarnation=`"):
                write(unaware)
        with tenure.connect(cluster.url("back", **options), ttl=5, incarnation=1) as raised:
            write(raised)
            assert fences[-1].token < youngest.token
        with (
            tenure.connect(cluster.url("back", **options), ttl=5) as late,
            pytest.raises(StaleToken, match="give this"),
        ):
            write(late)
        with pytest.raises(StaleToken), guard.transaction(engine, youngest):
            pass
    finally:
        engine.dispose()
        cluster.close()


def _until_written(client: tenure.Client, write: Callable[[tenure.Client], None], times: int) -> None:
    """Write so often. A lease that a restart ended is another matter: the next try has a new one."""
    for _ in range(10 * times):
        if times == 0:
            return
        try:
            write(client)
        except (LeaseLost, tenure.StoreUnavailable):
            continue
        times -= 1
    raise AssertionError("the store did not come back")
