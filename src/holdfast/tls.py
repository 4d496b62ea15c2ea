"""One TLS context for both stores: the server is always verified."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Final

from holdfast.errors import TLSFailed
from holdfast.options import Options

PROBE_SECONDS: Final = 0.4


def tls_context(options: Options) -> ssl.SSLContext:
    """Verifies the server's name and chain; shows our certificate where there is one. Raises TLSFailed."""
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.cert is not None and options.key is not None:
            context.load_cert_chain(options.cert, options.key)
    except (ssl.SSLError, OSError) as error:
        raise TLSFailed(f"can't use the TLS files (ca, cert, key): {error}") from error
    return context


def speaks_tls(endpoint: tuple[str, int], seconds: float = PROBE_SECONDS) -> bool:
    """Would the server shake hands, within `seconds`? Asked only to explain why a plain connection failed."""
    until = time.monotonic() + seconds
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not the default one: loading all authorities takes long
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over it
    try:
        with socket.create_connection(endpoint, seconds) as plain:
            plain.settimeout(max(0.001, until - time.monotonic()))
            with context.wrap_socket(plain) as wrapped:
                return wrapped.version() is not None
    except ssl.SSLError as error:
        # a server that asks for a client certificate got as far as TLS
        return "CERTIFICATE" in str(error).upper() or "HANDSHAKE_FAILURE" in str(error).upper()
    except OSError:
        return False
