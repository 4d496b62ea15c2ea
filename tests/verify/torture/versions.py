"""Versions of the library, and of the servers by their own word."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from tenure.testing.servers import Cluster, etcd_counters, zk_four_letter


def own_version() -> str:
    """The library's, as it was installed; from a checkout that was not there is none."""
    try:
        return version("tenure")
    except PackageNotFoundError:
        return "of a checkout"


def version_of(cluster: Cluster) -> str:
    """The version that the first member tells. Raises OSError."""
    endpoint = cluster.members[0].metrics_endpoint
    if cluster.kind == "zookeeper":
        match = re.search(r"Zookeeper version: ([^-, ]+)", zk_four_letter(endpoint, "srvr"))
    else:
        match = re.search(r'etcd_server_version\{server_version="([^"]+)"\}', " ".join(etcd_counters(endpoint)))
    return match[1] if match else "of an unknown version"
