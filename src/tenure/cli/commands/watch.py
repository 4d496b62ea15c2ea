"""`tenure watch`: the lines in use, live."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterable
from typing import Final

import click
from rich.live import Live

import tenure
from tenure._admin.models import LineInfo
from tenure.cli.codes import ExitCode
from tenure.cli.screens import lines, paper
from tenure.cli.screens.live import Board, state
from tenure.cli.screens.words import iso
from tenure.cli.store import StoreSession, with_store
from tenure.cli.terminal import ENDING, hearing, json_option

_REDRAW_SECONDS: Final = 1.0
_SILENT: Final = ("endpoint_failed", "renewal_failed", "suspect", "lease_lost")
Happened = tuple[LineInfo, ...] | BaseException | str | int


@click.command
@click.argument("prefix", default="")
@json_option
@with_store
def watch(session: StoreSession, *, prefix: str, as_json: bool) -> int | None:
    """Watch what is in use, live, until Ctrl-C.

    At a terminal it is a table that changes as the store does: woken by it, never asking again and again. A store that
    is away is waited for.

    \b
    tenure watch
    tenure watch tenant_123: | grep --line-buffered free
    tenure watch --json | jq -r 'select(.kind == "election") | .holders[0].value'

    In a pipe, and at a terminal that can do little, there is a line for each name now, and one whenever it changes:
    time, name, kind (or free), holders, tokens, since when, waiting, values; parted by tabs. With --json it is one
    object a line.
    """
    with session.client() as client:
        if as_json or not paper.at_terminal() or paper.console().is_dumb_terminal:
            _follow(client.operator().watch(prefix), as_json=as_json)
            return ExitCode.OK
        return _live(client, prefix, session.display + (f"   {prefix}*" if prefix else ""))


def _follow(snapshots: Iterable[tuple[LineInfo, ...]], *, as_json: bool) -> None:
    """Tell what changed from one snapshot to the next."""
    before: dict[str, LineInfo] = {}
    for snapshot in snapshots:
        now = {line.name: line for line in snapshot}
        for name in sorted(now.keys() | before.keys()):
            line = now.get(name) or LineInfo(name, None, None, ())
            if name not in before or state(line) != state(before[name]):
                _print(line, as_json=as_json)
        before = now


def _print(line: LineInfo, *, as_json: bool) -> None:
    at = iso(time.time())
    if as_json:
        paper.json_line({"time": at, **lines.line_json(line)})
    else:
        paper.fields(at, *lines.line_fields(line), now=True)


def _live(client: tenure.Client, prefix: str, title: str) -> int:
    """Draw until a signal comes; what to end with."""
    happened: queue.SimpleQueue[Happened] = queue.SimpleQueue()  # its put() is re-entrant
    client.subscribe(lambda event: happened.put(event.event))
    looking = threading.Thread(target=_look, args=(client, prefix, happened), name="watch", daemon=True)
    looking.start()
    board = Board(title)
    with (
        hearing(happened.put, (*ENDING, signal.SIGTSTP)),
        Live(
            board,
            console=paper.console(),
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live,
    ):
        while True:
            live.refresh()
            match _next(happened):
                case None:
                    pass
                case tuple() as snapshot:
                    board.take(snapshot)
                case str() as event:
                    board.silent(is_silent=event in _SILENT)
                case signal.SIGTSTP:
                    _stop(live)
                case int() as number:
                    return 128 + number
                case error:
                    raise error


def _next(happened: queue.SimpleQueue[Happened]) -> Happened | None:
    try:
        return happened.get(timeout=_REDRAW_SECONDS)
    except queue.Empty:
        return None


def _look(client: tenure.Client, prefix: str, happened: queue.SimpleQueue[Happened]) -> None:
    try:
        for snapshot in client.operator().watch(prefix):
            happened.put(snapshot)
    except Exception as error:  # whatever it is, it is raised where somebody sees it
        happened.put(error)


def _stop(live: Live) -> None:
    """Ctrl-Z: give the screen back for as long as we are stopped."""
    live.stop()
    os.kill(os.getpid(), signal.SIGSTOP)
    live.start(refresh=True)
