"""The guard in the store itself: keys that are written only while one ticket stands. Every backend, both faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import tenure
from tenure import Compare, CompareFailed, Delete, InvalidName, InvalidOption, LeaseLost, Put, StaleToken
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.drivers.blocking import perform
from tenure._core.guarded_keys import Keys
from tenure._core.lease import Fate
from tenure._core.turn import Commit
from tenure.testing.conformance.store_world import StoreWorld, inner, needs

RECIPES: dict[str, Any] = {
    "lock": lambda client: client.lock("guarded"),
    "election": lambda client: client.election("guarded", value="me").campaign(),
    "semaphore": lambda client: client.semaphore("guarded", limit=2),
    "read": lambda client: client.rwlock("guarded").read(),
    "write": lambda client: client.rwlock("guarded").write(),
}


def soon() -> float:
    return SYSTEM_CLOCK.now() + 5.0


class Data:
    """Keys of one test; all of them are removed at its end."""

    def __init__(self, world: StoreWorld) -> None:
        self._world = world

    def __call__(self, name: str) -> str:
        return f"data/{name}"

    def remove(self) -> None:
        """Delete the test's data under a hold of its own, at the end."""
        client = self._world.client(ttl=20)
        names = ("a", "b", "c", "deep/x", "deep/y", "deep", "")
        keys = [self(name).rstrip("/") for name in names]
        with client.lock("cleaning") as hold:
            for key in keys:
                hold.store.delete(key)


@pytest.fixture
def data(world: StoreWorld) -> Iterator[Data]:
    """The keys of a test's data."""
    made = Data(world)
    yield made
    made.remove()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_kind_of_hold_writes_reads_and_deletes(world: StoreWorld, data: Data, recipe: str) -> None:
    """put, get, delete and compare under a lock, a leader, a seat, a reader and a writer."""
    with RECIPES[recipe](world.client(ttl=20)) as hold:
        store = hold.store
        assert store.get(data("a")) is None
        first = store.put(data("a"), b"one")
        found = store.get(data("a"))
        assert (found.key, found.value, found.version) == (data("a"), b"one", first)
        second = store.put(data("a"), b"two", version=first)
        assert second != first
        with pytest.raises(CompareFailed, match=str(first)):
            store.put(data("a"), b"three", version=first)
        assert store.get(data("a")).value == b"two"
        with pytest.raises(CompareFailed):
            store.delete(data("a"), version=first)
        store.delete(data("a"), version=second)
        assert store.get(data("a")) is None
        store.delete(data("a"))  # there is nothing, and that is what was asked for


def test_new_key_is_put_only_once_with_version_zero(world: StoreWorld, data: Data) -> None:
    """Version 0 means: if it is new."""
    with world.client(ttl=20).lock("guarded") as hold:
        hold.store.put(data("a"), b"mine", version=0)
        with pytest.raises(CompareFailed):
            hold.store.put(data("a"), b"again", version=0)
        assert hold.store.get(data("a")).value == b"mine"


def test_commit_is_all_or_nothing(world: StoreWorld, data: Data) -> None:
    """Several keys in one transaction; a comparison that fails writes none of them."""
    with world.client(ttl=20).lock("guarded") as hold:
        versions = hold.store.commit(Put(data("a"), b"1"), Put(data("deep/x"), b"2"), Put(data("deep/y"), b""))
        assert set(versions) == {data("a"), data("deep/x"), data("deep/y")}
        changed = hold.store.commit(
            Put(data("b"), b"3"), Delete(data("deep/x")), Compare(data("a"), versions[data("a")])
        )
        assert set(changed) == {data("b")}
        assert hold.store.get(data("deep/x")) is None
        assert hold.store.get(data("deep/y")).value == b""
        with pytest.raises(CompareFailed):
            hold.store.commit(Put(data("c"), b"4"), Delete(data("b")), Compare(data("a"), versions[data("a")] + 99))
        assert hold.store.get(data("c")) is None
        assert hold.store.get(data("b")).value == b"3"


def test_amending_the_hold_does_not_disturb_its_commits(world: StoreWorld, data: Data) -> None:
    """The ticket's version moves on with every amendment; a commit follows it."""
    with world.client(ttl=20).election("guarded", value="one").campaign() as hold:
        hold.store.put(data("a"), b"1")
        hold.amend("two")
        hold.store.put(data("a"), b"2")
        assert hold.store.get(data("a")).value == b"2"


def test_many_threads_commit_under_one_hold(world: StoreWorld, data: Data) -> None:
    """Compare and put in a loop from several threads loses no increment."""
    with world.client(ttl=20).lock("guarded") as hold:
        hold.store.put(data("a"), b"0")

        def add() -> None:
            for _ in range(5):
                while True:
                    seen = hold.store.get(data("a"))
                    try:
                        hold.store.put(data("a"), b"%d" % (int(seen.value) + 1), version=seen.version)
                        break
                    except CompareFailed:
                        continue

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(add) for _ in range(4)]:
                done.result()
        assert hold.store.get(data("a")).value == b"20"


# Stale holders.


@needs("cut")
def test_deposed_holder_that_does_not_know_writes_nothing(world: StoreWorld, data: Data) -> None:
    """A stopped past its TTL, B acquires and writes, A resumes and writes: refused, B's data intact."""
    a, b = world.client(ttl=20), world.client(ttl=20)
    first = a.lock("guarded").acquire()
    first.store.put(data("a"), b"A")
    world.cut(a)
    world.expire(first)
    second = b.lock("guarded").acquire(timeout=20)
    second.store.put(data("a"), b"B")
    world.heal(a)
    assert first.state.value in ("held", "suspect", "lost")
    with pytest.raises((StaleToken, LeaseLost)):  # LeaseLost where the news of the loss was faster than the write
        first.store.put(data("a"), b"A, late")
    assert first.lost.is_set()
    with pytest.raises(LeaseLost):
        first.store.get(data("a"))
    second.store.put(data("b"), b"B again")
    assert second.store.get(data("a")).value == b"B"
    second.release()


def test_commit_of_a_ticket_that_is_gone_is_refused_and_names_both_tokens(world: StoreWorld, data: Data) -> None:
    """The store's own refusal, with no belief in front of it: StaleToken, and nothing is written or read."""
    a, b = inner(world.client(ttl=20)), world.client(ttl=20)
    first = a.lock("guarded").acquire() if world.face.name == "threads" else world.face.run(_acquire(a))
    world.remove(first)
    second = b.lock("guarded").acquire(timeout=20)
    lease = first._lease
    assert lease.commit(first._ticket, (), (Put(data("a"), b"late"),), soon()).fate is Fate.GONE
    assert lease.read(first._ticket, [data("a")], soon()) is None
    assert lease.touch(first._ticket, soon()) is None
    with pytest.raises(StaleToken) as refused:
        _drive(Keys(lease, first._ticket, lambda: first.fence, "", None).commit([Put(data("a"), b"x")], soon()))
    assert refused.value.offered == str(first.fence)
    assert refused.value.seen == str(second.fence)
    assert second.store.get(data("a")) is None
    second.release()


def test_write_in_flight_when_the_ticket_goes_is_refused_at_the_store(world: StoreWorld, data: Data) -> None:
    """A's write is on its way while B takes over and writes: it arrives, and does nothing."""
    a, b = world.client(ttl=20, timeout=15.0), world.client(ttl=20)
    first = a.lock("guarded").acquire()
    first.store.put(data("a"), b"A")
    with _write_on_its_way(world, a, first, Put(data("a"), b"A, late")) as arrive:
        world.remove(first)
        second = b.lock("guarded").acquire(timeout=20)
        second.store.put(data("a"), b"B")
        assert arrive() in (Fate.GONE, StaleToken, LeaseLost)
    assert second.store.get(data("a")).value == b"B"
    second.release()


@contextmanager
def _write_on_its_way(world: StoreWorld, client: Any, hold: Any, put: Put) -> Iterator[Callable[[], Any]]:
    """`put` has been sent and has not arrived; calling what is yielded sees it arrive, and tells what came of it."""
    if not world.can("delay"):  # the same at the seam above: the commit is sent when it is to arrive
        real = inner(hold)
        step = next(real._guarded_keys().commit([put], soon()))
        yield lambda: real._lease.commit(step.ticket, step.compares, step.writes, soon()).fate
        return
    world.delay(client, 4.0)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(hold.store.put, put.key, put.value)

        def arrive() -> Any:
            assert not writing.done(), "the write was not in flight: the scene was not set"
            world.heal(client)  # what is on its way arrives no earlier for it
            return type(writing.exception(timeout=20))

        yield arrive


def test_dead_seat_is_refused_and_the_living_ones_write_on(world: StoreWorld, data: Data) -> None:
    """Co-holders have different tokens, and each writes while its own ticket stands: no highest token rules."""
    a, b, c = (world.client(ttl=20) for _ in range(3))
    seats = [client.semaphore("seats", limit=2) for client in (a, b, c)]
    one, two = seats[0].acquire(), seats[1].acquire()
    for turn in range(2):
        one.store.put(data("a"), b"one %d" % turn)
        two.store.put(data("b"), b"two %d" % turn)
    world.remove(one)
    three = seats[2].acquire(timeout=20)
    three.store.put(data("a"), b"three")
    with pytest.raises((StaleToken, LeaseLost)):
        one.store.put(data("a"), b"one, late")
    two.store.put(data("b"), b"two, still")
    assert three.store.get(data("a")).value == b"three"
    assert three.store.get(data("b")).value == b"two, still"
    two.release()
    three.release()


# Lost answers.


@needs("lose_answer", "lose_request")
def test_lost_answer_or_request_of_a_put_is_made_good(world: StoreWorld, data: Data) -> None:
    """A put that was repaired stands, under the version that it returned."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        for number, lose in enumerate((world.lose_answer, world.lose_request), 1):
            lose(client, "commit")
            version = hold.store.put(data("a"), b"%d" % number)
            found = hold.store.get(data("a"))
            assert (found.value, found.version) == (b"%d" % number, version)


@needs("lose_request")
def test_lost_request_of_a_comparing_put_is_made_good(world: StoreWorld, data: Data) -> None:
    """The first try is dead, so the second one's comparison decides."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        version = hold.store.put(data("a"), b"1", version=0)
        world.lose_request(client, "commit")
        version = hold.store.put(data("a"), b"2", version=version)
        assert hold.store.get(data("a")).version == version


@needs("lose_answer")
def test_comparison_is_never_reported_as_kept_on_a_guess(world: StoreWorld, data: Data) -> None:
    """An answer is lost, and what was asked for stands, but somebody else may have put it there: unknown, not done."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        version = hold.store.put(data("a"), b"yes")
        hold.store.put(data("b"), b"1")
        for write, compare in (
            (Put(data("a"), b"yes"), Compare(data("a"), 0)),
            (Put(data("a"), b"yes"), Compare(data("a"), version + 99)),
            (Put(data("a"), b"yes"), Compare(data("b"), version + 99)),
            (Delete(data("c")), Compare(data("c"), version)),
        ):
            with pytest.raises(CompareFailed):
                hold.store.commit(write, compare)
            world.lose_answer(client, "commit")
            with pytest.raises((CompareFailed, tenure.StoreUnavailable)) as caught:
                hold.store.commit(write, compare)
            if caught.type is tenure.StoreUnavailable:
                assert caught.value.happened == "unknown"
            world.forget(client)
        assert hold.store.get(data("a")).version == version


def test_commit_that_was_carried_out_is_not_told_as_certainly_not(world: StoreWorld, data: Data) -> None:
    """The answer is lost, and then the client is closed: the put stands, and nothing says that it does not."""
    client = world.client(ttl=20)
    hold = client.lock("guarded").acquire()
    real = inner(hold)
    steps = real._guarded_keys().commit([Put(data("a"), b"1")], soon())
    step = next(steps)
    assert real._lease.commit(step.ticket, step.compares, step.writes, soon()).fate is Fate.DONE
    touch = steps.throw(tenure.StoreUnavailable("the answer was lost"))
    client.close()
    with pytest.raises(tenure.TenureError) as caught:
        while True:  # until the call has an end: whatever it asks now, it asks a closed client
            try:
                outcome = perform(touch)
            except tenure.TenureError as error:
                touch = steps.throw(error)
            else:
                touch = steps.send(outcome)
    assert caught.value.happened == "unknown"


@needs("lose_answer", "lose_request")
def test_many_threads_increment_under_one_hold_though_answers_are_lost(world: StoreWorld, data: Data) -> None:
    """Increments that were answered as done stand: none is lost, none is made twice."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        hold.store.put(data("a"), b"0")
        done, unknown = [0] * 4, [0] * 4

        def add(me: int) -> None:
            for number in range(10):
                if number % 3 == me % 3:
                    (world.lose_answer if number % 2 else world.lose_request)(client, "commit")
                seen = hold.store.get(data("a"))
                try:
                    hold.store.put(data("a"), b"%d" % (int(seen.value) + 1), version=seen.version)
                    done[me] += 1
                except CompareFailed:
                    continue
                except tenure.StoreUnavailable:
                    unknown[me] += 1

        with ThreadPoolExecutor(4) as pool:
            for one in [pool.submit(add, me) for me in range(4)]:
                one.result()
        world.forget(client)
        final = int(hold.store.get(data("a")).value)
        assert sum(done) <= final <= sum(done) + sum(unknown)
        assert sum(done) > 0


def test_versions_are_not_used_again(world: StoreWorld, data: Data) -> None:
    """Deleted and put again is another version, and who compares with the old one is refused."""
    with world.client(ttl=20).lock("guarded") as hold:
        first = hold.store.put(data("a"), b"mine")
        hold.store.delete(data("a"))
        second = hold.store.put(data("a"), b"another's")
        assert second != first
        with pytest.raises(CompareFailed):
            hold.store.put(data("a"), b"late", version=first)
        assert hold.store.get(data("a")).value == b"another's"


def test_commit_of_as_many_new_keys_as_are_allowed(world: StoreWorld, data: Data) -> None:
    """New keys, each below a parent of its own, are made in one commit, and deleted in another."""
    client = world.client(ttl=20)
    keys = [data(f"many/p{i}/x") for i in range(64)]
    with client.lock("guarded") as hold:
        versions = hold.store.commit(*(Put(key, b"v") for key in keys))
        assert versions.keys() == set(keys)
        assert hold.store.get(keys[63]).version == versions[keys[63]]
        hold.store.commit(*(Delete(key) for key in keys))
        hold.store.commit(*(Delete(key.removesuffix("/x")) for key in keys))
        hold.store.delete(data("many"))


@needs("lose_answer")
def test_lost_answer_under_a_shared_hold_is_told_as_unknown(world: StoreWorld, data: Data) -> None:
    """A value may be a co-holder's, so an unheard answer stays unknown."""
    client = world.client(ttl=20)
    with client.semaphore("seats", limit=2) as hold:
        hold.store.put(data("a"), b"1")
        world.lose_answer(client, "commit")
        with pytest.raises(tenure.StoreUnavailable, match="may or may not") as caught:
            hold.store.put(data("a"), b"2")
        assert caught.value.happened == "unknown"
        assert hold.store.get(data("a")).value == b"2"
        hold.store.put(data("a"), b"3")
        assert hold.store.get(data("a")).value == b"3"


def test_commit_tied_to_a_version_that_was_touched_is_never_carried_out(world: StoreWorld, data: Data) -> None:
    """A commit whose answer was lost may arrive late; once the ticket was touched it does nothing."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        real = inner(hold)
        lease, ticket = real._lease, real._ticket
        assert ticket.version is not None
        touched = lease.touch(ticket, soon())
        assert touched.version != ticket.version
        key = real._guarded_keys()._root + data("a")
        late = lease.commit(ticket, (), (Put(key, b"late"),), soon())
        assert (late.fate, late.ticket.version) == (Fate.AMENDED, touched.version)
        assert lease.touch(ticket, soon()).version == touched.version  # moved on already: left alone
        assert lease.commit(touched, (), (Put(key, b"now"),), soon()).fate is Fate.DONE
        assert hold.store.get(data("a")).value == b"now"


def test_interrupted_commit_is_settled_before_the_next_exchange(world: StoreWorld, data: Data) -> None:
    """Cancelled in the middle: what was sent is done or dead before the hold reads again."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        real = inner(hold)
        keys = real._guarded_keys()
        steps = keys.commit([Put(data("a"), b"late")], soon())
        step = next(steps)
        assert isinstance(step, Commit)
        with pytest.raises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt())
        assert hold.store.get(data("a")) is None
        late = real._lease.commit(step.ticket, step.compares, step.writes, soon())
        assert late.fate is Fate.AMENDED
        assert hold.store.get(data("a")) is None


@needs("cut")
def test_commit_into_a_black_hole_ends_in_time_and_leaves_nothing_to_come(world: StoreWorld, data: Data) -> None:
    """The store is away: StoreUnavailable within the client's own time-out; afterwards what stands there stays."""
    client = world.client(ttl=20, timeout=2.0)
    hold = client.lock("guarded").acquire()
    hold.store.put(data("a"), b"1")
    world.cut(client)
    with pytest.raises(tenure.StoreUnavailable):
        hold.store.put(data("a"), b"2")
    world.heal(client)
    client = world.client(ttl=20)
    world.remove(hold)
    with client.lock("guarded") as second:
        assert second.store.get(data("a")).value in (b"1", b"2")


# Bad input.


BAD_KEYS: list[Any] = [
    *("", "/", "a//b", "a/../b", "./a", "a/", "a\x00b", "a\nb", "🔒", "\ue000", "\ufff0", "/a", 7, b"a")
]
BAD_COMMITS: list[list[Any]] = [
    [],
    [Compare("x", 1)],
    [Put("x", b""), Put("x", b"")],
    [Put("x", b""), Delete("x")],
    [Put("x", b""), Compare("x", 1), Compare("x", 2)],
    [Put("x", b""), Compare("y", 0)],
    [Delete("x"), Compare("x", 0)],
    [Put("x", b""), Compare("x", -1)],
    [Put("x", b""), Compare("x", "1")],  # type: ignore[arg-type]  # what users pass
    [Put("x", "text")],  # type: ignore[arg-type]  # what users pass
    [Put("x", b""), "y"],
    [Put(f"x{i}", b"") for i in range(65)],
    [Put("x", b"y" * 300_000), Put("z", b"y" * 300_000)],
]


@needs("cut")
def test_bad_keys_and_commits_are_refused_before_anything_is_sent(world: StoreWorld) -> None:
    """The same keys are good on every store, and what can't be meant is said at once."""
    client = world.client(ttl=20)
    with client.lock("guarded") as hold:
        world.cut(client)  # whatever is sent now goes unanswered
        for key in BAD_KEYS:
            with pytest.raises(InvalidName):
                hold.store.put(key, b"x")
            with pytest.raises(InvalidName):
                hold.store.get(key)
        for operations in BAD_COMMITS:
            with pytest.raises(InvalidOption):
                hold.store.commit(*operations)
        hold.check()
        world.heal(client)


def _drive(steps: Any) -> Any:
    from tenure._core.drivers.blocking import run

    return run(steps, SYSTEM_CLOCK)


async def _acquire(client: Any) -> Any:
    return await client.lock("guarded").acquire()
