"""Our protobuf against protobuf's own runtime: the same messages, written and read, whatever is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure._backends.etcd.grpc import messages
from tenure._backends.etcd.requests import (
    CreatedAt,
    DeleteKey,
    Header,
    KeyValue,
    Life,
    ModifiedAt,
    PutKey,
    Range,
    Txn,
    TxnResult,
    WatchMessage,
    WatchRequest,
)
from tenure._core.base.signals import Signal
from tenure.errors import StoreRefused
from tests.reference import PROTO, etcd_messages

untimed = settings(deadline=None)  # a busy machine proves nothing
keys = st.binary(min_size=1, max_size=300)
values = st.binary(max_size=300)
revisions = st.integers(0, 2**63 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
ranges = st.builds(
    Range, keys, st.one_of(st.just(b""), keys), st.integers(0, 2**40), st.booleans(), revisions,
    st.booleans(), st.booleans(), st.booleans(), revisions,
)  # fmt: skip
puts = st.builds(PutKey, keys, st.none() | values, st.none() | revisions)
conditions = st.builds(CreatedAt, keys, signed) | st.builds(ModifiedAt, keys, signed)
operations = st.lists(ranges | puts | st.builds(DeleteKey, keys), max_size=4).map(tuple)
txns = st.builds(Txn, st.lists(conditions, max_size=4).map(tuple), operations, operations)
headers = st.builds(Header, st.integers(0, 2**64 - 1), revisions)
key_values = st.builds(KeyValue, keys, values, revisions, revisions, signed)


def reference(name: str, /, **fields: Any) -> Any:
    return getattr(etcd_messages(), name)(**fields)


def parsed(name: str, content: bytes) -> Any:
    found = getattr(etcd_messages(), name).FromString(content)
    unknown = found.__class__.FromString(content)
    unknown.DiscardUnknownFields()
    assert unknown == found, "it wrote a field that the .proto does not have"
    return found


def expected_operation(operation: Any) -> Any:
    match operation:
        case Range(key, end, limit, newest_first, maximum, by_key, keys_only, count_only, revision):
            ordered = bool(end) and not by_key
            order = (2 if newest_first else 1) if ordered else 0
            asked = reference(
                "RangeRequest", key=key, range_end=end, limit=limit, sort_order=order, sort_target=2 if ordered else 0,
                max_create_revision=maximum, keys_only=keys_only, count_only=count_only, revision=revision,
            )  # fmt: skip
            return reference("RequestOp", request_range=asked)
        case PutKey(key, value, lease):
            put = reference(
                "PutRequest", key=key, value=value or b"", ignore_value=value is None, lease=lease or 0,
                ignore_lease=lease is None,
            )  # fmt: skip
            return reference("RequestOp", request_put=put)
        case DeleteKey(key):
            return reference("RequestOp", request_delete_range=reference("DeleteRangeRequest", key=key))
    raise AssertionError(operation)


def expected_condition(condition: Any) -> Any:
    if isinstance(condition, CreatedAt):
        return reference("Compare", target="CREATE", key=condition.key, create_revision=condition.revision)
    return reference("Compare", target="MOD", key=condition.key, mod_revision=condition.revision)


@untimed
@given(txns)
def test_transaction_is_what_protobuf_would_write(txn: Txn) -> None:
    """All conditions and operations, those with zero in them too; which of two revisions is compared is always told."""
    told = parsed("TxnRequest", messages.transaction(txn))
    assert list(told.compare) == [expected_condition(condition) for condition in txn.compare]
    assert list(told.success) == [expected_operation(operation) for operation in txn.success]
    assert list(told.failure) == [expected_operation(operation) for operation in txn.failure]
    assert all(condition.WhichOneof("target_union") for condition in told.compare)


@untimed
@given(keys, revisions, signed, st.booleans(), st.text(), st.text())
def test_small_requests_are_what_protobuf_would_write(
    key: bytes, number: int, ttl: int, flag: bool, user: str, password: str
) -> None:
    """Leases, deletions, signing in."""
    assert parsed("DeleteRangeRequest", messages.deletion(key)) == reference("DeleteRangeRequest", key=key)
    assert parsed("LeaseGrantRequest", messages.grant(number, ttl)) == reference(
        "LeaseGrantRequest", ID=number, TTL=ttl
    )
    for name in ("LeaseKeepAliveRequest", "LeaseRevokeRequest"):
        assert parsed(name, messages.lease(number)) == reference(name, ID=number)
    asked = parsed("LeaseTimeToLiveRequest", messages.life(number, keys=flag))
    assert asked == reference("LeaseTimeToLiveRequest", ID=number, keys=flag)
    signing = parsed("AuthenticateRequest", messages.sign_in(user, password))
    assert signing == reference("AuthenticateRequest", name=user, password=password)
    assert parsed("RangeRequest", messages.ANYTHING) == reference("RangeRequest", key=b"\0", count_only=True)


@untimed
@given(keys, st.none() | keys, revisions, st.booleans(), st.integers(0, 2**40))
def test_watch_requests_are_what_protobuf_would_write(
    key: bytes, end: bytes | None, revision: int, deletes_only: bool, number: int
) -> None:
    """A watch is created under our number, and cancelled by it."""
    watching = WatchRequest(key, end, revision, deletes_only, Signal())
    expected = reference(
        "WatchCreateRequest", key=key, range_end=end or b"", start_revision=revision, watch_id=number,
        filters=["NOPUT"] if deletes_only else [],
    )  # fmt: skip
    told = parsed("WatchRequest", messages.watch_create(number, watching))
    assert told == reference("WatchRequest", create_request=expected)
    cancelled = parsed("WatchRequest", messages.watch_cancel(number))
    assert cancelled == reference("WatchRequest", cancel_request=reference("WatchCancelRequest", watch_id=number))


def in_protobuf(kv: KeyValue) -> Any:
    return reference(
        "KeyValue", key=kv.key, value=kv.value, create_revision=kv.create_revision, mod_revision=kv.mod_revision,
        lease=kv.lease,
    )  # fmt: skip


@untimed
@given(headers, st.booleans(), st.lists(st.lists(key_values, max_size=3), max_size=3), st.binary(max_size=20))
def test_answer_is_read_as_protobuf_wrote_it(
    header: Header, succeeded: bool, found: list[list[KeyValue]], strange: bytes
) -> None:
    """Ranges among puts and deletions; fields that we don't know are skipped, wherever they stand."""
    responses = []
    for some in found:
        body = reference("RangeResponse", kvs=[in_protobuf(kv) for kv in some], count=len(some))
        responses += [
            reference("ResponseOp", response_put=reference("PutResponse")),
            reference("ResponseOp", response_range=body),
            reference("ResponseOp", response_delete_range=reference("DeleteRangeResponse", deleted=1)),
        ]
    head = reference("ResponseHeader", cluster_id=header.cluster_id, revision=header.revision)
    content = reference("TxnResponse", header=head, succeeded=succeeded, responses=responses).SerializeToString()
    unknown = b"\xf2\x07" + bytes([len(strange)]) + strange + b"\xf9\x07" + b"8bytes!!" + b"\xfd\x07" + b"4byt"
    expected = TxnResult(
        header, succeeded, [kv for some in found for kv in some], 1, tuple(len(some) for some in found if some)
    )
    assert messages.answer(content) == expected
    assert messages.answer(unknown + content + unknown) == expected


@untimed
@given(headers, revisions, st.integers(1, 2**31), st.lists(keys, max_size=4))
def test_other_answers_are_read_as_protobuf_wrote_them(
    header: Header, number: int, ttl: int, found: list[bytes]
) -> None:
    """Leases, positions, versions, tokens."""
    granted = reference("LeaseGrantResponse", TTL=ttl).SerializeToString()
    assert messages.granted(granted) == ttl
    kept = reference("LeaseKeepAliveResponse", ID=number, TTL=ttl).SerializeToString()
    assert messages.kept_alive(kept, number) == ttl
    dead = reference("LeaseKeepAliveResponse", ID=number).SerializeToString()
    assert messages.kept_alive(dead, number) == 0.0
    life = reference("LeaseTimeToLiveResponse", TTL=3, grantedTTL=ttl, keys=found).SerializeToString()
    assert messages.living(life) == Life(float(ttl), tuple(found), 3.0)
    assert messages.living(reference("LeaseTimeToLiveResponse", TTL=-1).SerializeToString()) is None
    head = reference("ResponseHeader", cluster_id=header.cluster_id, revision=header.revision)
    assert messages.position(reference("RangeResponse", header=head).SerializeToString()) == header
    assert messages.deleted(reference("DeleteRangeResponse", deleted=1).SerializeToString()) is True
    assert messages.deleted(reference("DeleteRangeResponse").SerializeToString()) is False
    assert messages.version(reference("StatusResponse", version="3.5.1").SerializeToString()) == "3.5.1"
    assert messages.token(reference("AuthenticateResponse", token="abc.7").SerializeToString()) == "abc.7"


@untimed
@given(st.integers(0, 2**40), revisions, st.booleans(), st.booleans(), revisions, st.booleans(), st.text(max_size=200))
def test_message_of_a_watch_is_read_as_protobuf_wrote_it(
    number: int, revision: int, created: bool, canceled: bool, compacted: int, events: bool, reason: str
) -> None:
    """What happened is not read, only that something did."""
    content = reference(
        "WatchResponse", watch_id=number, created=created, canceled=canceled, compact_revision=compacted,
        cancel_reason=reason, header=reference("ResponseHeader", revision=revision),
        events=[reference("Event")] * 2 if events else [],
    ).SerializeToString()  # fmt: skip
    read = messages.watch_message(content)
    assert read == WatchMessage(number, revision, created, canceled, compacted, events, reason)


READERS = [
    messages.answer, messages.position, messages.deleted, messages.granted, messages.living, messages.version,
    messages.token, messages.watch_message, lambda content: messages.kept_alive(content, 1),
]  # fmt: skip


@untimed
@given(st.binary(max_size=200), st.sampled_from(READERS))
def test_bytes_of_anybody_are_read_or_refused(content: bytes, read: Any) -> None:
    """Nonsense is StoreRefused, never an error from outside the tree, and never a loop."""
    try:
        read(content)
    except StoreRefused:
        pass


@untimed
@given(txns.filter(lambda txn: bool(txn.success)), st.data())
def test_answer_that_was_cut_short_is_refused(txn: Txn, data: Any) -> None:
    """Half a message says nothing: neither that it succeeded nor that it did not."""
    kv = reference("KeyValue", key=b"k", value=b"value", create_revision=7, mod_revision=8)
    body = reference("ResponseOp", response_range=reference("RangeResponse", kvs=[kv]))
    content = reference("TxnResponse", responses=[body]).SerializeToString()
    with pytest.raises(StoreRefused):
        messages.answer(content[: data.draw(st.integers(1, len(content) - 1))])


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (messages.granted, b""),
        (messages.granted, b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),  # -1
        (lambda content: messages.kept_alive(content, 7), b""),
        (lambda content: messages.kept_alive(content, 7), b"\x10\x08\x18\x05"),  # lease 8's
        (messages.answer, b"\x18\x01"),  # a number where responses stand
        (messages.version, b"\x12\xff\xff\xff\xff\x0f"),  # four gigabytes, it says
        (messages.watch_message, b"\x10" + b"\x80" * 11),
    ],
)  # fmt: skip
def test_answer_that_is_none_is_refused(read: Any, content: bytes) -> None:
    """An answer to another question proves nothing."""
    with pytest.raises(StoreRefused):
        read(content)


def test_proto_has_the_numbers_that_etcd_published() -> None:
    """The bytes are held to the .proto above; here a few of its numbers to etcd's own, by which all of it stands."""
    numbers = {
        "TxnRequest": {"compare": 1, "success": 2, "failure": 3},
        "RangeRequest": {"limit": 3, "sort_order": 5, "sort_target": 6, "max_create_revision": 13},
        "PutRequest": {"key": 1, "value": 2, "lease": 3, "ignore_value": 5, "ignore_lease": 6},
        "Compare": {"result": 1, "target": 2, "key": 3, "create_revision": 5, "mod_revision": 6},
        "KeyValue": {"key": 1, "create_revision": 2, "mod_revision": 3, "value": 5, "lease": 6},
        "WatchCreateRequest": {"start_revision": 3, "filters": 5, "watch_id": 7},
        "WatchResponse": {"watch_id": 2, "created": 3, "canceled": 4, "compact_revision": 5, "events": 11},
    }
    for name, fields in numbers.items():
        found = {f.name: f.number for f in getattr(etcd_messages(), name).DESCRIPTOR.fields}
        assert fields.items() <= found.items(), name
    assert not re.search(r"\bimport\b", PROTO.read_text()), "it stands alone"
