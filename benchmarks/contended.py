"""Contenders over several processes who want one lock, or a few seats: how fast it goes from hand to hand, how fairly.

A hand-over is from a holder's call to release to the next waiter's return from acquire, by the clock that all processes
of a machine share; only those count whose winner was waiting already. Processes and connections stay over all rounds;
in each round every contestant contends for a moment, in an order shuffled anew.

The floor is the least that has to happen, through the same client: one conditional delete, and the notification of it.
It is taken in the same crowd (`contestants/crowded.py`), because whoever has had a turn comes again at once, and that
work competes with the hand-over for the processors and for the store, whoever does it. Beside it stands the floor of
two processes of which neither has anything else to do.

Who only asks again after a pause, as tooz on etcd and redis-py do, shows it here.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks import svg
from benchmarks.contestants import STORE_NAMES, crowded
from benchmarks.contestants.ours import GRPC, label, without_grpc
from benchmarks.contestants.place import SEATS, Contestant
from benchmarks.findings import Findings, Floor, Section, at_most, unmeasured
from benchmarks.ground import Ground, Servers, slug, taking_part
from benchmarks.measure import percentile, ratios
from benchmarks.players import Player, player, python
from benchmarks.report import milliseconds, table

PROCESSES: Final = 4
FLOOR: Final = "floor of two: one delete, one notification"
_FLOOR_AT: Final = 32
_CHAIN_KEYS: Final = 60
_FIELDS: Final = {"etcd": ("etcd", "redis"), "zookeeper": ("zookeeper",)}
_DRAIN_SECONDS: Final = 150.0


@dataclass(frozen=True)
class Round:
    """What one round of one contestant came to."""

    hand_overs: Sequence[float]
    """Seconds each."""
    per_second: float
    evenness: float
    """Jain's index of the contenders' turns: 1 where all had the same, 1/n where one had all."""
    in_order: bool | None
    """Were they admitted by their tokens? None without tokens, and where several have turns at once."""


@dataclass(frozen=True)
class Contest:
    """All rounds, by contestant and number of contenders; by round, the hand-overs of two with nothing else to do."""

    rounds: dict[tuple[str, int], list[Round]]
    floors: dict[str, list[list[float]]]

    def sizes(self, name: str) -> list[int]:
        return [size for who, size in self.rounds if who == name]

    def p50(self, name: str, size: int) -> float:
        return statistics.median(self._all(name, size))

    def p99(self, name: str, size: int) -> float:
        return percentile(self._all(name, size), 99)

    def _all(self, name: str, size: int) -> list[float]:
        return [seconds for one in self.rounds[name, size] for seconds in one.hand_overs]


def run(ground: Ground) -> Findings:
    """The part `contended`."""
    sections: list[Section] = []
    floors: list[Floor] = []
    plots: dict[str, str] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        servers = ground.servers(stack, redis=True)
        for store, stores in _FIELDS.items():
            here, missing = taking_part(servers, *stores)
            absent |= missing
            contest = _contest(ground, servers, store, [who for who in here if who.contends])
            sections.append(Section(f"Contended: {STORE_NAMES[store]}", _table(contest)))
            floors += _floors(store, contest)
            plots[f"hand-over-{store}.svg"] = _plot(store, contest)
    return Findings(sections, floors, plots, absent)


def _contest(ground: Ground, servers: Servers, store: str, here: Sequence[Contestant]) -> Contest:
    effort = ground.effort
    contest = Contest({}, {})
    with ExitStack() as stack:
        each = -(-max(effort.contenders) // PROCESSES)
        crowds = [_Crowd(who, servers.endpoint(who.store), each, stack) for who in here]
        for crowd in crowds:  # all at once: to end one after the other would take as long as the measuring
            stack.callback(crowd.dismiss)
        chains = [_Chain(scheme, servers.endpoint(store), stack) for scheme in _schemes(store)]
        turns: list[Callable[[bool], None]] = [functools.partial(_link, contest, chain) for chain in chains]
        for crowd, size in itertools.product(crowds, effort.contenders):
            if size > crowd.seats:
                turns.append(functools.partial(_round, contest, crowd, size, effort.contended.block_seconds))
        for number in range(-1, effort.contended.rounds):  # the one before the first is thrown away
            ground.tell(f"contended, {store}: round {number + 1} of {effort.contended.rounds}")
            ground.shuffler.shuffle(turns)
            for turn in turns:
                turn(number >= 0)
    return contest


def _link(contest: Contest, chain: _Chain, keep: bool) -> None:
    seconds = chain.measure()
    if keep:
        contest.floors.setdefault(chain.scheme, []).append(seconds)


def _round(contest: Contest, crowd: _Crowd, size: int, seconds: float, keep: bool) -> None:
    found = crowd.contest(size, seconds)
    if keep:
        contest.rounds.setdefault((crowd.name, size), []).append(found)


def _schemes(store: str) -> list[str]:
    return ["etcd", *([] if without_grpc() else [GRPC])] if store == "etcd" else [store]


class _Crowd:
    """One contestant's processes, each with as many places as it may need."""

    def __init__(self, who: Contestant, endpoint: str, each: int, stack: ExitStack) -> None:
        self.name = who.name
        self.seats = SEATS if who.recipe == "semaphore" else 1
        self._each = each
        name = f"contended-{slug(who.name)}"
        players = [player("contend", who, endpoint, name, each, stack) for _ in range(PROCESSES)]
        self._players = [one.ready() for one in players]

    def dismiss(self) -> None:
        for one in self._players:
            one.dismiss()

    def contest(self, size: int, seconds: float) -> Round:
        """A round of so many contenders, spread over the processes."""
        counts = [len(range(number, size, PROCESSES)) for number in range(PROCESSES)]
        asked = [(one, count) for one, count in zip(self._players, counts, strict=True) if count]
        until = time.monotonic() + seconds
        for one, count in asked:
            one.ask(seconds, count)
        turns = [turns for one, _ in asked for turns in one.answer(_DRAIN_SECONDS)["turns"]]
        return judged(turns, self.seats, until, seconds)


def judged(contenders: Sequence[Sequence[Sequence[float]]], seats: int, until: float, seconds: float) -> Round:
    """What contenders' turns came to: of those that began by `until`, as the rest had ever fewer rivals."""
    wins = [sum(turn[1] <= until for turn in turns) for turns in contenders]
    turns = sorted((turn for turns in contenders for turn in turns if turn[1] <= until), key=lambda turn: turn[1])
    releases = sorted(turn[2] for turn in turns)
    hand_overs = [
        turn[1] - released for released, turn in zip(releases, turns[seats:], strict=False) if turn[0] < released
    ]
    tokens = [turn[3] for turn in turns if len(turn) > 3]
    ordered = all(a < b for a, b in itertools.pairwise(tokens)) if tokens and seats == 1 else None
    return Round(hand_overs, len(hand_overs) / seconds, _evenness(wins), ordered)


def _evenness(wins: Sequence[int]) -> float:
    squares = sum(win * win for win in wins)
    return sum(wins) ** 2 / (len(wins) * squares) if squares else 0.0


@dataclass
class _Chain:
    """Two processes that delete in turns what the other watches."""

    scheme: str
    endpoint: str
    stack: ExitStack
    pair: list[Player] = field(init=False)

    def __post_init__(self) -> None:
        words = ("play", "chain", self.endpoint, self.scheme, "floor", "0")
        self.pair = [Player(python(*words), self.stack) for _ in range(2)]
        for one in self.pair:
            one.ready()

    def measure(self) -> list[float]:
        """Watches are all set before the clock starts: each hand-over is a delete and a notification."""
        self.pair[0].ask("lay", _CHAIN_KEYS)
        since = self.pair[0].answer()["since"]
        for step in ("watch", "run"):
            for parity, one in enumerate(self.pair):
                one.ask(step, _CHAIN_KEYS, since, parity)
            answers = [one.answer() for one in self.pair]
        cut = answers[0]["cut"] | answers[1]["cut"]
        told = answers[0]["told"] | answers[1]["told"]
        return [told[number] - cut[number] for number in cut]


def _table(contest: Contest) -> list[str]:
    rows = [
        (FLOOR + (" over gRPC" if scheme == GRPC else ""), "2", "", milliseconds(p50), milliseconds(p99), "", "")
        for scheme, p50, p99 in _floor_times(contest)
    ]
    for (name, size), rounds in sorted(contest.rounds.items()):
        waited = any(one.hand_overs for one in rounds)
        rows.append(
            (
                name,
                f"{size}",
                f"{statistics.median(one.per_second for one in rounds):.0f}",
                milliseconds(contest.p50(name, size)) if waited else "–",
                milliseconds(contest.p99(name, size)) if waited else "–",
                f"{statistics.median(one.evenness for one in rounds):.2f}",
                {None: "", True: "yes", False: "NO"}[_in_order(rounds)],
            )
        )
    head = ("", "contenders", "hand-overs per s", "p50 ms", "p99 ms", "evenness", "by token")
    return table(head, rows)


def _in_order(rounds: Sequence[Round]) -> bool | None:
    told = [one.in_order for one in rounds]
    return None if None in told else all(told)


def _floor_times(contest: Contest) -> Iterator[tuple[str, float, float]]:
    for scheme, rounds in contest.floors.items():
        seconds = [each for one in rounds for each in one]
        yield scheme, statistics.median(seconds), percentile(seconds, 99)


def _floors(store: str, contest: Contest) -> Iterator[Floor]:
    for scheme in ("etcd", GRPC) if store == "etcd" else (store,):
        who = label("lock", scheme=scheme)
        figure = f"{who}: hand-over p50 with {_FLOOR_AT} contenders / delete and notification"
        if (who, _FLOOR_AT) not in contest.rounds:
            why = without_grpc() or f"it was not run with {_FLOOR_AT} contenders"
            yield unmeasured(figure, 2, why, headline=True)
            continue
        rounds, bare = contest.rounds[who, _FLOOR_AT], contest.rounds[crowded.NAMES[scheme], _FLOOR_AT]
        pairs = [(one.hand_overs, floor.hand_overs) for one, floor in zip(rounds, bare, strict=True)]
        medians = [(statistics.median(mine), statistics.median(minimum)) for mine, minimum in pairs if mine and minimum]
        if medians:
            ratio = ratios([mine for mine, _ in medians], [minimum for _, minimum in medians])
            yield at_most(figure, 2, ratio, headline=True)
        else:
            why = "nobody was handed it over within a round; let rounds be longer"
            yield unmeasured(figure, 2, why, headline=True)
        out_of_order = sum(one.in_order is False for one in rounds)
        yield at_most(f"{who}: rounds with {_FLOOR_AT} contenders out of order", 0, out_of_order)


def _plot(store: str, contest: Contest) -> str:
    names = sorted({name for name, _ in contest.rounds})
    series = {
        name: [
            (float(size), contest.p50(name, size) * 1000)
            for size in contest.sizes(name)
            if any(one.hand_overs for one in contest.rounds[name, size])
        ]
        for name in names
    }
    title = f"Hand-over on {STORE_NAMES[store]}"
    return svg.lines(
        svg.Lines(title, "contenders", "p50, ms", {n: sorted(s) for n, s in series.items() if s}, log_y=True)
    )
