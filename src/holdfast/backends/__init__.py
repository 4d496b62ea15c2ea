"""The stores. Each is imported only when a URL names it, so that nobody pays for another's client.

A store of your own: an opener that takes the checked options and what the house lends (`Options`,
`Surroundings`) and gives a `Backend`, without connecting to anything yet. `register` it, or name it in your
package's metadata (see schemes.py). What a backend promises stands in lease.py, and whether it does is shown
by `holdfast.testing.conformance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from holdfast import schemes
from holdfast.lease import Backend, Surroundings
from holdfast.options import Options

Opener: TypeAlias = Callable[[Options, Surroundings], Backend]
_PARTS: Final = ("name", "open", "statistics", "close")


def register(scheme: str, opener: Opener) -> None:
    """Let `opener` open every URL that begins with `scheme`://.

    For the whole process and for good: one of our own schemes, or another opener for a scheme that has one, is
    refused. Raises InvalidOption.
    """
    schemes.register(scheme, opener)


def open_backend(options: Options, around: Surroundings) -> Backend:
    """The backend of `options.scheme`. Connects to nothing yet."""
    match options.scheme:
        case "etcd" | "etcd+grpc":
            from holdfast.backends.etcd import EtcdBackend

            return EtcdBackend(options, around)
        case "zookeeper":
            from holdfast.backends.zookeeper import ZooKeeperBackend

            return ZooKeeperBackend(options, around)
        case "http" | "https":
            from holdfast.backends.service import ServiceBackend

            return ServiceBackend(options, around)
        case "memory":
            from holdfast.backends.memory import MemoryBackend

            return MemoryBackend(options, around)
        case scheme:
            return _checked(scheme, schemes.opener(scheme)(options, around))


def _checked(scheme: str, backend: Backend) -> Backend:
    if missing := [part for part in _PARTS if not hasattr(backend, part)]:
        raise TypeError(f"what opens {scheme}:// gave {backend!r}, which is no Backend: it has no {', '.join(missing)}")
    return backend
