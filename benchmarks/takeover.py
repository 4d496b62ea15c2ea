"""How long nobody leads: the leader is killed, stopped, cut off, resigns, or closes its client, and the next one waits.

Leader and successor are processes of their own. What ends by TTL waits side by side, as hardly anything happens
meanwhile; what ends by a word (resign, close) is done one after the other, each right after a bare round trip, in
which it is counted. The leader speaks to its server through a proxy, which cuts it off.

Leader and successor have slept until then, and so has the process that makes the bare round trip: the first one after
a sleep takes longer than the same one in a loop, whoever makes it. How long those in a loop take is told as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from benchmarks import svg
from benchmarks.contestants import STORE_NAMES, bare, named
from benchmarks.contestants.ours import GRPC, label, without_grpc
from benchmarks.contestants.place import Contestant
from benchmarks.cycles import block_of
from benchmarks.findings import Findings, Floor, Section, at_most, unmeasured
from benchmarks.ground import Ground, Servers, slug, taking_part
from benchmarks.measure import spread
from benchmarks.players import Player, player
from benchmarks.report import milliseconds, table
from tenure.testing.servers import FaultProxy

KILLED, STOPPED, PARTITIONED = "killed", "stopped", "partitioned"
RESIGNED, CLOSED = "resigned", "closed"
_BY_TTL: Final = (KILLED, STOPPED, PARTITIONED)
_WORDS: Final = {RESIGNED: "resign", CLOSED: "exit"}
_STORES: Final = ("etcd", "zookeeper")
_STAND_SECONDS: Final = 1.0
"""No library tells when a candidate has come to stand in line: the leader leaves so long after it was asked to."""
_BARE_SECONDS: Final = 0.05
_WORD_TTL: Final = 30
"""Where a leader leaves by a word nobody's time is to run out meanwhile."""


@dataclass(frozen=True)
class Vacancies:
    """Seconds without a leader, by contestant and way, one for each trial; of a word, also in bare round trips."""

    seconds: dict[tuple[str, str], list[float]]
    round_trips: dict[tuple[str, str], list[float]]
    bare: dict[str, list[float]]
    """Seconds of each bare round trip after a sleep, by floor."""
    in_a_loop: dict[str, list[float]]
    """The same in a loop."""


def run(ground: Ground) -> Findings:
    """The part `takeover`."""
    ttl = ground.effort.takeover_ttl
    sections: list[Section] = []
    floors: list[Floor] = []
    plots: dict[str, str] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        servers = ground.servers(stack, brisk=True)
        for store in _STORES:
            here, missing = taking_part(servers, store)
            absent |= missing
            found = _vacancies(ground, servers, store, [who for who in here if who.leads])
            sections.append(Section(f"Take-over: {STORE_NAMES[store]}, TTL {ttl} s", _table(found)))
            floors += _floors(store, found, ttl)
            killed = {who: statistics.median(s) for (who, way), s in found.seconds.items() if way == KILLED}
            title = f"Take-over on {STORE_NAMES[store]} after SIGKILL; the line is the TTL"
            plots[f"takeover-{store}.svg"] = svg.bars(
                title, dict(sorted(killed.items(), key=lambda item: item[1])), unit="s", mark=float(ttl)
            )
    return Findings(sections, floors, plots, absent)


def _vacancies(ground: Ground, servers: Servers, store: str, here: Sequence[Contestant]) -> Vacancies:
    found = Vacancies({}, {}, {}, {})
    trials, endpoint = ground.effort.takeover_trials, servers.endpoint(store)
    for trial in range(trials):
        ground.tell(f"takeover, {store}: trial {trial + 1} of {trials}")
        _by_ttl(ground, endpoint, here, trial, found)
    for way in _WORDS:
        ground.tell(f"takeover, {store}: {way}")
        _by_word(ground, endpoint, here, way, found)
    return found


@dataclass
class _Pair:
    """A leader, behind a proxy, and who waits for its place."""

    leader: Player
    successor: Player
    proxy: FaultProxy

    def end(self, way: str) -> float:
        """The leader leaves, without a word; when."""
        at = time.monotonic()
        {KILLED: self.leader.kill, STOPPED: self.leader.pause, PARTITIONED: self.proxy.blackhole}[way]()
        return at


def _by_ttl(ground: Ground, endpoint: str, here: Sequence[Contestant], trial: int, found: Vacancies) -> None:
    """All contestants and all ways at once."""
    ttl = ground.effort.takeover_ttl
    with ExitStack() as stack:
        pairs = {
            (who.name, way): _pair(who, endpoint, f"{slug(who.name)}-{way}-{trial}", ttl, stack)
            for who in here
            for way in _BY_TTL
        }
        for one in pairs.values():
            one.leader.ready().ask("campaign")
            one.successor.ready()
        for one in pairs.values():
            one.leader.answer()
            one.successor.ask("campaign")
        time.sleep(_STAND_SECONDS)
        order = list(pairs)
        ground.shuffler.shuffle(order)
        ended = {which: pairs[which].end(which[1]) for which in order}
        for which, one in pairs.items():
            found.seconds.setdefault(which, []).append(one.successor.answer()["at"] - ended[which])
        for one in pairs.values():
            one.leader.kill()
            one.successor.dismiss()


def _pair(who: Contestant, endpoint: str, name: str, ttl: int, stack: ExitStack) -> _Pair:
    proxy = stack.enter_context(closing(FaultProxy(endpoint, "raw")))
    leader = player("lead", who, proxy.endpoint, name, ttl, stack)
    return _Pair(leader, player("lead", who, endpoint, name, ttl, stack), proxy)


def _by_word(ground: Ground, endpoint: str, here: Sequence[Contestant], way: str, found: Vacancies) -> None:
    """A row of candidates for each; everyone leads once, and is followed by the next. One contestant at a time."""
    trials = ground.effort.takeover_trials
    with ExitStack() as stack:
        rows = {who.name: _row(who, endpoint, way, trials + 1, stack) for who in here}
        paces = {who.name: player("pace", named(_floor_of(who)), endpoint, slug(who.name), 0, stack) for who in here}
        loops = {name: block_of(named(name), endpoint, stack) for name in map(_floor_of, here)}
        for pace in paces.values():
            pace.ready()
        for row in rows.values():
            row[0].ready().ask("campaign")
            row[0].answer()
        for number in range(trials):
            for row in rows.values():
                row[number + 1].ready().ask("campaign")
            for name, loop in loops.items():
                found.in_a_loop.setdefault(name, []).append(statistics.median(loop(_BARE_SECONDS).seconds) / 2)
            time.sleep(_STAND_SECONDS)
            order = list(here)
            ground.shuffler.shuffle(order)
            for who in order:
                leader, successor = rows[who.name][number : number + 2]
                paces[who.name].ask("cycle")
                round_trip = paces[who.name].answer()["seconds"] / 2  # its cycle is two
                found.bare.setdefault(_floor_of(who), []).append(round_trip)
                leader.ask(_WORDS[way])
                acquired = successor.answer()["at"]
                seconds = acquired - leader.answer()["at"]
                found.seconds.setdefault((who.name, way), []).append(seconds)
                found.round_trips.setdefault((who.name, way), []).append(seconds / round_trip)
        for row in rows.values():
            for one in row:
                one.dismiss()
        for pace in paces.values():
            pace.dismiss()


def _row(who: Contestant, endpoint: str, way: str, count: int, stack: ExitStack) -> list[Player]:
    return [player("lead", who, endpoint, f"{slug(who.name)}-{way}", _WORD_TTL, stack) for _ in range(count)]


def _floor_of(who: Contestant) -> str:
    return bare.ETCD_GRPC if "gRPC" in who.name else bare.FLOOR[who.store]


def _table(found: Vacancies) -> list[str]:
    names = list(dict.fromkeys(name for name, _ in found.seconds))
    rows = [
        (
            name,
            *(_cell(found.seconds[name, way]) for way in _BY_TTL),
            *(
                f"{spread(found.round_trips[name, way]).median:.1f} ({milliseconds(statistics.median(seconds))} ms)"
                for way in _WORDS
                for seconds in [found.seconds[name, way]]
            ),
        )
        for name in names
    ]
    head = ("", *(f"{way}, s" for way in _BY_TTL), *(f"{way}, bare round trips" for way in _WORDS))
    told = [
        f"{name}: a round trip took {milliseconds(statistics.median(seconds))} ms after a sleep, and "
        f"{milliseconds(statistics.median(found.in_a_loop[name]))} ms in a loop."
        for name, seconds in found.bare.items()
    ]
    return [*table(head, rows), "", *told]


def _cell(seconds: Sequence[float]) -> str:
    """All between the quickest and the slowest: there are few."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"


def _floors(store: str, found: Vacancies, ttl: int) -> Iterator[Floor]:
    """Of both faces. What nobody leads after a kill is the longest of all trials."""
    for scheme in ("etcd", GRPC) if store == "etcd" else (store,):
        for face in ("", "asyncio"):
            who = label("election", scheme=scheme, face=face)
            killed = f"{who}: take-over after SIGKILL − TTL, s"
            if (who, KILLED) not in found.seconds:
                yield unmeasured(killed, 1, without_grpc() or "it did not take part", headline=not face)
                continue
            yield at_most(killed, 1, max(found.seconds[who, KILLED]) - ttl, headline=not face)
            for way in _WORDS:
                figure = f"{who}: take-over once {way}, bare round trips"
                yield at_most(figure, 5, spread(found.round_trips[who, way]), headline=not face)
