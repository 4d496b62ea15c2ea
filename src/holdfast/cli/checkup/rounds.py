"""All checks of one store, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.cli.checkup import etcd, versions, zookeeper
from holdfast.cli.checkup.finding import Finding
from holdfast.cli.checkup.service import look_at_clock, look_at_service
from holdfast.cli.tuning.renewals import Connect
from holdfast.options import Options, shown

_AT_ONCE_MAX: Final = 8


def findings(options: Options, connect: Connect) -> Iterator[Finding]:
    """Each as it is found: the endpoints first, then the store as a client finds it, then this machine."""
    look = {"etcd": etcd.look, "etcd+grpc": etcd.look, "zookeeper": zookeeper.look}.get(options.scheme)
    known = []
    if look is not None:  # a backend of somebody else's: only a client knows how to reach it
        with ThreadPoolExecutor(_AT_ONCE_MAX) as pool:
            looks = [pool.submit(look, endpoint, options, options.timeout) for endpoint in options.endpoints]
            for endpoint, done in zip(options.endpoints, looks, strict=True):
                found, version = done.result()
                yield from found
                if version is not None:
                    known.append((shown(endpoint), version))
    mixed = versions.differing(known)
    if mixed is not None:
        yield mixed
    yield from look_at_service(options, connect)
    yield look_at_clock()
