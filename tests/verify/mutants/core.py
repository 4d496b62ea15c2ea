"""Mutants of what all stores share: belief, heartbeat, reaper, the turn, recipes and fences."""

from __future__ import annotations

from collections.abc import Sequence

from tests.verify.mutants.mutant import Mutant, mutants_of

_RECIPES = "tests/unit/test_recipes.py"
_EVERY_LINE = f"{_RECIPES}::test_rule_on_every_line_admits_exactly_whom_the_oracle_admits"
_ORDERS = f"{_RECIPES}::test_every_order_of_departures_leaves_no_eligible_waiter_asleep_and_admits_no_other"

_BELIEF = mutants_of(
    "_core/belief.py",
    ("tests/unit/test_belief.py",),
    (
        "belief that comes back",
        "            if self.state.over:\n                self._announce()\n                return False\n",
        "",
    ),
    ("no margin for clocks that drift apart", "return ttl - min(0.01 + 0.01 * ttl, 0.2 * ttl)", "return ttl"),
    (
        "older proof that shortens a younger one",
        "self._deadline = deadline if before is None else max(before, deadline)",
        "self._deadline = deadline",
    ),
    (
        "lease granted anew for less that is believed for as long as before",
        "if before is not None and anew and deadline < before:",
        "if False:",
    ),
    (
        "proof that wins over a reading of lost made meanwhile",
        "if before is not None and self._clock.now() >= before:",
        "if False:",
    ),
    (
        "lost lease that counts as closed",
        "if self._ended is None and self.state is not LeaseState.LOST:",
        "if self._ended is None:",
    ),
    (
        "wait that the end of its lease does not wake",
        "            for signal in signals:\n                signal.set()\n",
        "",
    ),
    ("warning too early where proofs arrive late", "(lifetime - lag) * SUSPECT_BELOW", "lifetime * SUSPECT_BELOW"),
    (
        "loss that only who looks finds out",
        "self._timer = self._clock.schedule(due + 0.001, self._look_at_clock)",
        "pass",
    ),
    ("failing listener that keeps a loss from the others", "except (Exception, SystemExit):", "except OSError:"),
)

_HEARTBEAT = mutants_of(
    "_core/heartbeat.py",
    ("tests/unit/test_heartbeat.py",),
    (
        "renewals that go on after the store has said that the lease is gone",
        "            self._belief.end(LeaseState.LOST, EXPIRED)",
        "            self._after(self._interval)",
    ),
    (
        "store that went back taken for one that is away",
        "            self._belief.end(LeaseState.LOST, str(error))\n            return",
        "            self._failed(error)\n            return",
    ),
    ("failed renewal that is the last", "        self._after(jittered(self._interval / _SOONER))\n", ""),
    (
        "renewal that waits longer than the belief lasts",
        "min(self._longest(), max(self._belief.remaining(), RETRY_PAUSE_FIRST))",
        "self._longest()",
    ),
)

_REAPER = mutants_of(
    "_core/reaper.py",
    ("tests/unit/test_reaper.py",),
    (
        "clean-up that tries once",
        "            self._later(entry, pause)\n            return\n        if removed:",
        "            return\n        if removed:",
    ),
)

_TURN = mutants_of(
    "_core/turn.py",
    ("tests/unit/test_turn.py",),
    (
        "acquired on a dead lease",
        "    _refuse_dead(lease, entry)\n    me = line.find(entry.id)",
        "    me = line.find(entry.id)",
    ),
    (
        "lease that ended while waiting taken for a wake",
        "    _refuse_dead(lease, entry)\n    if not woken and",
        "    if not woken and",
    ),
    (
        "time that is out taken for a wake",
        "    if not woken and until == patience.until:\n        raise too_late\n",
        "",
    ),
    (
        "wake taken for success",
        "            line = yield from _look_again(me, rule.reach, entry, lease, patience, clock)\n",
        "            line = Line(entry.resource, (me,), 0)\n",
    ),
    ("withdrawal that does nothing", "gone: bool = yield Leave(lease, me, clock.now() + LEAVE_GRACE)", "gone = True"),
    (
        "withdrawal that failed and is left at that",
        "    if not gone:  # or removed by somebody: a late `enter` could still bring it back\n"
        "        yield Abandon(lease, entry)\n",
        "",
    ),
    (
        "ticket whose fate is open left in the line",
        "        yield Abandon(lease, entry)\n        return\n    try:",
        "        return\n    try:",
    ),
    (
        "failed wait that leaves its ticket behind",
        "        yield Abandon(lease, entry)\n        _emit_end(",
        "        _emit_end(",
    ),
    ("admitted seat that wakes nobody", "if waited and rule.announces:", "if False:"),
    ("seat that was seen to wait and is not announced", "waited = line.revision != me.token", "waited = False"),
    (
        "acquired on a lease that ended during the announcement",
        "patience.request_until(clock.now()))\n            _refuse_dead(lease, entry)\n",
        "patience.request_until(clock.now()))\n",
    ),
    ("watch that is never given back", "        signal.close()  # also where", "        pass  # also where"),
    (
        "deadline that only a silent watch keeps",
        "            if patience.until is not None and clock.now() >= patience.until:\n"
        "                raise too_late\n",
        "",
    ),
    (
        "store away for a moment that costs the place in the line",
        "until = _sooner(now + max(patience.request_seconds, lease.remaining()), patience.until)",
        "until = _sooner(now + patience.request_seconds, patience.until)",
    ),
)

_RULES = (
    *mutants_of(
        "_core/recipes/lock.py",
        (_EVERY_LINE, f"{_RECIPES}::test_lock_in_a_long_line_is_awaited_by_one"),
        ("lock whose waiters all watch the holder", "line.tickets[position - 1]", "line.tickets[0]"),
        ("lock that a second one gets", "if not position:", "if (position or 0) < 2:"),
    ),
    *mutants_of(
        "_core/recipes/rwlock.py",
        (_EVERY_LINE, f"{_RECIPES}::test_writer_among_many_readers_is_watched_by_readers_and_watches_one"),
        (
            "readers who overtake a waiting writer",
            "reversed(line.tickets[: line.position(me.id)])",
            "line.tickets[: min(1, line.position(me.id) or 0)]",
        ),
        (
            "readers who watch the first writer",
            "reversed(line.tickets[: line.position(me.id)])",
            "line.tickets[: line.position(me.id)]",
        ),
    ),
    *mutants_of(
        "_core/recipes/semaphore.py",
        (
            _EVERY_LINE,
            f"{_RECIPES}::test_seat_behind_seat_of_another_limit_raises_line_mismatch",
            f"{_ORDERS}[semaphore-2]",
            f"{_ORDERS}[many-seats-and-locks]",
            f"{_ORDERS}[semaphore-1-and-others]",
            f"{_RECIPES}::test_one_departure_or_amendment_in_every_order_wakes_a_bounded_few",
        ),
        ("one seat too many", "weights > limit:", "weights > limit + 1:"),
        ("seats of any weight counted as one", "weights += ticket.weight", "weights += 1"),
        ("seats beside a lock", "ticket.mode is not Mode.SEAT or weights > limit", "weights > limit"),
        (
            "waiter of few seats that trusts the nearest ahead",
            "return Blockers(ahead[place:])",
            "return Blockers(ahead[-1:])",
        ),
        ("all waiters woken by each departure", "return Blockers(ahead[place:])", "return Blockers(ahead)"),
        (
            "front waiter of many seats that watches only its predecessor",
            "return Blockers(ahead, look_after=look_after)",
            "return Blockers(ahead[-1:], look_after=look_after)",
        ),
        (
            "waiter that does not hear of its predecessor's admission",
            "return Blockers(ahead[-1:], amendments=True, look_after=look_after)",
            "return Blockers(ahead[-1:], look_after=look_after)",
        ),
        (
            "waiter of many seats that never looks by itself",
            "return Blockers(ahead[-1:], amendments=True, look_after=look_after)",
            "return Blockers(ahead[-1:], amendments=True)",
        ),
        ("seats under two limits", "    if ticket.limit != me.limit:", "    if False:"),
    ),
)

_OBSERVER = mutants_of(
    "_core/recipes/election.py",
    ("tests/unit/test_election_observer.py",),
    (
        "stale leader that is shown",
        "        if leader is not None and leader.token < self._highest_token:\n            return False\n",
        "",
    ),
    (
        "stale leader that is shown where nobody leads",
        "leader.token if leader else self._highest_token",
        "leader.token if leader else 0",
    ),
    ("observer that forgets its line", "        self._line = line\n        return", "        return"),
    ("observer that waits from a line of before the outage", "                self._line = None\n", ""),
    ("new value of a leader that is missed", "amendments=True", "amendments=False"),
    ("change that is told twice", "        return leader != self._last", "        return True"),
    (
        "observer that an outage ends",
        "                if not self._seen_any:\n                    raise\n",
        "                raise\n",
    ),
)

_FENCES = mutants_of(
    "fencing/_fence.py",
    ("tests/unit/test_fence.py",),
    ("fence that takes foreign ids", "offered.ids[0] in seen.ids", "set(offered.ids) & set(seen.ids)"),
    ("fence with ids that are none of ours", "for one in ahead if _ID.match(one)", "for one in ahead"),
    ("shared fence that admits any older one", "(offered.shared and offered.ids[0] in seen.ids)", "offered.shared"),
    (
        "older incarnation that is let in",
        "return offered if offered.incarnation > seen.incarnation else None",
        "return offered",
    ),
    ("fence of another line that is compared", "    if seen.line != offered.line:", "    if False:"),
    (
        "guard that forgets the youngest at each older one",
        "        return seen\n    return None",
        "        return offered\n    return None",
    ),
)

MUTANTS: Sequence[Mutant] = (*_BELIEF, *_HEARTBEAT, *_REAPER, *_TURN, *_RULES, *_OBSERVER, *_FENCES)
