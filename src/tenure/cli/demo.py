"""`tenure demo`: what a hold is worth, shown with real processes, real signals and a real store.

Three workers stand in one election. Its leader is killed, stopped beyond its TTL and woken again, and asked to resign;
each time somebody else takes over, and the ledger they write to refuses the one that was asleep. Every figure is
measured, every promise checked.

Top down: `play` opens everything and ends it; `Story` is the scenes, and what they wait for; `Ledger` is the fenced
resource; `work` is what each worker does, in a process that is forked before this one has any thread.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import textwrap
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple, Never

import tenure
from tenure.cli.embedded_etcd import die_with, find_etcd, running_etcd
from tenure.cli.terminal import Inbox, SignalReceived

CANDIDATES: Final = ("anna", "bela", "cleo")
_ANSWER_SECONDS: Final = 20.0
"""Limit for anything that needs no lease to run out."""
_AFTER_TTL_SECONDS: Final = 5.0
"""Allowance for a late take-over: etcd looks for expired leases twice a second, ZooKeeper once a tick."""
_LEAVE_SECONDS: Final = 3.0
_BEAT_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1
_WIDTH_MAX: Final = 110
_QUIET, _STRONG, _GOOD, _BAD = "2", "1", "1;32", "1;31"  # as terminals number styles
_STYLES: Final = {"elected": _GOOD, "wrote": _QUIET, "remark": _QUIET, "lost": _BAD}
_FORK: Final = multiprocessing.get_context("fork")


class Report(NamedTuple):
    """An event, and its sentence for the reader, if any. `at` is time.monotonic(), one clock for all processes."""

    kind: str
    who: str
    text: str
    at: float
    token: int = 0
    left: float = 0.0
    ttl: float = 0.0


class Unmet(Exception):
    """The story can't go on: what it needs did not happen in time, or happened by itself."""


def play(*, url: str | None, ttl: float, lines: int) -> int:
    """Play the whole story, and leave nothing behind; the exit code. Raises TenureError.

    A leader writes `lines` lines before the next thing happens to it: the reader's time.
    """
    if url is not None and url.startswith("memory:"):
        raise tenure.InvalidURL(
            "the demo's workers are processes of their own and can't share a memory:// store; leave --url out for an "
            "etcd that the demo starts itself, or name an etcd:// or zookeeper:// store"
        )
    story = Story(ttl, lines)
    with story.inbox.with_signals():
        try:
            with ExitStack() as undo:
                return story.play(url, undo)
        except SignalReceived as stop:
            return stop.code


class Story:
    """The scenes. Each gives one cue, waits for what should follow and writes down how long it took."""

    def __init__(self, ttl: float, lines: int) -> None:
        self.inbox: Inbox[Never] = Inbox()
        self._ttl, self._lines = ttl, lines
        self._ledger = Ledger()
        self._processes: dict[str, Any] = {}  # Any: the class of a process that is forked has no public name
        self._pipes: dict[str, Connection] = {}
        self._heard: list[Report] = []
        self._wrote: dict[str, Report] = {}
        self._summary: list[str] = []
        self._unmet: list[str] = []
        self._killed = self._resigns = ""
        self._started = time.monotonic()
        self._colours = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        self._width = min(shutil.get_terminal_size((100, 24)).columns, _WIDTH_MAX)

    def play(self, url: str | None, undo: ExitStack) -> int:
        """Play all scenes and the summary; the exit code. What has to be undone is put on `undo` at once."""
        election = "ledger-keeper"
        if url is None:
            program = find_etcd()
            self._say("demo", "starts an etcd of its own")
            etcd = undo.enter_context(running_etcd(program, self.inbox.take))
            self._say("demo", f"etcd {etcd.version} answers (pid {etcd.pid})")
            url = etcd.url
        else:
            election += f"-{secrets.token_hex(4)}"  # others may play it there too
        undo.callback(self._end_workers)
        for name in CANDIDATES:
            self._pipes[name], theirs = _FORK.Pipe()
            arguments = (name, election, url, self._ttl, os.getpid(), theirs)
            self._processes[name] = _FORK.Process(target=work, args=arguments)
            self._processes[name].start()
            theirs.close()
        try:
            for _ in CANDIDATES:
                self._wait("ready")
            with tenure.connect(url, owner="demo", ttl=self._ttl) as client:
                self._scenes(client.election(election))
        except Unmet as unmet:
            self._expect(False, str(unmet))
        self._print("\nWhat was measured", _STRONG)
        self._print("\n".join(self._summary))
        if self._unmet:
            self._print(f"\nNot as promised: {'; '.join(self._unmet)}.", _BAD)
            return 1
        self._print(f"\nEvery promise held, in {time.monotonic() - self._started:.1f} s.", _GOOD)
        return 0

    def _scenes(self, election: tenure.Election) -> None:
        self._heading(
            "1. Three candidates, one leader",
            "Three processes stand in one election. The first in the store's line leads; its token is its place in "
            "that line. Whoever leads writes to a ledger, and shows its token with every line.",
        )
        self._say("demo", f"starts {', '.join(f'{name} (pid {p.pid})' for name, p in self._processes.items())}")
        for pipe in self._pipes.values():
            pipe.send(None)
        first = self._elected(election)
        self._figure("TTL asked, granted", f"{self._ttl:g} s, {first.ttl:g} s", "how long silence is taken for life")

        self._heading(
            "2. The leader is killed",
            f"SIGKILL: {first.who} can tell nobody. The store counts its lease down from the last renewal it heard.",
        )
        self._killed = first.who
        second = self._take_over(first, election, signal.SIGKILL, "a dead leader costs about its TTL")

        self._heading(
            "3. The leader is stopped for longer than its TTL",
            f"SIGSTOP, like a suspended machine or an endless pause: {second.who} doesn't know that time goes by.",
        )
        third = self._take_over(second, election, signal.SIGSTOP, "and so does one that only sleeps")

        self._heading(
            "4. The stopped one wakes, and believes that it leads",
            f"Nobody has told {second.who}. It checks its hold, which asks nobody but the clock. Then it does what a "
            "worker without that check would do: it writes with its old token.",
        )
        self._signal(second.who, signal.SIGCONT, "continues {} (SIGCONT)")
        lost = self._wait("lost", who=second.who)
        self._expect(lost.left == 0.0, f"{second.who}'s hold has nothing left once it is lost")
        written = self._wait("wrote", "refused", who=second.who)
        refused = written.kind == "refused" and written.token == second.token < third.token
        self._expect(refused, f"the ledger refuses token {second.token} after token {third.token}")
        figure = f"{second.token} after {third.token}, {'refused' if refused else 'ACCEPTED'}"
        self._figure("token of the woken leader", figure, "the ledger is safe whatever a worker believes")
        self._wait("in line", who=second.who)

        self._heading(
            "5. The leader resigns",
            f"{third.who} gives its hold up. The next in line is waiting for just that, so no TTL has to pass.",
        )
        self._resigns = third.who
        resigning = self._wait("resigning")
        fourth = self._elected(election)
        seconds = fourth.at - resigning.at
        self._say("demo", f"hand-over from {third.who} to {fourth.who}: {seconds * 1000:.1f} ms", _GOOD)
        self._expect(seconds < third.ttl / 2, "a hand-over does not wait for a lease to run out")
        self._figure(
            "hand-over after resigning", f"{seconds * 1000:.1f} ms", "who leaves in order keeps nobody waiting"
        )

        leaders = [(leader.token, leader.who) for leader in (first, second, third, fourth)]
        lines = [(token, who) for who, token in self._ledger.taken]
        in_order = lines == sorted(lines) and sorted(set(lines)) == leaders
        self._expect(
            in_order, "the ledger has the lines of four leaders, one after the other, in the order of their tokens"
        )
        tokens = " < ".join(str(token) for token, _ in leaders)
        figure = f"{len(lines)} lines, {'in order' if in_order else 'OUT OF ORDER'}"
        self._figure("ledger", figure, f"tokens {tokens}, one leader each")

    def _elected(self, election: tenure.Election, seconds: float = _ANSWER_SECONDS) -> Report:
        """Wait until somebody leads. The store agrees, and the leader does its work for a while."""
        new = self._wait("elected", seconds=seconds)
        named = election.leader()
        self._say("store", f"names {named.value} the leader, token {named.token}" if named else "names no leader")
        agrees = named is not None and (named.value, named.token) == (new.who, new.token)
        self._expect(agrees, f"the store names {new.who} the leader")
        for _ in range(self._lines):
            self._wait("wrote", who=new.who)
        return new

    def _take_over(self, old: Report, election: tenure.Election, number: signal.Signals, meaning: str) -> Report:
        """Somebody leads after a leader that can't give anything up: its lease has to run out."""
        at = self._signal(old.who, number, f"sends {{}} a {number.name}")
        new = self._elected(election, old.ttl + _AFTER_TTL_SECONDS)
        spare = new.at - (self._wrote[old.who].at + self._wrote[old.who].left)
        self._say(
            "demo",
            f"{new.who} took over {new.at - at:.2f} s after the {number.name}, {spare:.2f} s after the end of "
            f"{old.who}'s hold as last told; TTL {old.ttl:g} s",
            _GOOD,
        )
        self._expect(spare >= 0, f"{old.who}'s hold runs out before {new.who} leads")
        self._figure(f"take-over after {number.name}", f"{new.at - at:.2f} s", meaning)
        return new

    # The workers.

    def _signal(self, name: str, number: signal.Signals, text: str) -> float:
        """Send it; when that was."""
        at = time.monotonic()
        os.kill(self._processes[name].pid, number)
        self._say("demo", text.format(name), _BAD)
        return at

    def _end_workers(self) -> None:
        """Have all leave their line and go; kill what does not in time."""
        for process in filter(lambda each: each.is_alive(), self._processes.values()):
            process.terminate()
            os.kill(process.pid, signal.SIGCONT)
        until = time.monotonic() + _LEAVE_SECONDS
        for process in self._processes.values():
            process.join(max(0.0, until - time.monotonic()))
            process.kill()  # its ticket ends with its lease
            process.join()

    def _wait(self, *kinds: str, who: str = "", seconds: float = _ANSWER_SECONDS) -> Report:
        """The next report that matches; those before it are shown and forgotten. Raises Unmet when none comes."""
        until = time.monotonic() + seconds
        while self._heard or time.monotonic() < until:
            while self._heard:
                report = self._take(self._heard.pop(0))
                if report.kind in kinds and who in ("", report.who):
                    return report
            self.inbox.take(0.0)
            ready = wait(self._pipes.values(), _LOOK_SECONDS)
            for name in [name for name, pipe in self._pipes.items() if pipe in ready]:
                try:
                    heard = self._pipes[name].recv()
                except (EOFError, OSError):
                    del self._pipes[name]
                    heard = Report("gone", name, "is gone", time.monotonic())
                if isinstance(heard, tenure.TenureError):
                    raise heard  # it can't go on
                self._heard.append(heard)
            self._heard.sort(key=lambda report: report.at)
        raise Unmet(f"{who or 'anybody'} {' or '.join(kinds)} within {seconds:g} s")

    def _take(self, report: Report) -> Report:
        """Show it, and have the ledger answer what is written."""
        if report.kind == "writing":
            taken, highest = self._ledger.write(report.who, report.token)
            text = f"writes with token {report.token}, the ledger takes it; {report.left:.1f} s left" if taken else ""
            if not taken:
                self._say("ledger", f"REFUSES {report.who}'s token {report.token}: it has seen token {highest}", _BAD)
            report = report._replace(kind="wrote" if taken else "refused", text=text)
            self._wrote[report.who] = report
            with suppress(OSError, KeyError):  # it has been killed
                self._pipes[report.who].send(report.who == self._resigns)
        if report.text:
            self._say(report.who, report.text, _STYLES.get(report.kind, ""))
        if report.kind == "gone" and report.who != self._killed:
            raise Unmet(f"{report.who} ended by itself")
        return report

    # The screen: plain and complete in a pipe or a file, with colours where somebody looks.

    def _heading(self, title: str, text: str) -> None:
        self._print(f"\n{title}", _STRONG)
        self._print(textwrap.indent(textwrap.fill(text, self._width - 2), "  ") + "\n")

    def _say(self, who: str, text: str, style: str = "") -> None:
        line = f"{time.monotonic() - self._started:6.2f} s  {who:7}{text}"
        shown = textwrap.fill(line, self._width, subsequent_indent=" " * 17)
        self._print(shown[:10] + self._painted(shown[10:17], _STRONG) + self._painted(shown[17:], style))

    def _figure(self, name: str, figure: str, meaning: str) -> None:
        self._summary.append(f"  {name:28}{figure:21}{meaning}")

    def _expect(self, held: bool, promise: str) -> None:
        """Write down that a promise was not kept; the story goes on."""
        if not held:
            self._unmet.append(promise)
            self._say("demo", f"NOT AS PROMISED: {promise}", _BAD)

    def _print(self, text: str, style: str = "") -> None:
        print(self._painted(text, style), flush=True)

    def _painted(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text


class Ledger:
    """The protected resource: a ledger that takes a line only with a token as high as any it has seen.

    That is the whole of fencing, and it is the ledger's own doing: it knows no election, no leader and no store. In
    your own system this is a column and a condition in the UPDATE, or an If-Match in the request.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        """Lines, in order: by whom, with which token."""

    def write(self, who: str, token: int) -> tuple[bool, int]:
        """Take the line unless its token is older than one already seen: was it taken, and the highest before it."""
        highest = max((known for _, known in self.taken), default=0)
        if token >= highest:
            self.taken.append((who, token))
        return token >= highest, highest


def work(name: str, election: str, url: str, ttl: float, parent: int, pipe: Connection) -> None:
    """Campaign, write to the ledger while leading, resign or lose, and campaign again, until SIGTERM."""
    os.setsid()  # a Ctrl-C at the terminal is for the demo alone
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tenure.on_sigterm()

    def report(kind: str, hold: tenure.Hold, text: str = "") -> None:
        """Tell the demo, with the seconds that are left of the hold for LEFT."""
        at = time.monotonic()  # before remaining(): the end computed from both must not come out too late
        left = hold.remaining()
        pipe.send(Report(kind, name, text.replace("LEFT", f"{left:.1f} s"), at, hold.token, left, hold.ttl))

    def write(hold: tenure.Hold) -> bool:
        """Write a line; true where this one shall resign."""
        report("writing", hold)
        return bool(pipe.recv())

    def lead(hold: tenure.Hold) -> None:
        report("elected", hold, f"LEADS with token {hold.token}; TTL granted {hold.ttl:g} s, LEFT of it left")
        try:
            hold.check()
            while not write(hold):
                hold.lost.wait(_BEAT_SECONDS)
                hold.check()
        except tenure.LeaseLost as error:
            report("lost", hold, "its first check() raises LeaseLost; remaining() is LEFT")
            report("remark", hold, str(error))
            report("remark", hold, f"writes all the same, with token {hold.token}")
            write(hold)  # what a worker that does not check would do
            raise
        report("resigning", hold, "resigns: it releases its hold")

    def entered(event: tenure.Event) -> None:
        if event.event == "entered":
            pipe.send(Report("in line", name, f"stands in line with token {event.token}", time.monotonic()))

    try:
        with tenure.connect(url, owner=name, ttl=ttl) as client:
            client.subscribe(entered)
            candidacy = client.election(election, value=name)
            candidacy.leader()  # the store answers
            pipe.send(Report("ready", name, "", time.monotonic()))
            pipe.recv()
            while True:
                candidacy.run(lead)
    except tenure.TenureError as error:
        pipe.send(error)
    except (EOFError, OSError):
        pass  # the demo is gone; there is nobody to tell
