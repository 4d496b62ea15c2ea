"""What `holdfast run` and `holdfast elect` do: one term, and one term after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import holdfast
from holdfast.cli.codes import Code, Stop
from holdfast.cli.supervise.health import Health
from holdfast.cli.supervise.inbox import Inbox
from holdfast.cli.supervise.term import Interrupted, Job, Outcome, Term, refusal
from holdfast.cli.supervise.watchdog import adopt_orphans, now
from holdfast.cli.telling import tell
from holdfast.errors import AcquireTimeout, InvalidOption, LeaseLost, StoreUnavailable
from holdfast.limits import RETRY_PAUSE_MAX

Acquire = Callable[[float | None], holdfast.Hold | None]


def run(client: holdfast.Client, acquire: Acquire, job: Job, *, timeout: float | None) -> int:
    """CMD once, under a hold that `acquire(timeout)` gets: None, where it is not to be had at once."""
    refused = refusal(job.command)
    if refused is not None:
        return refused.code
    inbox = _inbox()
    term = Term(inbox, client, job, _let_streams_go)
    try:
        outcome = _term(term, _patient(client, acquire, job, timeout))
    finally:
        term.close()
        term.give_up(client.close, None)
    if outcome is None:
        if job.verbose:
            tell(f"{job.name!r} is held by others; nothing was run")
        return Code.BUSY
    return outcome.code


def elect(
    client: holdfast.Client, election: holdfast.Election, job: Job, *, once: bool, health_at: tuple[str, int] | None
) -> int:
    """CMD whenever `election` is won, until it ends by itself, or a signal ends all."""
    refused = refusal(job.command)
    if refused is not None:
        return refused.code
    _refuse_unwritable(job.ready_file)
    inbox = _inbox()
    health = None if health_at is None else Health(health_at, election, inbox)
    acquire = _patient(client, lambda timeout: election.campaign().acquire(timeout), job, None)
    try:
        while True:
            term = Term(inbox, client, job, _nothing if health is None else health.set_running)
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


def _inbox() -> Inbox:
    """What has to be done before any thread is started."""
    refuse_foreign_proc()
    adopt_orphans()
    return Inbox()


def _term(term: Term, acquire: Callable[[], holdfast.Hold | None]) -> Outcome | None:
    try:
        hold = term.wait(acquire)
        return None if hold is None else term.run(hold)
    except Interrupted as signal:
        return Outcome(signal.code)


def _patient(
    client: holdfast.Client, acquire: Acquire, job: Job, timeout: float | None
) -> Callable[[], holdfast.Hold | None]:
    """A wait that a store's absence does not end, once it has been reached: a URL that is wrong is told at once."""
    reached = threading.Event()
    client.subscribe(lambda event: reached.set() if event.event == "entered" else None)
    until = None if timeout is None else now() + timeout

    def acquiring() -> holdfast.Hold | None:
        told, left = False, timeout
        while True:
            try:
                hold = acquire(left)
            except (LeaseLost, StoreUnavailable) as error:
                if not reached.is_set():
                    raise
                if until is not None and now() >= until:
                    raise AcquireTimeout(f"{job.name!r} was not to be had in time, and at the end {error}") from error
                if job.verbose and not told:
                    tell(f"the place in the line of {job.name!r} was lost, trying again: {error}")
                told = True
                threading.Event().wait(RETRY_PAUSE_MAX)
                left = None if until is None else max(0.0, until - now())
                continue
            if job.verbose and hold is not None:
                tell(f"holding {job.name!r} with token {hold.token}, granted for {hold.ttl:g} s at a time")
            return hold

    return acquiring


def _let_streams_go(running: bool) -> None:
    """They are CMD's: a pipe must end when CMD closes it, not when we do."""
    if running:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)


def _refuse_unwritable(ready_file: str | None) -> None:
    """And take away what a candidate left there that was killed together with its watchdog."""
    if ready_file is None:
        return
    try:
        with open(ready_file, "a"):
            pass
        os.unlink(ready_file)
    except OSError as error:
        raise InvalidOption(f"the readiness file can't be written: {ready_file}: {error.strerror}") from error


def refuse_foreign_proc(proc: str = "/proc") -> None:
    """Who is below whom is read there. One of another PID namespace names strangers, and CMD could not be ended."""
    try:
        me = os.readlink(f"{proc}/self")
    except OSError:
        me = ""
    if me != str(os.getpid()):
        told = f"{proc} is not of this PID namespace, so that what CMD starts could not be found to be ended"
        raise Stop(Code.UNREACHABLE, f"{told}: mount one (unshare --mount-proc; in a container leave it as it is)")


def _nothing(_running: bool) -> None:
    """Nobody asks whether we lead."""
