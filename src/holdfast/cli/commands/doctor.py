"""`holdfast doctor`: is this store fit to be relied on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from holdfast.cli.checkup.finding import Finding, State
from holdfast.cli.checkup.rounds import findings
from holdfast.cli.codes import Code
from holdfast.cli.screens import paper
from holdfast.cli.screens.table import BAD, GOOD, QUIET, STRONG, Cell, Column, Row, table
from holdfast.cli.screens.words import count
from holdfast.cli.session import Session, with_store

_COLUMNS: Final = (
    Column(""),
    Column("CHECK"),
    Column("WHERE", drop=1),
    Column("FOUND", least=30, wraps=True),
)
_STYLES: Final = {State.OK: GOOD, State.WARN: STRONG, State.FAIL: BAD}


@click.command
@paper.json_option
@with_store
def command(session: Session, *, as_json: bool) -> int:
    """Check a store, each of its endpoints, and this machine, and say what to do about what is found.

    Reach, TLS, version (with its known bugs), health and alarms, space, gateway, permission, granted TTLs, tickets that
    nothing will ever end, and the clock. Scratch locks are taken and given back; nothing else is written. On ZooKeeper
    more is seen where the four-letter words conf and dump are allowed.

    Every check is a line: ok, warn or fail. The exit code is 1 where one failed, else 0.

    \b
    holdfast doctor
    holdfast doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    options = session.parsed()
    found = list(findings(options, lambda ttl: session.client(ttl=ttl)))
    failed = any(finding.state is State.FAIL for finding in found)
    if as_json:
        paper.json_document(
            {
                "store": session.place,
                "ok": not failed,
                "checks": [
                    {
                        "state": f.state.value,
                        "check": f.check,
                        "endpoint": f.where or None,
                        "found": f.told,
                        "do": f.do or None,
                    }
                    for f in found
                ],
            }
        )
    elif paper.at_terminal():
        paper.show(table(_COLUMNS, _rows(found), paper.room(False)))
        paper.say(f"{_tally(found)} of {session.place}", apart=True)
    else:
        for finding in found:
            paper.fields(finding.state, finding.check, finding.where, finding.told, finding.do)
    return Code.NOT_SO if failed else Code.OK


def _rows(found: Sequence[Finding]) -> list[Row]:
    """What was found, and below it what to do; said in full at the first endpoint of which it is true."""
    rows: list[Row] = []
    told_of: dict[tuple[str, str], str] = {}
    for finding in found:
        first = told_of.setdefault((finding.check, finding.told), finding.where)
        again = finding.do and first != finding.where
        told = f"the same as {first}" if again else finding.told
        state = Cell(finding.state, _STYLES[finding.state])
        rows.append((state, Cell(finding.check), Cell(finding.where, QUIET), Cell(told)))
        if finding.do and not again:
            rows.append((Cell(""), Cell(""), Cell(""), Cell(f"→ {finding.do}", STRONG)))
    return rows


def _tally(found: Sequence[Finding]) -> str:
    """How many there are of each kind."""
    of = Counter(finding.state for finding in found)
    told = [count(of[State.FAIL], "failure"), count(of[State.WARN], "warning")]
    return f"{', '.join(told)} in {count(len(found), 'check')}"
