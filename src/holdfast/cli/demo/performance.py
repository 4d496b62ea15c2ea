"""`holdfast demo`: what a hold is worth, shown with real processes, real signals and a real store.

Three workers stand in one election. Its leader is killed, stopped beyond its TTL and woken again, and
asked to resign; each time somebody else takes over, and the ledger they write to refuses the one that
was asleep. Every figure is measured, every promise checked.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from contextlib import ExitStack

import holdfast
from holdfast.cli.demo import scenes
from holdfast.cli.demo.crew import Crew
from holdfast.cli.demo.etcd import find_etcd, running_etcd
from holdfast.cli.demo.inbox import Inbox, Interrupted, Kind, Report, signals_into
from holdfast.cli.demo.ledger import Ledger, serving
from holdfast.cli.demo.screen import Screen, Tone
from holdfast.cli.demo.stage import Stage, Unmet

TTL_SECONDS = 3.0
_TTL_SECONDS_MAX = 60.0
LINES = 4
LINES_QUICK = 1
_AS_PROMISED, _NOT_AS_PROMISED, _SIGNALLED = 0, 1, 128


def run(*, url: str | None, ttl: float, lines: int) -> int:
    """Play it all, and leave nothing behind; the exit code. Raises HoldfastError."""
    refuse_unusable(url, ttl)
    screen, inbox = Screen(sys.stdout), Inbox()
    with signals_into(inbox):
        try:
            with ExitStack() as undo:
                undo.callback(screen.clear)
                return play(open_stage(screen, inbox, undo, url=url, ttl=ttl, lines=lines))
        except Interrupted as stop:
            return _SIGNALLED + stop.number


def refuse_unusable(url: str | None, ttl: float) -> None:
    """What the demo can't be played with. Raises InvalidURL, InvalidOption."""
    if url is not None and url.startswith("memory:"):
        raise holdfast.InvalidURL(
            "the demo's workers are processes of their own and can't share a memory:// store; leave --url out for an "
            "etcd that the demo starts itself, or name an etcd:// or zookeeper:// store"
        )
    if not 0 < ttl <= _TTL_SECONDS_MAX:
        raise holdfast.InvalidOption(
            f"the demo waits for the TTL twice: --ttl is above 0 and at most {_TTL_SECONDS_MAX:g} seconds, not {ttl:g}"
        )


def open_stage(screen: Screen, inbox: Inbox, undo: ExitStack, *, url: str | None, ttl: float, lines: int) -> Stage:
    """The store, an observer, the ledger and an empty crew. What has to be undone is on `undo` at once."""
    election = "ledger-keeper"
    if url is None:
        program = find_etcd()
        screen.say("demo", "starts an etcd of its own")
        etcd = undo.enter_context(running_etcd(program, inbox))
        screen.say("demo", f"etcd {etcd.version} answers (pid {etcd.pid})")
        url = etcd.url
    else:
        election += f"-{secrets.token_hex(4)}"  # others may play it there too
    client = undo.enter_context(holdfast.connect(url, owner="demo", ttl=ttl))
    threading.Thread(target=_observe, args=(client, election, inbox), name="demo-observer", daemon=True).start()
    ledger = Ledger()
    port = undo.enter_context(serving(ledger))
    crew = undo.enter_context(Crew(inbox, url=url, election=election, ttl=ttl, ledger_port=port))
    return Stage(screen, inbox, crew, ledger, ttl, lines)


def play(stage: Stage) -> int:
    """The story and its summary; the exit code."""
    try:
        scenes.play(stage)
    except Unmet as unmet:
        stage.expect(False, str(unmet))
    stage.screen.table("What was measured", stage.figures)
    if stage.unmet:
        stage.screen.verdict(f"Not as promised: {'; '.join(stage.unmet)}.", Tone.BAD)
        return _NOT_AS_PROMISED
    stage.screen.verdict(f"Every promise held, in {stage.screen.elapsed:.1f} s.", Tone.GOOD)
    return _AS_PROMISED


def _observe(client: holdfast.Client, election: str, inbox: Inbox) -> None:
    """Report whom the store names, until the client is closed."""
    try:
        for leader in client.election(election).observe():
            who, token = (leader.value, leader.token) if leader else ("", 0)
            inbox.put(Report(Kind.LEADER, who, time.monotonic(), token))
    except holdfast.HoldfastError as error:
        inbox.put(error)
