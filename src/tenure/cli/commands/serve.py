"""`tenure serve`: locks and elections for programs in any language, over HTTP."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tenure import aio, jsonlog
from tenure._core.base.limits import VALUE_BYTES_MAX
from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.store import StoreSession, with_store
from tenure.errors import InvalidURL, TenureError, how_to_install
from tenure.service.limits import (
    DRAIN_SECONDS_DEFAULT,
    HOLDS_DEFAULT,
    RATE_DEFAULT,
    VALUE_BYTES_DEFAULT,
    WAITING_DEFAULT,
    WRITE_RATE_DEFAULT,
)

Command = TypeVar("Command", bound=Callable[..., object])
_FILE = click.Path(dir_okay=False, path_type=Path)


def _number(
    flag: str, kind: click.ParamType[Any], default: float, about: str, metavar: str = "N"
) -> Callable[[Command], Command]:
    return click.option(flag, type=kind, default=default, show_default=True, metavar=metavar, help=about)


@click.group(invoke_without_command=True)
@click.option(
    "--listen",
    multiple=True,
    metavar="[HOST:]PORT|unix:/PATH",
    help="Where to listen (127.0.0.1:8700); may be given several times. Port 0 is a free one.",
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Answer under this name, besides loopback and --listen's."
)
@click.option("--elect", multiple=True, metavar="NAME[=VALUE]", help="Stand in this election, and show VALUE.")
@click.option("--tokens", type=_FILE, metavar="FILE", help="Who may do what: see below. Read again when it changes.")
@click.option(
    "--tls-cert", "cert", type=_FILE, metavar="FILE", help="Serve HTTPS with this certificate (PEM, its chain)."
)
@click.option("--tls-key", "key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Only clients with a certificate of this CA.")
@click.option("--behind-proxy", is_flag=True, help="Take tokens in clear from other machines: a proxy does TLS.")
@click.option("--insecure", is_flag=True, help="Listen to other machines though nothing, or no TLS, protects it.")
@click.option(
    "--health-port",
    metavar="[HOST:]PORT",
    help="Answer /healthz, /readyz and /metrics there, too, to anybody and in clear; 0.0.0.0:PORT for other machines.",
)
@click.option("--metrics-port", metavar="[HOST:]PORT", help="Answer /metrics there, so, and not at --health-port.")
@click.option("--advertise", metavar="URL", help="Where clients of other replicas reach this one.")
@_number("--rate", click.FloatRange(0.1), RATE_DEFAULT, "Requests a second of a tenant; twice as many at once.")
@_number("--holds", click.IntRange(1), HOLDS_DEFAULT, "Holds of one tenant.")
@_number("--value-bytes", click.IntRange(0, VALUE_BYTES_MAX), VALUE_BYTES_DEFAULT, "Bytes of a hold's value.")
@_number(
    "--write-rate",
    click.FloatRange(1),
    WRITE_RATE_DEFAULT,
    "Bytes of names, values and keys a second that one tenant may have written; 16 times as many may come at once.",
)
@_number("--waiting", click.IntRange(1), WAITING_DEFAULT, "Requests of one tenant that wait for their turn.")
@_number(
    "--drain",
    click.FloatRange(0),
    DRAIN_SECONDS_DEFAULT,
    "How long what is under way, and releases, may take at the end. Beliefs in holds are waited for besides.",
    "SECONDS",
)
@click.option("--no-access-log", is_flag=True, help="Write no line for each request.")
@with_store
def serve(
    session: StoreSession,
    /,
    listen: tuple[str, ...],
    elect: tuple[str, ...],
    health_port: str | None,
    metrics_port: str | None,
    rate: float,
    holds: int,
    value_bytes: int,
    write_rate: float,
    waiting: int,
    drain: float,
    no_access_log: bool,
    **options: Any,  # of Settings, by the names there
) -> None:
    """Serve locks, semaphores, read/write locks and elections over HTTP, for programs in any language.

    \b
    tenure serve
    tenure serve --listen unix:/run/tenure.sock --elect scheduler="$POD_IP:8080"
    tenure serve --listen 0.0.0.0:8700 --tokens tokens --tls-cert tls.crt --tls-key tls.key

    /ui/ is a page for whoever is on call; /openapi.json says what programs may ask. The first lines of standard output
    are the URLs where it listens; what happens is written to standard error, from then on as one JSON object a line.
    SIGTERM ends it: who waits is told so, candidates resign, and the exit code is 0. What others were told that they
    hold, or that it leads, is waited for: to its release, or for a TTL at most; SIGKILL before that is safe. SIGHUP
    reads tokens, certificate and CA again.

    A line of the file of tokens is NAME TENANT SCOPE[,SCOPE…] SHA256 [UNTIL], parted by spaces; # begins a comment. A
    tenant sees and touches only its own names; * is all of them. Scopes are acquire, write (keys of hold.store), read,
    elect, operate and metrics.
    With --client-ca, cert:NAME (the common name) or uri:spiffe://… in place of SHA256 names a client's certificate.

    \b
    tenure serve token worker billing acquire,read >> tokens       # shows the token, once
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    try:
        from tenure.service import server
        from tenure.service.auth.limits import TenantLimits
        from tenure.service.settings import DEFAULT_LISTEN, Address, Settings, elections
    except ModuleNotFoundError as missing:
        needed = f"tenure serve needs packages that are not installed ({missing}): {how_to_install('serve')}"
        raise CommandStopped(ExitCode.UNREACHABLE, needed) from missing
    except ImportError as error:  # a wheel without a library that it takes the system to have
        unusable = f"a package that tenure serve needs is installed, but can't be loaded on this system: {error}"
        raise CommandStopped(ExitCode.UNREACHABLE, unusable) from error
    settings = Settings(
        listen=tuple(map(Address.read, listen or (DEFAULT_LISTEN,))),
        health=None if health_port is None else Address.read(health_port),
        metrics=None if metrics_port is None else Address.read(metrics_port),
        elect=elections(elect),
        maximum=TenantLimits(rate, holds, waiting, value_bytes, write_rate),
        drain_seconds=drain,
        access_log=not no_access_log,
        **options,
    )
    url = session.checked_url()
    if session.parsed().scheme in ("http", "https"):
        raise InvalidURL("`tenure serve` needs the store itself, and this is the URL of another service")
    library = logging.getLogger("tenure")
    log = None if library.handlers else jsonlog.switch_on(level=logging.WARNING)
    listening: list[str] = []

    def started(urls: list[str]) -> None:
        listening.extend(urls)
        print(*urls, sep="\n", flush=True)

    try:
        server.serve(
            lambda: aio.connect(url, namespace=session.namespace, timeout=session.request_timeout), settings, started
        )
    except TenureError:
        if log is not None and not listening:
            library.removeHandler(log)  # whoever has just written the command reads why
        raise


@serve.command()
@click.argument("name")
@click.argument("tenant")
@click.argument("scopes")
@click.option("--until", metavar="DATE", default="", help="Good until then: 2030-01-31, or 2030-01-31T12:00:00Z.")
def token(name: str, tenant: str, scopes: str, until: str) -> None:
    """Make a random token: shown here once, on standard error. Standard output has the line for the file of tokens."""
    from tenure.service.auth.tokens import new_token

    made, line = new_token(name, tenant, scopes, until)
    print("the token, which is stored nowhere:", made, file=sys.stderr)
    print(line)
