"""ZooKeeper's transaction log, as it stands on disk: every change that a server has logged, in the order of zxids.

    file      "ZKLG", version, database id, then records up to the first that is empty (the file is allocated ahead)
    record    checksum, length, transaction, "B"
    transaction   header (session, cxid, zxid, wall clock in ms, type), then what its type says, then a digest

Strings, buffers and vectors begin with their length, big-endian. Types that change no node or session are passed over.
A record that is cut off ends the log: its server was killed as it wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FILE_HEADER: Final = struct.Struct(">4siq")
_RECORD_HEADER: Final = struct.Struct(">qi")
_TRANSACTION: Final = struct.Struct(">qiqqi")
_INT: Final = struct.Struct(">i")
_MAGIC: Final = b"ZKLG"

_CREATES: Final = frozenset({1, 15, 19, 21})  # create, create2, createContainer, createTTL
_DELETES: Final = frozenset({2, 20})  # delete, deleteContainer
_MULTI: Final = 14
_CREATE_SESSION: Final = -10
_CLOSE_SESSION: Final = -11


@dataclass(frozen=True, slots=True)
class Change:
    """A node made or removed."""

    made: bool
    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction of the log.

    `opens` is the time-out of a new session, in seconds; `closes`: the session ended with it.
    """

    zxid: int
    session: int
    by_client: bool
    """Did its session ask for it? What the server does by itself (ending a session) has cxid 0."""
    wall_clock: float
    changes: tuple[Change, ...] = field(default=())
    opens: float | None = None
    closes: bool = False


class NotALog(ValueError):
    """A file that is no transaction log, or none of this version."""


def read_log(path: Path) -> Iterator[Transaction]:
    """The transactions of one file. Raises NotALog, OSError."""
    raw = path.read_bytes()
    if len(raw) < _FILE_HEADER.size:
        return  # just made
    magic, _, _ = _FILE_HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise NotALog(f"{path} is no transaction log of ZooKeeper's")
    at = _FILE_HEADER.size
    while at + _RECORD_HEADER.size <= len(raw):
        _, length = _RECORD_HEADER.unpack_from(raw, at)
        at += _RECORD_HEADER.size
        if length <= 0 or at + length + 1 > len(raw) or raw[at + length : at + length + 1] != b"B":
            return
        yield _transaction(raw[at : at + length])
        at += length + 1


def _transaction(raw: bytes) -> Transaction:
    session, cxid, zxid, milliseconds, kind = _TRANSACTION.unpack_from(raw)
    body = raw[_TRANSACTION.size :]
    return Transaction(
        zxid=zxid,
        session=session & 2**64 - 1,
        by_client=cxid != 0,
        wall_clock=milliseconds / 1000.0,
        changes=tuple(_changes(kind, body)),
        opens=_INT.unpack_from(body)[0] / 1000.0 if kind == _CREATE_SESSION else None,
        closes=kind == _CLOSE_SESSION,
    )


def _changes(kind: int, body: bytes) -> Iterator[Change]:
    if kind in _CREATES:
        path, after = _buffer(body, 0)
        data, _ = _buffer(body, after)
        yield Change(True, path.decode(), data)
    elif kind in _DELETES:
        yield Change(False, _buffer(body, 0)[0].decode())
    elif kind == _MULTI:
        (count,) = _INT.unpack_from(body)
        at = _INT.size
        for _ in range(count):
            (kind_of_one,) = _INT.unpack_from(body, at)
            one, at = _buffer(body, at + _INT.size)
            yield from _changes(kind_of_one, one)


def _buffer(raw: bytes, at: int) -> tuple[bytes, int]:
    """The buffer at `at`, and where it ends. A length of -1 is "nothing"."""
    (length,) = _INT.unpack_from(raw, at)
    start = at + _INT.size
    end = start + max(0, length)
    return raw[start:end], end
