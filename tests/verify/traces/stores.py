"""Stores at which a trace is played: a store, and in it a place of the trace's own, with clients whose requests can be
lost.

A real store is one server, named by a URL without TLS and without user: between it and each client stands a proxy that
loses what it is told to lose. Leases come from the house's own backend, so all that is between a face and the server is
the real thing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.options import Options, parse
from tenure._core.base.signals import Signal
from tenure._core.lease import Lease, Ticket
from tenure._core.runtime import Runtime
from tenure.errors import InvalidURL, StoreUnavailable
from tenure.testing.servers.proxy import FaultProxy
from tests.verify.traces.admins import Admin, EtcdAdmin, MemoryAdmin, ZooKeeperAdmin
from tests.verify.traces.commands import KEPT, KEYS, Lost

Outcome = TypeVar("Outcome")
MEMORY: Final = "memory://"
_REQUEST_SECONDS: Final = 15.0
_numbers = itertools.count(1)


def open_store(url: str) -> Store:
    """The store at `url`. Raises InvalidURL, InvalidOption, and StoreUnavailable where nobody answers."""
    options = dataclasses.replace(parse(url, {}), timeout=_REQUEST_SECONDS)
    if options.scheme == "memory":
        return Store(options, MemoryAdmin())
    if len(options.endpoints) > 1 or options.tls or options.user:
        raise InvalidURL(f"{options.display}: traces are played at one server, without TLS and without user")
    admins: Mapping[str, Callable[[tuple[str, int]], Admin]] = {"etcd": EtcdAdmin, "zookeeper": ZooKeeperAdmin}
    if options.scheme not in admins:
        raise InvalidURL(f"{options.display}: traces know the administration of {', '.join(admins)} only")
    return Store(options, admins[options.scheme](options.endpoints[0]))


class Store:
    """A store, and its administrator. Close it after use."""

    def __init__(self, options: Options, admin: Admin) -> None:
        self.kind = options.scheme
        self.name = options.display
        self._options = options
        self._admin = admin

    def place(self) -> Place:
        """A new place, that nobody else has."""
        return Place(self._options, self._admin)

    def close(self) -> None:
        self._admin.close()


class Place:
    """The namespace and clients of one playing. `close` removes all of it."""

    def __init__(self, options: Options, admin: Admin) -> None:
        self.kind = options.scheme
        self._admin = admin
        number = f"{os.getpid():x}-{next(_numbers)}-{os.urandom(4).hex()}"
        self.namespace = f"traces-{number}"
        self.root = f"{self.namespace}-data/"
        store = ((f"traces-{number}", 0),) if self.kind == "memory" else options.endpoints
        self._options = dataclasses.replace(options, endpoints=store, namespace=self.namespace)
        self.lost: Counter[str] = Counter()
        """What has really been lost, by verb."""
        self._runtimes: dict[str, tuple[Runtime, Losses]] = {}
        self._rest = contextlib.ExitStack()
        self._rest.callback(admin.clean, self.namespace, [self.root + key for key in KEYS])
        admin.prepare(self.namespace, KEPT)

    def open(self, client: str, ttl: float, lock_delay: float) -> Lease:
        """A lease of this client's."""
        return self._client(client)[0]._backend.open(ttl, lock_delay)

    def lose(self, client: str, what: Lost, verb: str, ticket_id: str) -> None:
        """The next request of this verb for this ticket, or its answer, is lost."""
        self._client(client)[1].lose(what, verb, ticket_id)

    def forget(self, client: str) -> None:
        """Whatever was to be lost and has not been is not to be lost any more."""
        self.lost.update(self._client(client)[1].forget())

    def settle(self, client: str, until: float) -> None:
        """Wait until no reaper of this client is at work any more."""
        backend = self._client(client)[0]._backend
        while backend.statistics()["reaping"] and SYSTEM_CLOCK.now() < until:
            SYSTEM_CLOCK.wait(Signal(), SYSTEM_CLOCK.now() + 0.005)  # the reaper tells nobody where it found nothing

    def revoke(self, lease: Lease) -> None:
        """End it at the store, as an administrator would."""
        self._admin.revoke(lease)

    def remove(self, ticket: Ticket) -> None:
        """Remove that ticket, as an administrator would."""
        self._admin.remove(self.namespace, ticket)

    def lines(self) -> Mapping[str, tuple[Ticket, ...]]:
        """The tickets in each line, where they can be seen from inside; empty where they can't."""
        return self._admin.lines(self.namespace)

    def close(self) -> None:
        self._rest.close()

    def _client(self, name: str) -> tuple[Runtime, Losses]:
        if name not in self._runtimes:
            losses: Losses = MemoryLosses()
            options = self._options
            if self.kind != "memory":
                losses = ProxyLosses(options, self._admin.matches)
                options = dataclasses.replace(options, endpoints=(losses.endpoint,))
            self._rest.callback(losses.close)
            runtime = Runtime(options, SYSTEM_CLOCK)
            self._rest.callback(runtime.close)
            backend: Any = runtime._backend  # Any: only the memory backend has a store and faults
            if isinstance(losses, MemoryLosses):
                backend.faults = losses
                self._admin.meet(backend.store)
            self._runtimes[name] = runtime, losses
        return self._runtimes[name]


class Losses(Protocol):
    """The losses between one client and its store."""

    def lose(self, what: Lost, verb: str, ticket_id: str) -> None: ...

    def forget(self) -> tuple[str, ...]:
        """The verb of what was lost since `lose`, if it was."""

    def close(self) -> None: ...


class ProxyLosses:
    """Losses on the wire."""

    def __init__(self, options: Options, matches: Callable[[str, str], Callable[..., bool]]) -> None:
        host, port = options.endpoints[0]
        self._proxy = FaultProxy(f"{host}:{port}", "zookeeper" if options.scheme == "zookeeper" else "etcd")
        self._matches = matches
        self._armed: tuple[str, threading.Event] = ("", threading.Event())

    @property
    def endpoint(self) -> tuple[str, int]:
        host, _, port = self._proxy.endpoint.rpartition(":")
        return host, int(port)

    def lose(self, what: Lost, verb: str, ticket_id: str) -> None:
        lose = self._proxy.lose_request if what == "request" else self._proxy.lose_answer
        self._armed = verb, lose(self._matches(verb, ticket_id))

    def forget(self) -> tuple[str, ...]:
        self._proxy.forget()
        verb, fired = self._armed
        return (verb,) if fired.is_set() else ()

    def close(self) -> None:
        self._proxy.close()


class MemoryLosses:
    """Losses in the place of a memory backend's faults."""

    def __init__(self) -> None:
        self._armed: tuple[Lost, str] = ("", "")
        self._lost: tuple[str, ...] = ()
        self.cut_off = False

    def lose(self, what: Lost, verb: str, ticket_id: str) -> None:
        self._armed, self._lost = (what, verb), ()

    def forget(self) -> tuple[str, ...]:
        self._armed = ("", "")
        return self._lost

    def close(self) -> None:
        """Do nothing: nothing was opened."""

    def carry(self, operation: str, request: Callable[[], Outcome]) -> Outcome:
        """Carry one exchange, as the memory backend asks for it."""
        what, verb = self._armed
        if verb != operation:
            return request()
        self._armed, self._lost = ("", ""), (verb,)
        if what == "answer":
            request()
        raise StoreUnavailable(f"the {what} was lost")

    def tell(self, signal: Signal) -> None:
        signal.set()
