"""The stores. Each is imported only when a URL names it, so that nobody pays for another's client."""

from __future__ import annotations

from holdfast.lease import Backend, Surroundings
from holdfast.options import Options


def open_backend(options: Options, around: Surroundings) -> Backend:
    """The backend of `options.scheme`. Connects to nothing yet."""
    match options.scheme:
        case "etcd":
            from holdfast.backends.etcd import EtcdBackend

            return EtcdBackend(options, around)
        case "zookeeper":
            from holdfast.backends.zookeeper import ZooKeeperBackend

            return ZooKeeperBackend(options, around)
        case _:
            from holdfast.backends.memory import MemoryBackend

            return MemoryBackend(options, around)
