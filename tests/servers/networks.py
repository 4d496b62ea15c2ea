"""Docker networks of the tests' own, and the partitions that are made with them.

Every address stays what it was over a disconnect: members find each other again, and a client its members. For that a
network needs a subnet that was asked for; ours lie in 198.19.0.0/16. (198.18.0.0/15 is set aside for tests of networks;
the torture has its lower half.)
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tenure.testing.servers.specs import ServerFailed

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.network import Network

_GROUND: Final = ipaddress.ip_network("198.19.0.0/16")
_PREFIX_BITS: Final = 28
_TRIES_MAX: Final = 20


def make_network(undo: ExitStack) -> Network:
    """A new network, with a subnet nobody has; `undo` removes it. Raises ServerFailed."""
    from docker.errors import APIError
    from docker.types import IPAMConfig, IPAMPool
    from testcontainers.core.network import Network

    for _ in range(_TRIES_MAX):
        pool = IPAMPool(subnet=str(_some_subnet()))
        try:
            network = Network(docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool])}).create()
        except APIError as error:
            if "overlap" in str(error.explanation).lower():
                continue
            raise ServerFailed(f"docker could not make a network: {error.explanation}") from error
        undo.callback(network.remove)
        return network
    raise ServerFailed(f"docker has other networks at {_TRIES_MAX} random places of {_GROUND}; remove some")


def _some_subnet() -> ipaddress.IPv4Network:
    place = random.randrange(2 ** (_PREFIX_BITS - _GROUND.prefixlen))
    first = int(_GROUND.network_address) + place * 2 ** (32 - _PREFIX_BITS)
    return ipaddress.IPv4Network((first, _PREFIX_BITS))


class ClientNetwork:
    """A client's own way from this machine to the members of a cluster. Cut, it is a cable that was pulled."""

    def __init__(self, containers: Sequence[Container], *, port: int) -> None:
        with ExitStack() as undo:
            self._network = make_network(undo)._unwrap_network
            self._network.reload()
            gateway, *others = ipaddress.ip_network(self._network.attrs["IPAM"]["Config"][0]["Subnet"]).hosts()
            self.host = str(gateway)
            """This machine's address in it."""
            self._addresses = {one.id: str(address) for one, address in zip(containers, others, strict=False)}
            self._containers = list(containers)
            self._cut: set[str] = set()
            self.port = port
            for container in containers:
                self._connect(container)
                undo.callback(self._disconnect, container)
            self._undo = undo.pop_all()

    @property
    def endpoints(self) -> list[str]:
        """The members' addresses in it, in the order they were given."""
        return [f"{self._addresses[one.id]}:{self.port}" for one in self._containers]

    def cut(self, *containers: Container) -> None:
        """Cut the way to these members, or to all if none is named, without a word to either side."""
        for container in containers or self._containers:
            if container.id not in self._cut:
                self._disconnect(container)
                self._cut.add(container.id)

    def heal(self) -> None:
        """Let everything through again."""
        for container in self._containers:
            if container.id in self._cut:
                self._connect(container)
                self._cut.discard(container.id)

    def close(self) -> None:
        """Heal, and remove the network."""
        self.heal()
        self._undo.close()

    def _connect(self, container: Container) -> None:
        self._network.connect(container, ipv4_address=self._addresses[container.id])

    def _disconnect(self, container: Container) -> None:
        self._network.disconnect(container)


@contextmanager
def pulled(container: Container, network_name: str) -> Iterator[None]:
    """The container is out of this network meanwhile, and has its address and names in it afterwards."""
    container.reload()
    had = container.attrs["NetworkSettings"]["Networks"][network_name]
    network = container.client.networks.get(network_name)
    network.disconnect(container)
    try:
        yield
    finally:
        network.connect(container, aliases=had["Aliases"], ipv4_address=had["IPAddress"])
