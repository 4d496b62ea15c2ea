"""Links broken by iptables, in the namespaces of the places that they join.

A link between a client and a server is broken in the client's namespace, both ways, by the address that the client
knows the server by: its own, or that of the proxy between them. A link between servers is broken where it arrives.
Nothing here touches the host's own rules, nor the way on which the runner observes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tests.verify.torture.rig.addresses import Addresses
from tests.verify.torture.rig.shell import RigMissing, run

# Resets that others send pass, so that a connection broken on one side hears of it on the other.
_REJECT = ("-p", "tcp", "!", "--tcp-flags", "RST", "RST", "-j", "REJECT", "--reject-with", "tcp-reset")


class FilteredNetwork:
    """A `Network` of namespaces. `seen` says under which address a client sees a server. Thread-safe."""

    def __init__(self, addresses: Addresses, seen: Mapping[tuple[str, str], str]) -> None:
        self._addresses = addresses
        self._seen = seen
        self._lock = threading.Lock()  # guards _rules
        self._rules: list[tuple[str, ...]] = []

    def layer(self) -> FilteredNetwork:
        return FilteredNetwork(self._addresses, self._seen)

    def cut(self, sender: str, receiver: str) -> None:
        if sender.startswith("client"):
            self._add(sender, "OUTPUT", "-d", self._far(sender, receiver), "-j", "DROP")
        elif receiver.startswith("client"):
            self._add(receiver, "INPUT", "-s", self._far(receiver, sender), "-j", "DROP")
        else:
            self._add(receiver, "INPUT", "-s", self._addresses.of(sender), "-j", "DROP")

    def reset(self, one: str, other: str) -> None:
        near, far = (one, other) if one.startswith("client") else (other, one)
        address = self._far(near, far)
        self._add(near, "OUTPUT", "-d", address, *_REJECT)
        self._add(near, "INPUT", "-s", address, *_REJECT)
        # At once also where nobody sends anything.
        try:
            self._inside(near, "ss", "--kill", "--no-header", "--tcp", "dst", address)
        except RigMissing:
            pass  # a kernel that can't: the next packet meets the rules

    def lose(self, place: str, share: float) -> None:
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.4f}", "-j", "DROP")
        self._add(place, "INPUT", "-i", "eth0", "!", "-s", self._addresses.host, *chance)
        self._add(place, "OUTPUT", "-o", "eth0", "!", "-d", self._addresses.host, *chance)

    def heal(self) -> None:
        with self._lock:
            while self._rules:  # one that can't be removed stays on the list
                place, *rule = self._rules[-1]
                self._inside(place, "iptables", "--wait", "--delete", *rule)
                self._rules.pop()

    def reached(self, client: str) -> list[str]:
        """The servers with which the client has a connection now."""
        lines = self._inside(client, "ss", "--no-header", "--tcp", "--numeric", "state", "established").splitlines()
        peers = {line.split()[3].rpartition(":")[0] for line in lines}
        return [server for (near, server), address in self._seen.items() if near == client and address in peers]

    def _far(self, near: str, far: str) -> str:
        if near.startswith("client") and far.startswith("client"):
            raise RigMissing(f"{near} and {far} have no link")
        return self._seen[near, far] if near.startswith("client") else self._addresses.of(far)

    def _add(self, place: str, *rule: str) -> None:
        with self._lock:
            self._inside(place, "iptables", "--wait", "--append", *rule)
            self._rules.append((place, *rule))

    def _inside(self, place: str, *command: str) -> str:
        return run("ip", "netns", "exec", self._addresses.namespace(place), *command)
