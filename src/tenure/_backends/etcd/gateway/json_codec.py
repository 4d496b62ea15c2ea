"""etcd's JSON documents: requests written for the gateway, and its answers read.

Keys and values are base64, 64-bit numbers are strings, and zero is left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from tenure._backends.etcd.requests import (
    Condition,
    CreatedAt,
    Header,
    KeyValue,
    Operation,
    PutKey,
    Range,
    Txn,
    TxnResult,
    WatchMessage,
    WatchRequest,
)
from tenure.errors import StoreRefused, StoreUnavailable

Json: TypeAlias = Mapping[str, Any]  # Any: etcd's own documents


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def transaction(txn: Txn) -> bytes:
    """Write a transaction, as text: base64 and numbers need no escapes, and dicts would cost more."""
    compare = ",".join(map(_condition, txn.compare))
    success = ",".join(map(_operation, txn.success))
    failure = ",".join(map(_operation, txn.failure))
    return f'{{"compare":[{compare}],"success":[{success}],"failure":[{failure}]}}'.encode()


def reading(asked: Range) -> bytes:
    """Write a range outside of a transaction."""
    return _range(asked).encode()


def found(document: Json) -> TxnResult:
    """Read the answer to a range outside of a transaction."""
    key_values = [_key_value(kv) for kv in document.get("kvs", ())]
    counts = (int(document["count"]),) if "count" in document else ()
    return TxnResult(header(document), True, key_values, counts=counts)


def answer(document: Json) -> TxnResult:
    """Read the answer to a transaction."""
    found = [_key_value(kv) for r in document.get("responses", ()) for kv in r.get("response_range", {}).get("kvs", ())]
    counts = tuple(int(n) for r in document.get("responses", ()) if (n := r.get("response_range", {}).get("count")))
    return TxnResult(header(document), bool(document.get("succeeded")), found, counts=counts)


def header(document: Json) -> Header:
    body = document.get("header", {})
    return Header(int(body.get("cluster_id", 0)), int(body.get("revision", 0)))


def keys(document: Json) -> tuple[bytes, ...]:
    """Read the keys bound to a lease."""
    return tuple(base64.b64decode(key) for key in document.get("keys") or ())


def kept_alive(text: str) -> dict[int, float]:
    """Read TTLs by lease, from answers one behind the other. Raises StoreUnavailable, StoreRefused."""
    found: dict[int, float] = {}
    for line in text.splitlines():
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreRefused(f"something answers there, but it is not etcd: {line[:80]!r}") from error
        if "error" in document:
            raise StoreUnavailable(f"the keep-alive was answered with an error: {document['error']}")
        result = document.get("result") or {}
        if "ID" in result:  # a dead lease's answer has no TTL in it
            found[int(result["ID"])] = seconds_of(result, "TTL") if "TTL" in result else 0.0
    return found


def create(watch_id: int, watch: WatchRequest) -> Json:
    """Make the request for one watch."""
    request: dict[str, Any] = {"key": b64(watch.key), "watch_id": watch_id}
    if watch.catch_up is None:
        request["start_revision"] = watch.start_revision
    if watch.range_end is not None:
        request["range_end"] = b64(watch.range_end)
    if watch.deletes_only:
        request["filters"] = ["NOPUT"]
    return {"create_request": request}


def cancel(watch_id: int) -> Json:
    return {"cancel_request": {"watch_id": watch_id}}


def watch_message(message: Json) -> WatchMessage:
    """Read a message of the stream of watches. Raises OSError where it ends them all."""
    if "error" in message:
        raise OSError(f"the server ended the watches: {message['error']}")
    result = message.get("result") or {}
    return WatchMessage(
        watch_id=int(result.get("watch_id", 0)),
        revision=int(result.get("header", {}).get("revision", 0)),
        created=bool(result.get("created")),
        canceled=bool(result.get("canceled")),
        compact_revision=int(result.get("compact_revision", 0)),
        events=bool(result.get("events")),
        reason=str(result.get("cancel_reason", "")),
    )


def seconds_of(document: Json, name: str) -> float:
    """Read a time from an answer. Raises StoreRefused where there is none."""
    try:
        return float(document[name])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreRefused(f"etcd answered without a usable {name}: {str(document)[:80]}") from error


def _condition(condition: Condition) -> str:
    key, revision = condition
    if isinstance(condition, CreatedAt):
        return f'{{"target":"CREATE","result":"EQUAL","key":"{b64(key)}","create_revision":"{revision}"}}'
    return f'{{"target":"MOD","result":"EQUAL","key":"{b64(key)}","mod_revision":"{revision}"}}'


def _operation(operation: Operation) -> str:
    if isinstance(operation, Range):
        return f'{{"request_range":{_range(operation)}}}'
    if isinstance(operation, PutKey):
        return f'{{"request_put":{_put(operation)}}}'
    return f'{{"request_delete_range":{{"key":"{b64(operation.key)}"}}}}'


def _range(asked: Range) -> str:
    parts = [f'{{"key":"{b64(asked.key)}"']
    if asked.range_end:
        parts.append(f'"range_end":"{b64(asked.range_end)}"')
        if not asked.by_key:  # the order in which etcd keeps them
            order = "DESCEND" if asked.newest_first else "ASCEND"
            parts.append(f'"sort_target":"CREATE","sort_order":"{order}"')
    if asked.limit:
        parts.append(f'"limit":{asked.limit}')
    if asked.max_create_revision:
        parts.append(f'"max_create_revision":"{asked.max_create_revision}"')
    if asked.revision:
        parts.append(f'"revision":"{asked.revision}"')
    if asked.keys_only:
        parts.append('"keys_only":true')
    if asked.count_only:
        parts.append('"count_only":true')
    return ",".join(parts) + "}"


def _put(put: PutKey) -> str:
    key, value, lease = put
    body = '"ignore_value":true' if value is None else f'"value":"{b64(value)}"'
    bound = ',"ignore_lease":true' if lease is None else f',"lease":"{lease}"' if lease else ""
    return f'{{"key":"{b64(key)}",{body}{bound}}}'


def _key_value(kv: Json) -> KeyValue:
    return KeyValue(
        base64.b64decode(kv["key"]),
        base64.b64decode(kv.get("value", "")),
        int(kv["create_revision"]),
        int(kv["mod_revision"]),
        int(kv.get("lease", 0)),
    )
