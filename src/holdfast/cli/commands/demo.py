"""`holdfast demo`: watch what a hold is worth."""

from __future__ import annotations

import click

from holdfast.cli.demo import performance


@click.command(short_help="Watch three processes elect a leader.")
@click.option(
    "--ttl",
    type=float,
    default=performance.TTL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The TTL to ask for.",
)
@click.option("--quick", is_flag=True, help="Leave the reader no pauses between the steps.")
@click.option("--url", metavar="URL", help="Use this running store, etcd://… or zookeeper://…, instead of an own etcd.")
def command(*, ttl: float, quick: bool, url: str | None) -> int:
    """Watch three processes elect a leader, lose it, and be protected from its return.

    Three real processes, one election, one fenced ledger, on an etcd of its own. The leader is killed, stopped beyond
    its TTL and woken again, and asked to resign. Every figure is measured, every promise checked; the exit code is 1
    where one was not kept. Takes about 20 s.

    \b
    holdfast demo                                   on an etcd of its own
    holdfast demo --url zookeeper://127.0.0.1:2181  on your ZooKeeper, in a namespace that is left empty
    """
    return performance.run(url=url, ttl=ttl, lines=performance.LINES_QUICK if quick else performance.LINES)
