"""Known bugs about tokens: ZooKeeper's counters that start anew, wrap and roll over, and numbers that do not fit.

The numbers are those of tests/README.md. ZooKeeper's counters are put close to their ends by editing the snapshot
of a server that is down, which is the only way to get there within a test.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import tenure
from tenure import Fence, StoreRefused
from tenure._backends import memory
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.test_faults import url
from tests.servers import Cluster, Member, Provider, ZooKeeperSpec


def test_zookeeper_token_grows_though_the_parents_sequence_starts_again(singles: dict[str, Cluster]) -> None:
    """Bug 29: the parent goes and comes, the sequence in the node's name is 0 twice: the token is higher."""
    cluster = singles["zookeeper"]
    with _admin(cluster.members[0]) as admin, tenure.connect(url(cluster), ttl=20) as client:
        path = f"/{runtime_of(client).options.namespace}/a"
        seen: list[tuple[str, int]] = []
        for _ in range(2):
            with client.lock("a") as hold:
                (node,) = admin.get_children(path)
                seen.append((node[-10:], hold.token))
                assert admin.exists(f"{path}/{node}").czxid == hold.token
            admin.delete(path)
    assert [sequence for sequence, _ in seen] == ["0000000000"] * 2, "the sequence went on: the scene was not set"
    assert seen[0][1] < seen[1][1]


def _snapshot_of(member: Member) -> Path:
    """The newest snapshot of a killed member; its logs go, so that nothing is played over it. Made at every start."""
    folder: Path = member._machine.directory / "data" / "version-2"  # type: ignore[attr-defined]  # a process, here
    for log in folder.glob("log.*"):
        log.unlink()
    return max(folder.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))


def _edited(raw: bytes, at: int, value: bytes) -> bytes:
    """The snapshot with `value` at this place, and its checksums made right again."""
    edited = raw[:at] + value + raw[at + len(value) :]
    for from_end in next(places for places in _SEALS if all(_sealed(raw, len(raw) - place) for place in places)):
        seal = len(raw) - from_end
        edited = edited[:seal] + struct.pack(">q", zlib.adler32(edited[:seal])) + edited[seal + 8 :]
    return edited


# Of 8 bytes and "/" each, counted from the end: behind the nodes, behind their digest; since 3.9 also behind the zxid.
_SEALS = ((67, 34, 13), (46, 13))


def _sealed(raw: bytes, at: int) -> bool:
    seal: int = struct.unpack_from(">q", raw, at)[0]
    return seal == zlib.adler32(raw[:at])


def _sequence_at(raw: bytes, path: str) -> int:
    """Where the counter of `path` for sequential children stands: a node is its path, data, acl and stat."""
    name = struct.pack(">i", len(path)) + path.encode()
    at = raw.index(name) + len(name)
    length: int = struct.unpack_from(">i", raw, at)[0]
    return at + 4 + max(length, 0) + 8 + 4 * 8 + 4


def _edit_at_rest(member: Member, edit: Callable[[Path], object]) -> None:
    """Have it make a snapshot, which it does when it starts, and start it anew from what `edit` makes of that."""
    for _ in range(2):
        member.kill()
        member.start()
    member.kill()
    edit(_snapshot_of(member))
    member.start()


@pytest.mark.parametrize(("sequence", "admissions"), [(2**31 - 3, 1), (-(10**9) - 1, 0), (-3, 9)])
def test_zookeeper_sequence_at_its_end_admits_nobody_out_of_order(
    provider: Provider, sequence: int, admissions: int
) -> None:
    """Bug 29: a signed 32-bit counter: ZooKeeper goes on handing out its last value, or negative ones. Never two hold.

    Who can't be put in order is refused; who can is admitted in the order of the tokens.
    """
    cluster = provider.zookeeper(ZooKeeperSpec(container_check_ms=3_600_000))
    member = cluster.members[0]

    def set_sequence(snapshot: Path) -> None:
        raw = snapshot.read_bytes()
        snapshot.write_bytes(_edited(raw, _sequence_at(raw, "/wraps/a"), struct.pack(">i", sequence)))

    try:
        _make_nodes(member, "/wraps/a")
        _edit_at_rest(member, set_sequence)
        with tenure.connect(cluster.url("wraps", tick=0.2), ttl=20) as client:
            admitted, refused = _take_turns(client, 24)
            assert admitted == sorted(admitted)
            assert (len(admitted), refused) == (admissions, 24 - admissions)
            with _admin(member) as admin:
                assert eventually(lambda: admin.exists("/wraps/a") is None), "the line did not go when it was empty"
            with client.lock("a") as hold:  # and begins anew
                assert hold.token > max(admitted, default=0)
    finally:
        cluster.close()


def _take_turns(client: tenure.Client, tries: int) -> tuple[list[int], int]:
    """One holds while the next one tries, again and again: the tokens admitted, and how often a try was refused."""
    admitted: list[int] = []
    refused = 0
    for _ in range(tries // 2):
        try:
            hold = client.lock("a").acquire(timeout=5.0)
        except StoreRefused:
            refused += 2
            continue
        admitted.append(hold.token)
        try:
            assert client.lock("a").try_acquire() is None, "two holders"
        except StoreRefused:
            pass
        refused += 1
        hold.check()
        assert hold.release() is True
    return admitted, refused


def _make_nodes(member: Member, path: str) -> None:
    with _admin(member) as admin:
        admin.ensure_path(path)


@contextlib.contextmanager
def _admin(member: Member) -> Iterator[Any]:  # Any: kazoo has no types
    admin = KazooClient(member.endpoint, timeout=10.0)
    admin.start()
    try:
        yield admin
    finally:
        admin.stop()
        admin.close()


def test_zookeeper_tokens_grow_over_the_roll_over_of_the_counter(provider: Provider) -> None:
    """Bug 30: the lower half of the zxid comes to its end: tokens of 64 bits grow on, as numbers and as texts."""
    cluster = provider.zookeeper(ZooKeeperSpec())
    try:
        _edit_at_rest(cluster.members[0], lambda snapshot: snapshot.rename(snapshot.with_suffix(f".{2**54 - 12:x}")))
        with tenure.connect(cluster.url("rolls", tick=0.2), ttl=20) as client:
            fences: list[Fence] = []
            for _ in range(12):
                with client.lock("a") as hold:
                    fences.append(Fence.parse(str(hold.fence)))
        tokens = [fence.token for fence in fences]
        assert tokens[0] < 2**54 < tokens[-1]
        assert tokens == sorted(set(tokens))
        assert all(one < other for one, other in itertools.pairwise(fences))
    finally:
        cluster.close()


def test_token_survives_whoever_reads_numbers_as_doubles() -> None:
    """Bug 32: beyond 2^53 a JSON number is another one at the other end: what we write down are texts."""
    name = f"doubles-{time.monotonic_ns():x}"
    with tenure.connect(f"memory://{name}", ttl=20) as client:
        memory.store(name, SYSTEM_CLOCK)._revision = 2**53
        with client.lock("a") as hold:
            _read_as_doubles(hold)


def _read_as_doubles(hold: tenure.Hold) -> None:
    assert hold.token == 2**53 + 1
    told = json.loads(json.dumps(hold.statistics()), parse_int=float)  # as JavaScript does
    assert int(told["token"]) == hold.token
    assert Fence.parse(told["fence"]) == hold.fence
