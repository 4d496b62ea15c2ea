"""What a scene can do: send the crew its cues, wait for what should follow, and say whether it did.

Reports are told on the screen in the order they arrive, whoever waits for what; a scene finds what it
waits for in the history from a mark it set before its cue, so nothing can come too early for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.cli.demo.crew import Crew
from holdfast.cli.demo.inbox import Inbox, Kind, Report
from holdfast.cli.demo.ledger import Ledger
from holdfast.cli.demo.screen import Screen, Tone
from holdfast.errors import StoreError

ANSWER_SECONDS = 10.0
"""How long anything may take that needs no lease to run out."""
_REDRAW_SECONDS = 0.1

Matches = Callable[[Report], bool]


class Unmet(Exception):
    """Something that the story needs did not happen in time, or happened by itself."""


class WorkerFailed(StoreError):
    """A worker process could not go on; the message is its own error's."""


@dataclass
class Stage:
    """The parts of one run of the demo, and its record."""

    screen: Screen
    inbox: Inbox
    crew: Crew
    ledger: Ledger
    ttl: float
    """What is asked for; the reports of the elected say what was granted."""
    lines: int
    """How many ledger lines a leader writes before the next thing happens to it: the reader's time."""
    history: list[Report] = field(default_factory=list)
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)

    def mark(self) -> int:
        """Here in the history; set it before a cue."""
        return len(self.history)

    def wait(
        self, matches: Matches, *, since: int, what: str, seconds: float = ANSWER_SECONDS, count: int = 1
    ) -> Report:
        """The `count`th report since the mark that matches. Raises Unmet when it doesn't come."""
        began = time.monotonic()
        seen = since
        while True:
            for report in self.history[seen:]:
                if matches(report):
                    count -= 1
                    if count == 0:
                        return report
            seen = len(self.history)
            self._take(began, began + seconds, what)

    def expect(self, held: bool, promise: str) -> None:
        """Note whether a promise held; the story goes on."""
        if not held:
            self.unmet.append(promise)
            self.screen.say("demo", f"NOT AS PROMISED: {promise}", Tone.BAD)

    def last_line_of(self, who: str) -> Report:
        """The last line somebody told us it wrote."""
        return next(r for r in reversed(self.history) if r.kind is Kind.WROTE and r.who == who)

    def _take(self, began: float, until: float, what: str) -> None:
        """Take one report in, telling on a living screen how long it has been."""
        while True:
            now = time.monotonic()
            if now >= until:
                raise Unmet(f"{what} did not happen within {until - began:.1f} s")
            report = self.inbox.take(min(until, now + _REDRAW_SECONDS))
            if report is not None:
                break
            self.screen.status(f"{now - began:4.1f} s: waiting until {what}")
        self.history.append(report)
        tell(self.screen, report)
        if report.kind is Kind.FAILED:
            raise WorkerFailed(f"{report.who} can't go on: {report.text}")
        if report.kind is Kind.ENDED and report.who not in self.killed:
            raise Unmet(f"{report.who} ended by itself")


def tell(screen: Screen, report: Report) -> None:
    """One report as a line of the story."""
    who, token, left = report.who, report.token, f"{report.remaining:.1f} s"
    match report.kind:
        case Kind.IN_LINE:
            screen.say(who, f"stands in line with token {token}")
        case Kind.ELECTED:
            screen.say(who, f"LEADS with token {token}; TTL granted {report.ttl:g} s, {left} of it left", Tone.GOOD)
        case Kind.WROTE:
            screen.say(who, f"writes with token {token}, the ledger takes it; {left} left", Tone.QUIET)
        case Kind.REFUSED:
            screen.say(who, f"writes all the same, with token {token}", Tone.QUIET)
            screen.say("ledger", f"REFUSES {who}'s token {token}: it has seen token {report.highest}", Tone.BAD)
        case Kind.LOST:
            screen.say(who, f"its first check() raises LeaseLost; remaining() is {left}", Tone.BAD)
            screen.say(who, report.text, Tone.QUIET)
        case Kind.RESIGNING:
            screen.say(who, "resigns: it releases its hold")
        case Kind.LEADER:
            screen.say("store", f"names {who} the leader, token {token}" if who else "names no leader")
        case Kind.ENDED:
            screen.say(who, "is gone")
        case Kind.FAILED:
            pass  # raised, and told by whoever catches it
