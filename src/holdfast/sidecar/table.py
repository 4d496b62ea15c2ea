"""All routes of the service; and those of its port for probes."""

from __future__ import annotations

import dataclasses
from typing import Final

from holdfast.sidecar import changes, dashboard, elections, leases, lines, locks, mending, notes, probes, streams
from holdfast.sidecar.routes import Routes

ALL: Final = Routes(
    tuple(
        route
        for module in (locks, lines, mending, changes, elections, leases, streams, notes, probes)
        for route in module.ROUTES
    )
)
"""What the OpenAPI document is about."""
SERVED: Final = Routes((*ALL.all, *dashboard.ROUTES))
"""And what is for browsers."""
PROBES: Final = Routes((probes.HEALTHZ, probes.READYZ, dataclasses.replace(probes.METRICS, scope=None)))
"""For a kubelet and a Prometheus: they ask from outside the pod, and have neither a token nor a certificate."""
