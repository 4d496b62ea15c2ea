"""The names and addresses of one run, which no other run has at the same time.

A run owns one /24 of 198.18.0.0/16, the range that is set aside for tests of networks (RFC 2544). Which one is claimed
by binding an abstract socket: the kernel gives it to one process only, and gives it back when that process ends.
"""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass

from tests.verify.torture.rig.shell import RigMissing, run

PREFIX = "tenure"
CLIENTS_MAX = 40
_TRIES_MAX = 40
_SERVERS_FROM, _CLIENTS_FROM, _LINKS_FROM = 10, 50, 100


@dataclass(frozen=True)
class Addresses:
    """A claimed range of addresses. Places are named as in parts: "server-0", "client-0"."""

    number: int
    pid: int
    claim: socket.socket

    @property
    def name(self) -> str:
        """The beginning of every namespace's name in this run; leftovers reads the process id out of it."""
        return f"{PREFIX}-{self.pid}-{self.number}"

    @property
    def host_link(self) -> str:
        """The interface on the host's side; at most fifteen characters."""
        return f"hf{self.number}-{self.pid}"

    @property
    def host(self) -> str:
        """The runner's own address, from which it observes."""
        return self._address(1)

    def namespace(self, place: str) -> str:
        return f"{self.name}-{place}"

    def of(self, place: str) -> str:
        """A place's address."""
        kind, _, number = place.partition("-")
        return self._address((_SERVERS_FROM if kind == "server" else _CLIENTS_FROM) + int(number))

    def link(self, client: int, server: int) -> str:
        """The address of the proxy between a client and a server."""
        return self._address(_LINKS_FROM + 3 * client + server)

    def release(self) -> None:
        """Let others have the range."""
        self.claim.close()

    def _address(self, last: int) -> str:
        return f"198.18.{self.number}.{last}"


def claim_addresses() -> Addresses:
    """A range that nobody else has. Raises RigMissing when none is found."""
    for number in random.sample(range(1, 255), _TRIES_MAX):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0tenure-torture-{number}")
        except OSError:
            claim.close()
            continue
        found = Addresses(number, os.getpid(), claim)
        if _is_free(found.host):
            return found
        claim.close()
    raise RigMissing(f"no free range of addresses in 198.18.0.0/16 within {_TRIES_MAX} tries")


def _is_free(address: str) -> bool:
    """True where this machine has no route there but the default."""
    routes = run("ip", "-o", "route", "show", "to", "match", address).splitlines()
    return all(route.startswith("default") for route in routes)
