"""The run's servers, with etcd over gRPC as a kind of its own."""

from __future__ import annotations

import pytest

from tests.servers import Cluster

from .transports import all_transports


@pytest.fixture(scope="session")
def singles(singles: dict[str, Cluster]) -> dict[str, Cluster]:
    """One of each, by way."""
    return all_transports(singles)


@pytest.fixture(scope="session")
def triples(triples: dict[str, Cluster]) -> dict[str, Cluster]:
    """Three of each, by way."""
    return all_transports(triples)
