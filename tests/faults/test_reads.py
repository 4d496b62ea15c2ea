"""How lines are read from etcd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure import Put
from tenure._core.drivers.blocking import run
from tenure._core.runtime import runtime_of
from tests.servers import Cluster, etcd_counters

from .test_faults import url
from .transports import ETCD, EtcdKind


@ETCD
def test_etcd_lines_and_guarded_keys_are_read_without_transactions(singles: dict[str, Cluster], kind: EtcdKind) -> None:
    """A client that is killed within a read-only transaction takes an older etcd down (its issue 14110)."""
    cluster = singles[kind]

    def started() -> tuple[float, float]:
        counters = etcd_counters(cluster.members[0].metrics_endpoint)
        return counters.get("started:Txn", 0.0), counters.get("started:Range", 0.0)

    with tenure.connect(url(cluster), ttl=30) as client, client.election("a", value="v").campaign() as hold:
        election, operator = client.election("a"), client.operator()
        transactions, ranges = started()
        assert election.leader() is not None
        assert operator.line("a").holders[0].id == hold.id
        assert [line.name for line in operator.lines()] == ["a"]
        assert operator.audit() == ()
        assert hold.store.get("k") is None
        after = started()
        assert after[0] == transactions
        assert after[1] >= ranges + 6


@ETCD
def test_etcd_guarded_keys_read_together_are_as_they_stood_at_one_moment(
    singles: dict[str, Cluster], kind: EtcdKind
) -> None:
    """A commit that comes in between is seen in both or in none; a ticket that went in between is StaleToken."""
    with tenure.connect(url(singles[kind]), ttl=30) as client:
        hold = client.lock("a").acquire()
        hold.store.commit(Put("x", b"1"), Put("y", b"1"))
        wire = hold._lease._wire  # type: ignore[attr-defined]  # etcd's
        read = wire.range
        between: list[Callable[[], object]] = [lambda: hold.store.commit(Put("x", b"2"), Put("y", b"2"))]

        def with_something_between(*asked: Any) -> Any:
            found = read(*asked)
            if between:
                between.pop()()
            return found

        wire.range = with_something_between
        found = run(hold._reading(("x", "y")), runtime_of(client).clock)
        assert not between
        assert [record.value for record in found if record] == [b"1", b"1"]
        between.append(lambda: client.operator().force_release("a", token=hold.token, reason="test", actor="test"))
        with pytest.raises(tenure.StaleToken):
            hold.store.get("x")
