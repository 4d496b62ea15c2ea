"""Questions to a single endpoint: an HTTP request or a four-letter word, with TLS where the URL says so.

The library's own ways to a store move on to the next endpoint when one does not answer; here each is asked by itself.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final

from tenure._core.base.options import Endpoint, Options, shown
from tenure._transport.session import speaks_tls, tls_context
from tenure.cli.doctor.findings import Finding, fail, ok, warn
from tenure.errors import TLSFailed

_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
_CERTIFICATE_DAYS_LEAST: Final = 14
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """An answer over HTTP, and how long it took."""

    status: int
    text: str
    took: float


def connect(endpoint: Endpoint, options: Options, seconds: float) -> socket.socket:
    """Connect, with the TLS handshake where the URL has TLS. Raises OSError, TLSFailed."""
    plain = socket.create_connection(endpoint, seconds)
    if not options.tls:
        return plain
    try:
        return tls_context(options).wrap_socket(plain, server_hostname=endpoint[0])
    except BaseException:
        plain.close()
        raise


def ask_http(
    endpoint: Endpoint, options: Options, path: str, seconds: float, *, body: str | None = None
) -> EndpointAnswer:
    """GET, or POST where there is a body. Raises OSError, TLSFailed."""
    started = time.monotonic()
    connection = http.client.HTTPConnection(*endpoint, timeout=seconds)
    connection.sock = connect(endpoint, options, seconds)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"it does not speak HTTP ({error!r})") from error
    finally:
        connection.close()
    return EndpointAnswer(response.status, text, time.monotonic() - started)


def ask_word(endpoint: Endpoint, options: Options, word: str, seconds: float) -> str:
    """ZooKeeper's answer to a four-letter word. Raises OSError, TLSFailed."""
    until = time.monotonic() + seconds
    with connect(endpoint, options, seconds) as sock:
        sock.sendall(word.encode())
        answer = b""
        while len(answer) < _ANSWER_BYTES_MAX:
            sock.settimeout(max(0.001, until - time.monotonic()))
            piece = sock.recv(65536)
            if not piece:
                break
            answer += piece
    return answer.decode("utf-8", "replace")


def reach(endpoint: Endpoint, options: Options, seconds: float, server: str) -> Finding | None:
    """Try to connect: a failure where nothing can be asked there, else None."""
    try:
        socket.create_connection(endpoint, seconds).close()
    except OSError as error:
        return fail(
            "reach",
            shown(endpoint),
            f"does not answer: {reason(error)}",
            f"is {server} running there, and does a firewall let this machine through?",
        )
    return None


def look_at_tls(endpoint: Endpoint, options: Options, seconds: float) -> Finding | None:
    """Check the handshake and the server's certificate; None where neither the URL nor the server has TLS."""
    where = shown(endpoint)
    if not options.tls:
        if speaks_tls(endpoint, seconds):
            return fail("tls", where, "speaks TLS, and the URL does not", "add ?ca=FILE (or ?tls=true) to the URL")
        return None
    try:
        with connect(endpoint, options, seconds) as sock:
            if not isinstance(sock, ssl.SSLSocket):
                raise TypeError("a TLS connection was asked for")
            version, certificate = sock.version(), sock.getpeercert() or {}
    except (OSError, TLSFailed) as error:
        return fail(
            "tls",
            where,
            f"the handshake failed: {reason(error)}",
            "check ca, cert and key in the URL, the names in the server's certificate, and that this port speaks TLS",
        )
    return _dated(where, f"{version}, server verified", certificate)


def _dated(where: str, found: str, certificate: dict[str, Any]) -> Finding:  # Any: as the ssl module has it
    ends = certificate.get("notAfter")
    if not isinstance(ends, str):
        return ok("tls", where, found)
    days = (ssl.cert_time_to_seconds(ends) - time.time()) / _DAY
    found = f"{found}; its certificate ends in {days:.0f} days"
    if days < _CERTIFICATE_DAYS_LEAST:
        return warn("tls", where, found, "renew it: no client can connect once it has ended")
    return ok("tls", where, found)


def reason(error: Exception) -> str:
    """The reason of an error, in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return str(error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason or error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())
