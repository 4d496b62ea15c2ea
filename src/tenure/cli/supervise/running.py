"""The work of `tenure run` and `tenure elect`: a single term, and one term after the other."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import tenure
from tenure._core.base.limits import RETRY_PAUSE_MAX
from tenure._core.base.retry import jittered
from tenure.cli.codes import CommandStopped, ExitCode
from tenure.cli.supervise.health import Health
from tenure.cli.supervise.inbox import SupervisorInbox
from tenure.cli.supervise.term import Job, Term, TermOutcome, WaitInterrupted, refusal
from tenure.cli.supervise.watchdog import adopt_orphans, now
from tenure.cli.terminal import tell
from tenure.errors import AcquireTimeout, InvalidOption, LeaseLost, StoreUnavailable, TenureError

_QUIET_SECONDS: Final = 1.0
"""Seconds of a wait before a line is written about it."""
_NAMED_MAX: Final = 3

Acquire = Callable[[float | None], tenure.Hold | None]


def run(client: tenure.Client, acquire: Acquire, job: Job, *, timeout: float | None, waits: bool = True) -> int:
    """Run CMD once, under a hold that `acquire(timeout)` gets: None, where it is not to be had at once.

    `waits`: a wait that lasts is announced.
    """
    refused = refusal(job.command)
    if refused is not None:
        return refused.code
    inbox = _inbox()
    term = Term(inbox, client, job, _let_streams_go)
    try:
        outcome = _term(term, _patient(client, acquire, job, timeout, announced=waits))
    finally:
        term.close()
        term.give_up(client.close, None)
    if outcome is None:
        if job.verbose:
            tell(f"{job.name!r} is held by others; nothing was run")
        return ExitCode.BUSY
    return outcome.code


def elect(
    client: tenure.Client, election: tenure.Election, job: Job, *, once: bool, health_at: tuple[str, int] | None
) -> int:
    """Run CMD whenever `election` is won, until it ends by itself, or a signal ends all."""
    refused = refusal(job.command)
    if refused is not None:
        return refused.code
    _refuse_unwritable(job.ready_file)
    inbox = _inbox()
    health = None if health_at is None else Health(health_at, election, inbox)
    acquire = _patient(client, lambda timeout: election.campaign().acquire(timeout), job, None)
    try:
        while True:
            term = Term(inbox, client, job, health.set_running if health is not None else lambda _running: None)
            try:
                outcome = _term(term, acquire)
            finally:
                term.close()
            if outcome is not None and (once or not outcome.lost or term.asked_to_end):
                return outcome.code
    finally:
        term.give_up(client.close, None)
        if health is not None:
            health.close()


def _inbox() -> SupervisorInbox:
    """Prepare the process, and make the inbox, before any thread is started."""
    refuse_foreign_proc()
    adopt_orphans()
    return SupervisorInbox()


def _term(term: Term, acquire: Callable[[], tenure.Hold | None]) -> TermOutcome | None:
    try:
        hold = term.wait(acquire)
        return None if hold is None else term.run(hold)
    except WaitInterrupted as signal:
        return TermOutcome(signal.code)


def _patient(
    client: tenure.Client, acquire: Acquire, job: Job, timeout: float | None, *, announced: bool = False
) -> Callable[[], tenure.Hold | None]:
    """A wait that a store's absence does not end once it has been reached. A wrong URL is an error at once."""
    entered: deque[int | None] = deque(maxlen=1)  # the token of the last ticket
    client.subscribe(lambda event: entered.append(event.token) if event.event == "entered" else None)
    until = None if timeout is None else now() + timeout
    lasting = threading.Timer(_QUIET_SECONDS, _say_behind_whom, (client, job.name, entered))
    lasting.daemon = True

    def acquiring() -> tenure.Hold | None:
        reported, left = False, timeout
        if announced:
            lasting.start()
        try:
            while True:
                try:
                    hold = acquire(left)
                except (LeaseLost, StoreUnavailable) as error:
                    if not entered:
                        raise
                    if until is not None and now() >= until:
                        late = f"{job.name!r} was not to be had in time, and at the end {error}"
                        raise AcquireTimeout(late) from error
                    if job.verbose and not reported:
                        tell(f"the place in the line of {job.name!r} was lost, trying again: {error}")
                    reported = True
                    threading.Event().wait(jittered(RETRY_PAUSE_MAX))
                    left = None if until is None else max(0.0, until - now())
                    continue
                if job.verbose and hold is not None:
                    tell(f"holding {job.name!r} with token {hold.token}, granted for {hold.ttl:g} s at a time")
                return hold
        finally:
            lasting.cancel()

    return acquiring


def _say_behind_whom(client: tenure.Client, name: str, mine: Sequence[int | None]) -> None:
    """Write a line on who holds `name`, and how many wait before the ticket with the last of the tokens `mine`."""
    try:
        line = client.operator().line(name)
    except TenureError:
        return  # a courtesy; whatever is wrong shows where it matters
    waiting: list[int | None] = [ticket.token for ticket in line.waiters]
    holders = [f"{ticket.owner or 'a stranger'} (token {ticket.token})" for ticket in line.holders]
    if not mine or mine[-1] not in waiting or not holders:
        return  # its turn has come meanwhile, or it has no place yet
    more = f" and {len(holders) - _NAMED_MAX} more" if len(holders) > _NAMED_MAX else ""
    before = waiting.index(mine[-1])
    place = f"{before} more in line before this one" if before else "this one is next in line"
    tell(f"waiting for {name!r}: held by {', '.join(holders[:_NAMED_MAX])}{more}; {place}")


def _let_streams_go(running: bool) -> None:
    """Close standard input and output, which are CMD's: a pipe must end when CMD closes it, not when we do."""
    if running:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)


def _refuse_unwritable(ready_file: str | None) -> None:
    """Try the readiness file, and take away one that a candidate left which was killed together with its watchdog."""
    if ready_file is None:
        return
    try:
        with open(ready_file, "a"):
            pass
        os.unlink(ready_file)
    except OSError as error:
        raise InvalidOption(f"the readiness file can't be written: {ready_file}: {error.strerror}") from error


def refuse_foreign_proc(proc: str = "/proc") -> None:
    """Refuse a /proc of another PID namespace: it names strangers, and what CMD starts could not be found there."""
    try:
        me = os.readlink(f"{proc}/self")
    except OSError:
        me = ""
    if me != str(os.getpid()):
        problem = f"{proc} is not of this PID namespace, so that what CMD starts could not be found to be ended"
        raise CommandStopped(
            ExitCode.UNREACHABLE, f"{problem}: mount one (unshare --mount-proc; in a container leave it as it is)"
        )
