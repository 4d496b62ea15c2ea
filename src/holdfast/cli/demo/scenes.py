"""The story. Each scene gives one cue, waits for what should follow and writes down how long it took."""

from __future__ import annotations

import itertools
import signal

from holdfast.cli.demo.inbox import Kind, Report
from holdfast.cli.demo.screen import Tone
from holdfast.cli.demo.stage import ANSWER_SECONDS, Matches, Stage

CANDIDATES = ("anna", "bela", "cleo")
_START_SECONDS = 20.0
_AFTER_TTL_SECONDS = 5.0
"""How late a take-over may be: etcd looks for expired leases twice a second, ZooKeeper once a tick."""


def play(stage: Stage) -> None:
    """All of it. Raises Unmet when it can't go on."""
    stage.wait(_is(Kind.LEADER), since=stage.mark(), seconds=_START_SECONDS, what="the store answers")
    first = elect(stage)
    second = kill(stage, first)
    third = stop(stage, second)
    wake(stage, second, third)
    fourth = resign(stage, third)
    audit(stage, (first, second, third, fourth))


def elect(stage: Stage) -> Report:
    """Three workers start; one of them leads."""
    stage.screen.heading(
        "1. Three candidates, one leader",
        "Three processes stand in one election. The first in the store's line leads; its token is its place in that "
        "line. Whoever leads writes to a ledger, and shows its token with every line.",
    )
    mark = stage.mark()
    pids = [f"{name} (pid {stage.crew.start(name)})" for name in CANDIDATES]
    stage.screen.say("demo", f"starts {', '.join(pids)}")
    for name in CANDIDATES:
        stage.wait(_is(Kind.IN_LINE, name), since=mark, seconds=_START_SECONDS, what=f"{name} stands in line")
    leader = _elected(stage, mark, ANSWER_SECONDS)
    stage.figures.append(
        ("TTL asked, granted", f"{stage.ttl:g} s, {leader.ttl:g} s", "how long silence is taken for life")
    )
    _in_office(stage, leader, mark)
    return leader


def kill(stage: Stage, leader: Report) -> Report:
    """SIGKILL: the leader can't give anything up; its lease has to run out."""
    stage.screen.heading(
        "2. The leader is killed",
        f"SIGKILL: {leader.who} can tell nobody. The store counts its lease down from the last renewal it heard.",
    )
    stage.killed.add(leader.who)
    return _take_over(stage, leader, signal.SIGKILL)


def stop(stage: Stage, leader: Report) -> Report:
    """SIGSTOP: the leader lives, but not long enough."""
    stage.screen.heading(
        "3. The leader is stopped for longer than its TTL",
        f"SIGSTOP, like a suspended machine or an endless pause: {leader.who} doesn't know that time goes by.",
    )
    return _take_over(stage, leader, signal.SIGSTOP)


def wake(stage: Stage, old: Report, new: Report) -> None:
    """SIGCONT: the old leader finds out by its own clock, and the ledger refuses it in any case."""
    stage.screen.heading(
        "4. The stopped one wakes, and believes that it leads",
        f"Nobody has told {old.who}. It checks its hold, which asks nobody but the clock. Then it does what a worker "
        "without that check would do: it writes with its old token.",
    )
    mark = stage.mark()
    stage.crew.signal(old.who, signal.SIGCONT)
    stage.screen.say("demo", f"continues {old.who} (SIGCONT)")
    lost = stage.wait(_is(Kind.LOST, old.who), since=mark, what=f"{old.who} finds its hold lost")
    stage.expect(lost.remaining == 0.0, f"{old.who}'s hold has nothing left once it is lost")
    after_loss = stage.history.index(lost)
    outcome = stage.wait(
        _is((Kind.REFUSED, Kind.WROTE), old.who), since=after_loss, what=f"{old.who} writes with its old token"
    )
    _judge(stage, old, new, outcome)
    stage.wait(_is(Kind.IN_LINE, old.who), since=after_loss, what=f"{old.who} stands in line again")
    _writes(stage, new, mark)


def resign(stage: Stage, leader: Report) -> Report:
    """A clean hand-over: no time-out has a part in it."""
    stage.screen.heading(
        "5. The leader resigns",
        f"{leader.who} gives its hold up. The next in line is waiting for just that, so no TTL has to pass.",
    )
    mark = stage.mark()
    stage.crew.tell(leader.who, "resign")
    resigning = stage.wait(_is(Kind.RESIGNING, leader.who), since=mark, what=f"{leader.who} resigns")
    new = _elected(stage, mark, ANSWER_SECONDS)
    milliseconds = (new.at - resigning.at) * 1000
    stage.screen.say("demo", f"hand-over from {leader.who} to {new.who}: {milliseconds:.1f} ms", Tone.GOOD)
    stage.expect(new.at - resigning.at < leader.ttl / 2, "a hand-over does not wait for a lease to run out")
    meaning = "who leaves in order keeps nobody waiting"
    stage.figures.append(("hand-over after resigning", f"{milliseconds:.1f} ms", meaning))
    _in_office(stage, new, mark)
    stage.wait(_is(Kind.IN_LINE, leader.who), since=mark, what=f"{leader.who} stands in line again")
    return new


def audit(stage: Stage, leaders: tuple[Report, ...]) -> None:
    """Read the whole ledger: who wrote what, in which order."""
    tokens = [leader.token for leader in leaders]
    lines = stage.ledger.lines
    growing = all(older < newer for older, newer in itertools.pairwise(tokens))
    stage.expect(growing, "every leader has a higher token than the one before it")
    in_order = all(older.token <= newer.token for older, newer in itertools.pairwise(lines))
    stage.expect(in_order, "no line of an older token stands behind one of a newer token")
    one_each = {(line.token, line.who) for line in lines} == {(leader.token, leader.who) for leader in leaders}
    stage.expect(one_each, "each token stands for one leader in the ledger")
    held = growing and in_order and one_each
    figure = f"{len(lines)} lines, {'in order' if held else 'OUT OF ORDER'}"
    stage.figures.append(("ledger", figure, f"tokens {' < '.join(map(str, tokens))}, one leader each"))


def _take_over(stage: Stage, leader: Report, number: signal.Signals) -> Report:
    last = stage.last_line_of(leader.who)
    mark = stage.mark()
    at = stage.crew.signal(leader.who, number)
    stage.screen.say("demo", f"sends {leader.who} a {number.name}", Tone.BAD)
    new = _elected(stage, mark, leader.ttl + _AFTER_TTL_SECONDS)
    took = new.at - at
    spare = new.at - (last.at + last.remaining)
    stage.screen.say(
        "demo",
        f"{new.who} took over {took:.2f} s after the {number.name}, {spare:.2f} s after the end of {leader.who}'s "
        f"hold as last told; TTL {leader.ttl:g} s",
        Tone.GOOD,
    )
    stage.expect(spare >= 0, f"{leader.who}'s hold runs out before {new.who} leads")
    meaning = {signal.SIGKILL: "a dead leader costs about its TTL", signal.SIGSTOP: "and so does one that only sleeps"}
    stage.figures.append((f"take-over after {number.name}", f"{took:.2f} s", meaning[number]))
    _in_office(stage, new, mark)
    return new


def _judge(stage: Stage, old: Report, new: Report, outcome: Report) -> None:
    """The worker's word and the ledger's own book must both say refused."""
    in_book = any(
        line.token == old.token and highest >= new.token
        for line, highest in stage.ledger.refused
        if line.who == old.who
    )
    refused = outcome.kind is Kind.REFUSED and outcome.token == old.token < new.token <= outcome.highest and in_book
    stage.expect(refused, f"the ledger refuses token {old.token} after token {new.token}")
    figure = f"{old.token} after {new.token}, {'refused' if refused else 'ACCEPTED'}"
    stage.figures.append(("token of the woken leader", figure, "the ledger is safe whatever a worker believes"))


def _elected(stage: Stage, mark: int, seconds: float) -> Report:
    return stage.wait(_is(Kind.ELECTED), since=mark, seconds=seconds, what="somebody leads")


def _in_office(stage: Stage, leader: Report, mark: int) -> None:
    """The store agrees, and the leader does its work for a while."""
    named = _is(Kind.LEADER, leader.who, leader.token)
    stage.wait(named, since=mark, what=f"the store names {leader.who} the leader")
    _writes(stage, leader, mark)


def _writes(stage: Stage, leader: Report, mark: int) -> None:
    wrote = _is(Kind.WROTE, leader.who, leader.token)
    stage.wait(wrote, since=mark, count=stage.lines, what=f"{leader.who} has written {stage.lines} lines")


def _is(kind: Kind | tuple[Kind, ...], who: str | None = None, token: int | None = None) -> Matches:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return lambda r: r.kind in kinds and who in (None, r.who) and token in (None, r.token)
