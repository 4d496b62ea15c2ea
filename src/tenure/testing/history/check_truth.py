"""S4, S8, S9 and S11: what clients were told, against what the store itself says. Without its word they are unknown.

Truth seen from afar (`since` earlier than `at`) is read in the client's favour: a violation is one however late the
observer was.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tenure._core.belief import provable
from tenure.testing.history.event import ACQUIRES, Event, Kind
from tenure.testing.history.history import Call, History
from tenure.testing.history.intervals import BeliefInterval, beliefs
from tenure.testing.history.quiet import Calm, faulty
from tenure.testing.history.replay import Stay, lease_ends, stays
from tenure.testing.history.verdicts import Verdict, Violation, judged

_NO_TRUTH: Final = "there is no ground truth in it"
GONE_WITHIN: Final = 1.0
"""Seconds by which a store may be late in removing what has ended: expiry ticks, and the reaper's requests."""


def s4(history: History) -> Verdict:
    """Every hold was true at the store."""
    known = stays(history)
    grounded = [belief for belief in beliefs(history) if belief.ok.resource in known]
    found = (v for belief in grounded for v in _phantom(history, belief, known[belief.ok.resource].get(belief.ok.hold)))
    return judged("S4", found, {"holds": len(grounded)}, unknown="" if grounded else _NO_TRUTH)


def _phantom(history: History, belief: BeliefInterval, stay: Stay | None) -> Iterator[Violation]:
    ok = belief.ok
    if stay is None:
        yield Violation(f"{ok.client} has {ok.resource!r} with ticket {ok.hold}, which the store never had", (ok,))
        return
    created = stay.created
    if created.client and created.client != ok.client:
        yield Violation(f"{ok.client} has the ticket of {created.client} in {ok.resource!r}", (created, ok))
    if created.lease and ok.lease and created.lease != ok.lease:
        yield Violation(f"the ticket of {ok.client} stands under lease {created.lease}, not {ok.lease}", (created, ok))
    if stay.admitted is None or history.began(stay.admitted) > belief.start:
        yield Violation(
            f"{ok.client} has {ok.resource!r}, and its turn had not come", _seen(created, ok, stay.admitted)
        )
    elif stay.removed is not None and history.place(stay.removed) < belief.asked:
        yield Violation(
            f"{ok.client} was given {ok.resource!r} with a ticket removed before it asked", (stay.removed, ok)
        )


def s8(history: History) -> Verdict:
    """Releases hit their own ticket, and told the truth."""
    releases = _releases(history)
    known, leavings = stays(history), _leavings(history)
    held = {belief.ok.hold: belief for belief in beliefs(history)}
    gone = [stay for line in known.values() for stay in line.values() if stay.removed is not None and stay.id in held]
    found = itertools.chain(
        _released_twice(releases),
        _wrongly_told(
            releases, held, {ticket: stay for line in known.values() for ticket, stay in line.items()}, leavings
        ),
        _hit_by_others(history, gone, releases, leavings),
    )
    counts = {"releases": sum(map(len, releases.values())), "removals": len(gone)}
    return judged("S8", found, counts, unknown=_NO_TRUTH if not known else "" if gone else "no held ticket was removed")


def _releases(history: History) -> dict[str, list[Call]]:
    """The calls that meant to give up a hold, by ticket."""
    found: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.invoke.operation == "release":
            found[call.invoke.hold].append(call)
    return found


def _released_twice(releases: dict[str, list[Call]]) -> Iterator[Violation]:
    for hold, calls in releases.items():
        done = [call.outcome for call in calls if call.ok and call.outcome is not None]
        if len(done) > 1:
            yield Violation(f"two releases of ticket {hold} were told to have removed it", tuple(done))


def _wrongly_told(
    releases: dict[str, list[Call]],
    held: dict[str, BeliefInterval],
    known: dict[str, Stay],
    leavings: dict[str, list[float]],
) -> Iterator[Violation]:
    for hold, calls in releases.items():
        stay = known.get(hold)
        for call in calls:
            outcome = call.outcome
            if stay is None or outcome is None or outcome.kind is Kind.INFO:
                continue
            if stay.removed is None or stay.removed.earliest > outcome.at:
                closing = any(at <= outcome.at for at in leavings.get(outcome.client, ()))  # which takes it along
                if call.ok or (not closing and _believed_until(call, held.get(hold))):
                    claim = "removed" if call.ok else "gone already"
                    yield Violation(f"ticket {hold} was told to be {claim}, and stood", _seen(outcome, stay.removed))
            elif call.ok and stay.removed.cause == "lease":
                sentence = f"a release was told to have removed ticket {hold}; its lease had"
                yield Violation(sentence, (stay.removed, outcome))


def _believed_until(call: Call, belief: BeliefInterval | None) -> bool:
    """True where the hold was believed in until this release. A hold lost before says "gone" without asking the store.

    By its holder's clock: in the moment in which the proof ends, that may have been before.
    """
    if belief is None or belief.ended_by is not call.invoke:
        return False
    ttl = belief.ok.ttl or 0.0
    return belief.proven is None or call.invoke.at < belief.proven - (ttl - provable(ttl))


def _hit_by_others(
    history: History, gone: list[Stay], releases: dict[str, list[Call]], leavings: dict[str, list[float]]
) -> Iterator[Violation]:
    ends = _all_ends(history)
    granted = {event.lease for event in history.of(Kind.TRUTH) if event.operation == "lease_granted"}
    for stay in gone:
        removed = stay.removed
        if removed is None or removed.cause in ("lease", "admin"):
            continue
        if granted and stay.created.lease not in granted:
            continue  # it came and went between two questions to the store: its end may have done it
        if any(
            ended.at >= stay.created.earliest and ended.earliest <= removed.at for ended in ends[stay.created.lease]
        ):
            continue
        asked = [call.invoke.at for call in releases.get(stay.id, ())] + leavings.get(stay.created.client, [])
        if not any(at <= removed.at for at in asked):
            yield Violation(
                f"ticket {stay.id} of {stay.created.client} in {removed.resource!r} was removed, and neither its "
                "holder nor its lease's end nor an administrator did it",
                (stay.created, removed),
            )


def _all_ends(history: History) -> dict[str, list[Event]]:
    """Ends by lease. A lease whose grant was sent twice may live twice, and end twice."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in history.of(Kind.TRUTH):
        if event.operation == "lease_ended":
            found[event.lease].append(event)
    return found


def _leavings(history: History) -> dict[str, list[float]]:
    """Moments at which each client was closed or died: from then on its tickets may go."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in history.of(Kind.INVOKE, Kind.DIED):
        if event.kind is Kind.DIED or event.operation == "close":
            found[event.client].append(event.at)
    return found


def s9(history: History, gone_within: float = GONE_WITHIN) -> Verdict:
    """No ticket has its turn without a client that knows of it.

    Stretches with a fault going on are not counted against it.
    """
    known = [stay for line in stays(history).values() for stay in line.values()]
    held = {belief.ok.hold for belief in beliefs(history)}
    orphans = [stay for stay in known if stay.id not in held and stay.admitted is not None]
    closed = {c.invoke.client: c.outcome for c in history.calls if c.invoke.operation == "close" and c.ok}
    ttl = max((event.ttl for event in history if event.ttl is not None), default=None)
    found = itertools.chain(
        () if ttl is None else _silent(history, orphans, ttl + gone_within),
        _left_behind(history, known, closed, gone_within),
        _leases_left(history, closed, gone_within),
    )
    unknown = "" if known and ttl is not None else _NO_TRUTH if not known else "no time to live is on record"
    return judged("S9", found, {"tickets": len(known), "orphans": len(orphans)}, unknown=unknown)


def _silent(history: History, orphans: list[Stay], longest: float) -> Iterator[Violation]:
    attempts = _Attempts(history)
    calm = Calm(faulty(history))
    for stay in orphans:
        admitted, ended = stay.admitted, attempts.ended(stay.created)
        if admitted is None or ended is None:
            continue
        until = history.end if stay.removed is None else stay.removed.earliest
        since = calm.since(max(admitted.at, ended), until)
        if until - since > longest:
            yield Violation(
                f"ticket {stay.id} of {stay.created.client} in {stay.created.resource!r} had its turn for "
                f"{until - since:.3f} s, and nobody held it",
                _seen(stay.created, admitted, stay.removed),
            )


class _Attempts:
    """The moments at which the acquires that may have made a ticket were over."""

    def __init__(self, history: History) -> None:
        self._starts: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._ends: dict[tuple[str, str], list[float]] = defaultdict(list)  # the latest of all that began so far
        died = {event.client: event.at for event in history.of(Kind.DIED)}
        for call in history.calls:
            if call.invoke.operation in ACQUIRES and not call.ok:
                key = call.invoke.client, call.invoke.resource
                ended = min(call.ended, died.get(call.invoke.client, call.ended))
                self._starts[key].append(call.invoke.at)
                self._ends[key].append(max([ended, *self._ends[key][-1:]]))

    def ended(self, created: Event) -> float | None:
        """The moment the last of them was over; None where one may still be going on, or none is known."""
        key = created.client, created.resource
        index = bisect_right(self._starts.get(key, []), created.at) - 1
        latest = self._ends[key][index] if index >= 0 else -1.0
        return latest if created.earliest <= latest < float("inf") else None


def _left_behind(
    history: History, known: list[Stay], closed: dict[str, Event | None], gone_within: float
) -> Iterator[Violation]:
    for stay in known:
        close = closed.get(stay.created.client)
        until = history.end if stay.removed is None else stay.removed.earliest
        if close is not None and until - close.at > gone_within:
            yield Violation(
                f"{close.client} was closed, and its ticket {stay.id} stood in {stay.created.resource!r} for "
                f"{until - close.at:.3f} s more",
                _seen(stay.created, close, stay.removed),
            )


def _leases_left(history: History, closed: dict[str, Event | None], gone_within: float) -> Iterator[Violation]:
    ends = lease_ends(history)
    for granted in history.of(Kind.TRUTH):
        close = closed.get(granted.client)
        if granted.operation != "lease_granted" or close is None:
            continue
        ended = ends.get(granted.lease)
        until = history.end if ended is None else ended.earliest
        if until - close.at > gone_within:
            yield Violation(
                f"{close.client} was closed, and its lease {granted.lease} lived for {until - close.at:.3f} s more",
                _seen(granted, close, ended),
            )


def s11(history: History) -> Verdict:
    """No belief in a lease that the store was seen to have ended."""
    ends = {lease: ended for lease, ended in lease_ends(history).items() if ended.cause not in ("admin", "early")}
    ending = [belief for belief in beliefs(history) if belief.ok.lease in ends]
    found = (v for belief in ending for v in _believed_in_the_dead(belief, ends[belief.ok.lease]))
    return judged("S11", found, {"holds": len(ending)}, unknown="" if ending else "no end of a held lease is on record")


def _believed_in_the_dead(belief: BeliefInterval, ended: Event) -> Iterator[Violation]:
    for moment, look in belief.evidence:
        if moment[0] > ended.at:
            yield Violation(
                f"{look.client} believed in {look.resource!r} {moment[0] - ended.at:.6f} s after the store had ended "
                "its lease",
                (belief.ok, ended, look),
            )


def _seen(*events: Event | None) -> tuple[Event, ...]:
    return tuple(event for event in events if event is not None)
