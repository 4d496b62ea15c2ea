"""Options of a connection: one URL, or the same as keyword arguments, or TENURE_URL.

    etcd://user:password@10.0.0.1:2379,10.0.0.2:2379/billing?ttl=15&timeout=5&ca=/etc/ca.pem
    etcd+grpc://10.0.0.1:2379/billing                      (needs tenure[grpc])
    zookeeper://10.0.0.1,10.0.0.2/billing?tick=2
    https://me:token@locks.example.com/billing             (`tenure serve`, which has the store)
    http://%2Frun%2Ftenure%2Fapi.sock/billing            (the same at its UNIX socket: the path, percent-encoded)
    memory://anything/billing

The path is the namespace; of a service, what all names begin with there. Options: `ttl`, `timeout`, `owner`, `tls`,
`ca`, `cert`, `key`, `tick` for ZooKeeper, `incarnation` (see fencing/_fence.py), `journal` (see _admin/journal.py),
and `after_fork` (see runtime.py). A keyword argument wins over the same option in the URL. The password is never shown.
Other packages bring other schemes: see schemes.py.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, TypedDict, cast, get_args
from urllib.parse import parse_qsl, unquote

from tenure._core.base import schemes, validation
from tenure._core.base.limits import INCARNATION_MAX, REQUEST_TIMEOUT_DEFAULT, SOCKET_PATH_BYTES_MAX, TTL_DEFAULT
from tenure._core.base.validation import checked_owner, keys_root, namespace_path
from tenure.errors import InvalidOption, InvalidURL

ENVIRONMENT_VARIABLE: Final = "TENURE_URL"
TRIAL: Final = ("127.0.0.1", "dev")
"""Host and namespace of the throw-away etcd that `tenure dev` and the demo start; nobody is warned of its version."""
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::(\d{1,5}))?\Z")
_SLASH: Final = re.compile("%2f", re.IGNORECASE)
_SERVICES: Final = ("http", "https")
_NICKNAMES: Final = {"zk": "zookeeper", "kazoo": "zookeeper", "etcd3": "etcd", "grpc": "etcd+grpc"}
_HINT: Final = "write etcd://HOST:PORT[,HOST:PORT…]/NAMESPACE, etcd+grpc://…, zookeeper://…, https://… or memory://NAME"

Endpoint: TypeAlias = tuple[str, int]
"""A host and its port, or the path of a UNIX socket and 0."""
AfterFork: TypeAlias = Literal["refuse", "reconnect"]


def is_path(endpoint: Endpoint) -> bool:
    """True for a UNIX socket: no host begins with a slash."""
    return endpoint[0].startswith("/")


def shown(endpoint: Endpoint) -> str:
    """Endpoint as messages show it: HOST:PORT, or unix:PATH, as `tenure serve --listen` takes it."""
    host, port = endpoint
    if is_path(endpoint):
        return f"unix:{host}"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options of a connection. `repr` shows everything but the password."""

    scheme: str
    endpoints: tuple[Endpoint, ...]
    namespace: str
    owner: str
    ttl: float = TTL_DEFAULT
    timeout: float = REQUEST_TIMEOUT_DEFAULT
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tick: float | None = None
    incarnation: int = 0
    """Raised by the operator when the store was restored or replaced: its tokens may repeat."""
    journal: bool = False
    """True where holds are written down in the store, see _admin/journal.py."""
    after_fork: AfterFork = "refuse"
    """Fate of a client in a forked child, where it was used before the fork."""

    @property
    def display(self) -> str:
        """The store in one word for messages: no credentials."""
        return f"{self.scheme}://{','.join(map(shown, self.endpoints))}/{self.namespace}"

    @property
    def key_places(self) -> tuple[str, str | None]:
        """The root of the user's own keys, and where absolute ones may not be; None of a service, which takes none."""
        if self.scheme in _SERVICES:
            return (f"{self.namespace}/" if self.namespace else ""), None
        return keys_root(self.namespace), self.namespace


class ConnectOptions(TypedDict, total=False):
    """Keyword arguments of `connect`, for type checkers and editors; None is as good as left out."""

    namespace: str | None
    owner: str | None
    ttl: float | None
    timeout: float | None
    tls: bool | None
    ca: str | None
    cert: str | None
    key: str | None
    user: str | None
    password: str | None
    tick: float | None
    incarnation: int | None
    journal: bool | None
    after_fork: AfterFork | None


# By the fields, not by ConnectOptions: a test holds the two against each other.
_KNOWN: Final = {f.name for f in fields(Options)} - {"scheme", "endpoints"}
_IN_QUERY: Final = _KNOWN - {"user", "password", "namespace"}


def parse(url: str | None, given: Mapping[str, object]) -> Options:
    """Read `url` (or TENURE_URL) and keyword arguments. Raises InvalidURL, InvalidOption or InvalidName."""
    text = url if url is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    if not text:
        raise InvalidURL(f"no store to connect to: pass a URL or set {ENVIRONMENT_VARIABLE}; {_HINT}")
    if not isinstance(text, str):
        raise InvalidURL(f"a URL is a str, not {type(text).__name__}; {_HINT}")
    unknown = sorted(given.keys() - _KNOWN)
    if unknown:
        near = _did_you_mean(unknown[0], _KNOWN)
        raise InvalidOption(f"unknown option {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}{near}")
    raw = {**_from_url(text), **{k: v for k, v in given.items() if v is not None}}
    return _checked(raw)


def _from_url(text: str) -> dict[str, object]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        likely = "zookeeper" if ":2181" in text else "etcd"
        raise InvalidURL(f"the URL has no scheme: did you mean {likely}://HOST:PORT/NAMESPACE? {_HINT}")
    if not schemes.is_known(scheme):
        near = _did_you_mean(scheme, schemes.known(), "://")
        raise InvalidURL(
            f"unknown scheme in the URL ({scheme!r}); known are {', '.join(schemes.known())}; {_HINT}{near}"
        )
    if any(c.isspace() or ord(c) < 32 for c in rest):
        raise InvalidURL(f"the URL has white space or control characters in it; percent-encode them. {_HINT}")
    authority, path, query = _split(rest)
    userinfo, _, hosts = authority.rpartition("@")
    found: dict[str, object] = {
        "scheme": scheme,
        "endpoints": _endpoints(hosts, scheme),
        "namespace": unquote(path),
    }
    if userinfo:
        user, _, password = userinfo.partition(":")
        found |= {"user": unquote(user), "password": unquote(password)}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _IN_QUERY:
            near = _did_you_mean(name, _IN_QUERY)
            raise InvalidURL(f"unknown option {name!r} in the URL; known are {', '.join(sorted(_IN_QUERY))}{near}")
        found[name] = value
    return found


def _did_you_mean(given: str, known: Iterable[str], suffix: str = "") -> str:
    """The end of a message that names the nearest of what is known; "" where nothing is near."""
    near = [_NICKNAMES[given]] if suffix and given in _NICKNAMES else difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {near[0]}{suffix}?" if near else ""


def _endpoints(hosts: str, scheme: str) -> tuple[Endpoint, ...]:
    if scheme == "memory":
        return ((hosts or "default", 0),)
    if not hosts:
        raise InvalidURL(f"the URL names no host; {_HINT}")
    return tuple(
        _socket(host, scheme)
        if _SLASH.search(host) and scheme in schemes.BUILT_IN
        else _endpoint(host, schemes.BUILT_IN.get(scheme, 0))
        for host in hosts.split(",")
    )


def _socket(text: str, scheme: str) -> Endpoint:
    """Endpoint of a UNIX socket, a path where a host stands. Raises InvalidURL where that can't be."""
    if scheme not in _SERVICES:
        raise InvalidURL(f"{scheme}:// knows no UNIX sockets: name hosts; only http:// reaches a service by its socket")
    if ":" in text:
        raise InvalidURL("a UNIX socket has no port: leave it out, and percent-encode a ':' in the path as %3A")
    try:
        path = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidURL("the path of a UNIX socket in the URL is not UTF-8") from None
    if not path.startswith("/") or not path.isprintable():
        raise InvalidURL("a UNIX socket is named by its absolute path, without control characters")
    if len(path.encode()) > SOCKET_PATH_BYTES_MAX:
        raise InvalidURL(f"the path of a UNIX socket has at most {SOCKET_PATH_BYTES_MAX} bytes: {path!r} has more")
    return path, 0


def _split(rest: str) -> tuple[str, str, str]:
    """Authority, path and query. By hand: urllib's errors would show what stands before the '@'."""
    if "#" in rest:
        raise InvalidURL("the URL has a '#' in it; percent-encode it as %23")
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    if "@" in path + query:
        # most likely a password with a raw '/' or '?' in it: say so without showing it
        raise InvalidURL("the URL has an '@' behind its hosts; percent-encode '/', '?', '#', '@' in user and password")
    return authority, slash + path, query


def _endpoint(text: str, default_port: int) -> Endpoint:
    """Endpoint of a host. Port 0 where none is named and only somebody else's backend knows its usual one."""
    match = _HOST_PORT.match(text)
    port = int(match[3]) if match and match[3] else default_port
    if match is None or port > 65535 or (match[3] and port == 0):
        raise InvalidURL("can't read an endpoint of the URL; write HOST:PORT, several of them with commas between")
    return match[1] or match[2], port


def _checked(raw: dict[str, object]) -> Options:
    user, password = _text(raw, "user"), _text(raw, "password")
    if password is not None and not user:
        raise InvalidOption("a password without a user; give both")
    ca, cert, key = _text(raw, "ca"), _text(raw, "cert"), _text(raw, "key")
    if (cert is None) != (key is None):
        raise InvalidOption("cert and key go together: give both or neither")
    for path in (ca, cert, key):
        if path is not None and not os.path.isfile(path):
            raise InvalidOption(f"no such file: {path!r} (of ca, cert or key)")
    tick = raw.get("tick")
    scheme, endpoints = raw["scheme"], raw["endpoints"]
    if not isinstance(scheme, str) or not isinstance(endpoints, tuple):
        raise InvalidURL(_HINT)
    tls = scheme == "https" or _flag(raw.get("tls", ""), "tls") or ca is not None or cert is not None
    if tls and any(map(is_path, endpoints)):
        raise InvalidURL("TLS is not spoken over a UNIX socket, which nobody listens in to: write http://, without TLS")
    return Options(
        scheme=scheme,
        endpoints=endpoints,
        namespace=_namespace(scheme, _text(raw, "namespace") or ""),
        owner=checked_owner(_text(raw, "owner")),
        ttl=validation.ttl(_number(raw.get("ttl", TTL_DEFAULT), "ttl")),
        timeout=validation.seconds(
            _number(raw.get("timeout", REQUEST_TIMEOUT_DEFAULT), "timeout"), "timeout", minimum=0.05
        ),
        tls=tls,
        ca=ca,
        cert=cert,
        key=key,
        user=user,
        password=password,
        tick=None if tick is None else validation.seconds(_number(tick, "tick"), "tick", minimum=0.001),
        incarnation=_incarnation(raw.get("incarnation", 0)),
        journal=_flag(raw.get("journal", ""), "journal"),
        after_fork=_after_fork(raw.get("after_fork", "refuse")),
    )


def _namespace(scheme: str, given: str) -> str:
    """Namespace in its stored form; of a service the beginning of all names, "" where none is given."""
    if scheme not in _SERVICES:
        return namespace_path(given)
    prefix = given.strip("/")
    if prefix:
        namespace_path(prefix)  # only for its checks: what is stored is the service's business
    return prefix


def _text(raw: Mapping[str, object], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidOption(f"{name} must be a str, not {type(value).__name__}")
    return value


def _number(value: object, name: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError as error:
        raise InvalidOption(f"{name} must be a number of seconds, not {value!r}") from error


def _incarnation(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    return validation.count(number, "incarnation", minimum=0, maximum=INCARNATION_MAX)


def _after_fork(value: object) -> AfterFork:
    if value not in get_args(AfterFork):
        raise InvalidOption(f"after_fork must be 'refuse' or 'reconnect', not {value!r}")
    return cast(AfterFork, value)


def _flag(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "true", "yes"):
        return True
    if value in ("", "0", "false", "no"):
        return False
    raise InvalidOption(f"{name} must be true or false, not {value!r}")
