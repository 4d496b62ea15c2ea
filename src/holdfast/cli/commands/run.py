"""`holdfast run`: a program that runs only under a hold."""

from __future__ import annotations

import click

import holdfast
from holdfast.cli.parameters import RunsProgram, Seconds
from holdfast.cli.session import Session, with_store
from holdfast.cli.supervise.running import run
from holdfast.cli.supervise.term import Job


@click.command(cls=RunsProgram)
@click.argument("name")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENT]…")
@click.option("--no-wait", is_flag=True, help="Held by others: run nothing, say nothing (but with -v), exit 75.")
@click.option("--timeout", type=Seconds(0), metavar="SECONDS", help="Wait no longer than this, then exit 75.")
@click.option("--ttl", type=float, metavar="SECONDS", help="Time to live of the hold (15, or the URL's).")
@click.option("--slots", type=click.IntRange(1), metavar="N", help="N may hold it together. All must give the same N.")
@click.option("--shared", is_flag=True, help="Together with others that say --shared, never with one that does not.")
@click.option(
    "--grace",
    type=Seconds(0),
    metavar="SECONDS",
    help="How long before the hold can't be proven any more CMD is sent SIGTERM: half of what is left when "
    "renewals come, which is also the most.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what goes on.")
@with_store
def command(
    session: Session,
    name: str,
    program: tuple[str, ...],
    no_wait: bool,
    timeout: float | None,
    ttl: float | None,
    slots: int | None,
    shared: bool,
    grace: float | None,
    verbose: bool,
) -> int:
    """Run CMD while NAME is held, and only then; exit with CMD's own code.

    \b
    holdfast run nightly-report --no-wait -- report.py    for cron: whoever comes second does nothing
    holdfast run migrate --timeout 60 -- ./migrate        for an init container
    holdfast run api --slots 3 -- worker                  three at a time

    When the hold can't be proven much longer (the store is away), CMD and all that it started get SIGTERM, and SIGKILL
    before anybody else can have it; the exit code is 76 then. The same happens when holdfast itself is killed or
    stopped. An operator's force release is told to the holder only after it has happened: CMD is killed at once, but
    the next one may have started. Against that, and whatever else, give CMD's token to what it writes to.

    \b
    HOLDFAST_NAME, HOLDFAST_OWNER, HOLDFAST_TOKEN, HOLDFAST_FENCE   what is held, as whom, and with which token
    HOLDFAST_DEADLINE        until when it was proven at the start, in seconds of CLOCK_BOOTTIME, as in /proc/uptime
    HOLDFAST_DEADLINE_FILE   a file to read the deadline of now from: it moves with every renewal

    Signals and the terminal are CMD's as if holdfast were not there. Ctrl-Z stops holdfast too: a job that stays
    stopped for longer than the hold can be proven is ended. What CMD leaves running in the background keeps the hold
    until it ends. Needs Linux.
    """
    if no_wait and timeout is not None:
        raise click.UsageError("--no-wait and --timeout are two answers to one question; give one of them")
    if shared and slots is not None:
        raise click.UsageError("--shared and --slots are two kinds of holds; give one of them")
    with session.client() as client:
        if slots is not None:
            place: holdfast.Lock | holdfast.Semaphore = client.semaphore(name, limit=slots, ttl=ttl)
        else:
            place = client.rwlock(name, ttl=ttl).read() if shared else client.lock(name, ttl=ttl)
        job = Job(name, program, grace, verbose=verbose)
        return run(client, lambda left: place.try_acquire() if no_wait else place.acquire(left), job, timeout=timeout)
