"""What the handlers work with: one store, its keeper of holds, its candidacies, and who may use them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from holdfast import aio
from holdfast.metrics import Metrics
from holdfast.reports import LineInfo
from holdfast.sidecar.auth import Caller, Tokens
from holdfast.sidecar.behind import Behind
from holdfast.sidecar.candidates import Candidates
from holdfast.sidecar.channels import Channels
from holdfast.sidecar.drain import Drain
from holdfast.sidecar.feeds import Feeds
from holdfast.sidecar.keeping import Keeper
from holdfast.sidecar.leaders import Leaders
from holdfast.sidecar.lending import Lending
from holdfast.sidecar.limits import Limits, Most
from holdfast.sidecar.seals import Seals
from holdfast.sidecar.traffic import Loans, Traffic


@dataclass
class Service:
    """One service. Lifetimes: all of it lives from the start of `holdfast serve` to its end."""

    client: aio.Client
    keeper: Keeper
    candidates: Candidates
    leaders: Leaders
    limits: Limits
    drain: Drain
    lending: Lending
    tokens: Tokens | None = None
    """None: whoever reaches the service may do everything."""
    lines: Feeds[tuple[LineInfo, ...]] = field(init=False)
    answered: bool = False
    """Has the store answered since the start?"""

    def __post_init__(self) -> None:
        self.operator = self.client.operator()
        self.traffic = Traffic()
        self.registry = CollectorRegistry()
        self.registry.register(self.traffic)
        self.registry.register(Loans(self.lending))
        Metrics(registry=self.registry).follow(Behind(self.client))
        self.lines = Feeds(self.operator.watch)
        self.channels = Channels()
        self.seals = Seals()

    @classmethod
    def over(
        cls,
        client: aio.Client,
        keeper: Keeper,
        *,
        elect: dict[str, str],
        most: Most,
        tokens: Tokens | None,
    ) -> Service:
        """A service of a client and its keeper. Needs a running event loop: candidates stand from now on."""
        candidates = Candidates(client, elect)
        leaders = Leaders(client, candidates)
        drain = Drain()
        lending = Lending(client._house, most.holds, drain)
        limits = Limits(most, time.monotonic)
        return cls(client, keeper, candidates, leaders, limits, drain, lending, tokens)

    def admits(self, caller: Caller) -> bool:
        """May who was let in go on? Not, when its token was taken back meanwhile."""
        return self.tokens is None or self.tokens.knows(caller)
