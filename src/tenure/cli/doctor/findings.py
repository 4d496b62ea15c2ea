"""A finding: what a check says, and what to do about it. And the server versions with known bugs.

The bugs are those that can cost a holder its lease, a token its order, or a store its data, as public issue trackers
and release notes tell. A line of versions that is not named with a bug has never had it, if it is newer; an older one
was never mended, unless said otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

Numbers: TypeAlias = tuple[int, ...]
Line: TypeAlias = tuple[int, int]


class Severity(enum.StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    """Works now, and may not always."""
    FAIL = "fail"
    """Fails, or will hurt somebody."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the doctor's report."""

    state: Severity
    check: str
    """The subject, in a word."""
    where: str
    """The endpoint; "" for the store as a whole, or this machine."""
    found: str
    do: str = ""
    """Advice to the user; "" where all is well."""
    details: tuple[str, ...] = ()
    """Known bugs with their issues, for those who ask."""


def ok(check: str, where: str, found: str) -> Finding:
    return Finding(Severity.OK, check, where, found)


def warn(check: str, where: str, found: str, do: str) -> Finding:
    return Finding(Severity.WARN, check, where, found, do)


def fail(check: str, where: str, found: str, do: str) -> Finding:
    return Finding(Severity.FAIL, check, where, found, do)


@dataclass(frozen=True, slots=True)
class Bug:
    """A known bug: its symptom, with the issue that tells of it, and the patch that mended it, by line of versions."""

    symptom: str
    mended: Mapping[Line, int]
    since: Mapping[Line, int] = field(default_factory=dict)
    """The patch that brought it, where a patch did. A line that is not named has it from its beginning."""
    spares_older: bool = False
    """Lines older than those that are named have never had it."""

    def has(self, version: Numbers) -> bool:
        """True when this version has it."""
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


def look_at_etcd_version(version: str, where: str) -> Finding:
    """Known bugs of this version of etcd."""
    return _look("etcd", version, where, (3, 4), ETCD, "3.5.28, 3.6.9 or later")


def look_at_zookeeper_version(version: str, where: str) -> Finding:
    """Known bugs of this version of ZooKeeper."""
    finding = _look("ZooKeeper", version, where, (3, 5), ZOOKEEPER, "3.8.5, 3.9.4 or later")
    if (3, 5) <= numbers_of(version) < (3, 6):
        return replace(finding, found=f"{finding.found}; watching lines needs 3.6")
    return finding


def _look(server: str, version: str, where: str, minimum: Numbers, bugs: Sequence[Bug], run: str) -> Finding:
    numbers = numbers_of(version)
    if not numbers:
        return warn("version", where, f"says that it is {server} {version[:40]!r}", f"run {run}")
    if numbers < minimum:
        return fail("version", where, f"{server} {version} is too old for tenure", f"run {run}")
    known = tuple(bug.symptom for bug in bugs if bug.has(numbers))
    if not known:
        return ok("version", where, f"{server} {version}")
    found = f"{server} {version} has known bugs ({len(known)}) that may cost a hold, a token's order or data"
    return Finding(Severity.WARN, "version", where, found, f"run {run}, {_FENCE}", known)


def differing(findings: Sequence[tuple[str, str]]) -> Finding | None:
    """A warning where endpoints (each with its version) differ."""
    versions = sorted({version for _, version in findings})
    if len(versions) < 2:
        return None
    each = ", ".join(f"{where} has {version}" for where, version in findings)
    return warn("version", "", f"the servers differ: {each}", "finish the upgrade; a cluster should not stay mixed")
