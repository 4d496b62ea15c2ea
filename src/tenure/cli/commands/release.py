"""`tenure release`: force somebody out of a line."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import sys
import textwrap
from typing import Final

import click

from tenure._admin.models import AuditRecord, LineInfo, TicketInfo
from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.screens import lines, paper, past
from tenure.cli.screens.words import plain, span
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import json_option
from tenure.errors import StoreUnavailable

_WIDTH_MAX: Final = 100


@click.command
@click.argument("name")
@click.option("--token", type=int, required=True, metavar="TOKEN", help="Whom; `tenure show NAME` has the tokens.")
@click.option("--reason", required=True, metavar="TEXT", help="Why. It is written down, and told to the holder.")
@click.option("--actor", metavar="WHO", help="Who does it; you at this host, where it is not given.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@with_store
def release(
    session: StoreSession, *, name: str, token: int, reason: str, actor: str | None, yes: bool, as_json: bool
) -> int:
    """Force somebody out of a line, holder or waiter, and write down who did and why.

    Only the ticket with this token goes, never a successor's. The store removes it and writes the record in one
    transaction: neither happens without the other. The holder hears that its hold is lost, and may be at work until it
    does: only a guard that checks tokens keeps it from the resource.

    \b
    tenure show billing-close
    tenure release billing-close --token 4711 --reason "stuck since noon, OPS-12"
    tenure audit

    It asks first. Without a terminal to ask at it needs --yes. The same command again finds its own record, and does
    nothing more. No such token in the line: exit code 66. Answered with no: 1.
    """
    actor = actor if actor is not None else _whoever_asks()
    if not yes:
        _refuse_without_terminal()
        with session.operator() as operator:
            line = operator.line(name)
        ticket = next((ticket for ticket in line.tickets if ticket.token == token), None)
        if ticket is not None and not _agreed(line, ticket, reason, actor):
            raise CommandStopped(ExitCode.NOT_SO, "nobody was forced out")
    try:
        with session.operator() as operator:
            record = operator.force_release(name, token=token, reason=reason, actor=actor)
    except StoreUnavailable as error:
        again = "Whether anybody was forced out is not known: the same command again finds its own record"
        problem = str(error)
        raise CommandStopped(
            ExitCode.UNREACHABLE, f"{problem}{'' if problem.endswith(('.', '?')) else '.'} {again}"
        ) from error
    _show_record(record, as_json=as_json)
    return ExitCode.OK


def _refuse_without_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandStopped(
            ExitCode.USAGE, "there is no terminal to ask at whether somebody shall be forced out: give --yes"
        )


def _agreed(line: LineInfo, ticket: TicketInfo, reason: str, actor: str) -> bool:
    """Show who would go and who would come, and ask."""
    state = "holds" if ticket.holds else "waits for"
    sentences = [f"{lines.owner(ticket)} (token {ticket.token}) {state} {line.name!r}, in line for {span(ticket.age)}."]
    if ticket.holds:
        sentences.append(
            "It may be at work until it hears of it: only a guard that checks tokens keeps it from the resource."
        )
        if line.waiters:
            sentences.append(f"Next is {lines.owner(line.waiters[0])} (token {line.waiters[0].token}).")
    sentences.append(f"To be written down: {reason!r}, by {actor}.")
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
    for sentence in sentences:
        print(textwrap.fill(plain(sentence), width), file=sys.stderr)
    print("Force it out? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:  # the end of input: no line ended there
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


def _show_record(record: AuditRecord, *, as_json: bool) -> None:
    if as_json:
        paper.json_document(past.audit_json(record))
        return
    holder = record.holder or lines.STRANGER
    role = "held it" if record.was_holding else "waited for it"
    paper.sentences(
        f"{holder} (token {record.token}) was forced out of {record.resource!r}, where it {role}.",
        f"Written down: {record.reason}, by {record.actor}.",
    )


def _whoever_asks() -> str:
    """A person, rather than a process."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
