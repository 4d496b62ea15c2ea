"""Both real stores, each behind a proxy that can cut it off, with a namespace of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.servers import Cluster, FaultProxy

TTL = 4.0


class Site:
    """One store, and how to cut clients off from it."""

    def __init__(self, url: str, proxy: FaultProxy) -> None:
        self.url = url
        self.proxy = proxy


@pytest.fixture(params=["etcd", "zookeeper"])
def site(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> Iterator[Site]:
    """A store behind a proxy."""
    cluster = singles[request.param]
    with FaultProxy(cluster.endpoints[0], cluster.kind) as proxy:
        query = "" if cluster.kind == "etcd" else "&tick=0.2"
        namespace = f"telemetry-{secrets.token_hex(4)}"
        yield Site(f"{cluster.kind}://{proxy.endpoint}/{namespace}?ttl={TTL:g}&timeout=2{query}", proxy)
        proxy.heal()
