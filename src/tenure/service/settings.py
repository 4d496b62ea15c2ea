"""Options of `tenure serve`, checked: where it listens, what protects it, in which elections it stands."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure._core.base.limits import SOCKET_PATH_BYTES_MAX
from tenure._core.base.validation import encode
from tenure.errors import InvalidOption
from tenure.service.auth.limits import TenantLimits
from tenure.service.limits import DRAIN_SECONDS_DEFAULT

DEFAULT_LISTEN: Final = "127.0.0.1:8700"
_UNIX: Final = "unix:"
_log = logging.getLogger("tenure.service")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_HOST: Final = re.compile(r"^\w+://\[?([A-Za-z0-9._-]+|(?<=\[)[^]]+)")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen at: a host and a port, or the path of a UNIX socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def read(cls, text: str) -> Address:
        """Read [HOST:]PORT or unix:PATH. Raises InvalidOption."""
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path.startswith("/") or len(path.encode()) > SOCKET_PATH_BYTES_MAX or "\0" in path:
                raise InvalidOption(
                    f"{text!r}: after unix: comes an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes"
                )
            return cls(path=path)
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
            raise InvalidOption(f"{text!r} is no place to listen: write [HOST:]PORT or unix:/PATH")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    @property
    def is_local(self) -> bool:
        """True if no other machine can reach it."""
        at = ip_address(self.host)
        return self.path is not None or self.host == "localhost" or (at is not None and at.is_loopback)

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address, an IPv4 one in IPv6's form as what it is; None for a name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one service. `check` says whether it may be started with them."""

    listen: tuple[Address, ...] = (Address("127.0.0.1", 8700),)
    health: Address | None = None
    metrics: Address | None = None
    tokens: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    hosts: tuple[str, ...] = ()
    insecure: bool = False
    behind_proxy: bool = False
    elect: dict[str, str] = field(default_factory=dict)
    advertise: str | None = None
    maximum: TenantLimits = field(default_factory=TenantLimits)
    drain_seconds: float = DRAIN_SECONDS_DEFAULT
    access_log: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The names under which it answers, besides the addresses where a request may come."""
        given = (*self.hosts, *(address.host for address in self.listen), *_HOST.findall(self.advertise or ""))
        return frozenset(name.lower() for name in ("localhost", *given))

    def check(self) -> None:
        """Refuse options with which no service must be started. Raises InvalidOption."""
        if (self.cert is None) != (self.key is None):
            raise InvalidOption("a certificate and its key go together: give --tls-cert and --tls-key, or neither")
        if self.client_ca is not None and self.cert is None:
            raise InvalidOption("clients show certificates over TLS only: --client-ca needs --tls-cert and --tls-key")
        if self.client_ca is not None and self.tokens is None:
            raise InvalidOption("--client-ca needs --tokens: there certificates are named, with what each may do")
        for host in self.hosts:
            if not _NAME.match(host):
                raise InvalidOption(f"--host {host}: give a name alone, without scheme and port")
        if self.insecure:
            return
        for address in self.listen:
            if self.tokens is None and not address.is_local:
                raise InvalidOption(
                    f"{address} can be reached from other machines, and whoever does could take and force out every "
                    "hold: give --tokens, listen on loopback, or say --insecure"
                )
            if self.cert is None and not (address.is_local or self.behind_proxy):
                raise InvalidOption(
                    f"{address} can be reached from other machines, and tokens would cross the network in clear: give "
                    "--tls-cert and --tls-key, --behind-proxy where a proxy does TLS, or --insecure"
                )


def elections(given: Sequence[str]) -> dict[str, str]:
    """Read `--elect` options, NAME[=VALUE] each. Raises InvalidOption, InvalidName."""
    found: dict[str, str] = {}
    for one in given:
        name, _, value = one.partition("=")
        encode(name)
        if name in found:
            raise InvalidOption(f"--elect {name} is given twice: a service is one candidate there")
        found[name] = value
    return found


class NewestContext(ssl.SSLContext):
    """A TLS context that leaves each new connection to the newest one that could be read from the files."""

    def __new__(cls, settings: Settings) -> NewestContext:
        """Make one as uvicorn wants it; its own settings are of no use."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, settings: Settings) -> None:
        """Read the files. Raises InvalidOption."""
        self._settings = settings
        self._seen, self._newest = self._times(), self._read()

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin TLS on a connection, by the files as they are now."""
        if self._times() != self._seen:
            self.reload()
        return self._newest.wrap_bio(*arguments, **options)

    def reload(self) -> None:
        """Read the files again; those that can't be used change nothing."""
        self._seen = self._times()
        try:
            self._newest = self._read()
        except InvalidOption as error:
            _log.error("certificate and CA stay as they were: %s", error)

    def _read(self) -> ssl.SSLContext:
        cert, key, client_ca = (self._settings.cert, self._settings.key, self._settings.client_ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(str(cert), str(key))
            if client_ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            message = f"certificate {cert}, key {key} or CA {client_ca} can't be used: {error}"
            raise InvalidOption(message) from error
        return context

    def _times(self) -> list[float]:
        files = (self._settings.cert, self._settings.key, self._settings.client_ca)
        with contextlib.suppress(OSError):  # in the midst of a change
            return [path.stat().st_mtime for path in files if path is not None]
        return []
