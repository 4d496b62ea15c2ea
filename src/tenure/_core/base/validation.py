"""Checks of what users pass in. Each returns the value in the one form used inside, or raises.

Numbers are checked against the limits. Names become one node or key: one name is one line, on every backend. Printable
ASCII other than `/` and `%` stands for itself; every other character is written as the percent-encoded bytes of its
UTF-8, because ZooKeeper refuses most of them and a slash would nest one line in another. No Unicode normalisation is
done: two spellings of `é` are two names.
"""

from __future__ import annotations

import math
import os
import re
import socket
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from tenure._core.base.limits import (
    KEY_BYTES_MAX,
    LOCK_DELAY_MAX,
    NAME_BYTES_MAX,
    NAMESPACE_BYTES_MAX,
    OWNER_BYTES_MAX,
    SEATS_MAX,
    TTL_MAX,
    TTL_MIN,
    VALUE_BYTES_MAX,
)
from tenure.errors import InvalidName, InvalidOption

DEFAULT_NAMESPACE: Final = "tenure"
_PLAIN: Final = re.compile(r"[ -$&-.0-~]*\Z")


def encode(name: str) -> str:
    """The path segment for `name`. Raises InvalidName."""
    if not isinstance(name, str):
        raise InvalidName(f"a name is a str, not {type(name).__name__}")
    return _encode(name)


@lru_cache(maxsize=4096)
def _encode(name: str) -> str:
    _refuse_unusable(name, what="name", bytes_max=NAME_BYTES_MAX)
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if _PLAIN.match(name):
        return name
    return "".join(c if _PLAIN.match(c) else _percent(c) for c in name)


def decode(segment: str) -> str:
    """The name a path segment was made from."""
    return unquote(segment, errors="strict")


def namespace_path(namespace: str) -> str:
    """A namespace in its stored form: encoded segments joined by `/`. Raises InvalidName."""
    stripped = namespace.strip("/") or DEFAULT_NAMESPACE
    _refuse_unusable(stripped, what="namespace", bytes_max=NAMESPACE_BYTES_MAX)
    segments = stripped.split("/")
    if any(s in ("", ".", "..") for s in segments):
        raise InvalidName(f"namespace {namespace!r} has an empty, '.' or '..' segment; name every segment")
    return "/".join(encode(s) for s in segments)


def checked_owner(owner: str | None) -> str:
    """`owner`, or this host and process where none is given. Raises InvalidName."""
    if owner is None:
        return f"{socket.gethostname()}:{os.getpid()}"
    _refuse_unusable(owner, what="owner", bytes_max=OWNER_BYTES_MAX)
    return owner


def keys_root(namespace: str) -> str:
    """The beginning of the user's own keys under `namespace`. No name is encoded to `%` and a small letter."""
    return f"{namespace}/%data/"


def checked_key(key: str) -> str:
    """A key of the user's own, under the client's namespace. Raises InvalidName."""
    _refuse_unusable(key, what="key", bytes_max=KEY_BYTES_MAX)
    if any(s in ("", ".", "..") for s in key.split("/")):
        absolute = " (`hold.store.absolute` takes absolute keys)" if key[0] == "/" else ""
        raise InvalidName(f"key {key!r} has an empty, '.' or '..' segment{absolute}; name every segment")
    if any(unicodedata.category(c) == "Co" or c >= "\ufff0" for c in key):
        raise InvalidName(f"key {key!r} has a character in it that not every store takes")
    return key


def checked_absolute_key(key: str, namespace: str) -> str:
    """An absolute key, neither in the namespace where the lines are nor above it. Raises InvalidName.

    On etcd it is the key as it stands; on ZooKeeper the path of a node, with or without a slash before it.
    """
    _refuse_unusable(key, what="key", bytes_max=KEY_BYTES_MAX)
    path, lines = checked_key(key.removeprefix("/") or "/") + "/", f"{namespace}/"
    # On ZooKeeper a parent made for the lines goes with them; "zookeeper" is its own.
    if path.startswith((lines, "zookeeper/")) or lines.startswith(path):
        raise InvalidName(f"key {key!r} is where the lines of namespace {namespace!r} stand; keep your data elsewhere")
    return key


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _refuse_unusable(name: object, *, what: str, bytes_max: int) -> None:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} is a str, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"a {what} can't be empty")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise InvalidName(f"{what} {name!r} has a control character or lone surrogate in it; leave it out")
    size = len(name.encode())
    if size > bytes_max:
        raise InvalidName(f"{what} {name[:40]!r}… has {size} bytes; at most {bytes_max} are allowed")


def seconds(value: object, what: str, *, minimum: float, maximum: float = math.inf) -> float:
    """A finite number of seconds within [minimum, maximum]. Raises InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise InvalidOption(f"{what} must be a finite number of seconds, not {_shown(value)}")
    if not minimum <= value <= maximum:
        raise InvalidOption(f"{what} must be between {minimum:g} and {maximum:g} seconds, not {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """`value` for a message, whatever it is."""
    try:
        return repr(value)[:40]
    except ValueError:  # an int of more digits than Python writes out
        return f"a very large {type(value).__name__}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def ttl(value: object) -> float:
    """A time to live to ask for. What the store grants may be more, and then rules."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        raise InvalidOption(f"ttl must be above 0 seconds, not {_shown(value)}")
    return seconds(value, "ttl", minimum=TTL_MIN, maximum=TTL_MAX)


def timeout(value: object) -> float | None:
    """Time that a call may wait; None for as long as the lease lives."""
    return None if value is None else seconds(value, "timeout", minimum=0.0)


def lock_delay(value: object) -> float:
    """Time that a lease stands at the store after its holder stopped believing. Raises InvalidOption."""
    return seconds(value, "lock_delay", minimum=0.0, maximum=LOCK_DELAY_MAX)


def count(value: object, what: str, *, minimum: int = 1, maximum: int = SEATS_MAX) -> int:
    """A whole number from `minimum` to `maximum`. Raises InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidOption(f"{what} must be a whole number from {minimum} to {maximum}, not {_shown(value)}")
    return value


def text(value: object) -> str:
    """A value others may read, such as a leader's address. Raises InvalidOption."""
    if not isinstance(value, str):
        raise InvalidOption(f"a value is a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"a value must be encodable as UTF-8: {error}") from error
    if size > VALUE_BYTES_MAX:
        raise InvalidOption(
            f"a value may have at most {VALUE_BYTES_MAX} bytes, this one has {size}; store it elsewhere and pass "
            "a reference"
        )
    return value
