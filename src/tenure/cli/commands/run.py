"""`tenure run` and `tenure elect`: a program that runs only under a hold, or only while it leads."""

from __future__ import annotations

import click

import tenure
from tenure.cli.store import StoreSession, with_store
from tenure.cli.supervise import running
from tenure.cli.supervise.term import Job
from tenure.cli.terminal import RunsProgram, SecondsType

_PORT_MAX = 65535


@click.command(cls=RunsProgram)
@click.argument("name")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENT]…")
@click.option("--no-wait", is_flag=True, help="Held by others: run nothing, say nothing (but with -v), exit 75.")
@click.option("--timeout", type=SecondsType(0), metavar="SECONDS", help="Wait no longer than this, then exit 75.")
@click.option(
    "--at-least",
    type=SecondsType(0),
    default=0.0,
    metavar="SECONDS",
    help="Keep the hold for so long after the start (60s, say), though CMD ended sooner; SIGTERM gives it up at once.",
)
@click.option("--ttl", type=float, metavar="SECONDS", help="Time to live of the hold (15, or the URL's).")
@click.option("--slots", type=click.IntRange(1), metavar="N", help="N may hold it together. All must give the same N.")
@click.option("--shared", is_flag=True, help="Together with others that say --shared, never with one that does not.")
@click.option(
    "--grace",
    type=SecondsType(0),
    metavar="SECONDS",
    help="How long before the hold can't be proven any more CMD is sent SIGTERM: half of what is left when "
    "renewals come, which is also the most.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what goes on.")
@with_store
def run(
    session: StoreSession,
    name: str,
    program: tuple[str, ...],
    no_wait: bool,
    timeout: float | None,
    at_least: float,
    ttl: float | None,
    slots: int | None,
    shared: bool,
    grace: float | None,
    verbose: bool,
) -> int:
    """Run CMD while NAME is held, and only then; exit with CMD's own code.

    \b
    tenure run nightly-report --no-wait --at-least 60s -- report.py    for cron, on several machines
    tenure run migrate --timeout 60 -- ./migrate                       for an init container
    tenure run api --slots 3 -- worker                                 three at a time

    With --no-wait whoever comes while another holds it does nothing; a machine whose clock is late, and which comes
    after the first one has finished, runs CMD too. --at-least keeps the hold for longer than clocks differ.

    When the hold can't be proven much longer (the store is away), CMD and all that it started get SIGTERM, and SIGKILL
    before anybody else can have it; the exit code is 76 then. The same happens when tenure itself is killed or
    stopped. An operator's force release is told to the holder only after it has happened: CMD is killed at once, but
    the next one may have started. Against that, and whatever else, give CMD's token to what it writes to.

    \b
    TENURE_NAME, TENURE_OWNER, TENURE_TOKEN, TENURE_FENCE   what is held, as whom, and with which token
    TENURE_DEADLINE        until when it was proven at the start, in seconds of CLOCK_BOOTTIME, as in /proc/uptime
    TENURE_DEADLINE_FILE   a file to read the deadline of now from: it moves with every renewal

    CMD is not handed TENURE_URL where that has a password in it. A CMD that needs it gets it under another name:
    STORE="$TENURE_URL" tenure run …

    Signals and the terminal are CMD's as if tenure were not there. Ctrl-Z stops tenure too: a job that stays
    stopped for longer than the hold can be proven is ended. What CMD leaves running in the background keeps the hold
    until it ends. Needs Linux.
    """
    if no_wait and timeout is not None:
        raise click.UsageError("--no-wait and --timeout are two answers to one question; give one of them")
    if shared and slots is not None:
        raise click.UsageError("--shared and --slots are two kinds of holds; give one of them")
    with session.client() as client:
        if slots is not None:
            line: tenure.Lock | tenure.Semaphore = client.semaphore(name, limit=slots, ttl=ttl)
        else:
            line = client.rwlock(name, ttl=ttl).read() if shared else client.lock(name, ttl=ttl)
        job = Job(name, program, grace, at_least=at_least, verbose=verbose)
        return running.run(
            client,
            lambda left: line.try_acquire() if no_wait else line.acquire(left),
            job,
            timeout=timeout,
            waits=not no_wait,
        )


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
    type=SecondsType(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long CMD may take to end after SIGTERM, at the end and before a deadline (there at most half of what "
    "is left when renewals come).",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what goes on.")
@with_store
def elect(
    session: StoreSession,
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
    tenure elect scheduler --value "$POD_IP:8080" --health-port 8081 -- ./scheduler

    When the leadership is lost, CMD and all that it started are ended before anybody else can lead, as with `tenure
    run`, and we stand again. SIGTERM or SIGINT hands over: CMD alone gets SIGTERM, so that a shell script that drains
    keeps its running job; what CMD leaves behind gets SIGTERM once CMD has ended, and whatever is left after --grace
    SIGKILL. Then we resign, so that the next one leads at once. When CMD ends by itself, we resign and exit with its
    code. CMD's environment is that of `tenure run`. Needs Linux.
    """
    with session.client() as client:
        election = client.election(name, value=value, ttl=ttl)
        job = Job(name, program, grace, drain=grace, ready_file=ready_file, verbose=verbose)
        return running.elect(client, election, job, once=once, health_at=health_port)
