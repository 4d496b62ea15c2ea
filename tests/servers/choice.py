"""Which provider a test run uses."""

from __future__ import annotations

from .cluster import Provider
from .containers import ContainerProvider, etcd_image, zookeeper_image
from .external import ExternalProvider
from .native import NativeProvider
from .specs import ServersMissing

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
