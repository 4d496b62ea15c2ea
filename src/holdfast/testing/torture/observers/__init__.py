"""The store's own word on tickets and leases, as `truth` events, taken on a way that no fault cuts.

    truth.py       what every observer delivers
    moments.py     between which two moments something happened that was seen from afar
    etcd.py        one watch of all keys from the first revision on, and the list of leases asked again and again
    tickets.py     what etcd's keys say
    zookeeper.py   the servers' transaction logs, read after the run
    jute.py        how such a log is written

Nothing here goes through the library's own drivers. What an observer could not see to the end it says, and then what
rests on it is unknown.
"""

from __future__ import annotations

from holdfast.testing.servers import Cluster
from holdfast.testing.torture.observers.etcd import EtcdObserver
from holdfast.testing.torture.observers.truth import Observer, Truth
from holdfast.testing.torture.observers.zookeeper import ZooKeeperObserver

__all__ = ["Observer", "Truth", "observer"]


def observer(cluster: Cluster, url: str, namespace: str) -> Observer:
    """One that observes `namespace` from now on. Close it."""
    if cluster.kind == "etcd":
        return EtcdObserver(url, namespace)
    return ZooKeeperObserver(cluster, url, namespace)
