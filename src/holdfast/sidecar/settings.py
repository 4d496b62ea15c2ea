"""What `holdfast serve` was told, checked: where it listens, what protects it, in which elections it stands."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.errors import InvalidOption
from holdfast.limits import SOCKET_PATH_BYTES_MAX
from holdfast.names import encode
from holdfast.sidecar.bounds import DRAIN_SECONDS_DEFAULT
from holdfast.sidecar.limits import Most

DEFAULT_LISTEN: Final = "127.0.0.1:8700"
_UNIX: Final = "unix:"
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host and a port, or the path of a UNIX socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def read(cls, text: str, *, default_host: str = "127.0.0.1") -> Address:
        """[HOST:]PORT or unix:PATH. Raises InvalidOption."""
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
        return cls(host.strip("[]") or default_host, int(port))

    @property
    def is_local(self) -> bool:
        """Can nobody reach it from another machine?"""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. `check` says whether it may be started so."""

    listen: tuple[Address, ...] = (Address("127.0.0.1", 8700),)
    health: Address | None = None
    tokens: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False
    elect: dict[str, str] = field(default_factory=dict)
    advertise: str | None = None
    most: Most = field(default_factory=Most)
    drain_seconds: float = DRAIN_SECONDS_DEFAULT
    access_log: bool = True

    @property
    def asks_nobody(self) -> bool:
        """Does it let in whoever reaches it?"""
        return self.tokens is None and self.client_ca is None

    def check(self) -> None:
        """Raises InvalidOption for what must not be started."""
        if (self.cert is None) != (self.key is None):
            raise InvalidOption("a certificate and its key go together: give --tls-cert and --tls-key, or neither")
        if self.client_ca is not None and self.cert is None:
            raise InvalidOption("clients show certificates over TLS only: --client-ca needs --tls-cert and --tls-key")
        if self.insecure:
            return
        for address in self.listen:
            if self.asks_nobody and not address.is_local:
                raise InvalidOption(
                    f"{address} can be reached from other machines, and whoever does could take and force out every "
                    "hold: give --tokens or --client-ca, listen on loopback, or say --insecure"
                )

    @property
    def tokens_in_clear(self) -> bool:
        """Do tokens cross the network unencrypted, unless something in front sees to that?"""
        return self.tokens is not None and self.cert is None and not all(address.is_local for address in self.listen)


def elections(given: Sequence[str]) -> dict[str, str]:
    """NAME[=VALUE] of each. Raises InvalidOption, InvalidName."""
    found: dict[str, str] = {}
    for one in given:
        name, _, value = one.partition("=")
        encode(name)
        if name in found:
            raise InvalidOption(f"--elect {name} is given twice: a service is one candidate there")
        found[name] = value
    return found


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """For the sockets; None where nothing is said of TLS. Raises InvalidOption."""
    if settings.cert is None or settings.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    if settings.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(settings.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"no certificates can be read from {settings.client_ca}: {error}") from error
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Show this certificate from the next connection on. Raises InvalidOption."""
    try:
        context.load_cert_chain(str(settings.cert), str(settings.key))
    except (OSError, ssl.SSLError) as error:
        told = f"the certificate {settings.cert} with the key {settings.key} can't be used: {error}"
        raise InvalidOption(told) from error
