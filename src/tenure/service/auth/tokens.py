"""Bearer tokens from a file, each with a tenant and scopes, and the check of a request against them.

    # name     tenant    scopes         SHA-256 of the token, in hex                                      until
    billing-1  billing   acquire,read   0000000000000000000000000000000000000000000000000000000000000000
    on-call    *         read,operate   1111111111111111111111111111111111111111111111111111111111111111  2030-01-31
    shipping   shipping  acquire,read   uri:spiffe://example.org/shipping

One line a token, or a client's certificate: `uri:` and a URI in it, or `cert:` and its common name, percent-encoded.
Who shows both goes by the token. Names are for people, and stand in logs and audit records. Of tokens only hashes are
stored (none has the two above): `tenure serve token` makes a token and its line. Hashes of common words are refused.
Two lines with one name are one caller with two tokens: so a token is changed without a gap.

The file is read again on SIGHUP, and when it has changed and is the same at two looks: it may be half written at one.
One that can't be read leaves everything as it was, and so does one without a token where there were some.

A tenant has the names that begin with its own and a slash, and sees and touches no others. The lock `ledger` of the
tenant `billing` stands in the store as `billing/ledger`, one name and one segment like any other. A tenant's name has
no slash in it, so that no tenant's names begin like another's; and what a client writes after it, `../` or anything
else, is part of that one name. The tenant `*` has the whole namespace, under plain names: what programs with the
library hold there belongs to it.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import hmac
import logging
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

from tenure._core.base.limits import NAME_BYTES_MAX
from tenure.errors import InvalidOption
from tenure.service.auth.limits import Limits
from tenure.service.http.fields import InvalidField
from tenure.service.http.problems import Problem, ProblemCode, later
from tenure.service.http.request import HttpRequest
from tenure.service.limits import TOKEN_FILE_BYTES_MAX, TOKEN_FILE_SECONDS, TOKENS_MAX
from tenure.service.settings import ip_address

CERTIFIED: Final = "tenure.certified"
"""The extension of an ASGI scope with the names in a client's certificate, as they stand in the file."""
WHOLE: Final = "*"
_TENANT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_NAME: Final = re.compile(r"(?!#)[!-~]{1,64}\Z")
_CERTIFICATE: Final = re.compile(r"(cert|uri):.")
_PORT: Final = re.compile(r":\d*\Z")
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")
_GUESSED_FIRST: Final = (  # parted by spaces, the empty one before the first; and the name and the tenant of a line
    " test test1 test2 token token1 secret password passwd changeme change-me default example admin root user operator "
    "tenure guest demo foo bar abc abc123 letmein qwerty 1 123 1234 12345 123456 12345678 123456789 0000 x"
)
_GUESSABLE: Final = frozenset(hashlib.sha256(word.encode()).hexdigest() for word in _GUESSED_FIRST.split(" "))
_BUCKET_BYTES: Final = 2
_HASH_BYTES: Final = 32
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="tenure"'}
_log = logging.getLogger("tenure.service")


class Scope(enum.Enum):
    """Kinds of routes that a token may be allowed to use."""

    ACQUIRE = "acquire"
    """Acquire, renew and release."""
    WRITE = "write"
    """Write keys of `hold.store`, under a hold; to read them takes `acquire`."""
    READ = "read"
    """See lines, holds of the past, audit records, and their changes."""
    ELECT = "elect"
    """See who leads."""
    OPERATE = "operate"
    """Force somebody out."""
    METRICS = "metrics"
    """See the metrics of the service, of all tenants."""


RouteScope: TypeAlias = Scope | Literal["any"] | None
"""The scope that a token needs for a route; None: no token is needed."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A set of names in the store that belong together: all that begin with `prefix`."""

    name: str
    prefix: str

    @classmethod
    def of(cls, name: str) -> Tenant:
        """Return the tenant of that name. Raises InvalidOption."""
        if name != WHOLE and not _TENANT.match(name):
            raise InvalidOption(
                f"{name[:80]!r} can't be a tenant: letters, digits, '.', '_' and '-', at most 64; or '*'"
            )
        return cls(name, "" if name == WHOLE else f"{name}/")

    def inside(self, name: str) -> str:
        """Translate a tenant's name to the store's. Raises InvalidField."""
        stored = self.prefix + name
        if len(stored.encode()) > NAME_BYTES_MAX:
            maximum = NAME_BYTES_MAX - len(self.prefix)
            raise InvalidField(f"a name may have at most {maximum} bytes here, this one has {len(name.encode())}")
        return stored

    def has(self, stored: str) -> bool:
        """Say whether a name of the store belongs to this tenant."""
        return stored.startswith(self.prefix) and len(stored) > len(self.prefix)

    def outside(self, stored: str) -> str:
        """Translate a name of the store, which belongs to this tenant, to the tenant's."""
        return stored.removeprefix(self.prefix)


EVERYBODY: Final = Tenant(WHOLE, "")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, as its token says."""

    name: str
    tenant: Tenant
    scopes: frozenset[Scope]
    credential: bytes = field(default=b"", repr=False)
    """SHA-256 of the token that was shown; or the name in the certificate, as it stands in the file."""
    until: float = field(default=math.inf, compare=False)

    @property
    def over(self) -> bool:
        """True once the token is no longer good."""
        return time.time() >= self.until


ANYBODY: Final = Caller("anybody", EVERYBODY, frozenset(Scope))
"""The caller of a service that wants no token."""


class Tokens:
    """The tokens and certificates of one file."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InvalidOption where it can't be read."""
        self._path = path
        self._seen = self._last = _look(path)
        self._known = _by_start(_read(path))

    def find(self, credential: bytes) -> Caller | None:
        """Return the caller whose it is; None for an unknown one. Takes the same time wherever a wrong one differs."""
        found = None
        for known in self._known.get(_start(credential), ()):
            if hmac.compare_digest(known.credential, credential):
                found = known
        return found

    @property
    def tenants(self) -> int:
        """The number of tenants."""
        return len({caller.tenant for known in self._known.values() for caller in known})

    def knows(self, caller: Caller) -> bool:
        """Say whether the token or certificate of this caller is still good for the same tenant and scopes."""
        known = self._known.get(_start(caller.credential), ())
        return any(one == caller and not one.over for one in known)

    def reload(self) -> bool:
        """Read the file again. False where it can't be taken: nothing has changed then."""
        seen = _look(self._path)
        try:
            known = _by_start(_read(self._path))
            if self._known and not known:
                raise InvalidOption(f"the file of tokens {self._path} has no token in it any more")
            self._known = known
        except InvalidOption as error:
            _log.error("the tokens stay as they were: %s", error)
            return False
        finally:
            self._seen = seen
        _log.warning("the tokens in %s were read again", self._path)
        return True

    def look(self) -> None:
        """Read the file again if it has changed, and is as it was at the last look."""
        before, self._last = self._last, _look(self._path)
        if self._last != self._seen and self._last == before:
            self.reload()

    async def follow(self) -> None:
        """Read the file again whenever it has changed, until cancelled.

        By looking every other second: Kubernetes changes a secret by another symbolic link, which a watch misses.
        """
        while True:
            await asyncio.sleep(TOKEN_FILE_SECONDS)
            self.look()


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
        found.setdefault(_start(one.credential), []).append(one)
    return found


def _start(credential: bytes) -> bytes:
    """Return what guessing may find out: the first bytes of a hash. The names of certificates are no secrets."""
    return credential[:_BUCKET_BYTES] if len(credential) == _HASH_BYTES else credential


def _read(path: Path) -> Iterator[Caller]:
    """Yield the callers in the file. Raises InvalidOption, which names a line and never shows its text."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                _log.warning("the file of tokens %s may be written by others than its owner: chmod go-w", path)
            raw = file.read(TOKEN_FILE_BYTES_MAX + 1)
        if len(raw) > TOKEN_FILE_BYTES_MAX:
            raise InvalidOption(f"the file of tokens {path} has more than {TOKEN_FILE_BYTES_MAX} bytes")
        lines = raw.decode("utf-8").splitlines()
    except OSError as error:
        raise InvalidOption(f"the file of tokens {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"the file of tokens {path} is not UTF-8") from error
    rights: dict[str, tuple[Tenant, frozenset[Scope]]] = {}
    credentials: set[bytes] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"line {number} of the file of tokens {path}"
        try:
            known = _line(line.split())
        except InvalidOption as error:
            raise InvalidOption(f"{where}: {error}") from None
        if rights.setdefault(known.name, (known.tenant, known.scopes)) != (known.tenant, known.scopes):
            raise InvalidOption(f"{where}: the name has another tenant or other scopes above")
        if known.credential in credentials:
            raise InvalidOption(f"{where}: the same token or certificate stands above")
        credentials.add(known.credential)
        yield known


def new_token(name: str, tenant: str, scopes: str, until: str = "") -> tuple[str, str]:
    """Make a token that nobody can guess, and the line for the file. Raises InvalidOption."""
    token = secrets.token_urlsafe(_HASH_BYTES)
    line = [name, tenant, scopes, hashlib.sha256(token.encode()).hexdigest(), *until.split()]
    _line(line)
    return token, " ".join(line)


def _line(parts: Sequence[str]) -> Caller:
    if not 4 <= len(parts) <= 5:
        raise InvalidOption("write NAME TENANT SCOPE[,SCOPE…] SHA256 [UNTIL], parted by spaces")
    name, tenant, scopes, shown, *until = parts
    if not _NAME.match(name):
        raise InvalidOption("the name has to be up to 64 printable ASCII characters")
    try:
        granted = frozenset(Scope(scope) for scope in scopes.split(","))
    except ValueError:
        raise InvalidOption(f"unknown scope; there are {', '.join(scope.value for scope in Scope)}") from None
    return Caller(name, Tenant.of(tenant), granted, _credential(shown, name, tenant), *map(_time, until))


def _credential(shown: str, *guessed: str) -> bytes:
    if _CERTIFICATE.match(shown):
        return (unquote(shown) if shown.startswith("cert:") else shown).encode()
    if not _HASH.match(shown.lower()):
        raise InvalidOption(
            "the fourth field has to be the SHA-256 of a token, 64 hexadecimal digits, or cert:… or uri:…"
        )
    if shown.lower() in _GUESSABLE | {hashlib.sha256(word.encode()).hexdigest() for word in guessed}:
        raise InvalidOption("anybody could guess this token; make another by `tenure serve token`")
    return bytes.fromhex(shown)


def _time(until: str) -> float:
    try:
        ends = datetime.fromisoformat(until)
    except ValueError:
        raise InvalidOption("write until when it is good as 2030-01-31, or as 2030-01-31T12:00:00Z") from None
    return (ends if ends.tzinfo else ends.replace(tzinfo=UTC)).timestamp()


def admit(tokens: Tokens | None, limits: Limits, request: HttpRequest, scope: RouteScope) -> Caller:
    """Return the caller of a request, allowed to use routes of that scope.

    Raises Problem (401, 403, 429), Malformed.
    """
    if scope is None or tokens is None:
        return ANYBODY
    names = request.scope.get("extensions", {}).get(CERTIFIED, {}).get("names", ())
    if names and request.header(b"authorization") is None:
        caller = next(filter(None, map(tokens.find, names)), None)
    else:
        caller = tokens.find(hashlib.sha256(_token(limits, request).encode("latin-1", "replace")).digest())
    if caller is None:
        raise _refused(limits, request, f"this {'certificate' if names else 'token'} is not known")
    if caller.over:
        raise _refused(limits, request, "the time of this token, or certificate, is over")
    if scope != "any" and scope not in caller.scopes:
        raise Problem(ProblemCode.FORBIDDEN, f"this needs a token with the scope {scope.value!r}")
    return caller


def check_host(request: HttpRequest, names: Collection[str], *, link: bool = False) -> None:
    """Refuse a request under a name that is none of the service's, and one of a page of another site.

    A web page in a browser can reach the service under a name of the page's own, which resolves to the service's
    address. Names are those, loopback and the address at which the request came. Other sites may have a `link` to what
    is asked for. Raises Problem (403), Malformed.
    """
    if request.header(b"sec-fetch-site") == "cross-site" and not link:
        raise Problem(ProblemCode.FORBIDDEN_SITE, "this was sent by a web page of another site")
    host = request.header(b"host")
    if request.peer == "unix" or host is None:
        return
    name = _PORT.sub("", host).strip("[]").lower()
    at = ip_address(name)
    if name in names or (at and (at.is_loopback or at == ip_address(request.scope["server"][0]))):
        return
    raise Problem(ProblemCode.FORBIDDEN_HOST, "this is no name of the service; tenure serve --host NAME makes it one")


def _token(limits: Limits, request: HttpRequest) -> str:
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _refused(limits, request, "send a token: Authorization: Bearer …")
    return token.strip()


def _refused(limits: Limits, request: HttpRequest, detail: str) -> Problem:
    """Count a failure of the sender's address: beyond its rate the answer is 429, so that guessing tokens is slow."""
    wait = limits.failure(request.peer)
    if wait:
        return later(ProblemCode.RATE_LIMITED, "too many requests without a valid token came from this address", wait)
    return Problem(ProblemCode.UNAUTHORIZED, detail, headers=_CHALLENGE)
