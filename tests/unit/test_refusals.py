"""What a client that has stopped for good raises at each call: a new error, that keeps nothing of the calls before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure._backends.etcd.requests import Header
from tenure._backends.etcd.wire import RevisionHistory as EtcdHistory
from tenure._backends.zookeeper.lease import ZooKeeperLease
from tenure._backends.zookeeper.lines import ZxidHistory as ZooKeeperHistory
from tenure._core.base.clock import VirtualClock
from tenure._core.base.options import parse
from tenure._core.lease import BackendContext
from tenure.errors import StoreRefused, StoreUnavailable, StoreWentBack, TenureError, TLSFailed
from tenure.events import Hub
from tests.unit.fakes import ImmediateWorkers

UNTIL = 2000.0


def raised(call: Callable[[], object]) -> tuple[type[TenureError], str, int]:
    """The error's kind, its words, and through how many frames it has come."""
    with pytest.raises(TenureError) as caught:
        call()
    return type(caught.value), str(caught.value), len(caught.traceback)


def zookeeper_lease() -> ZooKeeperLease:
    clock = VirtualClock()
    context = BackendContext(clock, Hub(clock.now), ImmediateWorkers())
    return ZooKeeperLease(parse("zookeeper://nowhere/ns", {}), 10.0, 5.0, context, ZooKeeperHistory("zk"))


def etcd_of_another_cluster() -> Callable[[], object]:
    history = EtcdHistory("etcd")
    history.check(Header(1, 5), 0)
    raised(lambda: history.check(Header(2, 5), 0))
    return lambda: history.revision


def etcd_that_went_back() -> Callable[[], object]:
    history = EtcdHistory("etcd")
    for kind in (StoreUnavailable, StoreUnavailable, StoreWentBack):
        assert raised(lambda: history.check(Header(1, 5), 9))[0] is kind
    return history.check_unbroken


def zookeeper_that_went_back() -> Callable[[], object]:
    history = ZooKeeperHistory("zk")
    raised(lambda: history.check(5, 9))
    return lambda: history.highest


def zookeeper_without_tls() -> Callable[[], object]:
    connection = zookeeper_lease()._connection
    connection._refuse(TLSFailed("no handshake"))
    return lambda: connection.wait_connected(UNTIL)


def zookeeper_that_grants_too_little() -> Callable[[], object]:
    lease = zookeeper_lease()
    lease._refuse(4.0)
    return lambda: lease.renew(UNTIL)


@pytest.mark.parametrize(
    ("stopped", "kind"),
    [
        (etcd_of_another_cluster, StoreWentBack),
        (etcd_that_went_back, StoreWentBack),
        (zookeeper_that_went_back, StoreWentBack),
        (zookeeper_without_tls, TLSFailed),
        (zookeeper_that_grants_too_little, StoreRefused),
    ],
)
def test_error_of_a_client_that_has_stopped_is_a_new_one_at_each_call(
    stopped: Callable[[], Callable[[], object]], kind: type[TenureError]
) -> None:
    """One instance raised over and over grows by a traceback each time, and keeps all that was in those frames."""
    call = stopped()
    first, *later = [raised(call) for _ in range(4)]
    assert first[0] is kind
    assert later == [first] * 3
