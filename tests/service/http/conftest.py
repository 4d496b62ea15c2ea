"""Services over real stores. A namespace is a test's own, or a module's where the service is."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tests.servers import Cluster
from tests.service.http.program import Service, Token, User, serving, write_tokens

KINDS = ("etcd", "zookeeper")
BILLING = Token("billing-secret", "billing-app", "billing", "acquire,write,read,elect,operate")
SHIPPING = Token("shipping-secret", "shipping-app", "shipping", "acquire,write,read,elect,operate")
ONCALL = Token("oncall-secret", "on-call", "*", "acquire,write,read,elect,operate,metrics")
HOLDER = Token("holder-secret", "holder", "billing", "acquire,read")
LOOKER = Token("looker-secret", "looker", "billing", "read")


def url_of(clusters: dict[str, Cluster], kind: str) -> str:
    """A namespace where nobody was before."""
    options = {"tick": 0.2} if kind == "zookeeper" else {}
    return clusters[kind].url(f"serve-{uuid.uuid4().hex}", **options)


@pytest.fixture(scope="module", params=KINDS)
def store_url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """The store of a module's service."""
    return url_of(singles, request.param)


@pytest.fixture
def url(singles: dict[str, Cluster]) -> str:
    """A store of the test's own, for what has nothing to do with stores."""
    return url_of(singles, "etcd")


@pytest.fixture(scope="module")
def open_service(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that asks for no token, shared by the module."""
    with serving(store_url, tmp_path_factory.mktemp("open")) as service:
        yield service


@pytest.fixture
def user(open_service: Service) -> Iterator[User]:
    """A client of it."""
    with open_service.user() as user:
        yield user


@pytest.fixture
def other(open_service: Service) -> Iterator[User]:
    """Another one."""
    with open_service.user() as user:
        yield user


@pytest.fixture
def client(store_url: str) -> Iterator[tenure.Client]:
    """A program with the library, in the same namespace."""
    with tenure.connect(store_url, ttl=20, owner="library", journal=True) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that nobody uses."""
    return f"n-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the tokens above."""
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", BILLING, SHIPPING, ONCALL, HOLDER, LOOKER)


@pytest.fixture(scope="module")
def guarded_service(store_url: str, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for tenants, shared by the module."""
    with serving(store_url, tmp_path_factory.mktemp("guarded"), "--tokens", str(tokens)) as service:
        yield service
