"""`tenure ls` and `tenure show`: the lines in use, and one of them ticket by ticket."""

from __future__ import annotations

from typing import Final

import click

from tenure._admin.models import LineInfo
from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.screens import lines, paper
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import json_option, wide_option

_WAITERS_MAX: Final = 20


@click.command
@click.argument("prefix", default="")
@json_option
@wide_option
@with_store
def ls(session: StoreSession, *, prefix: str, as_json: bool, wide: bool) -> None:
    """List what is in use: who holds it, since when, and how many wait.

    With PREFIX only names that begin with it. IN LINE is how long the holder has stood in the line, its wait included.

    \b
    tenure ls                        all of the namespace
    tenure ls tenant_123:            what begins with this
    tenure ls --json | jq '.[] | select(.waiters != [])'

    In a pipe each line is: name, kind, holders, tokens, since when, waiting, values; parted by tabs, nothing cut.
    """
    with session.operator() as operator:
        found = operator.lines(prefix)
        if as_json:
            paper.json_array(map(lines.line_json, found))
        elif paper.at_terminal():
            known = sorted(found, key=lambda line: line.name)
            if known:
                paper.show(lines.lines_table(known, paper.room(wide)))
            paper.say(
                f"{lines.tally(known)} in {session.display}" + (f" below {prefix!r}" if prefix else ""),
                apart=bool(known),
            )
        else:
            for line in found:
                paper.fields(*lines.line_fields(line))


@click.command
@click.argument("name")
@click.option(
    "-a", "--all", "everybody", is_flag=True, help=f"At a terminal show more than {_WAITERS_MAX} who wait, too."
)
@json_option
@wide_option
@with_store
def show(session: StoreSession, *, name: str, everybody: bool, as_json: bool, wide: bool) -> None:
    """Show one name: its holders and who waits, in order, each with token, wait and TTL.

    IN LINE is how long somebody has stood there: of one who waits it is the wait so far. LEFT is for how long the lease
    stands if nobody renews it any more (etcd tells; ZooKeeper does not). "orphaned": it hangs on no lease, and nothing
    but `tenure release` ends it. Nobody there: exit code 66.

    \b
    tenure show billing-close
    tenure show billing-close --json | jq -r '.holders[0].token'

    In a pipe each line is: holds or its place among those who wait, owner, how it holds, token, since when, seconds in
    line, TTL, seconds left, value; parted by tabs.
    """
    with session.operator() as operator:
        line = operator.line(name)
    if as_json:
        paper.json_document(lines.line_json(line))
    elif not line.tickets:
        pass
    elif paper.at_terminal():
        lines.show_line(line, waiters_max=None if everybody else _WAITERS_MAX, wide=wide)
    else:
        _print(line)
    if not line.tickets:
        raise CommandStopped(
            ExitCode.NOT_THERE,
            f"nobody holds {name!r} or waits for it in {session.display}; `tenure ls` lists what is in use",
        )


def _print(line: LineInfo) -> None:
    for ticket in line.holders:
        paper.fields(*lines.ticket_fields("holds", ticket, line))
    for position, ticket in enumerate(line.waiters, 1):
        paper.fields(*lines.ticket_fields(str(position), ticket, line))
