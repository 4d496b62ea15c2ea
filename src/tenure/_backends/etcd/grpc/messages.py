"""Protobuf, for exactly the messages of etcd.proto: requests written, answers read.

By hand: a generated codec would make an object tree of every message only to be copied into requests.py's values, and
its runtime is a compiled package with versions of its own. A test compares this one with protobuf's own, message by
message. What can't be read is StoreRefused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from tenure._backends.etcd.requests import (
    Condition,
    CreatedAt,
    Header,
    KeyValue,
    Life,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
    WatchMessage,
    WatchRequest,
)
from tenure.errors import StoreRefused

Given = ParamSpec("Given")
Outcome = TypeVar("Outcome")

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10
_SHORT: Final = [bytes([number]) for number in range(128)]
_TRUE: Final = b"\x01"

# Tags: field number and wire type in one byte, all that is needed before field 16.
_F1, _F2, _F3 = b"\x0a", b"\x12", b"\x1a"  # length-delimited
_N1, _N2, _N3, _N4, _N5, _N6, _N7 = b"\x08", b"\x10", b"\x18", b"\x20", b"\x28", b"\x30", b"\x38"
_N8, _N9, _N13 = b"\x40", b"\x48", b"\x68"
_BY_CREATION_ASCENDING: Final = _N5 + b"\x01" + _N6 + b"\x02"  # sort_order, sort_target
_BY_CREATION_DESCENDING: Final = _N5 + b"\x02" + _N6 + b"\x02"
_CREATION: Final = _N2 + b"\x01"  # the target of a comparison
_MODIFICATION: Final = _N2 + b"\x02"
_DELETES_ONLY: Final = b"\x2a\x01\x00"  # filters, packed: NOPUT
ANYTHING: Final = _F1 + b"\x01\x00" + _N9 + _TRUE
"""Range whose answer is wanted for its header only: the store's position."""
NOTHING: Final = b""


# Requests.


def transaction(txn: Txn) -> bytes:
    parts: list[bytes] = []
    for condition in txn.compare:
        body = _condition(condition)
        parts += (_F1, _varint(len(body)), body)
    for operation in txn.success:
        body = _operation(operation)
        parts += (_F2, _varint(len(body)), body)
    for operation in txn.failure:
        body = _operation(operation)
        parts += (_F3, _varint(len(body)), body)
    return b"".join(parts)


def reading(asked: Range) -> bytes:
    return _range(asked)


def deletion(key: bytes) -> bytes:
    return _delimited(_F1, key)


def grant(number: int, ttl: int) -> bytes:
    return _number(_N1, ttl) + _number(_N2, number)


def lease(number: int) -> bytes:
    """Write a request that names a lease, and nothing else: keep-alive, revoke."""
    return _number(_N1, number)


def life(number: int, *, keys: bool) -> bytes:
    return _number(_N1, number) + (_N2 + _TRUE if keys else b"")


def sign_in(user: str, password: str) -> bytes:
    return _delimited(_F1, user.encode()) + _delimited(_F2, password.encode())


def watch_create(watch_id: int, watch: WatchRequest) -> bytes:
    return _delimited(
        _F1,
        _delimited(_F1, watch.key)
        + _delimited(_F2, watch.range_end or b"")
        + _number(_N3, watch.start_revision if watch.catch_up is None else 0)
        + (_DELETES_ONLY if watch.deletes_only else b"")
        + _number(_N7, watch_id),
    )


def watch_cancel(watch_id: int) -> bytes:
    return _delimited(_F2, _number(_N1, watch_id))


def _condition(condition: Condition) -> bytes:
    key, revision = condition
    # Which of the two revisions is compared must be written even where it is zero.
    if isinstance(condition, CreatedAt):
        return b"".join((_CREATION, _F3, _varint(len(key)), key, _N5, _varint(revision)))
    return b"".join((_MODIFICATION, _F3, _varint(len(key)), key, _N6, _varint(revision)))


def _operation(operation: Operation) -> bytes:
    if isinstance(operation, Range):
        return _delimited(_F1, _range(operation))
    if isinstance(operation, PutKey):
        return _delimited(_F2, _put(operation))
    return _delimited(_F3, _delimited(_F1, operation.key))


def _range(asked: Range) -> bytes:
    key, end, limit, newest_first, max_create_revision, by_key, keys_only, count_only, revision = asked
    parts = [_F1, _varint(len(key)), key]
    if end:
        parts += (_F2, _varint(len(end)), end)
    if limit:
        parts += (_N3, _varint(limit))
    if revision:
        parts += (_N4, _varint(revision))
    if end and not by_key:
        parts.append(_BY_CREATION_DESCENDING if newest_first else _BY_CREATION_ASCENDING)
    if keys_only:
        parts.append(_N8 + _TRUE)
    if count_only:
        parts.append(_N9 + _TRUE)
    if max_create_revision:
        parts += (_N13, _varint(max_create_revision))
    return b"".join(parts)


def _put(put: PutKey) -> bytes:
    key, value, lease = put
    return b"".join(
        (
            _F1, _varint(len(key)), key,
            _N5 + _TRUE if value is None else _delimited(_F2, value),
            _N6 + _TRUE if lease is None else _number(_N3, lease),
        )
    )  # fmt: skip


def _delimited(tag: bytes, body: bytes) -> bytes:
    return b"".join((tag, _varint(len(body)), body))


def _number(tag: bytes, number: int) -> bytes:
    """Write a number; nothing for zero, which is its default."""
    return tag + _varint(number) if number else b""


def _varint(number: int) -> bytes:
    if 0 <= number < 128:
        return _SHORT[number]
    number &= 0xFFFF_FFFF_FFFF_FFFF  # negative ones as two's complement of 64 bits
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


# Answers.


def _readable(read: Callable[Given, Outcome]) -> Callable[Given, Outcome]:
    """Turn whatever goes wrong while reading into StoreRefused."""

    @wraps(read)
    def reading(*given: Given.args, **named: Given.kwargs) -> Outcome:
        try:
            return read(*given, **named)
        except (IndexError, ValueError, TypeError, AttributeError) as error:
            raise StoreRefused(f"something answers there, but not as etcd: {error}") from error

    return reading


@_readable
def answer(content: bytes) -> TxnResult:
    """Read the answer to a transaction."""
    header, succeeded = _NO_HEADER, False
    found: list[KeyValue] = []
    counts: list[int] = []
    for number, value in _fields(content):
        if number == 3:
            for kind, body in _fields(_bytes(value)):
                if kind == 1:
                    _range_answer(_bytes(body), found, counts)
        elif number == 2:
            succeeded = bool(value)
        elif number == 1:
            header = _header(_bytes(value))
    return TxnResult(header, succeeded, found, 1, tuple(counts))


@_readable
def found(content: bytes) -> TxnResult:
    """Read the answer to a range outside of a transaction."""
    key_values: list[KeyValue] = []
    counts: list[int] = []
    _range_answer(content, key_values, counts)
    return TxnResult(position(content), True, key_values, 1, tuple(counts))


def _range_answer(content: bytes, found: list[KeyValue], counts: list[int]) -> None:
    for number, value in _fields(content):
        if number == 2:
            found.append(_key_value(_bytes(value)))
        elif number == 4:
            counts.append(_signed(value))


@_readable
def position(content: bytes) -> Header:
    """Read the header, which is every answer's first field."""
    header = _fields_by_number(content).get(1)
    return _NO_HEADER if header is None else _header(_bytes(header))


@_readable
def deleted(content: bytes) -> bool:
    return _signed(_fields_by_number(content).get(2, 0)) > 0


@_readable
def granted(content: bytes) -> float:
    ttl = _signed(_fields_by_number(content).get(3, 0))
    if ttl <= 0:
        raise ValueError("a lease without a TTL")
    return float(ttl)


@_readable
def kept_alive(content: bytes, number: int) -> float:
    fields = _fields_by_number(content)
    if _signed(fields.get(2, 0)) != number:
        raise ValueError(f"a keep-alive of lease {number:x} was answered for {_signed(fields.get(2, 0)):x}")
    return float(_signed(fields.get(3, 0)))


@_readable
def living(content: bytes) -> Life | None:
    """Read the state of a lease; None where the store does not know it."""
    ttl, granted_ttl, keys = 0, 0, []
    for number, value in _fields(content):
        if number == 3:
            ttl = _signed(value)
        elif number == 4:
            granted_ttl = _signed(value)
        elif number == 5:
            keys.append(_bytes(value))
    return None if ttl < 0 or granted_ttl <= 0 else Life(float(granted_ttl), tuple(keys), float(ttl))


@_readable
def version(content: bytes) -> str:
    return _bytes(_fields_by_number(content).get(2, b"")).decode()


@_readable
def token(content: bytes) -> str:
    return _bytes(_fields_by_number(content).get(2, b"")).decode()


@_readable
def watch_message(content: bytes) -> WatchMessage:
    """Read a message of the stream of watches."""
    found = _fields_by_number(content)
    return WatchMessage(
        watch_id=_signed(found.get(2, 0)),
        revision=_header(_bytes(found[1])).revision if 1 in found else 0,
        created=bool(found.get(3, 0)),
        canceled=bool(found.get(4, 0)),
        compact_revision=_signed(found.get(5, 0)),
        events=11 in found,
        reason=_bytes(found.get(6, b"")).decode(errors="replace"),
    )


_NO_HEADER: Final = Header(0, 0)


def _header(content: bytes) -> Header:
    cluster_id = revision = 0
    for number, value in _fields(content):
        if number == 1:
            cluster_id = _integer(value)
        elif number == 3:
            revision = _signed(value)
    return Header(cluster_id, revision)


def _key_value(content: bytes) -> KeyValue:
    key = value = b""
    create_revision = mod_revision = lease = 0
    for number, field in _fields(content):
        if number == 1:
            key = _bytes(field)
        elif number == 2:
            create_revision = _signed(field)
        elif number == 3:
            mod_revision = _signed(field)
        elif number == 5:
            value = _bytes(field)
        elif number == 6:
            lease = _signed(field)
    return KeyValue(key, value, create_revision, mod_revision, lease)


def _fields(content: bytes) -> list[tuple[int, int | bytes]]:
    """Number and value of every field, in order; nested messages as bytes, fixed-width numbers skipped."""
    found: list[tuple[int, int | bytes]] = []
    at, size = 0, len(content)
    while at < size:
        tag = content[at]
        at += 1
        if tag > 127:
            tag, at = _long(content, at - 1)
        kind = tag & 7
        if kind in (_BYTES, _VARINT):
            value = content[at]
            at += 1
            if value > 127:
                value, at = _long(content, at - 1)
            if kind == _VARINT:
                found.append((tag >> 3, value))
                continue
            end = at + value
            found.append((tag >> 3, content[at:end]))
            at = end
        elif kind == _FIXED_64:
            at += 8
        elif kind == _FIXED_32:
            at += 4
        else:
            raise ValueError(f"a field of the unknown wire type {kind}")
    if at > size:
        raise ValueError("a message that was cut short")
    return found


def _fields_by_number(content: bytes) -> dict[int, int | bytes]:
    """Read a message without repeated fields: the last value of a field counts."""
    return dict(_fields(content))


def _long(content: bytes, at: int) -> tuple[int, int]:
    """Read a varint of more than one byte, and where it ends."""
    number = shift = 0
    for byte in content[at : at + _VARINT_BYTES_MAX]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise ValueError("a number without an end")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError(f"a number where bytes should be: {value}")


def _integer(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"bytes where a number should be: {value[:20]!r}")


def _signed(value: int | bytes) -> int:
    number = _integer(value)
    return number if number < 1 << 63 else number - (1 << 64)
