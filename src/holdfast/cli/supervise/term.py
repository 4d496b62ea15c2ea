"""One term: wait for the hold, have CMD run under it, end CMD in time, and only then give the hold up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import holdfast
from holdfast.cli.codes import Code
from holdfast.cli.supervise.inbox import (
    ENDING,
    STOPPING,
    Changed,
    Finished,
    Held,
    Inbox,
    Reported,
    Signalled,
    stop_here,
)
from holdfast.cli.supervise.pace import Pace
from holdfast.cli.supervise.ward import Ward
from holdfast.cli.supervise.watchdog import now
from holdfast.cli.telling import tell
from holdfast.errors import InvalidFence

_LEFT_BEHIND_SECONDS: Final = 1.0
"""For how long what CMD left behind may run on before a line is told about it."""
_PATIENCE_SECONDS: Final = 1.0
"""A signal this long after the end began is somebody who does not want to wait for the store."""
_HANDING_OVER: Final = (signal.SIGTERM, signal.SIGINT)
_BITE_SECONDS: Final = 1.0
"""How long the watchdog may take to carry out a SIGKILL before holdfast does it itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to run."""

    name: str
    command: tuple[str, ...]
    grace: float | None = None
    """Seconds kept for CMD's own ending before the deadline; None: as much as there may be, see pace.py."""
    drain: float | None = None
    """SIGTERM and SIGINT give CMD this long to end; None: they are passed on, like any other."""
    ready_file: str | None = None
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a term ended, as an exit code. `lost`: CMD was ended because its hold was."""

    code: int
    lost: bool = False


class Interrupted(Exception):
    """A signal ended the wait for the hold; the client is closed."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.code = 128 + number


class Term:
    """From the wait for the hold to its end. Not used twice."""

    def __init__(self, inbox: Inbox, client: holdfast.Client, job: Job, running: Callable[[bool], None]) -> None:
        self._inbox = inbox
        self._client = client
        self._job = job
        self._running = running
        self._ward = Ward(inbox)
        self._pace = Pace(job.grace, 0.0)
        self._code: int | None = None
        self._refused: tuple[int, str] | None = None
        self._ended_at: float | None = None
        self._why_lost = ""
        self._kill_sent: float | None = None
        self._asked_to_end = False
        self._stopped_with_cmd = False
        self._spare: float | None = None
        self._stuck: list[int] = []
        self._over = False

    def wait(self, acquire: Callable[[], holdfast.Hold | None]) -> holdfast.Hold | None:
        """The hold, or None where it is not to be had at once. Raises what `acquire` does, Interrupted, or Stop."""
        self._inbox.ask(acquire)
        while True:
            news = self._inbox.get()
            if isinstance(news, Held):
                if news.error is not None:
                    raise news.error
                return news.hold
            if isinstance(news, Signalled) and news.number in ENDING:
                self.give_up(self._client.close, news.number)
                raise Interrupted(news.number)
            if isinstance(news, Signalled) and news.number in STOPPING:
                stop_here(news.number)
            if isinstance(news, Reported) and news.by is self._ward and not news.facts:
                self._ward.refuse_unfit()
                self._ward.close()
                self._ward = Ward(self._inbox)

    def run(self, hold: holdfast.Hold) -> Outcome:
        """CMD under the hold, to the end of both. The hold is given up. Raises Stop where no watchdog starts."""
        hold.on_change(lambda _state: self._inbox.put(Changed()))
        before = now()
        left = hold.remaining()
        deadline = before + left
        self._pace = Pace(self._job.grace, left)
        with _terminal_kept(lambda: bool(self._why_lost)):
            self._ward.start(
                self._job.command,
                environment(hold, deadline),
                deadline=deadline,
                grace=self._pace.grace,
                margin=self._pace.margin,
                ready_file=self._job.ready_file,
            )
            while not self._over:
                self._take(self._inbox.get(self._pace.look_after), hold)
                if not self._over:
                    self._tell_deadline(hold)
        self._running(False)
        self.give_up(hold.release, None)
        return self._outcome()

    @property
    def asked_to_end(self) -> bool:
        """Did somebody ask for more than the end of CMD? Also while the hold was being lost, or given up."""
        return self._asked_to_end

    def close(self) -> None:
        """Let the watchdog go. Idempotent."""
        self._ward.close()

    def give_up(self, call: Callable[[], object], interrupted_by: int | None) -> None:
        """Carry out a call that asks the store, at most as long as it takes or anybody is patient."""
        began = now()
        self._inbox.finish(call)
        while not isinstance(news := self._inbox.get(), Finished):
            if not (isinstance(news, Signalled) and news.number in ENDING):
                continue
            self._asked_to_end = True
            if now() > began + _PATIENCE_SECONDS:
                code = 128 + news.number if interrupted_by is None else 128 + interrupted_by
                os._exit(code)  # the lease ends what the store could not be told

    # While CMD runs.

    def _tell_deadline(self, hold: holdfast.Hold) -> None:
        """Read the clock first: a pause after it makes the deadline that is told too early, never too late."""
        before = now()
        left = hold.remaining()
        if left <= 0.0 and self._kill_sent is None:
            self._why_lost = self._why_lost or hold.reason or "it was given up"
            self._kill_sent = before
            self._running(False)
            self._ward.kill()
        elif left > 0.0 and self._pace.look(left):  # the watchdog takes no more deadlines once it has sent SIGTERM
            self._ward.move(before + left, self._pace.grace, self._pace.margin)
        late = self._kill_sent is not None and before > self._kill_sent + _BITE_SECONDS
        if late or before > self._ward.deadline - self._pace.margin / 2:
            self._take_over("the watchdog did not act in time")
        if self._ended_at is not None and before > self._ended_at + _LEFT_BEHIND_SECONDS:
            self._ended_at = None
            pids = " ".join(map(str, self._ward.below()))
            tell(
                f"{self._job.command[0]} has ended, what it started has not (pid {pids}): "
                f"{self._job.name!r} is kept until that ends"
            )

    def _take(self, news: object, hold: holdfast.Hold) -> None:
        if isinstance(news, Signalled):
            self._heard(news, hold)
        elif isinstance(news, Reported) and news.by is self._ward:
            self._reported(news)

    def _reported(self, news: Reported) -> None:
        facts = news.facts
        if "started" in facts:
            self._running(True)
        elif "failed" in facts:
            self._refused = (facts["failed"], facts["why"])
        elif "unready" in facts:
            tell(f"the readiness file can't be written: {facts['unready']}")
        elif "ending" in facts:
            self._why_lost = "no renewal was answered in time"
            self._running(False)
        elif "ended" in facts:
            self._code, self._ended_at = facts["ended"], now()
            self._running(False)
        elif "gone" in facts:
            self._spare, self._stuck, self._over = facts["spare"], facts["stuck"], True
        elif not facts:
            self._ward.refuse_unfit()
            self._take_over("the watchdog was killed")

    def _take_over(self, why: str) -> None:
        self._why_lost = self._why_lost or why
        self._stuck = self._ward.take_over()
        if self._job.ready_file is not None:  # a watchdog that was killed took nothing away, and others may lead now
            with contextlib.suppress(OSError):
                os.unlink(self._job.ready_file)
        self._spare = self._ward.deadline - now()
        self._over = True

    def _heard(self, news: Signalled, hold: holdfast.Hold) -> None:
        """The terminal's signals have reached CMD as well, and so have those that it sent to its own group."""
        elsewhere = not news.by_terminal and not self._ward.is_below(news.sender)
        if news.number in STOPPING:
            self._stopped_with_cmd = not elsewhere
            if elsewhere:
                self._ward.pass_on(news.number)
            tell(
                f"suspended: {self._job.name!r} is kept for {hold.remaining():.0f} s, then what runs under it is ended"
            )
            stop_here(news.number)
        elif self._job.drain is not None and news.number in _HANDING_OVER and not self._asked_to_end:
            self._asked_to_end = True
            self._running(False)
            self._ward.drain(self._job.drain)
        elif news.number == signal.SIGCONT and self._stopped_with_cmd:
            # The shell's, to all that its terminal had stopped. Passed on, it would come late: the terminal may have
            # stopped CMD once more by then, and CMD would go on in the background and take what the shell is told.
            self._stopped_with_cmd = False
        elif elsewhere:
            self._ward.pass_on(news.number)

    def _outcome(self) -> Outcome:
        program = self._job.command[0]
        if self._stuck:
            tell(
                f"{program}: could not be ended: pid {' '.join(map(str, self._stuck))}; not ours, or hung in the kernel"
            )
        if self._refused is not None:
            code, why = self._refused
            if code == Code.NO_PROGRAM and shutil.which(program) is not None:
                code, why = Code.NOT_EXECUTABLE, "the interpreter that its first line names is not there"
            tell(f"{program}: can't be executed: {why}")
            return Outcome(code)
        if self._why_lost:
            left = self._spare or 0.0
            when = f"{left:.2f} s before the end of what was proven"
            if left <= 0.0:  # none of the processes got to run before
                when = f"{-left:.2f} s after the end of what was proven: the next one may have started before"
            tell(f"the hold of {self._job.name!r} was lost: {self._why_lost}. {program} was ended, {when}")
            return Outcome(Code.LOST, lost=True)
        return Outcome(Code.LOST if self._code is None else self._code)


def environment(hold: holdfast.Hold, deadline: float) -> dict[str, str]:
    """What CMD is told. The deadline moves: this is the first one, and the watchdog adds a file with that of now."""
    told = {
        "HOLDFAST_NAME": hold.resource,
        "HOLDFAST_OWNER": hold.owner,
        "HOLDFAST_TOKEN": str(hold.token),
        "HOLDFAST_DEADLINE": f"{int(deadline * 1000) / 1000:.3f}",
        "HOLDFAST_FENCE": "",
    }
    with contextlib.suppress(InvalidFence):  # more seats are held together than a fence can name
        told["HOLDFAST_FENCE"] = str(hold.fence)
    return told


def refusal(command: Sequence[str]) -> Outcome | None:
    """Tell why this program can't be run, as far as is seen before anything is waited for; None where it can."""
    program = command[0]
    if shutil.which(program) is not None:
        return None
    if os.path.dirname(program) and os.path.exists(program):
        tell(f"{program}: can't be executed: it is no program, or not one that you may run")
        return Outcome(Code.NOT_EXECUTABLE)
    tell(f"{program or repr('')}: there is no such program")
    return Outcome(Code.NO_PROGRAM)


@contextmanager
def _terminal_kept(ended: Callable[[], bool]) -> Iterator[None]:
    """A program that was ended by us may not have put the terminal back as it was: its modes, and whose it is."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        yield
        return
    try:
        modes, front = termios.tcgetattr(terminal), os.tcgetpgrp(terminal)
        yield
        with contextlib.suppress(OSError, termios.error):  # the terminal has gone
            if ended() and front == os.getpgrp():
                os.tcsetpgrp(terminal, front)
                termios.tcsetattr(terminal, termios.TCSANOW, modes)
    finally:
        os.close(terminal)
