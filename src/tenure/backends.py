"""The stores. Each is imported only when a URL names it, so that nobody pays for another's client.

A store of your own: an opener that takes the checked options and parts of the client's runtime (`Options`,
`BackendContext`) and gives a `Backend`, without connecting to anything yet. `register` it, or name it in your
package's metadata (see _core/base/schemes.py). What a backend promises stands in _core/lease.py, and whether it does is
shown by `tenure.testing.conformance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tenure._core.base import schemes
from tenure._core.base.options import Options
from tenure._core.lease import Backend, BackendContext

Opener: TypeAlias = Callable[[Options, BackendContext], Backend]
_PARTS: Final = ("name", "open", "statistics", "close")


def register(scheme: str, opener: Opener) -> None:
    """Let `opener` open every URL that begins with `scheme`://.

    For the whole process and for good: one of our own schemes, or another opener for a scheme that has one, is
    refused. Raises InvalidOption.
    """
    schemes.register(scheme, opener)


def open_backend(options: Options, context: BackendContext) -> Backend:
    """The backend of `options.scheme`. Connects to nothing yet."""
    match options.scheme:
        case "etcd" | "etcd+grpc":
            from tenure._backends.etcd import EtcdBackend

            return EtcdBackend(options, context)
        case "zookeeper":
            from tenure._backends.zookeeper import ZooKeeperBackend

            return ZooKeeperBackend(options, context)
        case "http" | "https":
            from tenure._backends.service import ServiceBackend

            return ServiceBackend(options, context)
        case "memory":
            from tenure._backends.memory import MemoryBackend

            return MemoryBackend(options, context)
        case scheme:
            return _checked(scheme, schemes.opener(scheme)(options, context))


def _checked(scheme: str, backend: Backend) -> Backend:
    if missing := [part for part in _PARTS if not hasattr(backend, part)]:
        raise TypeError(f"what opens {scheme}:// gave {backend!r}, which is no Backend: it has no {', '.join(missing)}")
    return backend
