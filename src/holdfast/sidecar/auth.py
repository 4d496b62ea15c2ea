"""Who may do what: bearer tokens from a file, with a tenant and scopes each.

    # name     tenant    scopes              SHA-256 of the token, in hex
    billing-1  billing   acquire,read        9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    on-call    *         read,operate        60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752

One line a token; the name is for people, and stands in logs and audit records. Only hashes are stored: make a token
that nobody can guess, `openssl rand -hex 32`, and its line's last field with `printf %s "$TOKEN" | sha256sum`. Two
lines with one name are one caller with two tokens: so a token is changed without a gap.

The file is read again on SIGHUP and when it changes; one that can't be read leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.errors import InvalidOption
from holdfast.sidecar.bounds import TOKEN_FILE_BYTES_MAX, TOKEN_FILE_SECONDS, TOKENS_MAX
from holdfast.sidecar.tenants import EVERYBODY, Tenant

_log = logging.getLogger("holdfast.sidecar")
_NAME: Final = re.compile(r"[!-~]{1,64}\Z")
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")
_BUCKET_BYTES: Final = 2


class Scope(enum.Enum):
    """What a token is good for."""

    ACQUIRE = "acquire"
    """Acquire, renew and release."""
    READ = "read"
    """See lines, holds of the past, audit records, and their changes."""
    ELECT = "elect"
    """See who leads."""
    OPERATE = "operate"
    """Force somebody out."""
    METRICS = "metrics"
    """See the metrics of the service, of all tenants."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    tenant: Tenant
    scopes: frozenset[Scope]
    digest: bytes = field(default=b"", repr=False)
    """Of the token that was shown."""


ANYBODY: Final = Caller("anybody", EVERYBODY, frozenset(Scope))
"""Who asks a service that wants no token."""


class Tokens:
    """The tokens of one file. `find` costs the same wherever a wrong token differs."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidOption for a file that can't be read."""
        self._path = path
        self._seen = _look(path)
        self._known = _by_start(_read(path))

    def find(self, token: str) -> Caller | None:
        """Whose token it is."""
        digest = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        found = None
        for known in self._known.get(digest[:_BUCKET_BYTES], ()):
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found

    def knows(self, caller: Caller) -> bool:
        """Is the token that this caller showed still good for the same?"""
        return caller in self._known.get(caller.digest[:_BUCKET_BYTES], ())

    def reload(self) -> bool:
        """Read the file again; False, and nothing changed, where it can't be."""
        seen = _look(self._path)
        try:
            self._known = _by_start(_read(self._path))
        except InvalidOption as error:
            _log.error("the tokens stay as they were: %s", error)
            return False
        finally:
            self._seen = seen
        _log.warning("the tokens in %s were read again", self._path)
        return True

    async def follow(self) -> None:
        """Read the file again whenever it has changed, until cancelled.

        Looked at every other second: a Kubernetes secret is changed by another link, which no watch on the file sees.
        """
        while True:
            await asyncio.sleep(TOKEN_FILE_SECONDS)
            if _look(self._path) != self._seen:
                self.reload()


def _look(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _by_start(known: Iterator[Caller]) -> dict[bytes, list[Caller]]:
    found: dict[bytes, list[Caller]] = {}
    for number, one in enumerate(known):
        if number >= TOKENS_MAX:
            raise InvalidOption(f"the file of tokens has more than {TOKENS_MAX}")
        found.setdefault(one.digest[:_BUCKET_BYTES], []).append(one)
    return found


def _read(path: Path) -> Iterator[Caller]:
    """The tokens of the file. Raises InvalidOption; it names the line and never what stands in it."""
    try:
        with path.open("rb") as file:
            raw = file.read(TOKEN_FILE_BYTES_MAX + 1)
        if len(raw) > TOKEN_FILE_BYTES_MAX:
            raise InvalidOption(f"the file of tokens {path} has more than {TOKEN_FILE_BYTES_MAX} bytes")
        lines = raw.decode("utf-8").splitlines()
    except OSError as error:
        raise InvalidOption(f"the file of tokens {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"the file of tokens {path} is not UTF-8") from error
    rights: dict[str, tuple[Tenant, frozenset[Scope]]] = {}
    digests: set[bytes] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"line {number} of the file of tokens {path}"
        try:
            known = _line(line)
        except ValueError as error:
            raise InvalidOption(f"{where}: {error}") from None
        if rights.setdefault(known.name, (known.tenant, known.scopes)) != (known.tenant, known.scopes):
            raise InvalidOption(f"{where}: the name has another tenant or other scopes above")
        if known.digest in digests:
            raise InvalidOption(f"{where}: the same token stands above")
        digests.add(known.digest)
        yield known


def _line(line: str) -> Caller:
    parts = line.split()
    if len(parts) != 4:
        raise ValueError("write NAME TENANT SCOPE[,SCOPE…] SHA256, parted by spaces")
    name, tenant, scopes, digest = parts
    if not _NAME.match(name):
        raise ValueError("the name has to be up to 64 printable ASCII characters")
    if not _HASH.match(digest.lower()):
        raise ValueError("the last field has to be the SHA-256 of the token: 64 hexadecimal digits")
    try:
        granted = frozenset(Scope(scope) for scope in scopes.split(","))
    except ValueError:
        raise ValueError(f"unknown scope; there are {', '.join(scope.value for scope in Scope)}") from None
    return Caller(name, Tenant.of(tenant), granted, bytes.fromhex(digest))
