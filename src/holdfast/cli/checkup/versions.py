"""Server versions with known bugs that can cost a holder its lease, a token its order, or a store its data.

As public issue trackers and release notes tell. A line of versions that is not named with a bug has never had it, if it
is newer; one that is older was never mended, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.cli.checkup.finding import Finding, fail, ok, warn

Numbers: TypeAlias = tuple[int, ...]
Line: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bug:
    """What happens, the issue that tells of it, and from which patch on it is mended, by line of versions."""

    told: str
    mended: Mapping[Line, int]
    since: Mapping[Line, int] = field(default_factory=dict)
    """Where it came with a patch: from which one on. A line that is not named has it from its beginning."""
    spares_older: bool = False
    """Lines older than those that are named have never had it."""

    def has(self, version: Numbers) -> bool:
        """Does this version have it?"""
        major, minor, patch = (*version, 0, 0)[:3]
        line = (major, minor)
        if line not in self.mended:
            return line < min(self.mended) and not self.spares_older
        return self.since.get(line, 0) <= patch < self.mended[line]


ETCD: Final = (
    Bug("members may disagree after a crash under load (13766)", {(3, 5): 3}, spares_older=True),
    Bug("a client that hangs up may take a server down (14110)", {(3, 5): 5}, spares_older=True),
    Bug("leases may end early after the leader stood still (15247)", {(3, 4): 31, (3, 5): 13}),
    Bug("revisions, and so tokens, may go back after a crash in a compaction (17780)", {(3, 4): 32, (3, 5): 14}),
    Bug("watches may tell of the past (15271)", {(3, 4): 25, (3, 5): 8}),
    Bug("watches may miss events after a compaction (17529)", {(3, 4): 31, (3, 5): 13}),
    Bug("a revoked lease may be renewed (20590)", {(3, 4): 38, (3, 5): 23, (3, 6): 5}),
    Bug("reads may be stale after a pause (20418)", {(3, 4): 42, (3, 5): 28, (3, 6): 9}, {(3, 4): 20}),
)
ZOOKEEPER: Final = (
    Bug("transactions may be lost when a follower syncs (ZOOKEEPER-4785)", {(3, 8): 4, (3, 9): 2}),
    Bug("followers may fail or diverge when they sync (ZOOKEEPER-4394, 4712)", {(3, 8): 5, (3, 9): 3}),
    Bug("a new leader may miss what was committed (ZOOKEEPER-4925)", {(3, 8): 5, (3, 9): 4}),
)
_FENCE: Final = "and let the protected resource check tokens"


def numbers_of(version: str) -> Numbers:
    """`3.5.1-rc.0` as (3, 5, 1); empty where it can't be read."""
    parts = version.split("-")[0].split(".")
    return tuple(int(part) for part in parts[:3]) if all(part.isdigit() for part in parts[:3]) else ()


def look_at_etcd(version: str, where: str) -> Finding:
    """What is known of this version."""
    return _look("etcd", version, where, (3, 4), ETCD, "3.5.28, 3.6.9 or later")


def look_at_zookeeper(version: str, where: str) -> Finding:
    """What is known of this version."""
    found = _look("ZooKeeper", version, where, (3, 5), ZOOKEEPER, "3.8.5, 3.9.4 or later")
    if (3, 5) <= numbers_of(version) < (3, 6):
        return warn("version", where, f"{found.told}; watching lines needs 3.6", found.do)
    return found


def _look(server: str, version: str, where: str, least: Numbers, bugs: Sequence[Bug], run: str) -> Finding:
    numbers = numbers_of(version)
    if not numbers:
        return warn("version", where, f"says that it is {server} {version[:40]!r}", f"run {run}")
    if numbers < least:
        return fail("version", where, f"{server} {version} is too old for holdfast", f"run {run}")
    known = [bug.told for bug in bugs if bug.has(numbers)]
    if not known:
        return ok("version", where, f"{server} {version}")
    return warn("version", where, f"{server} {version} has known bugs: {'; '.join(known)}", f"run {run}, {_FENCE}")


def differing(findings: Sequence[tuple[str, str]]) -> Finding | None:
    """A warning where endpoints (each with its version) differ."""
    versions = sorted({version for _, version in findings})
    if len(versions) < 2:
        return None
    told = ", ".join(f"{where} has {version}" for where, version in findings)
    return warn("version", "", f"the servers differ: {told}", "finish the upgrade; a cluster should not stay mixed")
