"""A rig without root: servers on loopback, and a proxy between each client and each server.

What it can't do: break a link between two servers, lose single packets, or hide one client from another. A cut is a
proxy that swallows; the client's kernel still gets its acknowledgements, as from a server that was stopped.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from tenure.testing.servers import FaultProxy, NativeProvider, start
from tenure.testing.servers.specs import Spec
from tests.verify.torture.parts import Need
from tests.verify.torture.rig.leftovers import own_prefix, sweep_directories
from tests.verify.torture.rig.shell import RigMissing
from tests.verify.torture.rig.urls import rotated, url_by_way_of


class LoopbackRig:
    """A `Rig` of proxies on loopback."""

    def __init__(self, spec: Spec, *, clients: int, has: frozenset[Need], seed: int) -> None:
        self._seed = seed
        self.clients: Sequence[str] = tuple(f"client-{n}" for n in range(clients))
        self.has = has
        self._undo = ExitStack()
        try:
            self._build(spec)
        except BaseException:  # an interrupt must not leave servers behind either
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<LoopbackRig {self.cluster}>"

    @property
    def truth_url(self) -> str:
        return url_by_way_of(self.cluster, self.cluster.endpoints)

    def url(self, place: str) -> str:
        ways = [proxy.endpoint for (client, _), proxy in self.proxies.items() if client == place]
        return url_by_way_of(self.cluster, rotated(ways, self._seed + self.clients.index(place)))

    def reached(self, place: str) -> Sequence[str]:
        return [server for (client, server), p in self.proxies.items() if client == place and p.connections]

    def command(self, place: str) -> Sequence[str]:
        return ()

    def close(self) -> None:
        self._undo.close()

    def _build(self, spec: Spec) -> None:
        sweep_directories()
        provider = NativeProvider(prefix=own_prefix())
        self._undo.callback(provider.close)
        self.cluster = start(provider, spec)
        self.proxies: Mapping[tuple[str, str], FaultProxy] = {
            (client, f"server-{n}"): self._undo.enter_context(FaultProxy(endpoint, self.cluster.kind))
            for client in self.clients
            for n, endpoint in enumerate(self.cluster.endpoints)
        }
        self.network = ProxiedNetwork(_Links(self.proxies))


class ProxiedNetwork:
    """A `Network` of proxies: it knows links between a client and a server only. Thread-safe."""

    def __init__(self, links: _Links) -> None:
        self._links = links
        self._mine: list[tuple[str, str]] = []

    def layer(self) -> ProxiedNetwork:
        return ProxiedNetwork(self._links)

    def cut(self, sender: str, receiver: str) -> None:
        self._links.count(sender, receiver, +1)
        self._mine.append((sender, receiver))

    def reset(self, one: str, other: str) -> None:
        client, server = (one, other) if one.startswith("client") else (other, one)
        self._links.count(client, _REFUSED + server, +1)
        self._mine.append((client, _REFUSED + server))

    def lose(self, place: str, share: float) -> None:
        raise RigMissing(f"on loopback no packets of {place} can be lost: run as root, for network namespaces")

    def heal(self) -> None:
        while self._mine:
            self._links.count(*self._mine.pop(), -1)


_REFUSED = "refused:"


class _Links:
    """The number of faults on each link in each direction, handed on to the proxy between the two. Thread-safe."""

    def __init__(self, proxies: Mapping[tuple[str, str], FaultProxy]) -> None:
        self._proxies = proxies
        self._lock = threading.Lock()  # guards _times, and the order in which a proxy is told
        self._times: Counter[tuple[str, str]] = Counter()

    def count(self, sender: str, receiver: str, by: int) -> None:
        """Count a fault more, or one less, from `sender` to `receiver`."""
        client, server = (sender, receiver) if sender.startswith("client") else (receiver, sender)
        server = server.removeprefix(_REFUSED)
        proxy = self._proxies.get((client, server))
        if proxy is None:
            raise RigMissing(
                f"on loopback the link between {sender} and {receiver} can't be broken: "
                "run as root, for network namespaces"
            )
        with self._lock:
            self._times[sender, receiver] += by
            self._tell(proxy, client, server, mended=by < 0)

    def _tell(self, proxy: FaultProxy, client: str, server: str, *, mended: bool) -> None:
        to_server, to_client = self._times[client, server] > 0, self._times[server, client] > 0
        refused = self._times[client, _REFUSED + server] > 0
        if mended and not refused:
            proxy.heal()
        proxy.blackhole(to_server=to_server, to_client=to_client)
        if refused:
            proxy.refuse()
