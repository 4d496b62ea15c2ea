"""`holdfast history`: the last holds of a name."""

from __future__ import annotations

import click

from holdfast.cli.codes import Code, Stop
from holdfast.cli.screens import paper, past
from holdfast.cli.session import Session, with_store


@click.command
@click.argument("name")
@paper.json_option
@paper.wide_option
@with_store
def command(session: Session, *, name: str, as_json: bool, wide: bool) -> None:
    """Show the last holds of a name: whose, after which wait, for how long, and why they ended; the newest last.

    They are what clients wrote down that keep a journal: connect(…, journal=True), or ?journal=1 in their URL. The
    newest 50 of a name are kept. A holder that was killed writes down no end: "expired?" is what follows from its
    ticket being gone. Nothing written down: exit code 66.

    \b
    holdfast history billing-close
    holdfast history billing-close --json | jq '.[] | select(.ended == "expired")'

    In a pipe each line is: acquired when, owner, token, seconds waited, seconds held, how it ended (or holds), why,
    value; parted by tabs.
    """
    with session.operator() as operator:
        entries = operator.history(name)
    if as_json:
        paper.json_array(map(past.history_json, entries))
    elif paper.at_terminal() and entries:
        paper.show(past.history_table(entries, paper.room(wide)))
    else:
        for entry in entries:
            paper.fields(*past.history_fields(entry))
    if not entries:
        hint = "clients that connect with journal=1 in their URL write their holds down"
        raise Stop(Code.NOT_THERE, f"no hold of {name!r} was written down; {hint}")
