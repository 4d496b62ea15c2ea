"""Network namespaces, one per server and per client, and a bridge between them in a namespace of its own.

The bridge is not on the host, so that the host's firewall has no say in what passes between places. One pair of
interfaces joins the host to it: the way on which the runner observes, and on which its proxies are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tenure.testing.servers import Cluster, FaultProxy, MemberSite, NativeProvider, start
from tenure.testing.servers.specs import Spec
from tests.verify.torture.parts import Need
from tests.verify.torture.rig.addresses import CLIENTS_MAX, Addresses, claim_addresses
from tests.verify.torture.rig.filters import FilteredNetwork
from tests.verify.torture.rig.leftovers import namespaces, own_prefix, sweep_directories, sweep_namespaces
from tests.verify.torture.rig.shell import RigMissing, run, run_all
from tests.verify.torture.rig.urls import rotated, url_by_way_of

DISK_BYTES = 256 * 1024 * 1024  # etcd alone takes two log segments of 64 MiB in advance
_HUB = "hub"


class NamespacesRig:
    """A `Rig` of namespaces. Needs root. What exists so far is taken away when the rest fails."""

    def __init__(self, spec: Spec, *, clients: int, needs: frozenset[Need], has: frozenset[Need], seed: int) -> None:
        self._seed = seed
        if not 0 < clients <= CLIENTS_MAX:
            raise RigMissing(f"{clients} clients: between 1 and {CLIENTS_MAX} find room")
        self.clients: Sequence[str] = tuple(f"client-{n}" for n in range(clients))
        self.has = has
        self._undo = ExitStack()
        try:
            self._build(spec, needs)
        except BaseException:  # an interrupt must not leave namespaces behind either
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<NamespacesRig {self._addresses.name} {self.cluster}>"

    @property
    def truth_url(self) -> str:
        return url_by_way_of(self.cluster, self.cluster.endpoints)

    def url(self, place: str) -> str:
        ways = rotated(self._ways[place], self._seed + self.clients.index(place))
        return url_by_way_of(self.cluster, ways)

    def reached(self, place: str) -> Sequence[str]:
        return self.network.reached(place)

    def command(self, place: str) -> Sequence[str]:
        return _inside(self._addresses.namespace(place))

    def close(self) -> None:
        self._undo.close()

    def _build(self, spec: Spec, needs: frozenset[Need]) -> None:
        sweep_namespaces()
        sweep_directories()
        servers = tuple(f"server-{n}" for n in range(spec.size))
        self._addresses = claim_addresses()
        self._undo.callback(self._addresses.release)
        self._undo.callback(_take_down, self._addresses)
        _lay_out(self._addresses, (*servers, *self.clients))
        self.cluster = self._start(spec, servers, _mount_small_disk if "tmpfs" in needs else None)
        self.proxies: Mapping[tuple[str, str], FaultProxy] = self._proxies(servers) if "proxies" in needs else {}
        self._ways = {client: self._way(client, servers) for client in self.clients}
        seen = {
            (client, server): self._addresses.link(c, s) if self.proxies else self._addresses.of(server)
            for c, client in enumerate(self.clients)
            for s, server in enumerate(servers)
        }
        self.network = FilteredNetwork(self._addresses, seen)

    def _start(self, spec: Spec, servers: Sequence[str], mount: Callable[[Path], Callable[[], None]] | None) -> Cluster:
        sites = [
            MemberSite(self._addresses.of(name), _inside(self._addresses.namespace(name)), mount) for name in servers
        ]
        provider = NativeProvider(sites, prefix=own_prefix())
        self._undo.callback(provider.close)
        return start(provider, spec)

    def _proxies(self, servers: Sequence[str]) -> dict[tuple[str, str], FaultProxy]:
        made: dict[tuple[str, str], FaultProxy] = {}
        for c, client in enumerate(self.clients):
            for s, server in enumerate(servers):
                address = self._addresses.link(c, s)
                run("ip", "address", "add", f"{address}/24", "dev", self._addresses.host_link)
                proxy = FaultProxy(self.cluster.endpoints[s], self.cluster.kind, host=address)
                made[client, server] = self._undo.enter_context(proxy)
        return made

    def _way(self, client: str, servers: Sequence[str]) -> list[str]:
        if not self.proxies:
            return self.cluster.endpoints
        return [self.proxies[client, server].endpoint for server in servers]


def can_lay_out() -> str:
    """Why no namespaces can be made here; "" where they can."""
    addresses = claim_addresses()
    try:
        _lay_out(addresses, ("client-0",))
        for command in (("iptables", "--wait", "--flush"), ("ss", "--no-header", "--tcp")):
            run(*_inside(addresses.namespace("client-0")), *command)
    except RigMissing as error:
        return str(error)
    finally:
        _take_down(addresses)
        addresses.release()
    return ""


def _lay_out(addresses: Addresses, places: Sequence[str]) -> None:
    hub = addresses.namespace(_HUB)
    run("ip", "netns", "add", hub)
    run_all(("ip", "-n", hub, "-batch", "-"), ("link add bridge type bridge", "link set bridge up"))
    _join(addresses, hub, "host", ("ip",), addresses.host_link, addresses.host)
    for place in places:
        inside = addresses.namespace(place)
        run("ip", "netns", "add", inside)
        run("ip", "-n", inside, "link", "set", "lo", "up")
        _join(addresses, hub, place, ("ip", "-n", inside), "eth0", addresses.of(place))


def _join(addresses: Addresses, hub: str, port: str, ip: Sequence[str], interface: str, address: str) -> None:
    """A pair of interfaces: one where `ip` acts, with the address, the other a port of the bridge."""
    run(*ip, "link", "add", interface, "type", "veth", "peer", "name", port, "netns", hub)
    run_all(("ip", "-n", hub, "-batch", "-"), (f"link set {port} master bridge", f"link set {port} up"))
    run_all((*ip, "-batch", "-"), (f"address add {address}/24 dev {interface}", f"link set {interface} up"))


def _take_down(addresses: Addresses) -> None:
    """Whatever was made so far. The host's interface first: a namespace is destroyed some time after it is deleted."""
    if Path("/sys/class/net", addresses.host_link).exists():
        run("ip", "link", "delete", addresses.host_link)
    for name in namespaces():
        if name.startswith(f"{addresses.name}-"):
            run("ip", "netns", "delete", name)


def _inside(namespace: str) -> tuple[str, ...]:
    """The words that a command line there begins with. They become the command: the process id stays."""
    return "ip", "netns", "exec", namespace


def _mount_small_disk(data: Path) -> Callable[[], None]:
    run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tenure-torture", str(data))
    return lambda: _unmount(data)


def _unmount(data: Path) -> None:
    run("umount", "--lazy", str(data))
