"""`holdfast elect`: a program that runs only while it leads."""

from __future__ import annotations

import click

from holdfast.cli.parameters import RunsProgram, Seconds
from holdfast.cli.session import Session, with_store
from holdfast.cli.supervise.running import elect
from holdfast.cli.supervise.term import Job

_PORT_MAX = 65535


def _address(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """[HOST:]PORT: every address of the machine where no HOST is given, as probes come from outside."""
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        raise click.BadParameter(f"{given!r} is not [HOST:]PORT", ctx, param)
    return host.strip("[]"), int(port)


@click.command(cls=RunsProgram)
@click.argument("name")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENT]…")
@click.option("--value", default="", metavar="TEXT", help="What others read while we lead: an address, say.")
@click.option("--once", is_flag=True, help="End after one term, with 76 if it was lost, instead of standing again.")
@click.option("--ttl", type=float, metavar="SECONDS", help="Time to live of the leadership (15, or the URL's).")
@click.option("--ready-file", type=click.Path(), metavar="FILE", help="Exists only while we lead and CMD runs.")
@click.option(
    "--health-port",
    callback=_address,
    metavar="[HOST:]PORT",
    help="Answer /healthz, /readyz and /leader over HTTP there.",
)
@click.option(
    "--grace",
    type=Seconds(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long CMD may take to end after SIGTERM, at the end and before a deadline (there at most half of what "
    "is left when renewals come).",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what goes on.")
@with_store
def command(
    session: Session,
    name: str,
    program: tuple[str, ...],
    value: str,
    once: bool,
    ttl: float | None,
    ready_file: str | None,
    health_port: tuple[str, int] | None,
    grace: float,
    verbose: bool,
) -> int:
    """Stand in the election NAME, and run CMD while we lead: again after every win.

    \b
    holdfast elect scheduler --value "$POD_IP:8080" --health-port 8081 -- ./scheduler

    When the leadership is lost, CMD and all that it started are ended before anybody else can lead, as with `holdfast
    run`, and we stand again. SIGTERM or SIGINT hands over: CMD gets SIGTERM, after --grace SIGKILL, and then we resign,
    so that the next one leads at once. When CMD ends by itself, we resign and exit with its code. CMD's environment is
    that of `holdfast run`. Needs Linux.
    """
    with session.client() as client:
        election = client.election(name, value=value, ttl=ttl)
        job = Job(name, program, grace, drain=grace, ready_file=ready_file, verbose=verbose)
        return elect(client, election, job, once=once, health_at=health_port)
