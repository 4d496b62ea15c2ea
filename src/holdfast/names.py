"""Names: what a user may call a thing, and how that becomes one node or key.

One name is one line, on every backend. Printable ASCII other than `/` and `%` stands for itself;
every other character is written as the percent-encoded bytes of its UTF-8, because ZooKeeper
refuses most of them and a slash would nest one line in another. No Unicode normalisation is done:
two spellings of `é` are two names.
"""

from __future__ import annotations

import os
import re
import socket
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from holdfast.errors import InvalidName
from holdfast.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, OWNER_BYTES_MAX

DEFAULT_NAMESPACE: Final = "holdfast"
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


def checked_key(key: str, namespace: str) -> str:
    """A key of the user's own, neither in the namespace where the lines are nor above it. Raises InvalidName.

    On etcd it is the key as it stands; on ZooKeeper the path of a node, with a slash put before it where
    there is none.
    """
    _refuse_unusable(key, what="key", bytes_max=KEY_BYTES_MAX)
    segments = key.removeprefix("/").split("/")
    if any(s in ("", ".", "..") for s in segments) or segments[0] == "zookeeper":
        raise InvalidName(f"key {key!r} has an empty, '.' or '..' segment, or is the store's own; name every segment")
    if any(unicodedata.category(c) == "Co" or c >= "\ufff0" for c in key):
        raise InvalidName(f"key {key!r} has a character in it that not every store takes")
    path, lines = f"{'/'.join(segments)}/", f"{namespace}/"
    if path.startswith(lines) or lines.startswith(path):  # on ZooKeeper a parent made for the lines goes with them
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
