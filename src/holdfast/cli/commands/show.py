"""`holdfast show`: one line, ticket by ticket."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.codes import Code, Stop
from holdfast.cli.screens import lines, paper
from holdfast.cli.session import Session, with_store
from holdfast.reports import LineInfo

_WAITERS_MAX: Final = 20


@click.command
@click.argument("name")
@click.option(
    "-a", "--all", "everybody", is_flag=True, help=f"At a terminal show more than {_WAITERS_MAX} who wait, too."
)
@paper.json_option
@paper.wide_option
@with_store
def command(session: Session, *, name: str, everybody: bool, as_json: bool, wide: bool) -> None:
    """Show one name: its holders and who waits, in order, each with token, wait and TTL.

    IN LINE is how long somebody has stood there: of one who waits it is the wait so far. LEFT is for how long the lease
    stands if nobody renews it any more (etcd tells; ZooKeeper does not). "orphaned": it hangs on no lease, and nothing
    but `holdfast release` ends it. Nobody there: exit code 66.

    \b
    holdfast show billing-close
    holdfast show billing-close --json | jq -r '.holders[0].token'

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
        _tell(line)
    if not line.tickets:
        raise Stop(
            Code.NOT_THERE,
            f"nobody holds {name!r} or waits for it in {session.place}; `holdfast ls` lists what is in use",
        )


def _tell(line: LineInfo) -> None:
    for ticket in line.holders:
        paper.fields(*lines.ticket_fields("holds", ticket, line))
    for place, ticket in enumerate(line.waiters, 1):
        paper.fields(*lines.ticket_fields(str(place), ticket, line))
