"""`holdfast audit`: who was forced out."""

from __future__ import annotations

import click

from holdfast.cli.screens import paper, past
from holdfast.cli.screens.words import count
from holdfast.cli.session import Session, with_store


@click.command
@click.argument("prefix", default="")
@paper.json_option
@paper.wide_option
@with_store
def command(session: Session, *, prefix: str, as_json: bool, wide: bool) -> None:
    """List who was forced out of a line, by whom, when and why; the newest last.

    With PREFIX only of names that begin with it. A record is written in the very transaction that removes the ticket:
    there is none without a removal, and no forced removal without one. The newest 100 of a name and 1,000 in all are
    kept.

    \b
    holdfast audit
    holdfast audit tenant_123: --json

    In a pipe each line is: when, name, token, who was forced out, holding or waiting, by whom, reason; parted by tabs.
    """
    with session.operator() as operator:
        records = operator.audit(prefix)
    if as_json:
        paper.json_array(map(past.audit_json, records))
    elif not paper.at_terminal():
        for record in records:
            paper.fields(*past.audit_fields(record))
    elif records:
        paper.show(past.audit_table(records, paper.room(wide)))
        paper.say(count(len(records), "record"), apart=True)
    else:
        paper.say("nobody was forced out" + (f" of a line below {prefix!r}" if prefix else ""))
