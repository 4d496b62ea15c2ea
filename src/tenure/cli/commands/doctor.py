"""`tenure doctor`: is this store fit to be relied on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from tenure.cli.codes import ExitCode
from tenure.cli.doctor.checks import findings
from tenure.cli.doctor.findings import Finding, Severity
from tenure.cli.screens import paper
from tenure.cli.screens.table import BAD, GOOD, QUIET, STRONG, Cell, Column, Row, table
from tenure.cli.screens.words import count
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import json_option

_COLUMNS: Final = (Column(""), Column("CHECK"), Column("WHERE", drop=1), Column("FOUND", minimum=30, wraps=True))
_STYLES: Final = {Severity.OK: GOOD, Severity.WARN: STRONG, Severity.FAIL: BAD}


@click.command
@click.option("-v", "--verbose", is_flag=True, help="Name the known bugs of the servers, with their issues' numbers.")
@json_option
@with_store
def doctor(session: StoreSession, *, verbose: bool, as_json: bool) -> int:
    """Check a store, each of its endpoints, and this machine, and say what to do about what is found.

    Reach, TLS, version (with its known bugs), health and alarms, space, gateway, permission, granted TTLs, tickets that
    nothing will ever end, and the clock. Scratch locks are taken and given back; nothing else is written. On ZooKeeper
    more is seen where the four-letter words conf and dump are allowed.

    Every check is a line: ok, warn or fail. The exit code is 1 where one failed, else 0.

    \b
    tenure doctor
    tenure doctor -v
    tenure doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    options = session.parsed()
    found = list(findings(options, lambda ttl: session.client(ttl=ttl)))
    failed = any(finding.state is Severity.FAIL for finding in found)
    if as_json:
        paper.json_document(
            {
                "store": session.display,
                "ok": not failed,
                "checks": [
                    {
                        "state": f.state.value,
                        "check": f.check,
                        "endpoint": f.where or None,
                        "found": f.found,
                        "do": f.do or None,
                        "details": f.details,
                    }
                    for f in found
                ],
            }
        )
    elif paper.at_terminal():
        paper.show(table(_COLUMNS, _rows(found, verbose), paper.room(False)))
        paper.say(f"{_tally(found)} of {session.display}", apart=True)
    else:
        for finding in found:
            said = (
                ": ".join((finding.found, "; ".join(finding.details))) if verbose and finding.details else finding.found
            )
            paper.fields(finding.state, finding.check, finding.where, said, finding.do)
    return ExitCode.NOT_SO if failed else ExitCode.OK


def _rows(found: Sequence[Finding], verbose: bool) -> list[Row]:
    """Rows of findings, each with what to do below; in full at the first endpoint only that has the finding."""
    rows: list[Row] = []
    first_at: dict[tuple[str, str], str] = {}
    for finding in found:
        first = first_at.setdefault((finding.check, finding.found), finding.where)
        again = finding.do and first != finding.where
        found_here = f"the same as {first}" if again else finding.found
        state = Cell(finding.state, _STYLES[finding.state])
        rows.append((state, Cell(finding.check), Cell(finding.where, QUIET), Cell(found_here)))
        if verbose and not again:
            rows += [(Cell(""), Cell(""), Cell(""), Cell(detail, QUIET)) for detail in finding.details]
        if finding.do and not again:
            rows.append((Cell(""), Cell(""), Cell(""), Cell(f"→ {finding.do}", STRONG)))
    return rows


def _tally(found: Sequence[Finding]) -> str:
    """Count of failures and warnings."""
    of = Counter(finding.state for finding in found)
    counts = [count(of[Severity.FAIL], "failure"), count(of[Severity.WARN], "warning")]
    return f"{', '.join(counts)} in {count(len(found), 'check')}"
