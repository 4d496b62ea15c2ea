"""The parts that handlers work with: the client of the store, the keeper of holds, candidacies, tokens and limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from tenure import aio
from tenure._admin.models import LineInfo
from tenure._core.runtime import runtime_of
from tenure.metrics import Metrics
from tenure.service.auth.limits import Limits, TenantLimits
from tenure.service.auth.tokens import Caller, Tokens
from tenure.service.elections.candidates import Candidates
from tenure.service.elections.views import Leaders
from tenure.service.holds.keeper import Keeper
from tenure.service.http.streams import Feeds
from tenure.service.metrics import DeferredEvents, RemoteLeaseCounts, ServiceCounts
from tenure.service.remote.leases import RemoteLeases
from tenure.service.remote.waits import TicketHandles, WaitStreams
from tenure.service.shutdown import Shutdown


@dataclass
class Service:
    """A service: all its parts live from the start of `tenure serve` to its end."""

    client: aio.Client
    keeper: Keeper
    candidates: Candidates
    leaders: Leaders
    limits: Limits
    shutdown: Shutdown
    remote_leases: RemoteLeases
    tokens: Tokens | None = None
    """None: every caller that reaches the service may do everything."""
    lines: Feeds[tuple[LineInfo, ...]] = field(init=False)
    answered: bool = False
    """True once the store has answered since the start."""

    def __post_init__(self) -> None:
        self.operator: aio.Operator = self.client.operator()
        self.counts: ServiceCounts = ServiceCounts()
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(self.counts)
        self.registry.register(RemoteLeaseCounts(self.remote_leases))
        Metrics(registry=self.registry).follow(DeferredEvents(self.client))
        self.lines = Feeds(self.operator.watch)
        self.wait_streams: WaitStreams = WaitStreams()
        self.handles: TicketHandles = TicketHandles()

    @classmethod
    def over(
        cls, client: aio.Client, keeper: Keeper, *, elect: dict[str, str], maximum: TenantLimits, tokens: Tokens | None
    ) -> Service:
        """Make a service of a client and its keeper. Needs a running event loop: candidates stand from now on."""
        candidates = Candidates(client, elect)
        leaders, shutdown = Leaders(client, candidates), Shutdown()
        remote_leases = RemoteLeases(
            runtime_of(client), maximum.holds, shutdown, lambda: 0 if tokens is None else tokens.tenants
        )
        limits = Limits(maximum, time.monotonic)
        return cls(client, keeper, candidates, leaders, limits, shutdown, remote_leases, tokens)

    def admits(self, caller: Caller) -> bool:
        """Say whether an admitted caller may go on: its token may have been taken back meanwhile."""
        return self.tokens is None or self.tokens.knows(caller)
