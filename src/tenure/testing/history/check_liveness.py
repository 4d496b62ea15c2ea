"""Liveness: what must happen in the end, once nothing is broken. Each checker is a function of history and bounds.

    L1  take-over: after a client died, a live waiter has what it held, or stood in line for, within the time to live
        and `take_over`, counted from the last disturbance.
    L2  no lost wake-up: after a release a live waiter has it within `wake`.
    L3  bounded calls: a call with a time-out is back by then and `call`, whatever is broken.
    L4  demotion: who is cut off or stands still for longer than its time to live believes no longer than that, and is
        told of the loss within `demote` more.
    L5  recovery: after the last fault every client that tries gets an answer within `recover`.
    L6  hygiene: every figure measured is at its end no higher than at its first.

L1 to L4 do not count the seconds for which the machine itself stood still; how long a belief may last, the clock says.
Stretches in which something was broken are not judged by L1, L2 and L5, nor what came too close to the end of the
history. A line is judged only while nobody holds it at all: a seat that stays free while others are taken is not seen.
A run with too little traffic is unknown: a test in which nothing happened has shown nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tenure.testing.history.event import ACQUIRES, Event, Kind
from tenure.testing.history.history import Call, History
from tenure.testing.history.intervals import (
    BeliefInterval,
    PauseIntervals,
    Span,
    Standstills,
    beliefs,
    beliefs_by_resource,
    by_resource,
    spans,
)
from tenure.testing.history.quiet import Calm, LineStates, broken, longest_ttl
from tenure.testing.history.verdicts import Verdict, Violation, judged

_AT_ONCE: Final = frozenset({"try_acquire", "release"})  # their "no" is an answer of the store's


@dataclass(frozen=True, slots=True)
class LivenessBounds:
    """Bounds in seconds, and the traffic that makes a run worth judging."""

    take_over: float = 2.0
    """Beyond the time to live (and the lock delay): an election, the store's expiry tick, a request."""
    wake: float = 1.0
    call: float = 0.5
    demote: float = 0.5
    recover: float | None = None
    """None: the longest time to live in the history, and `take_over`."""
    holds_per_second: float = 1.0
    """Before the first fault."""
    hand_overs: int = 1
    """From the first fault on: holds that followed one of another client."""


STANDARD = LivenessBounds()


def too_little_traffic(history: History, bounds: LivenessBounds = STANDARD) -> str:
    """Why the history says nothing about liveness; "" where it does."""
    faults = history.of(Kind.FAULT, Kind.PAUSED, Kind.DIED)
    first = faults[0].at if faults else history.end
    before = sum(belief.ok.at <= first for belief in beliefs(history))
    if before < bounds.holds_per_second * (first - history.start) or not before:
        return f"only {before} holds in {first - history.start:.1f} s before anything was broken"
    since = first if faults else history.start
    handed = sum(_hand_overs(line, since) for line in beliefs_by_resource(history).values())
    return "" if handed >= bounds.hand_overs else f"only {handed} hand-overs while things were broken"


def _hand_overs(line: Iterable[BeliefInterval], since: float) -> int:
    return sum(one.ok.client != other.ok.client and other.ok.at >= since for one, other in pairwise(line))


def l1(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """Take-over after a death."""
    longest = longest_ttl(history)
    if longest is None:
        return judged("L1", (), {"deaths": 0}, unknown="no time to live is on record")
    lines, calm, standstills = LineStates(history), Calm(broken(history)), Standstills(history)
    found, takeovers = [], 0
    for resource, died in _bereaved(history):
        since = calm.first(died.at, longest + bounds.take_over)
        until = standstills.after(since, longest + bounds.take_over)
        since = calm.first(since, until - since)  # it has to be calm for the longer time as well
        until = standstills.after(since, longest + bounds.take_over)
        waiter = lines.waiter(resource, since, until)
        if until > history.end or not (waiter or _had_by_a_waiter(lines, resource, died.at, until)):
            continue
        takeovers += 1
        if waiter is not None and not lines.anybody(resource, died.at, until):
            sentence = (
                f"{waiter.client} waited for {resource!r} more than {until - since:.3f} s after {died.client} died"
            )
            found.append(Violation(sentence, (died, waiter)))
    return _live("L1", history, bounds, found, {"take-overs": takeovers})


def _bereaved(history: History) -> Iterator[tuple[str, Event]]:
    """The lines in which somebody who died had a place, and the death."""
    deaths = {event.client: event for event in history.of(Kind.DIED)}
    places = {
        (call.invoke.resource, call.invoke.client)
        for call in history.calls
        if call.invoke.resource and call.outcome is None
    }
    places |= {
        (belief.ok.resource, belief.ok.client)
        for belief in beliefs(history)
        if belief.ended_by is None or belief.ended_by.kind is Kind.DIED
    }
    for resource, client in sorted(places):
        if client in deaths:
            yield resource, deaths[client]


def _had_by_a_waiter(lines: LineStates, resource: str, start: float, until: float) -> bool:
    """True where a client was waiting and one had it in time."""
    return lines.waited(resource, start) and lines.came(resource, start, until)


def l2(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """No lost wake-up after a release."""
    settle = (longest_ttl(history) or 0.0) + bounds.take_over
    lines, calm, standstills = LineStates(history), Calm(broken(history), settle), Standstills(history)
    found, wakes = [], 0
    for call in history.calls:
        outcome = call.outcome
        if call.invoke.operation != "release" or outcome is None or not call.ok:
            continue
        resource, until = call.invoke.resource, standstills.after(outcome.at, bounds.wake)
        waiter = lines.waiter(resource, outcome.at, until)
        if until > history.end or not (waiter or _had_by_a_waiter(lines, resource, call.invoke.at, until)):
            continue
        if not calm.throughout(call.invoke.at, until):
            continue
        wakes += 1
        if waiter is not None and not lines.anybody(resource, call.invoke.at, until):
            sentence = f"{waiter.client} slept on for {bounds.wake:g} s after {resource!r} was released"
            found.append(Violation(sentence, (outcome, waiter)))
    return _live("L2", history, bounds, found, {"wakes": wakes})


def l3(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """Calls come back in time. The seconds for which their client stood still are theirs."""
    pauses = PauseIntervals(history)
    deaths = {event.client: event.at for event in history.of(Kind.DIED)}
    bounded = [call for call in history.calls if call.invoke.timeout is not None]
    found = (v for call in bounded for v in _late(call, bounds, pauses, min(history.end, _death(deaths, call))))
    return _live("L3", history, bounds, found, {"calls": len(bounded)})


def _death(deaths: dict[str, float], call: Call) -> float:
    return deaths.get(call.invoke.client, float("inf"))


def _late(call: Call, bounds: LivenessBounds, pauses: PauseIntervals, end: float) -> Iterator[Violation]:
    invoke, timeout = call.invoke, call.invoke.timeout or 0.0
    seen = min(call.ended, end)
    late = seen - invoke.at - timeout
    if late > bounds.call and (late := late - pauses.seconds(invoke.client, invoke.at, seen)) > bounds.call:
        back = "was back" if call.outcome is not None else "was not back"
        yield Violation(
            f"{invoke.operation} of {invoke.resource!r} by {invoke.client} {back} {late:.3f} s after its time-out of "
            f"{timeout:g} s",
            (invoke,) if call.outcome is None else (invoke, call.outcome),
        )


def l4(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """Belief ends on time for whoever can't be proven."""
    outages = [*spans(history, Kind.PAUSED, Kind.RESUMED), *spans(history, Kind.FAULT, Kind.HEALED)]
    outages = [s for s in outages if _is_outage(s.event)]
    losses = {(e.client, e.hold): e for e in history.of(Kind.TOLD) if e.operation in ("lost", "demoted")}
    held = by_resource(beliefs(history), lambda belief: belief.ok.client)
    tried = [(outage, b) for outage in outages for b in held.get(outage.event.client, ()) if _hit(history, outage, b)]
    pauses = PauseIntervals(history)
    found = (v for outage, belief in tried for v in _demoted_late(outage, belief, bounds, pauses, losses))
    return _live("L4", history, bounds, found, {"outages of holders": len(tried)})


def _is_outage(event: Event) -> bool:
    """True where the pause or fault left its client unable to prove anything.

    A frozen event loop does not: other threads renew.
    """
    if event.kind is Kind.PAUSED:
        return event.operation != "loop"
    return event.operation == "cut" and bool(event.client)


def _hit(history: History, outage: Span, belief: BeliefInterval) -> bool:
    """True where it was held when the outage began, and the outage outlasted its time to live."""
    ttl = belief.ok.ttl
    given_up = belief.ended_by is not None and belief.end < outage.start
    if ttl is None or given_up or belief.start > outage.start:
        return False
    return min(outage.end[0], history.end) - outage.start[0] > ttl


def _demoted_late(
    outage: Span,
    belief: BeliefInterval,
    bounds: LivenessBounds,
    pauses: PauseIntervals,
    losses: dict[tuple[str, str], Event],
) -> Iterator[Violation]:
    due = outage.start[0] + (belief.ok.ttl or 0.0)
    for moment, look in belief.evidence:
        if moment[0] > due:
            yield Violation(
                f"{look.client} believed in {look.resource!r} {moment[0] - due:.3f} s after it could be proven for the "
                "last time",
                (outage.event, look),
            )
            break  # the looks after it say the same
    loss = losses.get((belief.ok.client, belief.ok.hold))
    if loss is not None:
        late = loss.at - due - pauses.seconds(loss.client, due, loss.at)
        if late > bounds.demote:
            yield Violation(f"{loss.client} was told of its loss {late:.3f} s late", (outage.event, loss))


def l5(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """Every client that tries goes on after the last fault."""
    healed = [event.at for event in history.of(Kind.HEALED, Kind.RESUMED)]
    recover = bounds.recover if bounds.recover is not None else (longest_ttl(history) or 0.0) + bounds.take_over
    since = max(healed, default=float("inf"))
    until = since + recover
    if until > history.end or not Calm(broken(history)).throughout(since, until):
        return judged("L5", (), {"clients": 0}, unknown="no calm after a fault that lasts long enough to judge")
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.invoke.at < until and call.ended > since:
            calls[call.invoke.client].append(call)
    lines, gone = LineStates(history), _gone(history, until)
    trying = {client: known for client, known in calls.items() if client not in gone}
    found = [v for client, known in trying.items() for v in _stuck(client, known, lines, since, until)]
    return _live("L5", history, bounds, found, {"clients": len(trying)})


def _gone(history: History, until: float) -> set[str]:
    """Clients that died or were closed by then."""
    closing = (event for event in history.of(Kind.INVOKE) if event.operation == "close")
    return {event.client for event in (*history.of(Kind.DIED), *closing) if event.at <= until}


def _stuck(client: str, calls: list[Call], lines: LineStates, since: float, until: float) -> Iterator[Violation]:
    def answered(call: Call) -> bool:
        refused = call.outcome is not None and call.outcome.kind is Kind.FAIL and call.invoke.operation in _AT_ONCE
        return call.ended <= until and (call.ok or refused)

    def in_a_line_that_moves(call: Call) -> bool:
        return call.invoke.operation in ACQUIRES and lines.anybody(call.invoke.resource, since, until)

    if min(call.invoke.at for call in calls) > (since + until) / 2:
        return  # it began late, and has had no fair chance
    if not any(answered(call) or in_a_line_that_moves(call) for call in calls):
        yield Violation(
            f"{client} got nowhere for {until - since:.3f} s after everything was mended",
            tuple(call.invoke for call in calls[:3]),
        )


def l6(history: History, bounds: LivenessBounds = STANDARD) -> Verdict:
    """Figures come back to where they were."""
    figures: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in history.of(Kind.MEASURED):
        figures[event.client, event.operation].append(event)
    pairs = [(known[0], known[-1]) for known in figures.values() if len(known) > 1]
    found = (
        Violation(f"{last.operation} of {last.client} went from {first.count} to {last.count}", (first, last))
        for first, last in pairs
        if (last.count or 0) > (first.count or 0)
    )
    return _live("L6", history, bounds, found, {"figures": len(pairs)})


def _live(
    name: str, history: History, bounds: LivenessBounds, found: Iterable[Violation], counts: dict[str, int]
) -> Verdict:
    nothing = "" if any(counts.values()) else "nothing of its kind happened"
    return judged(name, found, counts, unknown=nothing or too_little_traffic(history, bounds))
