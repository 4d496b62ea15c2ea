"""`tenure demo`: what a hold is worth, shown with real processes, real signals and a real store.

Three workers stand in one election. Its leader is killed, stopped beyond its TTL and woken again, and asked to resign;
each time somebody else takes over, and the ledger they write to refuses the one that was asleep. Every figure is
measured, every promise checked.

Top down: `play` opens everything and ends it; `Story` is the scenes, with what they wait for and expect; `Ledger` is
the fenced resource; `DemoWorkers` are the processes (demo_worker.py); `DemoScreen` is the terminal.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, suppress
from typing import IO, Final, TextIO

import tenure
from tenure._core.base.options import ENVIRONMENT_VARIABLE
from tenure.cli.demo_worker import Kind, WorkerReport
from tenure.cli.embedded_etcd import find_etcd, running_etcd
from tenure.cli.terminal import Inbox, SignalReceived
from tenure.errors import StoreError

CANDIDATES: Final = ("anna", "bela", "cleo")
_TTL_SECONDS_MAX: Final = 60.0
_START_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 10.0
"""Limit for anything that needs no lease to run out."""
_AFTER_TTL_SECONDS: Final = 5.0
"""Allowance for a late take-over: etcd looks for expired leases twice a second, ZooKeeper once a tick."""
_LEAVE_SECONDS: Final = 3.0
_REDRAW_SECONDS: Final = 0.1
_WIDTH_MAX: Final = 110
_INDENT: Final = 10
_WHO: Final = 7
_QUIET, _STRONG, _STATUS, _GOOD, _BAD = "2", "1", "33", "1;32", "1;31"  # as terminals number styles
_STYLES: Final = {"elected": _GOOD, "wrote": _QUIET, "remark": _QUIET, "refused": _BAD, "lost": _BAD}
_COLOURS: Final = ("1", "36", "35", "34", "33", "96")
_ERASE_LINE: Final = "\r\x1b[2K"

Painted = str | tuple[str, str]
"""A text, with its style."""


class Unmet(Exception):
    """The story can't go on: what it needs did not happen in time, or happened by itself."""


class WorkerFailed(StoreError):
    """A worker process could not go on; the message is its own error's."""


def play(*, url: str | None, ttl: float, lines: int) -> int:
    """Play the whole story, and leave nothing behind; the exit code. Raises TenureError.

    A leader writes `lines` lines before the next thing happens to it: the reader's time.
    """
    if url is not None and url.startswith("memory:"):
        raise tenure.InvalidURL(
            "the demo's workers are processes of their own and can't share a memory:// store; leave --url out for an "
            "etcd that the demo starts itself, or name an etcd:// or zookeeper:// store"
        )
    if not 0 < ttl <= _TTL_SECONDS_MAX:
        raise tenure.InvalidOption(
            f"the demo waits for the TTL twice: --ttl is above 0 and at most {_TTL_SECONDS_MAX:g} seconds, not {ttl:g}"
        )
    story = Story(ttl, lines)
    with story.inbox.with_signals():
        try:
            with ExitStack() as undo:
                return story.play(url, undo)
        except SignalReceived as stop:
            return stop.code


class Story:
    """The scenes. Each gives one cue, waits for what should follow and writes down how long it took.

    Reports are shown in the order they arrive, whoever waits for what; a scene finds what it waits for in the history
    from its cue on, so nothing can come too early for it.
    """

    def __init__(self, ttl: float, lines: int) -> None:
        self.inbox: Inbox[WorkerReport] = Inbox()
        self._ttl, self._lines = ttl, lines
        self._screen = DemoScreen(sys.stdout)
        self._ledger = Ledger()
        self._workers: DemoWorkers
        self._history: list[WorkerReport] = []
        self._cue = 0
        self._figures: list[tuple[str, str, str]] = []
        self._unmet: list[str] = []
        self._killed = ""

    def play(self, url: str | None, undo: ExitStack) -> int:
        """Play all scenes and the summary; the exit code. What has to be undone is put on `undo` at once."""
        undo.callback(self._screen.clear)
        self._open(url, undo)
        try:
            self._scenes()
        except Unmet as unmet:
            self._expect(False, str(unmet))
        names, figures = (max((len(row[i]) for row in self._figures), default=0) + 3 for i in (0, 1))
        self._screen.title("What was measured")
        for name, figure, meaning in self._figures:
            self._screen.line("  " + name.ljust(names), (figure.ljust(figures), _STRONG), meaning)
        if self._unmet:
            self._screen.title(f"Not as promised: {'; '.join(self._unmet)}.", _BAD)
        else:
            self._screen.title(f"Every promise held, in {self._screen.elapsed:.1f} s.", _GOOD)
        return 1 if self._unmet else 0

    def _open(self, url: str | None, undo: ExitStack) -> None:
        """Open the store, with an observer of the election in it, and start no worker yet."""
        election = "ledger-keeper"
        if url is None:
            program = find_etcd()
            self._screen.say("demo", "starts an etcd of its own")
            etcd = undo.enter_context(running_etcd(program, self.inbox.take))
            self._screen.say("demo", f"etcd {etcd.version} answers (pid {etcd.pid})")
            url = etcd.url
        else:
            election += f"-{secrets.token_hex(4)}"  # others may play it there too
        client = undo.enter_context(tenure.connect(url, owner="demo", ttl=self._ttl))
        observed = (client.election(election), self.inbox)
        threading.Thread(target=_observe, args=observed, name="demo-observer", daemon=True).start()
        self._workers = DemoWorkers(self.inbox, self._ledger, url, election, self._ttl)
        undo.callback(self._workers.close)

    def _scenes(self) -> None:
        self._wait("the store answers", "leader", seconds=_START_SECONDS)
        first = self._elect()
        self._heading(
            "2. The leader is killed",
            f"SIGKILL: {first.who} can tell nobody. The store counts its lease down from the last renewal it heard.",
        )
        self._killed = first.who
        second = self._take_over(first, signal.SIGKILL, "a dead leader costs about its TTL")
        self._heading(
            "3. The leader is stopped for longer than its TTL",
            f"SIGSTOP, like a suspended machine or an endless pause: {second.who} doesn't know that time goes by.",
        )
        third = self._take_over(second, signal.SIGSTOP, "and so does one that only sleeps")
        self._wake(second, third)
        fourth = self._resign(third)
        self._audit(first, second, third, fourth)

    def _elect(self) -> WorkerReport:
        self._heading(
            "1. Three candidates, one leader",
            "Three processes stand in one election. The first in the store's line leads; its token is its place in "
            "that line. Whoever leads writes to a ledger, and shows its token with every line.",
        )
        pids = [f"{name} (pid {self._workers.start(name)})" for name in CANDIDATES]
        self._screen.say("demo", f"starts {', '.join(pids)}")
        for name in CANDIDATES:
            self._wait(f"{name} stands in line", "in line", who=name, seconds=_START_SECONDS)
        leader = self._wait("somebody leads", "elected")
        self._figure("TTL asked, granted", f"{self._ttl:g} s, {leader.ttl:g} s", "how long silence is taken for life")
        self._in_office(leader)
        return leader

    def _take_over(self, leader: WorkerReport, number: signal.Signals, meaning: str) -> WorkerReport:
        """The leader can't give anything up; its lease has to run out."""
        last = next(r for r in reversed(self._history) if r.kind == "wrote" and r.who == leader.who)
        at = self._workers.signal(leader.who, number)
        self._screen.say("demo", f"sends {leader.who} a {number.name}", _BAD)
        new = self._wait("somebody leads", "elected", seconds=leader.ttl + _AFTER_TTL_SECONDS)
        took = new.at - at
        spare = new.at - (last.at + last.remaining)
        self._screen.say(
            "demo",
            f"{new.who} took over {took:.2f} s after the {number.name}, {spare:.2f} s after the end of "
            f"{leader.who}'s hold as last told; TTL {leader.ttl:g} s",
            _GOOD,
        )
        self._expect(spare >= 0, f"{leader.who}'s hold runs out before {new.who} leads")
        self._figure(f"take-over after {number.name}", f"{took:.2f} s", meaning)
        self._in_office(new)
        return new

    def _wake(self, old: WorkerReport, new: WorkerReport) -> None:
        """The old leader finds out by its own clock, and the ledger refuses it in any case."""
        self._heading(
            "4. The stopped one wakes, and believes that it leads",
            f"Nobody has told {old.who}. It checks its hold, which asks nobody but the clock. Then it does what a "
            "worker without that check would do: it writes with its old token.",
        )
        self._workers.signal(old.who, signal.SIGCONT)
        self._screen.say("demo", f"continues {old.who} (SIGCONT)")
        lost = self._wait(f"{old.who} finds its hold lost", "lost", who=old.who)
        self._expect(lost.remaining == 0.0, f"{old.who}'s hold has nothing left once it is lost")
        begun, self._cue = self._cue, self._history.index(lost)
        what = f"{old.who} writes with its old token"
        self._judge(old, new, self._wait(what, "refused", "wrote", who=old.who))
        self._wait(f"{old.who} stands in line again", "in line", who=old.who)
        self._cue = begun
        self._writes(new)

    def _judge(self, old: WorkerReport, new: WorkerReport, outcome: WorkerReport) -> None:
        """The worker's word and the ledger's own book must both say refused."""
        in_book = any(line[:2] == (old.who, old.token) and line[2] >= new.token for line in list(self._ledger.refused))
        by_word = outcome.kind == "refused" and outcome.token == old.token < new.token <= outcome.highest
        refused = by_word and in_book
        self._expect(refused, f"the ledger refuses token {old.token} after token {new.token}")
        figure = f"{old.token} after {new.token}, {'refused' if refused else 'ACCEPTED'}"
        self._figure("token of the woken leader", figure, "the ledger is safe whatever a worker believes")

    def _resign(self, leader: WorkerReport) -> WorkerReport:
        """A clean hand-over: no time-out has a part in it."""
        self._heading(
            "5. The leader resigns",
            f"{leader.who} gives its hold up. The next in line is waiting for just that, so no TTL has to pass.",
        )
        self._workers.order(leader.who, "resign")
        resigning = self._wait(f"{leader.who} resigns", "resigning", who=leader.who)
        new = self._wait("somebody leads", "elected")
        took = f"{(new.at - resigning.at) * 1000:.1f} ms"
        self._screen.say("demo", f"hand-over from {leader.who} to {new.who}: {took}", _GOOD)
        self._expect(new.at - resigning.at < leader.ttl / 2, "a hand-over does not wait for a lease to run out")
        self._figure("hand-over after resigning", took, "who leaves in order keeps nobody waiting")
        self._in_office(new)
        self._wait(f"{leader.who} stands in line again", "in line", who=leader.who)
        return new

    def _audit(self, *leaders: WorkerReport) -> None:
        """Read the whole ledger: who wrote what, in which order."""
        tokens = [leader.token for leader in leaders]
        lines = list(self._ledger.taken)
        growing = all(older < newer for older, newer in itertools.pairwise(tokens))
        self._expect(growing, "every leader has a higher token than the one before it")
        in_order = all(older <= newer for (_, older), (_, newer) in itertools.pairwise(lines))
        self._expect(in_order, "no line of an older token stands behind one of a newer token")
        one_each = set(lines) == {(leader.who, leader.token) for leader in leaders}
        self._expect(one_each, "each token stands for one leader in the ledger")
        figure = f"{len(lines)} lines, {'in order' if growing and in_order and one_each else 'OUT OF ORDER'}"
        self._figure("ledger", figure, f"tokens {' < '.join(map(str, tokens))}, one leader each")

    # Waiting and expecting.

    def _heading(self, title: str, text: str) -> None:
        self._screen.heading(title, text)
        self._cue = len(self._history)

    def _in_office(self, leader: WorkerReport) -> None:
        """The store agrees, and the leader does its work for a while."""
        self._wait(f"the store names {leader.who} the leader", "leader", who=leader.who, token=leader.token)
        self._writes(leader)

    def _writes(self, leader: WorkerReport) -> None:
        what = f"{leader.who} has written {self._lines} lines"
        self._wait(what, "wrote", who=leader.who, token=leader.token, count=self._lines)

    def _wait(
        self, what: str, *kinds: Kind, who: str = "", token: int = 0, seconds: float = _ANSWER_SECONDS, count: int = 1
    ) -> WorkerReport:
        """The `count`th report since the cue that matches. Raises Unmet when it doesn't come."""
        began = time.monotonic()
        while True:
            since = self._history[self._cue :]
            found = [r for r in since if r.kind in kinds and who in ("", r.who) and token in (0, r.token)]
            if len(found) >= count:
                return found[count - 1]
            self._take(began, seconds, what)

    def _take(self, began: float, seconds: float, what: str) -> None:
        """Take one report in, showing on a living screen how long it has been."""
        while (report := self.inbox.take(min(_REDRAW_SECONDS, began + seconds - time.monotonic()))) is None:
            passed = time.monotonic() - began
            if passed >= seconds:
                raise Unmet(f"{what} did not happen within {seconds:.1f} s")
            self._screen.status(f"{passed:4.1f} s: waiting until {what}")
        if report.kind == "failed":
            raise WorkerFailed(f"{report.who} can't go on: {report.text}")
        self._history.append(report)
        if report.text:
            speaker = "store" if report.kind == "leader" else report.who
            self._screen.say(speaker, report.text, _STYLES.get(report.kind, ""))
        if report.kind == "ended" and report.who != self._killed:
            raise Unmet(f"{report.who} ended by itself")

    def _figure(self, name: str, figure: str, meaning: str) -> None:
        self._figures.append((name, figure, meaning))

    def _expect(self, held: bool, promise: str) -> None:
        """Write down that a promise was not kept; the story goes on."""
        if not held:
            self._unmet.append(promise)
            self._screen.say("demo", f"NOT AS PROMISED: {promise}", _BAD)


class Ledger:
    """The protected resource: a ledger that takes a line only with a token as high as any it has seen.

    That is the whole of fencing, and it is the ledger's own doing: it knows no election, no leader and no store. In
    your own system this is a column and a condition in the UPDATE, or an If-Match in the request.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()  # looking and writing are one step
        self.taken: list[tuple[str, int]] = []
        """Lines, in order: by whom, with which token."""
        self.refused: list[tuple[str, int, int]] = []
        """Refused lines, each with the highest token seen before it."""

    def write(self, who: str, token: int) -> tuple[bool, int]:
        """Take the line unless its token is older than one already seen: was it taken, and the highest before it."""
        with self._guard:
            highest = max((known for _, known in self.taken), default=0)
            if token < highest:
                self.refused.append((who, token, highest))
            else:
                self.taken.append((who, token))
        return token >= highest, highest


class DemoWorkers:
    """Worker processes by name. One thread for each reads its reports, and has the ledger answer what it writes."""

    def __init__(self, inbox: Inbox[WorkerReport], ledger: Ledger, url: str, election: str, ttl: float) -> None:
        self._inbox, self._ledger = inbox, ledger
        self._arguments = (election, repr(ttl), str(os.getpid()))
        self._environment = {**os.environ, ENVIRONMENT_VARIABLE: url}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def start(self, name: str) -> int:
        """Start one worker; its process id."""
        process = self._processes[name] = subprocess.Popen(
            [sys.executable, "-P", "-m", "tenure.cli.demo_worker", name, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C at the terminal is for the demo alone
        )
        reader = threading.Thread(target=self._read, args=(name, process.stdout), name=f"demo-{name}")
        self._readers.append(reader)
        reader.start()
        return process.pid

    def order(self, name: str, line: str) -> None:
        """Send a worker one line. To one that has gone it goes nowhere; that it has gone is reported."""
        stdin = self._processes[name].stdin
        with suppress(BrokenPipeError, ValueError):  # it has gone, or is asked to go
            stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]  # it is a pipe
            stdin.flush()  # type: ignore[union-attr]

    def signal(self, name: str, number: signal.Signals) -> float:
        """Send a worker a signal; when that was."""
        at = time.monotonic()
        self._processes[name].send_signal(number)
        return at

    def close(self) -> None:
        """Have all leave their line and go; kill what does not in time."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            with suppress(BrokenPipeError):  # it has gone already
                process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        until = time.monotonic() + _LEAVE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:  # its ticket ends with its lease
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            for report in (WorkerReport(*json.loads(line)) for line in pipe):
                self._inbox.put(report)
                if report.kind == "writing":
                    taken, highest = self._ledger.write(name, report.token)
                    if not taken:
                        refusal = f"REFUSES {name}'s token {report.token}: it has seen token {highest}"
                        self._inbox.put(WorkerReport("refused", "ledger", refusal, time.monotonic()))
                    self.order(name, f"{'wrote' if taken else 'refused'} {highest}")
        self._inbox.put(WorkerReport("ended", name, "is gone", time.monotonic()))


class DemoScreen:
    """The terminal. Plain and complete in a pipe or a file; with colours, and a line that lives, where somebody looks.

    Plain ASCII of our own, so that no terminal stumbles.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = time.monotonic()
        self._lives = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self._lives and "NO_COLOR" not in os.environ
        self._status_shown = False
        self._style_of = dict(zip(("demo", "store", "ledger", *CANDIDATES), _COLOURS, strict=True))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def title(self, text: str, style: str = _STRONG) -> None:
        """Write a line that stands out, below a blank one."""
        self.line()
        self.line((text, style))

    def heading(self, title: str, text: str) -> None:
        """Announce a scene: what is about to happen, and why."""
        self.title(title)
        for line in (*textwrap.wrap(text, self._width() - 2), ""):
            self.line("  " + line)

    def say(self, who: str, text: str, style: str = "") -> None:
        """Show an event, and to whom it happened, with the seconds since the start."""
        before: tuple[Painted, ...] = (f"{self.elapsed:6.2f} s  ", _QUIET), (who.ljust(_WHO), self._style_of[who])
        for line in textwrap.wrap(text, self._width() - _INDENT - _WHO):
            self.line(*before, (line, style))
            before = (" " * (_INDENT + _WHO),)

    def line(self, *parts: Painted) -> None:
        """Write a line of parts, some with a style."""
        self.clear()
        print("".join(map(self._paint, parts)).rstrip(), file=self._stream, flush=True)

    def status(self, text: str) -> None:
        """Show what is being waited for, in a line that the next one replaces. Not shown in a pipe."""
        if self._lives:
            clipped = (" " * _INDENT + text)[: self._width() - 1]
            print(_ERASE_LINE + self._paint((clipped, _STATUS)), end="", file=self._stream, flush=True)
            self._status_shown = True

    def clear(self) -> None:
        """Take the living line away."""
        if self._status_shown:
            print(_ERASE_LINE, end="", file=self._stream, flush=True)
            self._status_shown = False

    def _paint(self, part: Painted) -> str:
        text, style = (part, "") if isinstance(part, str) else part
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text

    def _width(self) -> int:
        return min(shutil.get_terminal_size((100, 24)).columns, _WIDTH_MAX)


def _observe(election: tenure.Election, inbox: Inbox[WorkerReport]) -> None:
    """Report whom the store names, until the client is closed."""
    try:
        for leader in election.observe():
            who, token = (leader.value, leader.token) if leader else ("", 0)
            named = f"names {who} the leader, token {token}" if leader else "names no leader"
            inbox.put(WorkerReport("leader", who, named, time.monotonic(), token))
    except tenure.TenureError as error:
        inbox.put(error)
