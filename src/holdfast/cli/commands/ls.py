"""`holdfast ls`: the lines in use."""

from __future__ import annotations

import click

from holdfast.cli.screens import lines, paper
from holdfast.cli.session import Session, with_store


@click.command
@click.argument("prefix", default="")
@paper.json_option
@paper.wide_option
@with_store
def command(session: Session, *, prefix: str, as_json: bool, wide: bool) -> None:
    """List what is in use: who holds it, since when, and how many wait.

    With PREFIX only names that begin with it. IN LINE is how long the holder has stood in the line, its wait included.

    \b
    holdfast ls                        all of the namespace
    holdfast ls tenant_123:            what begins with this
    holdfast ls --json | jq '.[] | select(.waiters != [])'

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
                f"{lines.tally(known)} in {session.place}" + (f" below {prefix!r}" if prefix else ""), apart=bool(known)
            )
        else:
            for line in found:
                paper.fields(*lines.line_fields(line))
