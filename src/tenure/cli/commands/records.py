"""`tenure why`, `tenure history` and `tenure audit`: how a name comes to be as it is, and what was written down."""

from __future__ import annotations

import click

from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.screens import paper, past
from tenure.cli.screens.words import count
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import json_option, wide_option


@click.command
@click.argument("name")
@json_option
@with_store
def why(session: StoreSession, *, name: str, as_json: bool) -> None:
    """Say in sentences who holds a name, who waits, how the last hold ended, and who was forced out last.

    How the last hold ended is known where its client keeps a journal (journal=1 in its URL). Nothing known at all: exit
    code 66.

    \b
    tenure why billing-close
    """
    with session.operator() as operator:
        known = operator.why(name)
    unknown = not known.line.tickets and known.last is None and known.forced is None
    if as_json:
        paper.json_document(past.why_json(known))
    elif not unknown:
        paper.sentences(*known.sentences)
    if unknown:
        raise CommandStopped(
            ExitCode.NOT_THERE, f"nothing is known of {name!r} in {session.display}; `tenure ls` lists what is in use"
        )


@click.command
@click.argument("name")
@json_option
@wide_option
@with_store
def history(session: StoreSession, *, name: str, as_json: bool, wide: bool) -> None:
    """Show the last holds of a name: whose, after which wait, for how long, and why they ended; the newest last.

    They are what clients wrote down that keep a journal: connect(…, journal=True), or ?journal=1 in their URL. The
    newest 50 of a name are kept. A holder that was killed writes down no end: "expired?" is what follows from its
    ticket being gone. Nothing written down: exit code 66.

    \b
    tenure history billing-close
    tenure history billing-close --json | jq '.[] | select(.ended == "expired")'

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
        raise CommandStopped(ExitCode.NOT_THERE, f"no hold of {name!r} was written down; {hint}")


@click.command
@click.argument("prefix", default="")
@json_option
@wide_option
@with_store
def audit(session: StoreSession, *, prefix: str, as_json: bool, wide: bool) -> None:
    """List who was forced out of a line, by whom, when and why; the newest last.

    With PREFIX only of names that begin with it. A record is written in the very transaction that removes the ticket:
    there is none without a removal, and no forced removal without one. The newest 100 of a name and 1,000 in all are
    kept.

    \b
    tenure audit
    tenure audit tenant_123: --json

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
