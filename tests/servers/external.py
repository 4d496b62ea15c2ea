"""Servers somebody else runs, named by TENURE_TEST_ETCD and TENURE_TEST_ZOOKEEPER as "host:port,host:port".

They can be used and asked, not broken: killing or pausing a member raises ServerFailed. Every cluster is the same
cluster, with whatever data it has; nothing is cleaned up. Without TLS, without login.
"""

from __future__ import annotations

import os
from typing import NoReturn

from tenure.testing.servers.cluster import Cluster, Member
from tenure.testing.servers.specs import EtcdSpec, ServerFailed, ServersMissing, Spec, ZooKeeperSpec

ETCD_VARIABLE = "TENURE_TEST_ETCD"
ZOOKEEPER_VARIABLE = "TENURE_TEST_ZOOKEEPER"


class ExternalProvider:
    """Hands out the servers the environment names."""

    def etcd(self, spec: EtcdSpec) -> Cluster:
        """Raises ServersMissing when there are none, or none as the spec wants them."""
        if spec.auth or not spec.gateway:
            raise ServersMissing(f"{ETCD_VARIABLE} names servers with the gateway and no login; use --servers=native.")
        return _cluster(spec, ETCD_VARIABLE)

    def zookeeper(self, spec: ZooKeeperSpec) -> Cluster:
        """Raises ServersMissing when there are none, or none as the spec wants them."""
        return _cluster(spec, ZOOKEEPER_VARIABLE)

    def close(self) -> None:
        """Do nothing: the servers are not ours."""


def _cluster(spec: Spec, variable: str) -> Cluster:
    endpoints = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
    if len(endpoints) < spec.size or spec.tls != "off":
        raise ServersMissing(
            f"{variable} names {len(endpoints)} servers without TLS; wanted: {spec.size}, TLS {spec.tls}. "
            "Set it to host:port,..., or run tests/servers/install.sh and use --servers=native."
        )
    machine = _SomebodyElses()
    members = [Member(endpoint=end, metrics_endpoint=end, machine=machine) for end in endpoints]
    cluster = Cluster(spec, members, tls=None, close=lambda: None)
    cluster.wait_ready()
    return cluster


class _SomebodyElses:
    """A `Machine` (see cluster.py) nobody here may touch."""

    @property
    def pid(self) -> int:
        _refuse("ask for the process id of")

    def launch(self) -> None:
        _refuse("start")

    def kill(self) -> None:
        _refuse("kill")

    def pause(self) -> None:
        _refuse("pause")

    def resume(self) -> None:
        _refuse("resume")

    def check_alive(self) -> None:
        """Unknown, so no complaint."""

    def log_tail(self) -> str:
        return self.log()

    def log(self) -> str:
        return "(the log of an external server is not at hand)"


def _refuse(action: str) -> NoReturn:
    raise ServerFailed(f"cannot {action} an external server: this test needs --servers=native or containers")
