"""Every nemesis that breaks one kind of thing. Mixtures choose from these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.verify.torture.nemeses import (
    administration,
    clients,
    disk,
    links,
    network,
    processes,
    removals,
    upheaval,
    wire,
)
from tests.verify.torture.nemeses.kinds import Single

SINGLES: Final[Sequence[type[Single]]] = (
    processes.Kill,
    processes.Stop,
    processes.KillServer,
    processes.KillLeader,
    processes.StopServer,
    processes.StopLeader,
    clients.Stall,
    clients.StallLoop,
    clients.ClockRate,
    clients.ClockJump,
    clients.Suspend,
    clients.Fork,
    clients.Cancel,
    clients.SessionMove,
    network.PartitionClient,
    network.PartitionMember,
    network.PartitionLeader,
    network.PartitionHalves,
    network.PartitionRing,
    network.IsolateFollower,
    links.OneWayToServers,
    links.OneWayToClient,
    links.OneWayFromLeader,
    links.Reset,
    links.Blackhole,
    links.Loss,
    wire.Delay,
    wire.HoldAnswers,
    wire.DropAnswers,
    wire.DropRequests,
    disk.SlowDisk,
    disk.FailingDisk,
    disk.NoSpace,
    disk.DiskFull,
    upheaval.Churn,
    upheaval.RollingRestart,
    upheaval.FullStop,
    upheaval.ReplaceMember,
    administration.Compaction,
    administration.Quota,
    administration.AuthExpiry,
    removals.AdminRemove,
    removals.LeaseRevoke,
    removals.SessionKill,
)
