"""`holdfast why`: how a name comes to be as it is."""

from __future__ import annotations

import click

from holdfast.cli.codes import Code, Stop
from holdfast.cli.screens import paper, past
from holdfast.cli.session import Session, with_store


@click.command
@click.argument("name")
@paper.json_option
@with_store
def command(session: Session, *, name: str, as_json: bool) -> None:
    """Say in sentences who holds a name, who waits, how the last hold ended, and who was forced out last.

    How the last hold ended is known where its client keeps a journal (journal=1 in its URL). Nothing known at all: exit
    code 66.

    \b
    holdfast why billing-close
    """
    with session.operator() as operator:
        told = operator.why(name)
    unknown = not told.line.tickets and told.last is None and told.forced is None
    if as_json:
        paper.json_document(past.why_json(told))
    elif not unknown:
        paper.sentences(*told.sentences)
    if unknown:
        raise Stop(
            Code.NOT_THERE, f"nothing is known of {name!r} in {session.place}; `holdfast ls` lists what is in use"
        )
