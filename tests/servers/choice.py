"""Choice of the provider that a test run uses."""

from __future__ import annotations

from tenure.testing.servers.cluster import Provider
from tenure.testing.servers.native import NativeProvider
from tenure.testing.servers.specs import ServersMissing
from tests.servers.containers import ContainerProvider, etcd_image, zookeeper_image
from tests.servers.external import ExternalProvider

PROVIDER_NAMES = ("native", "containers", "external", "auto")


def choose(name: str) -> Provider:
    """The provider of that name; "auto" is containers where docker and both images are to be had, else native.

    Raises ServersMissing when containers were asked for and cannot be had, ValueError for an unknown name.
    """
    if name == "native":
        return NativeProvider()
    if name == "external":
        return ExternalProvider()
    if name == "containers":
        return _containers()
    if name == "auto":
        return _containers_or_native()
    raise ValueError(f"unknown servers {name!r}: choose one of {', '.join(PROVIDER_NAMES)}")


def _containers() -> ContainerProvider:
    provider = ContainerProvider()
    try:
        for image in (etcd_image(), zookeeper_image()):
            provider.require_image(image)
    except ServersMissing:
        provider.close()
        raise
    return provider


def _containers_or_native() -> Provider:
    try:
        return _containers()
    except ServersMissing:
        return NativeProvider()
