"""A term: wait for the hold, have CMD run under it, end CMD in time, and only then give the hold up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import tenure
from tenure.cli.codes import ExitCode
from tenure.cli.supervise.child import Child
from tenure.cli.supervise.inbox import (
    ENDING,
    STOPPING,
    AcquireEnded,
    Changed,
    Finished,
    Reported,
    Signalled,
    SupervisorInbox,
    stop_here,
)
from tenure.cli.supervise.watchdog import now
from tenure.cli.terminal import tell
from tenure.errors import InvalidFence

_LEFT_BEHIND_SECONDS: Final = 1.0
"""Seconds that processes left behind by CMD may run on before a line is written about them."""
_PATIENCE_SECONDS: Final = 1.0
"""A signal this long after the end began is somebody who does not want to wait for the store."""
_HANDING_OVER: Final = (signal.SIGTERM, signal.SIGINT)
_BITE_SECONDS: Final = 1.0
"""Limit for the watchdog to carry out a SIGKILL before tenure does it itself."""
_RENEWALS_SEEN: Final = 4
_MARGIN_MIN: Final = 0.1
_MARGIN_MAX: Final = 1.0
_NEWS: Final = 0.005
"""A deadline that moved by less has not moved: the clock was read twice."""


@dataclass(frozen=True, slots=True)
class Job:
    """The program to run, and how."""

    name: str
    command: tuple[str, ...]
    grace: float | None = None
    """Seconds kept for CMD's own ending before the deadline; None: as much as there may be, see `Pace`."""
    drain: float | None = None
    """SIGTERM and SIGINT give CMD this long to end; None: they are passed on, like any other."""
    at_least: float = 0.0
    """Seconds after the start that the hold is kept for, though CMD ended sooner."""
    ready_file: str | None = None
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class TermOutcome:
    """The end of a term, as an exit code. `lost`: CMD was ended because its hold was lost."""

    code: int
    lost: bool = False


class WaitInterrupted(Exception):
    """A signal ended the wait for the hold; the client is closed."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.code: int = 128 + number


class Term:
    """A term, from the wait for the hold to its end. Not used twice."""

    def __init__(
        self, inbox: SupervisorInbox, client: tenure.Client, job: Job, running: Callable[[bool], None]
    ) -> None:
        self._inbox = inbox
        self._client = client
        self._job = job
        self._running = running
        self._child = Child(inbox)
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

    def wait(self, acquire: Callable[[], tenure.Hold | None]) -> tenure.Hold | None:
        """Wait for the hold; None if not to be had at once. Raises as `acquire`, WaitInterrupted, CommandStopped."""
        self._inbox.ask(acquire)
        while True:
            news = self._inbox.get()
            if isinstance(news, AcquireEnded):
                if news.error is not None:
                    raise news.error
                return news.hold
            if isinstance(news, Signalled) and news.number in ENDING:
                self.give_up(self._client.close, news.number)
                raise WaitInterrupted(news.number)
            if isinstance(news, Signalled) and news.number in STOPPING:
                stop_here(news.number)
            if isinstance(news, Reported) and news.by is self._child and not news.facts:
                self._child.refuse_unfit()
                self._child.close()
                self._child = Child(self._inbox)

    def run(self, hold: tenure.Hold) -> TermOutcome:
        """Run CMD under the hold, to the end of both; give the hold up. Raises CommandStopped if no watchdog starts."""
        hold.on_change(lambda _state: self._inbox.put(Changed()))
        before = now()
        left = hold.remaining()
        deadline = before + left
        self._pace = Pace(self._job.grace, left)
        with _terminal_kept(lambda: bool(self._why_lost)):
            self._child.start(
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
        if self._refused is None and not self._why_lost and not self._asked_to_end:
            self._keep(hold, before + self._job.at_least)
        self.give_up(hold.release, None)
        return self._outcome()

    @property
    def asked_to_end(self) -> bool:
        """True when somebody asked for more than the end of CMD, also while the hold was being lost, or given up."""
        return self._asked_to_end

    def close(self) -> None:
        """Let the watchdog go. Idempotent."""
        self._child.close()

    def give_up(self, call: Callable[[], object], interrupted_by: int | None) -> None:
        """Carry out a call that asks the store; a signal of somebody who does not want to wait ends this process."""
        began = now()
        self._inbox.finish(call)
        while not isinstance(news := self._inbox.get(), Finished):
            if not (isinstance(news, Signalled) and news.number in ENDING):
                continue
            self._asked_to_end = True
            if now() > began + _PATIENCE_SECONDS:
                code = 128 + news.number if interrupted_by is None else 128 + interrupted_by
                os._exit(code)  # the lease ends what the store could not be told

    def _keep(self, hold: tenure.Hold, until: float) -> None:
        """Keep the hold until then, after CMD's end. A signal that asks to end gives it up at once."""
        if self._job.verbose and until > now():
            tell(f"{self._job.command[0]} has ended; {self._job.name!r} is kept for {until - now():.0f} s more")
        while (left := min(until - now(), hold.remaining())) > 0.0:
            news = self._inbox.get(left)
            if isinstance(news, Signalled) and news.number in ENDING:
                return
            if isinstance(news, Signalled) and news.number in STOPPING:
                stop_here(news.number)
        if until > now():
            tell(f"the hold of {self._job.name!r} was lost {until - now():.0f} s before --at-least was over")

    # While CMD runs.

    def _tell_deadline(self, hold: tenure.Hold) -> None:
        """Read the clock first: a pause after it makes the deadline that is told too early, never too late."""
        before = now()
        left = hold.remaining()
        if left <= 0.0 and self._kill_sent is None:
            self._why_lost = self._why_lost or hold.reason or "it was given up"
            self._kill_sent = before
            self._running(False)
            self._child.kill()
        elif left > 0.0 and self._pace.look(left):  # the watchdog takes no more deadlines once it has sent SIGTERM
            self._child.move(before + left, self._pace.grace, self._pace.margin)
        late = self._kill_sent is not None and before > self._kill_sent + _BITE_SECONDS
        if late or before > self._child.deadline - self._pace.margin / 2:
            self._take_over("the watchdog did not act in time")
        if self._ended_at is not None and before > self._ended_at + _LEFT_BEHIND_SECONDS:
            self._ended_at = None
            pids = " ".join(map(str, self._child.below()))
            tell(
                f"{self._job.command[0]} has ended, what it started has not (pid {pids}): "
                f"{self._job.name!r} is kept until that ends"
            )

    def _take(self, news: object, hold: tenure.Hold) -> None:
        if isinstance(news, Signalled):
            self._heard(news, hold)
        elif isinstance(news, Reported) and news.by is self._child:
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
            self._child.refuse_unfit()
            self._take_over("the watchdog was killed")

    def _take_over(self, why: str) -> None:
        self._why_lost = self._why_lost or why
        self._stuck = self._child.take_over()
        if self._job.ready_file is not None:  # a watchdog that was killed took nothing away, and others may lead now
            with contextlib.suppress(OSError):
                os.unlink(self._job.ready_file)
        self._spare = self._child.deadline - now()
        self._over = True

    def _heard(self, news: Signalled, hold: tenure.Hold) -> None:
        """Act on a signal. The terminal's have reached CMD as well, and so have those of CMD to its own group."""
        elsewhere = not news.by_terminal and not self._child.is_below(news.sender)
        first = news.number in _HANDING_OVER and not self._asked_to_end
        self._asked_to_end |= first
        if news.number in STOPPING:
            self._stopped_with_cmd = not elsewhere
            if elsewhere:
                self._child.pass_on(news.number)
            tell(
                f"suspended: {self._job.name!r} is kept for {hold.remaining():.0f} s, then what runs under it is ended"
            )
            stop_here(news.number)
        elif first and self._job.drain is not None:
            self._running(False)
            self._child.drain(self._job.drain)
        elif news.number == signal.SIGCONT and self._stopped_with_cmd:
            # The shell's, to all that its terminal had stopped. Passed on, it would come late: the terminal may have
            # stopped CMD once more by then, and CMD would go on in the background and take what the shell is told.
            self._stopped_with_cmd = False
        elif elsewhere:
            self._child.pass_on(news.number)

    def _outcome(self) -> TermOutcome:
        program = self._job.command[0]
        if self._stuck:
            tell(
                f"{program}: could not be ended: pid {' '.join(map(str, self._stuck))}; not ours, or hung in the kernel"
            )
        if self._refused is not None:
            code, why = self._refused
            if code == ExitCode.NO_PROGRAM and shutil.which(program) is not None:
                code, why = ExitCode.NOT_EXECUTABLE, "the interpreter that its first line names is not there"
            tell(f"{program}: can't be executed: {why}")
            return TermOutcome(code)
        if self._why_lost:
            left = self._spare or 0.0
            when = f"{left:.2f} s before the end of what was proven"
            if left <= 0.0:  # none of the processes got to run before
                when = f"{-left:.2f} s after the end of what was proven: the next one may have started before"
            tell(f"the hold of {self._job.name!r} was lost: {self._why_lost}. {program} was ended, {when}")
            return TermOutcome(ExitCode.LOST, lost=True)
        return TermOutcome(ExitCode.LOST if self._code is None else self._code)


class Pace:
    """Time kept before the deadline: for SIGTERM to have its effect, and for SIGKILL to come in time.

    A renewal that has yet to come is no reason to end CMD, so what is kept must be less than what is left when renewals
    come at their usual pace. The time to live does not tell: what one renewal proves differs from store to store. So
    the pace is observed: half of the smallest time that was left when one of the last renewals came.

    It begins with the first `left` seconds of one hold. `grace` is as asked for; None: all there may be.
    """

    def __init__(self, grace: float | None, left: float) -> None:
        self._asked = grace
        self._left = self._maximum = left
        self._floors = deque([left / 3] * _RENEWALS_SEEN, maxlen=_RENEWALS_SEEN)

    def look(self, left: float) -> bool:
        """Take in the seconds left now. True: a renewal came since the last look."""
        renewed = left > self._left + _NEWS
        if renewed:
            self._floors.append(self._left)
            self._maximum = max(self._maximum, left)
        self._left = left
        return renewed

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which SIGKILL is sent: what the machine may take to carry it out."""
        return min(max(self._maximum / 10, _MARGIN_MIN), _MARGIN_MAX, self._maximum / 4)

    @property
    def grace(self) -> float:
        """Seconds before the deadline at which SIGTERM is sent."""
        maximum = min(self._floors) / 2
        return max(self.margin, maximum if self._asked is None else min(self._asked, maximum))

    @property
    def look_after(self) -> float:
        """Seconds until the next look: a renewal is no event."""
        return min(max(self._maximum / 20, 0.02), 1.0)


def environment(hold: tenure.Hold, deadline: float) -> dict[str, str]:
    """Environment variables for CMD. The deadline moves: this is the first; the watchdog adds a file with the last."""
    variables = {
        "TENURE_NAME": hold.resource,
        "TENURE_OWNER": hold.owner,
        "TENURE_TOKEN": str(hold.token),
        "TENURE_DEADLINE": f"{int(deadline * 1000) / 1000:.3f}",
        "TENURE_FENCE": "",
    }
    with contextlib.suppress(InvalidFence):  # more seats are held together than a fence can name
        variables["TENURE_FENCE"] = str(hold.fence)
    return variables


def refusal(command: Sequence[str]) -> TermOutcome | None:
    """Say why this program can't be run, as far as is seen before anything is waited for; None where it can."""
    program = command[0]
    if shutil.which(program) is not None:
        return None
    if os.path.dirname(program) and os.path.exists(program):
        tell(f"{program}: can't be executed: it is no program, or not one that you may run")
        return TermOutcome(ExitCode.NOT_EXECUTABLE)
    tell(f"{program or repr('')}: there is no such program")
    return TermOutcome(ExitCode.NO_PROGRAM)


@contextmanager
def _terminal_kept(ended: Callable[[], bool]) -> Iterator[None]:
    """Put the terminal back as it was, its modes and its owner: a program that we ended may not have."""
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
