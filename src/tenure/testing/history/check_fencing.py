"""S5: what a fenced store did, in its own order, and what its clients were told of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tenure._core.lease import Mode
from tenure.testing.history.event import Event, Kind
from tenure.testing.history.history import Call, History
from tenure.testing.history.intervals import by_resource
from tenure.testing.history.replay import in_store_order
from tenure.testing.history.verdicts import Verdict, Violation, judged

_NAMED_MAX: Final = 5
_FENCED: Final = frozenset({"read", "write", "claim"})


def s5(history: History) -> Verdict:
    """No token went back at the fenced store, and no update was lost.

    Reads count: where a younger holder has read, an older one's write would be lost under it. Among seats and among
    readers, who may share, nothing that was accepted is compared; a younger one is reason enough to refuse.
    """
    lines = by_resource(history.of(Kind.STORE), lambda event: event.resource)
    asked = {
        resource: in_store_order([e for e in events if e.operation in _FENCED]) for resource, events in lines.items()
    }
    writes = [call for call in history.calls if call.invoke.operation == "write"]
    found = itertools.chain(
        itertools.chain.from_iterable(map(_wrongly_decided, asked.values())),
        _updates_off(lines, by_resource(writes, lambda call: call.invoke.resource)),
    )
    counts = {"asked": sum(map(len, asked.values())), "writes": len(writes)}
    return judged("S5", found, counts, unknown="" if lines else "no fenced store told anything")


def _wrongly_decided(events: Sequence[Event]) -> Iterator[Violation]:
    youngest: Event | None = None
    youngest_alone: Event | None = None
    for event in events:
        alone = event.mode is Mode.EXCLUSIVE
        seen = youngest if alone else youngest_alone
        stale = seen is not None and event.rank < seen.rank
        if event.accepted and stale and seen is not None:
            yield Violation(
                f"a {event.operation} with token {event.token} was accepted at {event.resource!r} after token "
                f"{seen.token}",
                (seen, event),
            )
        younger_seen = youngest is not None and event.rank < youngest.rank
        if not event.accepted and not younger_seen:
            known = () if seen is None else (seen,)
            yield Violation(
                f"a {event.operation} with token {event.token} was refused at {event.resource!r}, and nothing younger "
                "had been there",
                (*known, event),
            )
        if event.accepted:
            youngest = event if youngest is None or event.rank > youngest.rank else youngest
            if alone:
                youngest_alone = event if youngest_alone is None or event.rank > youngest_alone.rank else youngest_alone


def _updates_off(lines: dict[str, list[Event]], writes: dict[str, list[Call]]) -> Iterator[Violation]:
    for resource, events in lines.items():
        known = writes.get(resource, [])
        yield from _counter_off([event for event in events if event.operation == "counter"][-1:], known)
        contents = [event for event in events if event.operation == "contents"][-1:]
        kept = [event for event in events if event.operation == "kept"]
        yield from _elements_off(contents, kept, known)


def _counter_off(final: Sequence[Event], writes: Sequence[Call]) -> Iterator[Violation]:
    for event in final:
        ends = Counter(_end(call) for call in writes)
        minimum, maximum = ends[Kind.OK], ends[Kind.OK] + ends[Kind.INFO]
        if not minimum <= (event.count or 0) <= maximum:
            yield Violation(
                f"the counter of {event.resource!r} stands at {event.count}; {minimum} writes succeeded and of "
                f"{maximum - minimum} it is not known",
                (event,),
            )


def _elements_off(final: Sequence[Event], kept: Sequence[Event], writes: Sequence[Call]) -> Iterator[Violation]:
    for contents in final:
        there = {event.value for event in kept}
        if contents.count != len(there):
            yield Violation(f"{contents.count} elements were announced and {len(there)} listed", (contents,))
            continue
        told = {call.invoke.value: call for call in writes}
        lost = [call for value, call in told.items() if call.ok and value not in there]
        yield from _named("was told to have succeeded, and is not there", lost)
        refused = [call for value, call in told.items() if _end(call) is Kind.FAIL and value in there]
        yield from _named("was told to have failed, and is there", refused)
        made_up = [event for event in kept if event.value not in told]
        for event in made_up[:_NAMED_MAX]:
            yield Violation(f"{event.value!r} is there, and nobody tried to write it", (event,))


def _named(what: str, calls: Iterable[Call]) -> Iterator[Violation]:
    for call in calls:
        outcome = () if call.outcome is None else (call.outcome,)
        yield Violation(f"the write of {call.invoke.value!r} {what}", (call.invoke, *outcome))


def _end(call: Call) -> Kind:
    return Kind.INFO if call.outcome is None else call.outcome.kind
