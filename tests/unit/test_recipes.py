"""Every rule over every short line, against an oracle of its own, and every order of departures."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tenure._core.lease import Line, Mode, Reach, Ticket
from tenure._core.recipes.lock import LOCK_RULE
from tenure._core.recipes.rwlock import READ_RULE
from tenure._core.recipes.semaphore import FEW_SEATS_RULE, MANY_SEATS_RULE, seat
from tenure._core.turn import Blockers, Rule
from tenure.errors import InvalidOption, LineMismatch

Kind = str  # "E" exclusive, "R" reader, "1" "2" "3" a seat of that weight
LINE_LENGTH_MAX = 6


def ticket(index: int, kind: Kind, limit: int = 1) -> Ticket:
    mode = {"E": Mode.EXCLUSIVE, "R": Mode.READ}.get(kind, Mode.SEAT)
    weight = int(kind) if kind.isdigit() else 1
    return Ticket("r", f"t{index}", f"k{index}", 100 + index, mode=mode, weight=weight, limit=limit, owner="o")


def line_of(kinds: Sequence[Kind], limit: int = 1) -> Line:
    return Line("r", tuple(ticket(i, k, limit) for i, k in enumerate(kinds)), revision=1000)


def rule_of(kind: Kind) -> Rule:
    rules: dict[Kind, Rule] = {"E": LOCK_RULE, "R": READ_RULE}
    return rules.get(kind, FEW_SEATS_RULE)


def rule_of_many(kind: Kind) -> Rule:
    """The rule of many seats, here in short lines."""
    return MANY_SEATS_RULE if kind.isdigit() else rule_of(kind)


def fits(kinds: Sequence[Kind], index: int) -> bool:
    """The oracle of kinds: seats stand behind a first seat, all others behind any other."""
    return kinds[index].isdigit() == kinds[0].isdigit()


def refused(kinds: Sequence[Kind], index: int) -> bool:
    """A lock that sees another one right before it leaves the refusal to that one, and follows when it has gone."""
    return not fits(kinds, index) and not (kinds[index] == "E" and not kinds[index - 1].isdigit())


def may_hold(kinds: Sequence[Kind], index: int, limit: int) -> bool:
    """The oracle. Written from the promise, not from the code: strict order, and no two that exclude each other."""
    if index == 0:
        return True  # whoever is first holds
    upto = kinds[: index + 1]
    if "E" in upto:
        return False  # an exclusive ticket is alone, whether it is mine or stands ahead
    if kinds[index] == "R":
        return set(upto) == {"R"}
    if "R" in upto:
        return False
    return sum(int(k) for k in upto) <= limit


def seen_by(rule: Rule, line: Line, index: int) -> Line:
    """What a store may show for the rule's reach: the shortest view that the protocol allows."""
    first = max(0, index - 1) if rule.reach is Reach.PREDECESSOR else 0
    return Line(line.resource, line.tickets[first : index + 1], line.revision)


def decided(rule: Rule, line: Line, index: int) -> Blockers:
    """What the turn decides: where the rule refuses the shortest view, it is asked again with the whole line."""
    try:
        return rule.blockers(seen_by(rule, line, index), line.tickets[index])
    except LineMismatch:
        return rule.blockers(Line(line.resource, line.tickets[: index + 1], line.revision), line.tickets[index])


def lines(alphabet: str, longest: int = LINE_LENGTH_MAX) -> Iterator[tuple[Kind, ...]]:
    for length in range(1, longest + 1):
        yield from itertools.product(alphabet, repeat=length)


FAMILIES = [
    pytest.param("E", 1, id="lock"),
    pytest.param("ER", 1, id="rwlock"),
    pytest.param("1ER", 1, id="semaphore-1-and-others"),
    pytest.param("12ER", 2, id="semaphore-2-and-others"),
    pytest.param("123E", 3, id="semaphore-3-and-locks"),
]


@pytest.mark.parametrize(("alphabet", "limit"), FAMILIES)
def test_rule_on_every_line_admits_exactly_whom_the_oracle_admits(alphabet: str, limit: int) -> None:
    """Law 9: who may hold is decided by strict order and exclusion alone, on every line of up to six tickets; who is
    of another kind than the first of the line is refused, and nobody else."""
    for kinds in lines(alphabet):
        line = line_of(kinds, limit)
        for index, kind in enumerate(kinds):
            try:
                admitted = not decided(rule_of(kind), line, index)
            except LineMismatch:
                assert refused(kinds, index), (kinds, index)
            else:
                assert not refused(kinds, index), (kinds, index)
                assert admitted == may_hold(kinds, index, limit), (kinds, index)


@pytest.mark.parametrize(("alphabet", "limit"), FAMILIES)
def test_rule_on_every_line_ignores_what_stands_behind_me(alphabet: str, limit: int) -> None:
    """Law 9: whoever comes after me can't change when my turn is."""
    for kinds in lines(alphabet, 5):
        line = line_of(kinds, limit)
        for index, kind in enumerate(kinds):
            rule, me = rule_of(kind), line.tickets[index]
            cut = Line("r", line.tickets[: index + 1], 1000)
            if not fits(kinds, index):
                continue
            assert rule.blockers(line, me) == rule.blockers(cut, me), (kinds, index)


@pytest.mark.parametrize(("alphabet", "limit"), FAMILIES)
def test_blockers_on_every_line_stand_ahead_of_me(alphabet: str, limit: int) -> None:
    """Nobody waits for itself or for a ticket behind it: that could never end."""
    for kinds in lines(alphabet):
        line = line_of(kinds, limit)
        for index, kind in enumerate(kinds):
            if not fits(kinds, index):
                continue
            found = rule_of(kind).blockers(line, line.tickets[index])
            ahead = {t.id for t in line.tickets[:index]}
            assert {t.id for t in found.tickets} <= ahead, (kinds, index)


@pytest.mark.parametrize(("alphabet", "limit"), FAMILIES)
def test_admitted_tickets_on_every_line_never_exclude_each_other(alphabet: str, limit: int) -> None:
    """Law 1: among all that the rules admit in one line, an exclusive one is alone and seats fit the limit."""
    for kinds in lines(alphabet):
        line = line_of(kinds, limit)
        fitting = [(i, k) for i, k in enumerate(kinds) if fits(kinds, i)]
        admitted = [k for i, k in fitting if not rule_of(k).blockers(line, line.tickets[i])]
        assert "E" not in admitted or len(admitted) == 1, kinds
        assert sum(int(k) for k in admitted if k.isdigit()) <= limit, kinds


def test_reader_behind_waiting_writer_in_every_line_waits() -> None:
    """Writers don't starve: a reader that came after a writer never overtakes it."""
    for kinds in lines("ER"):
        line = line_of(kinds)
        for index, kind in enumerate(kinds):
            if kind == "R" and "E" in kinds[:index]:
                assert READ_RULE.blockers(line, line.tickets[index]), (kinds, index)


@pytest.mark.parametrize("rule", [FEW_SEATS_RULE, MANY_SEATS_RULE])
def test_light_seat_behind_heavy_waiter_in_every_line_waits(rule: Rule) -> None:
    """A heavy ticket holds back a light one behind it, so heavy tickets don't starve."""
    for kinds in lines("123"):
        line = line_of(kinds, 3)
        blocked = [bool(rule.blockers(line, t)) for t in line.tickets]
        assert blocked == sorted(blocked), kinds


# Departures in every order. A waiter is asleep on the tickets its snapshot named, or woken and about to
# look. Every interleaving of arrivals, departures, looks and amendments is walked through.

ABSENT, WOKEN, SILENT, HOLDING, REFUSED, GONE = "absent", "woken", "silent", "holding", "refused", "gone"


@dataclass(frozen=True)
class Asleep:
    """Waits until one of `watched` leaves (or amends)."""

    watched: frozenset[int]
    amendments: bool
    looks: bool
    """Looks after a while, whatever happens."""


Status = str | Asleep
State = tuple[Status, ...]


@dataclass
class Findings:
    """What an exploration found; the lists are empty where the rule keeps the laws."""

    states: int = 0
    sleepers: list[State] = field(default_factory=list)
    intruders: list[State] = field(default_factory=list)
    woken_by_one_change_max: int = 0


class Explorer:
    """All interleavings of one line: who may be where, and who is told of what."""

    def __init__(self, kinds: Sequence[Kind], limit: int, rules: Callable[[Kind], Rule]) -> None:
        self.kinds = kinds
        self.limit = limit
        self.tickets = tuple(ticket(i, k, limit) for i, k in enumerate(kinds))
        self.rules = [rules(k) for k in kinds]
        self.indexes = {t.id: i for i, t in enumerate(self.tickets)}
        self._decided: dict[tuple[tuple[int, ...], int], Blockers | None] = {}

    def explore(self) -> Findings:
        findings = Findings()
        start: State = (ABSENT,) * len(self.kinds)
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            self.judge(state, findings)
            for following, woken in self.following(state):
                findings.woken_by_one_change_max = max(findings.woken_by_one_change_max, woken)
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        findings.states = len(seen)
        return findings

    def following(self, state: State) -> Iterator[tuple[State, int]]:
        for index, status in enumerate(state):
            if status == ABSENT:
                yield self.look(state, index, arrived=True), 0
                return  # nobody arrives before those whose tickets are earlier
            if status == GONE:
                continue
            yield self.tell(self.replaced(state, index, GONE), index, amended=False)  # released, gave up or died
            if status == WOKEN:
                yield self.look(state, index, arrived=False), 0
            elif status == SILENT:
                yield self.tell(self.replaced(state, index, HOLDING), index, amended=True)

    def look(self, state: State, index: int, *, arrived: bool) -> State:
        blockers = self.decide(state, index)
        if blockers is None:
            return self.replaced(state, index, REFUSED)  # it stands until it has withdrawn
        if not blockers:
            announces = self.rules[index].announces and not arrived
            return self.replaced(state, index, SILENT if announces else HOLDING)
        watched = frozenset(self.indexes[t.id] for t in blockers.tickets)
        return self.replaced(state, index, Asleep(watched, blockers.amendments, blockers.look_after is not None))

    def decide(self, state: State, index: int) -> Blockers | None:
        """What the ticket waits for; None where the line is of another kind."""
        standing = tuple(i for i, s in enumerate(state) if s not in (ABSENT, GONE) or i == index)
        if (standing, index) not in self._decided:
            line = Line("r", tuple(self.tickets[i] for i in standing if i <= index), 1)
            try:
                self._decided[standing, index] = decided(self.rules[index], line, len(line.tickets) - 1)
            except LineMismatch:
                self._decided[standing, index] = None
        return self._decided[standing, index]

    def tell(self, state: State, changed: int, *, amended: bool) -> tuple[State, int]:
        told = tuple(
            WOKEN if isinstance(s, Asleep) and changed in s.watched and (s.amendments or not amended) else s
            for s in state
        )
        return told, sum(a != b for a, b in zip(state, told, strict=True))

    def replaced(self, state: State, index: int, status: Status) -> State:
        return (*state[:index], status, *state[index + 1 :])

    def judge(self, state: State, findings: Findings) -> None:
        standing = [i for i, s in enumerate(state) if s not in (ABSENT, GONE)]
        kinds = [self.kinds[i] for i in standing]
        quiet = WOKEN not in state and SILENT not in state and REFUSED not in state
        for place, index in enumerate(standing):
            status = state[index]
            if status in (HOLDING, SILENT) and not may_hold(kinds, place, self.limit):
                findings.intruders.append(state)
            # Whoever was woken, or should say something, may be hung: who depends on it has to look by itself.
            asleep = isinstance(status, Asleep) and (quiet or not status.looks)
            if asleep and may_hold(kinds, place, self.limit):
                findings.sleepers.append(state)


def explored(alphabet: str, limit: int, longest: int, rules: Callable[[Kind], Rule] = rule_of) -> Iterator[Findings]:
    for kinds in itertools.product(alphabet, repeat=longest):
        yield Explorer(kinds, limit, rules).explore()


@pytest.mark.parametrize(
    ("alphabet", "limit", "longest", "rules"),
    [
        pytest.param("E", 1, 6, rule_of, id="lock"),
        pytest.param("ER", 1, 6, rule_of, id="rwlock"),
        pytest.param("1ER", 1, 5, rule_of, id="semaphore-1-and-others"),
        pytest.param("12", 2, 6, rule_of, id="semaphore-2"),
        pytest.param("123", 3, 5, rule_of, id="semaphore-3"),
        pytest.param("1", 3, 7, rule_of, id="semaphore-3-of-seven"),
        pytest.param("12ER", 2, 5, rule_of, id="semaphore-2-and-others"),
        pytest.param("123E", 3, 4, rule_of, id="semaphore-3-and-locks"),
        pytest.param("123", 3, 5, rule_of_many, id="many-seats"),
        pytest.param("12E", 2, 4, rule_of_many, id="many-seats-and-locks"),
    ],
)
def test_every_order_of_departures_leaves_no_eligible_waiter_asleep_and_admits_no_other(
    alphabet: str, limit: int, longest: int, rules: Callable[[Kind], Rule]
) -> None:
    """Laws 1 and 9: whatever leaves, gives up, amends or hangs in whatever order, who may hold wakes, and only they
    hold."""
    states = 0
    for findings in explored(alphabet, limit, longest, rules):
        assert not findings.sleepers
        assert not findings.intruders
        states += findings.states
    assert states > 10 * len(alphabet) ** longest  # the exploration did explore


class WatchAtDistanceRule:
    """The rejected rule: a waiter watches the ticket `limit` places ahead of it."""

    reach = Reach.AHEAD
    announces = False

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        if not FEW_SEATS_RULE.blockers(line, me):
            return Blockers()
        position = line.position(me.id) or 0
        return Blockers((line.tickets[max(0, position - me.limit)],))


class GreedyRule(WatchAtDistanceRule):
    """A wrong rule: whoever fits beside the weights ahead of its predecessor is admitted."""

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        ahead = line.tickets[: line.position(me.id)]
        return Blockers(ahead) if sum(t.weight for t in ahead[:-1]) + me.weight > me.limit else Blockers()


def test_explorer_given_the_rejected_rule_finds_the_sleeper() -> None:
    """The explorer can fail: watching the ticket at index i - limit leaves an eligible waiter asleep."""
    assert Explorer(tuple("1111"), 2, lambda _: WatchAtDistanceRule()).explore().sleepers


class DependentRule(type(MANY_SEATS_RULE)):  # type: ignore[misc]  # the class of a rule is no public name
    """The rule of many seats without a time to look at."""

    def blockers(self, line: Line, me: Ticket) -> Blockers:
        return MANY_SEATS_RULE.blockers(line, me)._replace(look_after=None)


def test_explorer_given_a_rule_that_trusts_the_others_to_be_awake_finds_the_sleeper() -> None:
    """The explorer can fail: three seats, and the fourth in line is hung, or killed, as the three leave."""
    assert Explorer(tuple("11111"), 3, lambda _: DependentRule()).explore().sleepers


def test_explorer_given_a_greedy_rule_finds_the_intruder() -> None:
    """The explorer can fail: a rule that overbooks is seen to admit one who may not hold."""
    assert Explorer(tuple("122"), 2, lambda _: GreedyRule()).explore().intruders


@pytest.mark.parametrize(
    ("alphabet", "limit", "rules", "maximum"),
    [
        pytest.param("E", 1, rule_of, 1, id="lock"),
        pytest.param("1E", 1, rule_of, 2, id="semaphore-1"),
        pytest.param("1", 2, rule_of, 2, id="semaphore-2"),
        pytest.param("123", 3, rule_of, 3, id="semaphore-3"),
        pytest.param("123", 3, rule_of_many, 2, id="many-seats"),
    ],
)
def test_one_departure_or_amendment_in_every_order_wakes_a_bounded_few(
    alphabet: str, limit: int, rules: Callable[[Kind], Rule], maximum: int
) -> None:
    """Law 9: one change wakes one waiter of a lock, as many as there are seats of a semaphore with few, and of one with
    many the front one and a successor."""
    for findings in explored(alphabet, limit, 5 if alphabet == "1" else 4, rules):
        assert findings.woken_by_one_change_max <= maximum


def looks_per_departure(
    kinds: Sequence[Kind], limit: int, rules: Callable[[Kind], Rule], dice: random.Random
) -> tuple[float, int]:
    """Departures in random order down to the empty line: looks per departure, and most woken by one change."""
    explorer = Explorer(kinds, limit, rules)
    state: State = (ABSENT,) * len(kinds)
    for index in range(len(kinds)):
        state = explorer.look(state, index, arrived=True)
    looks = maximum = 0
    order = [*range(len(kinds))]
    dice.shuffle(order)
    for leaving in order:
        state, woken = explorer.tell(explorer.replaced(state, leaving, GONE), leaving, amended=False)
        maximum = max(maximum, woken)
        while busy := [i for i, s in enumerate(state) if s in (WOKEN, SILENT)]:
            index = dice.choice(busy)
            if state[index] == WOKEN:
                state, looks = explorer.look(state, index, arrived=False), looks + 1
            else:
                state, woken = explorer.tell(explorer.replaced(state, index, HOLDING), index, amended=True)
                maximum = max(maximum, woken)
    return looks / len(kinds), maximum


@pytest.mark.parametrize("length", [10, 60])
@pytest.mark.parametrize(
    ("alphabet", "limit", "rules", "maximum"),
    [
        ("E", 1, rule_of, 1),
        ("1", 3, rule_of, 3),
        ("123", 3, rule_of, 3),
        ("1", 8, rule_of, 8),
        ("1", 9, rule_of_many, 2),
        ("123", 9, rule_of_many, 2),
    ],
)
def test_looks_per_departure_in_long_lines_stay_constant(
    alphabet: str, limit: int, rules: Callable[[Kind], Rule], maximum: int, length: int
) -> None:
    """Law 10: a hand-over costs the same few looks in a line of ten as in a line of sixty."""
    for seed in range(5):
        dice = random.Random(seed)
        kinds = [dice.choice(alphabet) for _ in range(length)]
        looks, woken = looks_per_departure(kinds, limit, rules, dice)
        assert looks <= max(3.0, maximum), f"seed {seed}"
        assert woken <= maximum, f"seed {seed}"


def test_writer_among_many_readers_is_watched_by_readers_and_watches_one() -> None:
    """Law 9: a writer's wait names one ticket however long the line; a reader's names the nearest writer."""
    kinds = ("R",) * 50 + ("E",) + ("R",) * 50 + ("E",)
    line = line_of(kinds)
    watched = [LOCK_RULE.blockers(line, line.tickets[i]).tickets for i in (50, 101)]
    assert [[t.id for t in tickets] for tickets in watched] == [["t49"], ["t100"]]
    behind = Counter(READ_RULE.blockers(line, line.tickets[i]).tickets[0].id for i in range(51, 101))
    assert behind == {"t50": 50}
    last = line_of((*kinds, "R"))
    assert [t.id for t in READ_RULE.blockers(last, last.tickets[-1]).tickets] == ["t101"]


def test_lock_in_a_long_line_is_awaited_by_one() -> None:
    """Law 9: also where a store shows the whole line, each names its predecessor and nobody the holder alone."""
    line = line_of(("E",) * 50)
    awaited = [LOCK_RULE.blockers(line, me).tickets for me in line.tickets]
    assert [[t.id for t in tickets] for tickets in awaited] == [[], *([f"t{i}"] for i in range(49))]


@pytest.mark.parametrize(("theirs", "mine"), [(3, 5), (5, 3)])
def test_seat_behind_seat_of_another_limit_raises_line_mismatch(theirs: int, mine: int) -> None:
    """Clients that disagree on the limit are told so; nobody is seated by a guess."""
    line = Line("r", (ticket(0, "1", theirs), ticket(1, "1", mine)), 1)
    with pytest.raises(LineMismatch, match=rf"limit of {theirs}.*asked for {mine}"):
        FEW_SEATS_RULE.blockers(line, line.tickets[1])


def test_seat_behind_first_seat_of_another_limit_raises_line_mismatch() -> None:
    """The first one in line sets the limit, however many of mine stand between."""
    tickets = [ticket(0, "1", 8), *(ticket(i, "1", 9) for i in range(1, 6))]
    with pytest.raises(LineMismatch):
        FEW_SEATS_RULE.blockers(Line("r", tuple(tickets), 1), tickets[5])


@pytest.mark.parametrize("stranger", ["R", "1", "E"])
def test_seat_behind_a_stranger_on_its_way_out_is_not_refused_for_it(stranger: str) -> None:
    """Who asked for another limit or kind than the first one is refused itself; those behind it wait, no more."""
    tickets = (ticket(0, "1", 9), ticket(1, stranger, 8), ticket(2, "1", 9))
    FEW_SEATS_RULE.blockers(Line("r", tickets, 1), tickets[2])


def test_seat_with_mismatch_behind_it_is_admitted() -> None:
    """Whoever came later is the one to be refused."""
    line = Line("r", (ticket(0, "1", 3), ticket(1, "1", 5), ticket(2, "R")), 1)
    assert not FEW_SEATS_RULE.blockers(line, line.tickets[0])


@pytest.mark.parametrize(
    ("ahead", "mine", "words"),
    [
        ("E", "1", "in use as a lock or election, not as a semaphore"),
        ("ER", "1", "in use as a lock or election, not as a semaphore"),
        ("R", "1", "in use as a read/write lock, not as a semaphore"),
        ("R1", "1", "in use as a read/write lock, not as a semaphore"),
        ("1", "E", "in use as a semaphore, not as a lock or election"),
        ("11", "E", "in use as a semaphore, not as a lock or election"),
        ("1E1", "E", "in use as a semaphore, not as a lock or election"),
        ("1", "R", "in use as a semaphore, not as a read/write lock"),
        ("1R", "R", "in use as a semaphore, not as a read/write lock"),
    ],
)
def test_ticket_of_another_kind_than_the_first_raises_line_mismatch(ahead: str, mine: str, words: str) -> None:
    """One name is one kind of thing, and the message says which."""
    line = line_of((*ahead, mine))
    with pytest.raises(LineMismatch, match=words):
        decided(rule_of(mine), line, len(ahead))


@pytest.mark.parametrize(("ahead", "mine"), [("E1", "E"), ("E1", "R"), ("R1", "R"), ("1E", "1"), ("1R", "1")])
def test_ticket_behind_a_stranger_that_is_refused_waits_for_it(ahead: str, mine: str) -> None:
    """Another one's mistake costs those behind it a wait, and no more."""
    line = line_of((*ahead, mine), 3)
    assert decided(rule_of(mine), line, 2).tickets == line.tickets[1:2]


@pytest.mark.parametrize(("limit", "weight"), [(1, 2), (3, 4), (0, 1), (3, 0), (3, -1), (True, 1), (2.0, 1), ("3", 1)])
def test_seat_that_can_never_be_had_raises_invalid_option(limit: int, weight: int) -> None:
    """What could never be admitted is refused before anything is sent."""
    with pytest.raises(InvalidOption):
        seat("r", limit, weight, 15.0, "o")
