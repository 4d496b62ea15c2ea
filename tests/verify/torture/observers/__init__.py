"""The store's own word on tickets and leases, as `truth` events, taken on a way that no fault cuts.

    truth      what every observer delivers
    moments    between which two moments something happened that was seen from afar
    gateway    requests to etcd's gateway and its watch stream, without the library
    etcd       a watch of all keys from the first revision on, and the list of leases asked again and again
    tickets    what etcd's keys say
    zookeeper  the servers' transaction logs, read after the run
    jute       how such a log is written

Nothing here goes through the library's own drivers. What an observer could not see to the end it says, and then what
rests on it is unknown.
"""

from __future__ import annotations

from tenure.testing.servers import Cluster
from tests.verify.torture.observers.etcd import EtcdObserver
from tests.verify.torture.observers.truth import Observer, Truth
from tests.verify.torture.observers.zookeeper import ZooKeeperObserver

__all__ = ["Observer", "Truth", "observer"]


def observer(cluster: Cluster, url: str, namespace: str) -> Observer:
    """An observer of `namespace` from now on. Close it."""
    if cluster.kind == "etcd":
        return EtcdObserver(url, namespace)
    return ZooKeeperObserver(cluster, url, namespace)
