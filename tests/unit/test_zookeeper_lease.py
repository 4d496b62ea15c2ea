"""A ZooKeeper lease over a session whose answers a test gives: what it sends, and what it believes of the answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError

from tenure._backends.zookeeper import codec
from tenure._backends.zookeeper import lease as lease_module
from tenure._backends.zookeeper.connection import SessionListener
from tenure._backends.zookeeper.lease import ZooKeeperLease
from tenure._backends.zookeeper.lines import ZxidHistory
from tenure._core.base.clock import VirtualClock
from tenure._core.base.limits import WATCHED_SINGLY_MAX
from tenure._core.base.options import Options, parse
from tenure._core.belief import EXPIRED, provable
from tenure._core.lease import BackendContext, Entry, LeaseState, Line, Reach, Ticket
from tenure.errors import LeaseLost, StoreRefused, StoreUnavailable, StoreWentBack
from tenure.events import Hub
from tests.unit.fakes import ImmediateWorkers

START = 1000.0
TTL = 12.0
TICK = 2.0
SECONDS = 5.0
LINE = "/n/a"
SESSION = 0xABC
ANOTHER = 0xDEF
CUT = StoreUnavailable("told by the test: the answer was lost")


class Stat(NamedTuple):
    """The part of a node's stat that is read."""

    czxid: int = 0
    pzxid: int = 0
    version: int = 0
    ephemeralOwner: int = SESSION
    ctime: int = 0


class Request:
    """A request as kazoo hands it out, and its answer."""

    def __init__(self, verb: str, path: str, watch: Callable[[object], None] | None, sent_at: float) -> None:
        self.verb = verb
        self.sent_at = sent_at
        self.awaited = False  # by whom it wakes, and not by its sender
        self.answered = False
        self.path = path
        self.watch = watch
        self.value: Any = None
        self.exception: Exception | None = None
        self._links: list[Callable[[Any], None]] = []

    def rawlink(self, link: Callable[[Any], None]) -> None:
        self.awaited = True
        self._links.append(link)

    def answer(self, answer: Any = None) -> None:
        """Answer it with a value, or an error."""
        self.answered = True
        if isinstance(answer, Exception):
            self.exception = answer
        else:
            self.value = answer
        for link in self._links:
            link(self)

    def successful(self) -> bool:
        return self.exception is None

    def get_nowait(self) -> Any:
        if self.exception is not None:
            raise self.exception
        return self.value


class Session:
    """A session that is connected at once. What is asked for is answered as `written`, else as a line `a` would."""

    def __init__(self, clock: VirtualClock) -> None:
        self.listener: SessionListener
        self.sent: list[Request] = []
        self.written: dict[str, list[Any]] = defaultdict(list)
        self.takes = 0.0
        self.negotiated: float | None = None
        self.grants = TTL
        self.session_id = SESSION
        self.nodes: dict[str, Stat] = {}
        self.sequence = 0
        self.zxid = 100
        self.ended: list[str] = []
        self.drops = 0
        self._clock = clock

    def made_for(self, options: Options, ttl: float, context: BackendContext, listener: SessionListener) -> Session:
        self.listener = listener
        return self

    def open(self, verb: str) -> Request | None:
        """The request sent last by this verb that calls somebody back, while it is not answered."""
        found = [request for request in self.sent if request.verb == verb and request.awaited]
        return found[-1] if found and not found[-1].answered else None

    def of(self, *verbs: str) -> list[str]:
        """The verbs sent, of these, in order."""
        return [request.verb for request in self.sent if request.verb in verbs]

    def start(self) -> None:
        self._clock.advance(self.takes)
        self.negotiated = self.grants
        self.listener.connected()

    def wait_connected(self, until: float) -> None:
        """It is."""

    def stop(self, until: float) -> None:
        self.ended.append("stopped")

    def forsake(self) -> None:
        self.ended.append("forsaken")

    def drop(self) -> None:
        self.drops += 1

    def ask(self, until: float, *requests: Request) -> list[Any]:
        self._clock.advance(self.takes)
        return [self._answered(request) for request in requests]

    def _answered(self, request: Request) -> Any:
        usual = getattr(self, f"_{request.verb}")(request.path)  # carried out, whatever becomes of the answer
        answer = self.written[request.verb].pop(0) if self.written[request.verb] else usual
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send(self, verb: str, path: str, watch: Callable[[object], None] | None = None) -> Request:
        self.sent.append(Request(verb, path, watch, self._clock.now()))
        return self.sent[-1]

    def create_ticket(self, path: str, data: bytes) -> Request:
        return self._send("create", path)

    def children(self, path: str, watch: Callable[[object], None] | None = None) -> Request:
        return self._send("children", path, watch)

    def children_and_stat(self, path: str) -> Request:
        return self._send("children_and_stat", path)

    def exists(self, path: str, watch: Callable[[object], None] | None = None) -> Request:
        return self._send("exists", path, watch)

    def get(self, path: str, watch: Callable[[object], None] | None = None) -> Request:
        return self._send("get", path, watch)

    def set(self, path: str, data: bytes, version: int = -1) -> Request:
        return self._send("set", path)

    def delete(self, path: str) -> Request:
        return self._send("delete", path)

    def agreement(self) -> Request:
        return self._send("agreement", "/")

    def sync(self, path: str) -> Request:
        return self._send("sync", path)

    def _create(self, path: str) -> Any:
        self.zxid += 1
        name = f"{path.rpartition('/')[2]}{self.sequence:010d}"
        self.sequence += 1
        self.nodes[name] = Stat(czxid=self.zxid)
        return f"{LINE}/{name}", self.nodes[name]

    def _children(self, path: str) -> Any:
        return list(self.nodes)

    def _children_and_stat(self, path: str) -> Any:
        return list(self.nodes), Stat(pzxid=self.zxid)

    def _exists(self, path: str) -> Any:
        return self.nodes.get(path.rpartition("/")[2])

    def _get(self, path: str) -> Any:
        return codec.write_data("me", ""), self._there(path)

    def _set(self, path: str) -> Any:
        return self._there(path)

    def _delete(self, path: str) -> Any:
        self._there(path)
        del self.nodes[path.rpartition("/")[2]]

    def _sync(self, path: str) -> Any:
        return path

    def _agreement(self, path: str) -> Any:
        return [True]

    def _there(self, path: str) -> Stat:
        if (stat := self._exists(path)) is None:
            return _missing(path)
        there: Stat = stat
        return there


def _missing(path: str) -> Stat:
    raise NoNodeError(path)


class Desk:
    """One lease, its clock and its session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock(START)
        self.session = Session(self.clock)
        monkeypatch.setattr(lease_module, "ZooKeeperSession", self.session.made_for)
        self.lease = self.leased()

    def leased(self, lock_delay: float = 0.0) -> ZooKeeperLease:
        context = BackendContext(self.clock, Hub(self.clock.now), ImmediateWorkers())
        options = parse(f"zookeeper://127.0.0.1/n?tick={TICK}", {})
        return ZooKeeperLease(options, TTL, lock_delay, context, ZxidHistory("told by the test"))

    @property
    def until(self) -> float:
        return self.clock.now() + SECONDS

    @property
    def proven_from(self) -> float:
        """The time from which the belief counts."""
        return (self.lease._belief.deadline or 0.0) - provable(self.lease.ttl)

    def enter(self) -> Ticket:
        """A new ticket in the line `a`."""
        entry = Entry("a", "me")
        me = self.lease.enter(entry, self.until).find(entry.id)
        assert me is not None
        return me

    def answer_heartbeats(self, times: int, after: float) -> list[float]:
        """Answer so many, each some time after it was sent; when they were sent."""
        sent: list[float] = []
        while len(sent) < times:
            while (beat := self.session.open("sync")) is None:
                self.clock.advance(0.01)
            sent.append(beat.sent_at)
            self.clock.advance(after)
            beat.answer()
        return sent


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


# Law 2: what proves the session, and from when on.


def test_session_is_proven_from_before_it_was_begun(desk: Desk) -> None:
    """Connecting takes its time, and the leader counts from when it heard of the session."""
    desk.session.takes = 1.0
    desk.lease.renew(desk.until)
    assert desk.proven_from == pytest.approx(START)


def test_heartbeats_prove_the_time_of_their_sending(desk: Desk) -> None:
    """One that a later one confirms, and neither one's answer."""
    desk.enter()
    sent = desk.answer_heartbeats(6, after=0.4)
    assert min(abs(desk.proven_from - at) for at in sent) < 0.02
    assert desk.proven_from <= sent[-1] - TICK + 0.01


def test_renewals_prove_the_time_of_their_sending(desk: Desk) -> None:
    """As heartbeats do: the first is confirmed by the second."""
    desk.enter()
    desk.session.takes = 0.5
    desk.clock.advance(0.1)
    first = desk.clock.now()
    desk.lease.renew(desk.until)
    desk.clock.advance(TICK)
    desk.lease.renew(desk.until)
    assert desk.proven_from == pytest.approx(first)


def test_nothing_is_proven_while_no_server_is_linked(desk: Desk) -> None:
    """What was answered on the old connection may come to be looked at after it broke."""
    desk.enter()
    desk.clock.advance(0.1)
    desk.session.listener.suspended()
    for _ in range(2):
        desk.lease.renew(desk.until)
        desk.clock.advance(TICK + 0.1)
    assert desk.proven_from == pytest.approx(START)


def test_reconnected_session_is_proven_from_when_the_old_connection_broke(desk: Desk) -> None:
    """The leader has validated it since, at a time that nobody here knows; heartbeats count again from then on."""
    desk.enter()
    desk.clock.advance(1.0)
    desk.session.listener.suspended()
    desk.clock.advance(2.0)
    beats = len(desk.session.sent)
    desk.session.listener.connected()
    assert desk.proven_from == pytest.approx(START + 1.0)
    assert beats == len(desk.session.sent)
    desk.answer_heartbeats(6, after=0.1)
    assert desk.proven_from > START + 3.0


def test_no_heartbeat_is_sent_where_no_server_is_linked(desk: Desk) -> None:
    """It would be sent when the connection is back, and counted from before."""
    desk.enter()
    desk.session.listener.suspended()
    sent = len(desk.session.sent)
    desk.clock.advance(TTL / 2)
    assert len(desk.session.sent) == sent


def test_session_granted_less_by_another_server_is_believed_for_less(desk: Desk) -> None:
    """The end moves down: what the first server had granted is void."""
    desk.enter()
    desk.clock.advance(0.1)
    desk.session.listener.suspended()
    desk.session.negotiated = TTL / 2
    desk.session.listener.connected()
    assert desk.lease.ttl == TTL / 2
    assert desk.lease._belief.deadline == pytest.approx(START + 0.1 + provable(TTL / 2))


def test_server_that_swallows_heartbeats_is_given_up_while_there_is_time_for_another(desk: Desk) -> None:
    """One heartbeat at a time; unanswered for a third of the TTL it costs the server the connection."""
    desk.enter()
    desk.clock.advance(TTL / 3 + 0.5)
    assert len(desk.session.of("sync")) == 1
    assert desk.session.drops == 0
    desk.clock.advance(TTL / 4)
    assert desk.session.drops == 1
    assert len(desk.session.of("sync")) == 2
    assert not desk.lease.state.over


def test_server_that_answers_heartbeats_is_kept(desk: Desk) -> None:
    """For as long as it does."""
    desk.enter()
    desk.answer_heartbeats(30, after=0.1)
    assert desk.session.drops == 0
    assert desk.lease.state is LeaseState.HELD


# Entering, looking, leaving.


def test_ticket_that_a_lost_try_has_made_is_found_after_a_sync(desk: Desk) -> None:
    """Law 6: another server, which lags behind, would not show it, and a second one would be made."""
    desk.enter()
    desk.session.nodes.clear()
    del desk.session.sent[:]
    desk.session.written["create"] = [CUT]
    me = desk.enter()
    assert me.token == desk.session.zxid
    verbs = desk.session.of("create", "sync", "children_and_stat", "exists")
    assert verbs == ["create", "children_and_stat", "sync", "children_and_stat", "exists"]
    assert len(desk.session.nodes) == 1


def test_ticket_of_another_session_is_not_taken_for_the_own_one(desk: Desk) -> None:
    """It goes with that session, of which nobody here knows."""
    desk.session.written["create"] = [CUT]
    desk.session.written["exists"] = [Stat(czxid=101, ephemeralOwner=ANOTHER)]
    desk.enter()
    assert desk.session.of("create") == ["create", "create"]


@pytest.mark.parametrize("sequence", [2**31 - 1, -(2**31)])
def test_line_whose_order_is_at_its_end_takes_no_ticket(desk: Desk, sequence: int) -> None:
    """ZooKeeper gives the last number again and again: nobody could tell who came first."""
    desk.session.sequence = sequence
    with pytest.raises(StoreRefused, match="can't put another in order"):
        desk.enter()


def test_token_that_is_not_higher_stops_the_client(desk: Desk) -> None:
    """Law 4: for good, also when the next one would be."""
    for _ in range(2):
        desk.enter()
    desk.session.zxid -= 1
    for _ in range(2):
        with pytest.raises(StoreWentBack):
            desk.enter()
        desk.session.zxid += 100


def test_look_knows_the_own_ticket_by_its_node_alone(desk: Desk) -> None:
    """Law 3: one of this id at another place is another ticket."""
    first, me = desk.enter(), desk.enter()
    seen = desk.lease.look(me, Reach.AHEAD, desk.until)
    assert [ticket.key for ticket in seen.tickets] == [first.key, me.key]
    assert seen.tickets[-1].token == me.token
    del desk.session.nodes[me.key.rpartition("/")[2]]
    desk.session.nodes[f"_c_{me.id}-lock-0000000009"] = Stat()
    assert desk.lease.look(me, Reach.AHEAD, desk.until).tickets == ()


def test_survey_is_what_the_quorum_has(desk: Desk) -> None:
    """Observers have no ticket of their own whose place would show that the server lags behind, or leads nobody."""
    first, second = desk.enter(), desk.enter()
    del desk.session.sent[:]
    line = desk.lease.survey("a", desk.until, front=1)
    assert desk.session.of("sync", "agreement", "children", "get") == ["agreement", "children", "get"]
    assert [(ticket.key, ticket.token) for ticket in line.tickets] == [(first.key, first.token)]
    desk.session.written["get"] = [NoNodeError()]
    assert [ticket.key for ticket in desk.lease.survey("a", desk.until, front=1).tickets] == [second.key]


def test_amendment_of_a_ticket_that_is_gone_is_none(desk: Desk) -> None:
    """A node's name never comes back, so it can be no other ticket's."""
    me = desk.enter()
    assert desk.lease.amend(me, "v", desk.until) is True
    desk.session.nodes.clear()
    assert desk.lease.amend(me, "v", desk.until) is False


@pytest.mark.parametrize(
    ("answers", "left"), [([], True), ([NoNodeError()], False), ([CUT], True)], ids=["there", "gone", "by a lost try"]
)
def test_leaving_tells_whether_it_removed_the_node(desk: Desk, answers: list[Any], left: bool) -> None:
    """Gone after a lost answer: by that try."""
    me = desk.enter()
    desk.session.written["delete"] = answers
    assert desk.lease.leave(me, desk.until) is left


@pytest.mark.parametrize(("reason", "error"), [(EXPIRED, LeaseLost), ("told by the test", StoreUnavailable)])
def test_leaving_a_session_that_nobody_proves_says_whether_its_ticket_may_stand(
    desk: Desk, reason: str, error: type[Exception]
) -> None:
    """The store removes it when it ends the session, and has said so only where it has."""
    me = desk.enter()
    desk.lease._belief.end(LeaseState.LOST, reason)
    with pytest.raises(error):
        desk.lease.leave(me, desk.until)


def test_abandoned_ticket_is_looked_for_and_deleted(desk: Desk) -> None:
    """Law 7: after a sync, whatever became of it."""
    entry = Entry("a", "me")
    desk.lease.enter(entry, desk.until)
    del desk.session.sent[:]
    desk.lease.abandon(entry)
    assert desk.session.of("sync", "children_and_stat", "delete") == ["sync", "children_and_stat", "delete"]
    assert desk.session.nodes == {}
    assert desk.lease.reaping == 0


# Ends, and lock delay.


def test_closing_gives_tickets_up_before_anything_else_is_asked(desk: Desk) -> None:
    """Law 16: whoever waits for them must not wait for the rest; the session ends at the store."""
    desk.enter()
    del desk.session.sent[:]
    desk.lease.close(desk.until)
    assert desk.session.sent[0].verb == "delete"
    assert desk.session.ended == ["stopped"]


@pytest.mark.parametrize(("lock_delay", "ended"), [(0.0, "stopped"), (5.0, "forsaken")])
def test_lost_session_is_ended_unless_a_lock_delay_is_to_be_kept(desk: Desk, lock_delay: float, ended: str) -> None:
    """Where it is, only the store may end it, in its own time."""
    desk.lease, desk.session.grants = desk.leased(lock_delay), TTL + lock_delay
    desk.enter()
    assert desk.lease.ttl == TTL
    assert desk.lease._belief.deadline == START + provable(TTL)
    desk.clock.advance(TTL)
    assert desk.lease.state is LeaseState.LOST
    assert desk.session.ended == [ended]


def test_session_without_time_for_the_lock_delay_is_refused(desk: Desk) -> None:
    """A shorter TTL is acceptable, a shorter lock delay would break a promise."""
    desk.lease = desk.leased(lock_delay=5.0)
    with pytest.raises(StoreRefused, match="lock_delay of 5 needs more"):
        desk.enter()


# Watches.


@pytest.mark.parametrize(
    ("answer", "amendments", "woken"),
    [
        ((b"", Stat(version=0)), False, False),
        ((b"", Stat(version=0)), True, False),
        ((b"", Stat(version=1)), False, False),
        ((b"", Stat(version=1)), True, True),
        (NoNodeError(), False, True),
        (ConnectionLoss(), False, True),
    ],
    ids=["stands", "unamended", "amended", "amended, and that is news", "gone", "nobody knows"],
)
def test_watch_wakes_for_what_was_missed_and_for_nothing_else(
    desk: Desk, answer: Any, amendments: bool, woken: bool
) -> None:
    """Between the reading of the line and the arming; also who comes when it is armed and had read the line before."""
    desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    for _ in range(2):
        signal = desk.lease.wait_change(line, line.tickets[:1], amendments=amendments)
        if (arming := desk.session.open("get")) is not None:
            arming.answer(answer)
        assert signal.is_set() is woken


def test_watch_is_shared_and_wakes_those_who_still_wait(desk: Desk) -> None:
    """One request to the server for all of them; who has closed the wait is forgotten."""
    desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    waits = [desk.lease.wait_change(line, line.tickets[:1], amendments=False) for _ in range(3)]
    (arming,) = (request for request in desk.session.sent if request.watch is not None)
    arming.answer((b"", Stat()))
    waits[0].close()
    assert arming.watch is not None
    arming.watch("gone")
    assert [signal.is_set() for signal in waits] == [False, True, True]
    assert desk.lease.watches == 0


def test_end_of_the_session_wakes_every_wait(desk: Desk) -> None:
    """Law 11: whether a watch fires or not."""
    desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    signal = desk.lease.wait_change(line, line.tickets[:1], amendments=False)
    desk.session.listener.over(EXPIRED)
    assert signal.is_set()
    assert (desk.lease.state, desk.lease._belief.reason) == (LeaseState.LOST, EXPIRED)


def test_departure_of_any_awaited_ticket_wakes_and_another_arrival_does_not(desk: Desk) -> None:
    """Law 9: a front waiter is woken by those ahead of it; many are watched by their line."""
    for _ in range(WATCHED_SINGLY_MAX + 1):
        desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    names = [ticket.key.rpartition("/")[2] for ticket in line.tickets]
    for children, woken in ((names, False), ([*names, "x-lock-0000000077", "nested"], False), (names[1:], True)):
        signal = desk.lease.wait_change(line, line.tickets[:-1], amendments=False)
        arming = desk.session.open("children")
        assert arming is not None
        assert arming.watch is not None
        arming.answer(children)
        assert signal.is_set() is woken
        arming.watch("changed")


def test_few_awaited_tickets_are_watched_each_by_itself(desk: Desk) -> None:
    """Law 9: nobody else's departure wakes their waiter."""
    for _ in range(2):
        desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    signal = desk.lease.wait_change(line, line.tickets[:2], amendments=False)
    armed = [request.path for request in desk.session.sent if request.watch is not None]
    assert armed == [ticket.key for ticket in line.tickets[:2]]
    assert not signal.is_set()


def test_any_change_of_a_line_wakes_who_names_no_ticket(desk: Desk) -> None:
    """An observer hears of who comes and goes, and of amendments of anybody."""
    desk.enter()
    line = desk.lease.enter(Entry("a", "other"), desk.until)
    first, second = (ticket.key.rpartition("/")[2] for ticket in line.tickets)
    for children in ([first], [first, second, "x-lock-0000000077"]):
        signal = desk.lease.wait_change(line, (), amendments=False)
        arming = desk.session.open("children")
        assert arming is not None
        assert arming.watch is not None
        arming.answer(children)
        assert signal.is_set()
        arming.watch("changed")
    signal = desk.lease.wait_change(line, (), amendments=False)
    arming = desk.session.open("get")
    assert arming is not None
    arming.answer((b"", Stat(version=1)))
    assert signal.is_set()


@pytest.mark.parametrize(("there", "woken"), [(None, False), (Stat(), True)])
def test_first_arrival_in_a_line_that_is_not_there_wakes(desk: Desk, there: Stat | None, woken: bool) -> None:
    """Listing arms nothing where there is no node: its creation is watched, which may have been just before."""
    signal = desk.lease.wait_change(Line("a", (), 0), (), amendments=True)
    listing = desk.session.open("children")
    assert listing is not None
    listing.answer(NoNodeError())
    creation = desk.session.open("exists")
    assert creation is not None
    assert creation.watch is not None
    creation.answer(there)
    assert signal.is_set() is woken
    creation.watch("created")
    assert signal.is_set()
