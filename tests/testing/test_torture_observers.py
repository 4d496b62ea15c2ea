"""The store's own word, as the observers of the torture take it down; and what it says when some of it is missing."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tenure._core.lease import Mode
from tenure.testing import Event, History, Kind, MemoryRecorder, Outcome, check_history
from tests.conformance.store_worlds import eventually
from tests.servers import Cluster, etcdctl
from tests.verify.torture.fault_log import RunFaultLog
from tests.verify.torture.observers.etcd import EtcdObserver
from tests.verify.torture.observers.gateway import Gateway
from tests.verify.torture.observers.jute import NotALog, Transaction, read_log
from tests.verify.torture.observers.moments import Moments
from tests.verify.torture.observers.truth import Truth, line_and_place
from tests.verify.torture.observers.zookeeper import _gap, committed


def test_moments_tell_between_which_two_something_happened() -> None:
    """A place was reached after the last question that had not reached it, by the first answer that had."""
    moments = Moments()
    moments.answered(10, asked_at=1.0, answered_at=1.5)
    moments.answered(10, asked_at=2.0, answered_at=2.5)
    moments.answered(12, asked_at=3.0, answered_at=3.5)
    moments.answered(11, asked_at=None, answered_at=9.0)
    assert [(moments.since(place), moments.by(place)) for place in (10, 11, 12, 13)] == [
        (0.0, 1.5), (2.0, 3.5), (2.0, 3.5), (3.0, None)
    ]  # fmt: skip
    assert moments.furthest == 12


def test_line_and_place_of_a_ticket_and_of_nothing_else() -> None:
    """Encoded names are decoded; other namespaces, lines themselves, nested lines and what drivers keep are none."""
    assert line_and_place("torture/a%3Ab/1f-22", "torture") == ("a:b", "1f-22")
    assert line_and_place("/torture/a/_c_1-lock-0000000001", "torture") == ("a", "_c_1-lock-0000000001")
    for path in ("/other/a/b", "/torture/a", "/torture/a/b/c", "/torture", "/torturer/a/b", "torture/%once/1f"):
        assert line_and_place(path, "torture") is None


@pytest.fixture
def etcd_observer(singles: dict[str, Cluster]) -> Any:
    observer = EtcdObserver(singles["etcd"].url(), "torture-parts")
    yield observer
    observer.close()


def test_etcd_observer_sees_every_ticket_and_leaves_out_what_is_none(
    etcd_observer: EtcdObserver, singles: dict[str, Cluster]
) -> None:
    """Owner, mode, weight, limit, token from the store; an amendment is no creation; what stays is counted."""
    value = json.dumps({"tenure": 1, "id": "a" * 20, "owner": "w1", "mode": "seat", "weight": 2, "limit": 3})
    key = "torture-parts/seats/1f-0"
    assert etcdctl(singles["etcd"], "put", key, value).returncode == 0
    assert etcdctl(singles["etcd"], "put", key, value).returncode == 0
    assert etcdctl(singles["etcd"], "put", "elsewhere/seats/1f-0", value).returncode == 0
    assert etcdctl(singles["etcd"], "del", key).returncode == 0
    assert etcdctl(singles["etcd"], "put", "torture-parts/lock/2f-foreign", "?").returncode == 0
    truth = etcd_observer.finish()
    assert truth.missing == ""
    assert truth.left == {"tickets": 1, "leases": 0}
    made, gone, foreign = truth.events
    assert (made.operation, made.client, made.resource, made.hold) == ("created", "w1", "seats", "a" * 20)
    assert (made.mode, made.weight, made.limit, made.lease) == (Mode.SEAT, 2, 3, "1f")
    assert (gone.operation, gone.hold, gone.token) == ("removed", made.hold, made.token)
    assert made.revision == made.token
    assert gone.revision == (made.revision or 0) + 3
    assert (foreign.client, foreign.hold) == ("", "2f-foreign")
    assert all(0.0 < event.earliest <= event.at for event in truth.events)


@pytest.mark.parametrize(("revoked", "cause"), [(True, "early"), (False, "")])
def test_etcd_observer_says_of_a_lease_that_ended_before_the_store_had_promised(
    etcd_observer: EtcdObserver, singles: dict[str, Cluster], revoked: bool, cause: str
) -> None:
    """Revoked a moment after the store said how long it still has; or expired in its own time."""
    granted = etcdctl(singles["etcd"], "lease", "grant", "30" if revoked else "4", "-w", "fields").stdout
    lease = int(re.findall(r'"ID" : (\d+)', granted)[0])
    assert etcdctl(singles["etcd"], "put", f"torture-parts/x/{lease:x}-0", "?", f"--lease={lease:x}").returncode == 0
    assert eventually(lambda: any(life.promised for life in etcd_observer._leases.get(lease, ())))
    if revoked:
        assert etcdctl(singles["etcd"], "lease", "revoke", f"{lease:x}").returncode == 0
    assert eventually(lambda: etcd_observer._leases[lease][-1].ended is not None)
    (ended,) = (event for event in etcd_observer.finish().events if event.operation == "lease_ended")
    assert (ended.lease, ended.cause) == (f"{lease:x}", cause)


def test_etcd_observer_says_when_revisions_are_missing(etcd_observer: EtcdObserver) -> None:
    """A gap, or a compaction before it had seen everything: then its truth is not the whole of it."""
    seen = etcd_observer._seen
    key = base64.b64encode(b"torture-parts/x/1-y").decode()
    kv = {"key": key, "create_revision": str(seen + 2), "mod_revision": str(seen + 2)}
    etcd_observer._take({"events": [{"kv": kv}]})
    assert "did not tell of revisions" in etcd_observer._missing


def test_etcd_observer_misses_what_was_compacted_before_any_member_told_of_it(
    etcd_observer: EtcdObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first refusal another member may still tell of it; when none does for a while, none will."""
    moments = iter((100.0, 101.0, 102.5))
    monkeypatch.setattr("tests.verify.torture.observers.etcd.monotonic", lambda: next(moments, 200.0))
    seen = etcd_observer._seen
    refused = {"canceled": True, "compact_revision": str(seen + 5)}
    assert [etcd_observer._take(refused), etcd_observer._missing] == [False, ""]
    assert [etcd_observer._take(refused), etcd_observer._missing] == [False, ""]
    assert not etcd_observer._take(refused)
    assert f"up to {seen + 5} were compacted" in etcd_observer._missing


def test_zookeeper_gap_is_seen_and_an_election_is_none() -> None:
    """zxids count one by one within an epoch."""
    assert _gap(0x100000004, [0x100000005, 0x100000006, 0x200000001, 0x200000002]) == ""
    assert "0x100000005 and 0x100000007" in _gap(0x100000004, [0x100000005, 0x100000007])
    assert "0x100000005 and 0x200000003" in _gap(0x100000004, [0x100000005, 0x200000003])


def test_transaction_log_is_read_up_to_where_it_was_cut_off(tmp_path: Path) -> None:
    """Creates, deletes, several in one, sessions; a record that is not whole ends it."""

    def text(value: str) -> bytes:
        return struct.pack(">i", len(value)) + value.encode()

    def logged(zxid: int, kind: int, body: bytes, cxid: int = 1) -> bytes:
        raw = struct.pack(">qiqqi", -5, cxid, zxid, 1500, kind) + body
        return struct.pack(">qi", 0, len(raw)) + raw + b"B"

    create, delete = text("/n/l/a") + text("data"), text("/n/l/a")
    multi = struct.pack(">i", 2) + struct.pack(">ii", 2, len(delete)) + delete
    multi += struct.pack(">ii", 15, len(create)) + create
    records = [
        logged(1, -10, struct.pack(">i", 4000)),
        logged(2, 15, create),
        logged(3, 14, multi),
        logged(4, -1, struct.pack(">i", -101)),
        logged(5, -11, b"", cxid=0),
    ]
    head = struct.pack(">4siq", b"ZKLG", 2, 0)
    path = tmp_path / "log.1"
    path.write_bytes(head + b"".join(records) + logged(6, 2, delete)[:-3])
    found = list(read_log(path))
    assert [one.zxid for one in found] == [1, 2, 3, 4, 5]
    assert [(change.made, change.path) for change in found[2].changes] == [(False, "/n/l/a"), (True, "/n/l/a")]
    assert found[1].changes[0].data == b"data"
    assert (found[0].opens, found[0].session, found[0].wall_clock) == (4.0, 2**64 - 5, 1.5)
    assert (found[4].closes, found[4].by_client, found[3].changes) == (True, False, ())
    path.write_bytes(b"something else altogether")
    with pytest.raises(NotALog):
        list(read_log(path))


def test_administrators_removals_get_their_cause() -> None:
    """The ticket named in a key, and everything of a lease that was ended by hand."""
    fault_log = RunFaultLog(MemoryRecorder())
    fault_log.removing(ticket="torture/x/1f-" + "a" * 20)
    fault_log.removing(lease="2f")
    events = (
        Event(1.0, "w", Kind.TRUTH, "removed", "x", hold="a" * 20, lease="1f"),
        Event(2.0, "w", Kind.TRUTH, "removed", "x", hold="b" * 20, lease="1f"),
        Event(3.0, "w", Kind.TRUTH, "removed", "x", hold="c" * 20, lease="2f"),
        Event(4.0, "w", Kind.TRUTH, "lease_ended", lease="2f"),
        Event(5.0, "w", Kind.TRUTH, "lease_ended", lease="1f"),
    )
    assert [e.cause for e in Truth(events).told_of(fault_log.removals).events] == ["admin", "", "admin", "admin", ""]


def test_ticket_that_came_back_is_a_stay_of_its_own() -> None:
    """A late duplicate of a request makes it again; once that is gone too, the line goes on as ever."""

    def ticket(at: float, operation: str, hold: str, token: int, revision: int) -> Event:
        return Event(at, "w", Kind.TRUTH, operation, "x", hold=hold, token=token, revision=revision)

    def held(at: float, hold: str, token: int, call: int) -> list[Event]:
        return [
            Event(at, "w", Kind.INVOKE, "acquire", "x", call=call),
            Event(at + 0.5, "w", Kind.OK, "acquire", "x", call=call, hold=hold, token=token),
            Event(at + 0.6, "w", Kind.INVOKE, "release", "x", call=call + 100, hold=hold, token=token),
            Event(at + 0.8, "w", Kind.OK, "release", "x", call=call + 100, hold=hold, token=token),
        ]

    history = History(
        [
            *held(1.0, "a", 5, 1),
            *held(4.0, "b", 9, 2),
            ticket(1.1, "created", "a", 5, 5),
            ticket(1.7, "removed", "a", 5, 6),
            ticket(2.0, "created", "a", 7, 7),
            ticket(3.0, "removed", "a", 7, 8),
            ticket(4.1, "created", "b", 9, 9),
            ticket(4.7, "removed", "b", 9, 10),
        ]
    )
    report = check_history(history, ["S3", "S4", "S8"])
    assert report.outcome is Outcome.PASSED, str(report)
    without = History(event for event in history if not (event.operation == "removed" and event.token == 7))
    assert check_history(without, ["S4"])["S4"].outcome is Outcome.FAILED


def test_stream_that_was_broken_off_before_it_began_ends_at_once(singles: dict[str, Cluster]) -> None:
    """Closing an observer must not wait for a watch that connects a moment later."""
    host, _, port = singles["etcd"].endpoints[0].rpartition(":")
    gateway = Gateway(host, int(port), None)
    gateway.break_off()
    try:
        with pytest.raises(ConnectionError, match="broken off"):
            next(gateway.stream("/v3/watch", {"create_request": {"key": "AA=="}}))
    finally:
        gateway.close()


def test_lease_that_came_back_has_two_lives(etcd_observer: EtcdObserver) -> None:
    """A grant that was sent twice, and arrived once more after its end: each life ends after it began."""
    for listed, now in (({7}, 1.0), (set(), 2.0), ({7}, 3.0), ({7}, 4.0), (set(), 5.0)):
        etcd_observer._list(listed, now - 0.5, now)
    assert [(lease.asked_at, lease.ended) for lease in etcd_observer._leases[7]] == [(0.5, 2.0), (3.5, 5.0)]


def test_what_only_a_deposed_leader_has_logged_was_never_committed() -> None:
    """The end of an epoch is what a majority has; what is before it counts, though one log alone may have it."""
    first, second = 0x100000001, 0x200000001

    def log(*zxids: int) -> dict[int, Transaction]:
        return {zxid: Transaction(zxid, 1, True, 0.0) for zxid in zxids}

    deposed = log(first, first + 1, first + 2, first + 3)
    logs = [
        deposed,
        log(first, first + 2, second),
        log(second, second + 1),
    ]
    assert sorted(committed(logs)) == [first, first + 1, first + 2, second]


def test_login_that_is_refused_is_an_error_to_try_again_after(singles: dict[str, Cluster]) -> None:
    """A server without users refuses it, as one does that has lost its quorum."""
    host, _, port = singles["etcd"].endpoints[0].rpartition(":")
    gateway = Gateway(host, int(port), ("root", "torture"))
    try:
        with pytest.raises(ConnectionError, match="authenticate"):
            gateway.call("/v3/kv/range", {"key": "AA=="})
    finally:
        gateway.close()
