"""The guard for Redis: scripted interleavings, the rule itself, scripts of all sorts, and servers that forget."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from tenure._core.base.limits import FENCE_HOLDERS_MAX, INCARNATION_MAX, TOKEN_MAX
from tenure.errors import FenceMismatch, InvalidFence, InvalidOption, StaleToken, StoreRefused
from tenure.fencing._fence import Fence, admit
from tenure.fencing.redis import AsyncRedisGuard, RedisGuard
from tenure.testing.servers.processes import free_port, give_back
from tests.conformance.store_worlds import eventually
from tests.servers import Redis, start_database

from .conftest import Rivals

SECONDS = 10.0
LINE = "billing/ledger"
RECORD = f"tenure:fence:{LINE}"
INCREMENT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
FACES = ("threads", "asyncio")


def token(number: int, **more: Any) -> Fence:
    return Fence(LINE, number, **more)


@pytest.fixture
def url(redis_server: Any) -> str:
    """A Redis with nothing in it."""
    address: str = redis_server.url()
    with redis.Redis.from_url(address) as client:
        client.flushdb()
    return address


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


class Blocking:
    """The asyncio guard, used like the other: a loop and a client for each call."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *args, **more: asyncio.run(self._call(lambda guard: getattr(guard, verb)(*args, **more)))

    def wrap(self, script: str) -> Callable[..., Any]:
        return lambda *args, **more: asyncio.run(self._call(lambda guard: guard.wrap(script)(*args, **more)))

    async def _call(self, call: Callable[[AsyncRedisGuard], Any]) -> Any:
        async with redis.asyncio.Redis.from_url(self._url, **self._options) as client:
            return await call(AsyncRedisGuard(client))


@contextmanager
def guard_of(face: str, url: str, **options: Any) -> Iterator[Any]:  # Any: either face's guard
    if face == "asyncio":
        yield Blocking(url, **options)
    else:
        with redis.Redis.from_url(url, **options) as client:
            yield RedisGuard(client)


@pytest.fixture(params=FACES)
def guard(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    with guard_of(request.param, url) as made:
        yield made


def everything(client: redis.Redis) -> dict[bytes, Any]:
    """The keys that the server holds, and until when."""
    return {key: (client.dump(key), client.ttl(key)) for key in client.scan_iter()}


class InFlight:
    """A request that has left its client and not reached the server: its last byte is still to come."""

    def __init__(self) -> None:
        self._sent, self._go_on = threading.Event(), threading.Event()
        self._used = False

    def is_it(self, data: bytes) -> bool:
        if self._used or b"EVALSHA" not in data:
            return False
        self._used = True
        return True

    def wait_for_the_last_byte(self) -> None:
        self._sent.set()
        assert self._go_on.wait(SECONDS)

    def sent(self) -> bool:
        return self._sent.wait(SECONDS)

    def arrive(self) -> None:
        self._go_on.set()

    def connection(self) -> type:
        """A class of connections for a blocking client."""
        stage = self

        class Halting(redis.Connection):  # type: ignore[misc]  # redis-py is not typed for us
            def send_packed_command(self, command: Any, check_health: bool = True) -> None:
                data = command if isinstance(command, bytes) else b"".join(command)
                if stage.is_it(data):
                    super().send_packed_command([data[:-1]], check_health)
                    stage.wait_for_the_last_byte()
                    data = data[-1:]
                super().send_packed_command([data], check_health)

        return Halting

    def asyncio_connection(self) -> type:
        stage = self

        class Halting(redis.asyncio.Connection):  # type: ignore[misc]  # as above
            async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
                data = command if isinstance(command, bytes) else b"".join(command)
                if stage.is_it(data):
                    await super().send_packed_command([data[:-1]], check_health)
                    await asyncio.to_thread(stage.wait_for_the_last_byte)
                    data = data[-1:]
                await super().send_packed_command([data], check_health)

        return Halting

    def set(self, face: str, url: str, fence: Fence, key: str, value: str) -> None:
        """The write that is held up."""
        if face == "asyncio":
            asyncio.run(self._aset(url, fence, key, value))
            return
        pool = redis.ConnectionPool.from_url(url, connection_class=self.connection())
        with redis.Redis.from_pool(pool) as client:
            RedisGuard(client).set(fence, key, value)

    async def _aset(self, url: str, fence: Fence, key: str, value: str) -> None:
        pool = redis.asyncio.ConnectionPool.from_url(url, connection_class=self.asyncio_connection())
        async with redis.asyncio.Redis.from_pool(pool) as client:
            await AsyncRedisGuard(client).set(fence, key, value)


# The interleavings, with real holds.


def test_deposed_holder_that_resumes_is_refused_and_the_second_ones_data_stands(
    rivals: Rivals, guard: Any, client: redis.Redis
) -> None:
    """A stopped, B writes, A writes: A is told both tokens, and B's data is intact."""
    guard.set(rivals.first.fence, "total", "first")
    second = rivals.depose()
    assert guard.get(second.fence, "total") == b"first"
    guard.set(second.fence, "total", "second")
    before = everything(client)
    rivals.resume()
    with pytest.raises(StaleToken) as refused:
        guard.set(rivals.first.fence, "total", "late")
    assert str(rivals.first.token) in str(refused.value)
    assert str(second.token) in str(refused.value)
    assert (refused.value.offered, refused.value.seen) == (str(rivals.first.fence), str(second.fence))
    assert everything(client) == before
    assert client.get("total") == b"second"


@pytest.mark.parametrize("face", FACES)
def test_write_that_is_in_flight_when_the_second_writes_is_refused_when_it_arrives(
    rivals: Rivals, url: str, client: redis.Redis, face: str
) -> None:
    """A's request is on the wire while B acquires and writes: Redis decides when it runs it, not when it was sent."""
    guard = RedisGuard(client)
    guard.set(rivals.first.fence, "total", "first")  # Redis knows the script: the late EVALSHA is all it needs
    flight = InFlight()
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(flight.set, face, url, rivals.first.fence, "total", "late")
        assert flight.sent()
        second = rivals.depose().fence
        guard.set(second, "total", "second")
        assert not late.done()
        flight.arrive()
        with pytest.raises(StaleToken, match=rf"token {rivals.first.token} .* token {second.token} was seen"):
            late.result(SECONDS)
    assert client.get("total") == b"second"


def test_late_write_after_the_second_only_read_is_refused(rivals: Rivals, guard: Any, client: redis.Redis) -> None:
    """Reads register: what B has read stays true until B writes."""
    guard.set(rivals.first.fence, "total", 1)
    second = rivals.depose().fence
    assert guard.get(second, "total") == b"1"
    with pytest.raises(StaleToken):
        guard.set(rivals.first.fence, "total", "late")
    assert client.get("total") == b"1"


def test_retried_write_of_the_second_is_accepted(rivals: Rivals, guard: Any, client: redis.Redis) -> None:
    """The same fence again, as an object or as its text, is the same holder."""
    second = rivals.depose().fence
    guard.set(second, "total", "second")
    guard.set(str(second), "total", "second")
    assert guard.get(second, "total") == b"second"
    assert guard.seen(second.line) == second


def test_seats_held_together_write_in_turn_and_a_dead_one_is_refused_after_a_newer_claimed(
    world: Any, client: redis.Redis
) -> None:
    """Two seats have two tokens and both count, until one is gone and its successor has come."""
    clients = [world.client(owner=str(n), ttl=60) for n in range(3)]
    seats = [one.semaphore("seats", limit=2) for one in clients]
    first, second = (seat.acquire(timeout=10) for seat in seats[:2])
    guard = RedisGuard(client)
    for fence in (second.fence, first.fence, second.fence, first.fence):
        guard.set(fence, "data", fence.token)
    world.cut(clients[0])
    world.expire(first)
    third = seats[2].acquire(timeout=20)
    guard.claim(third.fence)
    with pytest.raises(StaleToken):
        guard.set(first.fence, "data", "dead")
    guard.set(second.fence, "data", "alive")
    assert guard.seen(third.fence.line) == third.fence
    world.heal(clients[0])


# The rule.

_THIS_TRY = "This try wrote nothing; an earlier one whose answer was lost may have."
_IDS = [f"{number:020x}" for number in range(4)]
_TOKENS = [1, 2, 3, 10, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
FENCES = st.builds(
    Fence,
    line=st.sampled_from([LINE] * 5 + ["billing/other"]),
    token=st.sampled_from(_TOKENS),
    incarnation=st.sampled_from([0] * 8 + [1, 2**31 - 1]),
    ids=st.one_of(st.just(()), st.lists(st.sampled_from(_IDS), min_size=1, max_size=3, unique=True).map(tuple)),
)


@settings(deadline=None)  # a server of its own time
@given(calls=st.lists(st.tuples(st.sampled_from(["claim", "get", "set", "wrapped"]), FENCES), max_size=12))
def test_any_sequence_of_fences_is_admitted_and_refused_as_the_rule_says(
    redis_server: Any, calls: list[tuple[str, Fence]]
) -> None:
    """The guard is `admit` with Redis behind it, and a refused call writes nothing."""
    with redis.Redis.from_url(redis_server.url()) as client:
        client.flushdb()
        guard = RedisGuard(client)
        ways: dict[str, Callable[[Fence, str], object]] = {
            "claim": lambda fence, _: guard.claim(fence, "data"),
            "get": lambda fence, _: guard.get(fence, "key", "data"),
            "set": lambda fence, value: guard.set(fence, "key", value, "data"),
            "wrapped": lambda fence, value: set_by_script(guard)(fence, ["key"], [value], "data"),
        }
        seen, content = None, None
        for number, (verb, fence) in enumerate(calls):
            try:
                seen = admit(seen, fence)
            except (StaleToken, FenceMismatch) as expected:
                before = everything(client)
                with pytest.raises(type(expected)) as refused:
                    ways[verb](fence, str(number))
                assert str(refused.value).replace(_THIS_TRY, "Nothing was written.") == str(expected)
                assert everything(client) == before
            else:
                content = str(number).encode() if verb in ("set", "wrapped") else content
                assert ways[verb](fence, str(number)) == {"get": content, "wrapped": b"OK"}.get(verb)
            assert guard.seen("data") == seen
            assert client.get("key") == content


def set_by_script(guard: RedisGuard) -> Any:
    return guard.wrap("return redis.call('SET', KEYS[1], ARGV[1])")


def test_every_pair_of_tokens_and_incarnations_is_decided_as_the_rule_says(client: redis.Redis) -> None:
    """Also those that are one number in Lua's arithmetic, and those whose texts sort the other way round."""
    guard = RedisGuard(client)
    numbers = sorted({*_TOKENS, *(10**power for power in range(1, 19)), 9, 2**62, 2**63 - 1025, 2**63 - 1024})
    fences = [token(number) for number in numbers] + [token(5, incarnation=one) for one in (2, 9, 10, 2**31 - 1)]
    for seen, offered in itertools.product(fences, repeat=2):
        guard.forget(LINE)
        guard.claim(seen)
        try:
            admit(seen, offered)
        except StaleToken:
            with pytest.raises(StaleToken):
                guard.claim(offered)
            assert guard.seen(LINE) == seen
        else:
            guard.claim(offered)
            assert guard.seen(LINE) == offered


def test_raised_incarnation_is_accepted_and_the_lower_one_refused(guard: Any, client: redis.Redis) -> None:
    """The store was restored and its tokens begin again: the operator's number decides."""
    guard.set(token(900), "key", "before")
    guard.set(token(3, incarnation=1), "key", "after")
    with pytest.raises(StaleToken, match=r"incarnation 1 \(token 3\) was seen"):
        guard.set(token(901), "key", "late")
    assert client.get("key") == b"after"


def test_fence_of_another_line_is_refused(guard: Any, client: redis.Redis) -> None:
    """One lock name for one resource."""
    guard.set(token(5), "key", "x", "shared")
    with pytest.raises(FenceMismatch, match="billing/other"):
        guard.set(Fence("billing/other", 9), "key", "y", "shared")
    assert client.get("key") == b"x"


def test_record_is_the_fences_text_under_prefix_and_resource_and_never_expires(client: redis.Redis) -> None:
    """What an operator finds with redis-cli."""
    guard = RedisGuard(client, prefix="mine:")
    guard.claim(token(33))
    guard.claim(token(33), "account-7")
    assert sorted(client.keys()) == [b"mine:account-7", f"mine:{LINE}".encode()]
    assert client.get("mine:account-7") == b"0.33@billing/ledger"
    assert client.ttl("mine:account-7") == -1


def test_forgotten_resource_has_seen_none_and_takes_any_fence(guard: Any) -> None:
    """For a resource that is gone; the docstring says what it means."""
    guard.claim(token(33))
    guard.forget(LINE)
    assert guard.seen(LINE) is None
    guard.claim(token(32))
    assert guard.seen(LINE) == token(32)


# Your own script.


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("return {KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]}", [b"a", b"b"]),  # a table ends at a nil
        ("return {#KEYS, #ARGV, ARGV[1], ARGV[2], ARGV[3]}", [2, 3, b"1", b"2.5", b"x"]),
        ("return redis.call('SET', KEYS[1], ARGV[1])", b"OK"),
        ("return {ok = 'FINE'}", b"FINE"),
        ("if #KEYS == 2 then return 'early' end\nreturn 'late'", b"early"),
        ("do return 'in the middle' end return 'not here'", b"in the middle"),
        ("return 1 -- the end", 1),
        ("return 1 --", 1),
        ("-- nothing but words", None),
        ("", None),
        ("return nil", None),
        ("return false", None),
        ("return true", 1),
        ("return 3.9", 3),
        ("return {1, {2, false, 'x'}, true}", [1, [2, None, b"x"], 1]),
        ("return 1, 2", 1),
        ("return #{...}", 0),
        ("local seen, record, rule, body = 1, 2, 3, 4 return seen + record + rule + body", 10),
        ("return tostring(rawget(_G, 'verdict')) .. tostring(rawget(_G, 'body'))", b"nilnil"),
        ("table.remove(KEYS) table.remove(ARGV) return #KEYS + #ARGV", 3),
        ("return '100%s %d %%'", b"100%s %d %%"),
        ("return 'grüße'", "grüße".encode()),
    ],
)
def test_wrapped_script_runs_with_its_own_keys_and_arguments_and_returns_what_it_would_alone(
    guard: Any, script: str, result: object
) -> None:
    """The check around it can't be noticed."""
    assert guard.wrap(script)(token(1), keys=["a", "b"], args=[1, 2.5, b"x"]) == result


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("return redis.error_reply('MINE what I say')", redis.ResponseError, "MINE what I say"),
        ("return {err = 'STALE not yours'}", redis.ResponseError, "STALE not yours"),
        ("return redis.error_reply('CROSSSLOT of mine')", redis.ResponseError, "of mine"),
        ("return redis.error_reply('ERR Error compiling script of mine')", redis.ResponseError, "of mine"),
        ("error('thrown')", redis.ResponseError, "user_script:1: thrown"),
        ("\n\nerror('thrown')", redis.ResponseError, "user_script:3: thrown"),
        ("return redis.call('LPUSH', KEYS[1], 'x')", redis.ResponseError, "WRONGTYPE"),
        ("return redis.pcall('LPUSH', KEYS[1], 'x')", redis.ResponseError, "WRONGTYPE"),
        ("return nothing.at_all", redis.ResponseError, "nothing"),
    ],
)
def test_error_of_the_wrapped_script_passes_through_as_rediss_own_and_the_claim_stands(
    guard: Any, client: redis.Redis, script: str, error: type[Exception], words: str
) -> None:
    """Whose error it is can be told: none of tenure's is raised for it."""
    client.set("key", "a string")
    with pytest.raises(error, match=words):
        guard.wrap(script)(token(7), keys=["key"])
    assert guard.seen(LINE) == token(7)


def test_script_that_returns_noscript_itself_runs_once(guard: Any, client: redis.Redis) -> None:
    """An answer that looks like Redis's is not taken for it."""
    script = guard.wrap("redis.call('INCR', KEYS[1]) return redis.error_reply('NOSCRIPT of mine')")
    for times in (1, 2):
        with pytest.raises(redis.exceptions.NoScriptError, match="of mine"):
            script(token(1), keys=["count"])
        assert client.get("count") == str(times).encode()


@pytest.mark.parametrize("script", ["return 1 +", "if KEYS[1] then return 1", "return 1 end", "return '", "--[[ open"])
def test_script_that_is_no_lua_is_refused_with_its_line_and_claims_nothing(
    guard: Any, client: redis.Redis, script: str
) -> None:
    """The error is about the script as it was given, lines and all."""
    with pytest.raises(InvalidOption, match=r"is no Lua. Nothing was written.*user_script:\d"):
        guard.wrap(script)(token(1))
    assert everything(client) == {}


def test_stale_wrapped_script_does_not_run(guard: Any, client: redis.Redis) -> None:
    """Not a line of it."""
    increment = guard.wrap(INCREMENT)
    assert increment(token(2), keys=["count"], args=[5]) == 5
    with pytest.raises(StaleToken):
        increment(token(1), keys=["count"], args=[5])
    assert client.get("count") == b"5"


def test_time_to_live_of_a_users_key_is_his_business(client: redis.Redis) -> None:
    """A lease in Redis itself, put through the guard."""
    RedisGuard(client).wrap("return redis.call('SET', KEYS[1], 'x', 'EX', 60)")(token(1), keys=["short"])
    assert client.ttl("short") > 0
    assert client.ttl(RECORD) == -1


# Clients and servers of all sorts.


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_clients_of_every_protocol_and_decoding_are_refused_and_answered_alike(
    url: str, face: str, protocol: int, decode: bool
) -> None:
    """What a client is set to decode comes decoded, as from its own `get`; the decision is the same."""
    with guard_of(face, url, protocol=protocol, decode_responses=decode) as guard:
        guard.set(token(2), "key", b"value")
        assert guard.get(token(2), "key") == ("value" if decode else b"value")
        assert guard.get(token(2), "missing") is None
        assert guard.wrap("return {KEYS[1], 1}")(token(2), ["a"]) == ["a" if decode else b"a", 1]
        assert guard.seen(LINE) == token(2)
        with pytest.raises(StaleToken):
            guard.claim(token(1))
        with pytest.raises(redis.ResponseError, match="mine"):
            guard.wrap("return redis.error_reply('mine')")(token(2))


def test_script_flush_between_calls_is_not_noticed(guard: Any, client: redis.Redis) -> None:
    """EVALSHA, and EVAL where Redis does not know the script any more."""
    increment = guard.wrap(INCREMENT)
    for count in (1, 2, 3):
        client.script_flush()
        assert increment(token(1), keys=["count"], args=[1]) == count
        assert guard.get(token(1), "count") == str(count).encode()


def test_known_script_is_sent_by_its_hash(client: redis.Redis) -> None:
    """The text goes over the wire once."""
    increment = RedisGuard(client).wrap(INCREMENT)
    client.script_flush()
    client.config_resetstat()
    for _ in range(5):
        increment(token(1), keys=["count"], args=[1])
    calls = {name: client.info("commandstats")[f"cmdstat_{name}"]["calls"] for name in ("eval", "evalsha")}
    assert calls == {"eval": 1, "evalsha": 5}


@pytest.mark.parametrize("face", FACES)
def test_server_that_was_restarted_without_its_data_has_forgotten_the_fence(
    redis_server: Any, url: str, face: str
) -> None:
    """What the docstring warns of: the guard works on, and takes an older fence until a younger comes."""
    with guard_of(face, url) as guard:
        guard.claim(token(2))
        redis_server.kill()
        redis_server.start()
        assert guard.seen(LINE) is None
        guard.claim(token(1))
        guard.claim(token(2))
        with pytest.raises(StaleToken):
            guard.claim(token(1))


@pytest.mark.parametrize("face", FACES)
def test_server_that_is_away_raises_redis_pys_own_error(face: str) -> None:
    """Connections are the client's business."""
    port = free_port()
    try:
        with guard_of(face, f"redis://127.0.0.1:{port}", retry=None) as guard, pytest.raises(redis.ConnectionError):
            guard.claim(token(1))
    finally:
        give_back(port)


def losing_one_answer(url: str, *, retries: int, then: Callable[[], object] = lambda: None) -> Any:
    """A client whose first answer to a known script is lost, with this right after, and that tries again this often."""
    lost: list[bool] = []

    class Losing(redis.Connection):  # type: ignore[misc]  # redis-py is not typed for us
        asked = b""

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            self.asked = command if isinstance(command, bytes) else b"".join(command)
            super().send_packed_command(command, check_health)

        def read_response(self, *args: Any, **more: Any) -> Any:
            answer = super().read_response(*args, **more)
            if b"EVALSHA" in self.asked and not lost:
                lost.append(True)
                self.disconnect()
                then()
                raise redis.ConnectionError("the answer was lost")
            return answer

    pool = redis.ConnectionPool.from_url(url, connection_class=Losing, retry=Retry(NoBackoff(), retries))
    return redis.Redis.from_pool(pool)


def test_write_whose_answer_was_lost_is_accepted_when_retried(url: str, client: redis.Redis) -> None:
    """By redis-py or by the caller: it is the same holder."""
    RedisGuard(client).set(token(1), "key", "before")
    with losing_one_answer(url, retries=1) as losing:
        RedisGuard(losing).set(token(1), "key", "x")
    with losing_one_answer(url, retries=0) as losing:
        guard = RedisGuard(losing)
        with pytest.raises(redis.ConnectionError, match="the answer was lost"):
            guard.set(token(2), "key", "y")
        assert client.get("key") == b"y"
        guard.set(token(2), "key", "y")


def test_refusal_of_a_retry_says_only_what_this_try_did(url: str, client: redis.Redis) -> None:
    """The first try wrote, a younger one claimed, the retry of redis-py itself was refused: no "nothing" is told."""
    RedisGuard(client).set(token(1), "key", "before")
    with losing_one_answer(url, retries=1, then=lambda: RedisGuard(client).claim(token(3))) as losing:
        with pytest.raises(StaleToken, match=r"token 3 was seen.*This try wrote nothing; an earlier one.*may") as told:
            RedisGuard(losing).set(token(2), "key", "first try")
    assert "Nothing was written" not in str(told.value)
    assert (told.value.offered, told.value.seen) == (str(token(2)), str(token(3)))
    assert client.get("key") == b"first try"


def test_replica_refuses_every_call_also_with_a_fence_that_it_knows(url: str, client: redis.Redis) -> None:
    """It may lag behind the primary: it must not answer for a fence that is stale there."""
    guard = RedisGuard(client)
    guard.set(token(1), "key", "x")
    with closing(start_database(Redis())) as server, redis.Redis(port=server.port) as replica:
        replica.replicaof("127.0.0.1", client.connection_pool.connection_kwargs["port"])
        assert eventually(lambda: replica.get(RECORD) == str(token(1)).encode())
        asked = RedisGuard(replica)
        calls: list[Callable[[], object]] = [
            lambda: asked.claim(token(1)),
            lambda: asked.get(token(1), "key"),
            lambda: asked.wrap("return 1")(token(1)),
        ]
        for call in calls:
            with pytest.raises(redis.exceptions.ReadOnlyError):
                call()


@pytest.mark.parametrize(("retries", "count"), [(1, b"2"), (0, b"1")])
def test_wrapped_script_whose_answer_was_lost_runs_twice_where_the_client_retries(
    url: str, client: redis.Redis, retries: int, count: bytes
) -> None:
    """What the docstring warns of, and the way out."""
    RedisGuard(client).wrap(INCREMENT)(token(1), ["count"], [0])
    with losing_one_answer(url, retries=retries) as losing, ExitStack() as stack:
        if not retries:
            stack.enter_context(pytest.raises(redis.ConnectionError))
        RedisGuard(losing).wrap(INCREMENT)(token(1), ["count"], [1])
    assert client.get("count") == count


class ClusterRedis(Redis):
    """A cluster of one node."""

    def __init__(self) -> None:
        self._bus = free_port()

    def command(self, directory: Any, port: int) -> list[str]:
        return [*super().command(directory, port), "--cluster-enabled", "yes", "--cluster-port", str(self._bus)]

    def close(self) -> None:
        give_back(self._bus)


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    """The port of a cluster that serves all slots."""
    with closing(ClusterRedis()) as kind, closing(start_database(kind)) as server:
        with redis.Redis(port=server.port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            assert eventually(lambda: client.cluster("info")["cluster_state"] == "ok")
        yield server.port


ACCOUNT = Fence("billing/{account-7}", 5)


def test_cluster_with_one_hash_tag_guards_as_ever(cluster: int) -> None:
    """In the name of the lock, or in the resource."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster) as client:
        guard = RedisGuard(client)
        guard.set(ACCOUNT, "{account-7}:total", 5)
        guard.set(token(5), "{account-8}:total", 5, resource="{account-8}")
        with pytest.raises(StaleToken):
            guard.wrap(INCREMENT)(Fence(ACCOUNT.line, 4), ["{account-7}:total"], [1])
        assert guard.get(ACCOUNT, "{account-7}:total") == b"5"
        assert guard.seen("{account-8}") == token(5)
        guard.forget("{account-8}")
        assert guard.seen("{account-8}") is None
        client.flushdb()


def test_cluster_with_keys_in_several_slots_is_refused_with_the_way_out(cluster: int) -> None:
    """Before anything is sent where the client knows; else in place of Redis's CROSSSLOT."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster) as knowing, redis.Redis(port=cluster) as simple:
        for client in (knowing, simple):
            with pytest.raises(InvalidOption, match=r"in different slots of the cluster.*resource='\{account-7\}'"):
                RedisGuard(client).set(token(5), "total", 5)
            RedisGuard(client).claim(token(5))
            assert client.dbsize() == 1
            client.flushdb()


def test_cluster_on_asyncio_guards_and_refuses_alike(cluster: int) -> None:
    """The other face."""

    async def calls() -> None:
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster) as client:
            guard = AsyncRedisGuard(client)
            await guard.set(ACCOUNT, "{account-7}:total", 5)
            with pytest.raises(StaleToken):
                await guard.claim(Fence(ACCOUNT.line, 4))
            with pytest.raises(InvalidOption, match="in different slots of the cluster"):
                await guard.set(token(5), "total", 5)

    asyncio.run(calls())


# Many at once.


class Unguarded:
    """The same key without the guard."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def get(self, _: Fence, key: str) -> Any:
        return self._client.get(key)

    def set(self, _: Fence, key: str, value: int) -> None:
        self._client.set(key, value)


def count_up(guard: Any, worker: int, times: int, meet: Callable[[], object]) -> list[tuple[int, int]]:
    """Increments, each under a token above all before, tried until none younger came between read and write.

    Everybody meets once, each with its first value read and not yet written. Values written, with their tokens.
    """
    accepted: list[tuple[int, int]] = []
    while len(accepted) < times:
        fence = token(time.monotonic_ns() << 3 | worker)
        try:
            value = int(guard.get(fence, "count") or 0) + 1
            meet, met = lambda: None, meet
            met()
            guard.set(fence, "count", value)
            accepted.append((value, fence.token))
        except StaleToken:
            continue
    return accepted


def count_up_in_threads(guard: Any, *, workers: int, times: int) -> list[tuple[int, int]]:
    everybody = threading.Barrier(workers, timeout=SECONDS)
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(count_up, guard, worker, times, everybody.wait) for worker in range(workers)]
        return sorted(pair for run in runs for pair in run.result(2 * SECONDS))


def check_counted(accepted: list[tuple[int, int]], client: redis.Redis) -> None:
    """Check that no increment is lost or doubled, and each is under a higher token than the one before."""
    assert [value for value, _ in accepted] == list(range(1, len(accepted) + 1))
    tokens = [token for _, token in accepted]
    assert tokens == sorted(set(tokens))
    assert client.get("count") == str(len(accepted)).encode()


def test_increments_of_many_threads_lose_none_and_accept_no_stale_one(client: redis.Redis) -> None:
    """Read, add, write, with others in between."""
    check_counted(count_up_in_threads(RedisGuard(client), workers=6, times=25), client)


def test_increments_of_many_threads_without_the_guard_lose_updates(client: redis.Redis) -> None:
    """The positive control: the same run can lose, and this test can see it."""
    accepted = count_up_in_threads(Unguarded(client), workers=6, times=25)
    with pytest.raises(AssertionError):
        check_counted(accepted, client)


def test_many_tasks_increment_by_a_wrapped_script_and_lose_none(url: str, client: redis.Redis) -> None:
    """One holder, many tasks: Redis runs one script at a time."""

    async def calls() -> None:
        async with redis.asyncio.Redis.from_url(url) as many:
            increment = AsyncRedisGuard(many).wrap(INCREMENT)
            await asyncio.gather(*(increment(token(1), ["count"], [2]) for _ in range(50)))

    asyncio.run(calls())
    assert client.get("count") == b"100"


# Bad input.


@pytest.mark.parametrize("record", ["", "garbage", "0.3@billing", "0.03@billing/ledger", f"0.{10**19}@billing/ledger"])
def test_damaged_record_refuses_every_call_and_says_what_to_do(guard: Any, client: redis.Redis, record: str) -> None:
    """Nobody can say what is stale, so nobody is let in."""
    client.set(RECORD, record)
    calls: list[Callable[[], object]] = [
        lambda: guard.claim(token(2)),
        lambda: guard.set(token(2**62), "key", "x"),
        lambda: guard.seen(LINE),
    ]
    for call in calls:
        with pytest.raises(StoreRefused, match=r"and no fence: something else wrote there.*`forget` it"):
            call()
    assert client.keys() == [RECORD.encode()]
    guard.forget(LINE)
    guard.claim(token(2))


_ID = "a" * 20
NEARLY = [
    *("00.3", "01.3", "0.03", "0.0", "0.3.", "0..3", "0.3..", f"0.3.{_ID}.", f"0.3..{_ID}", f"0.3{_ID}"),
    *(f"0.3.{_ID[1:]}", f"0.3.{_ID}a", f"0.3.{_ID.upper()}", f"0.3.{_ID[1:]}g", "0.3" + f".{_ID}" * 129),
    *(f"0.{2**63}", f"0.{10**19}", f"{2**31}.3", f"{10**18}.3", f"0.3 .{_ID}"),
    *("0.3\n", "0.3\0", " 0.3", "-1.3", "0.3e1"),
]


@pytest.mark.parametrize("offered", [token(2), token(3), token(2**62), token(2, ids=(_ID,)), token(1, incarnation=1)])
def test_record_that_is_nearly_a_fence_is_neither_compared_nor_overwritten(client: redis.Redis, offered: Fence) -> None:
    """The script reads what Fence.parse reads, and no more."""
    guard = RedisGuard(client)
    for record in (f"{one}@{LINE}" for one in NEARLY):
        client.set(RECORD, record)
        with pytest.raises(StoreRefused):
            guard.set(offered, "key", "x")
        assert (client.keys(), client.get(RECORD)) == ([RECORD.encode()], record.encode())


def test_record_at_the_bounds_of_a_fence_is_read(client: redis.Redis) -> None:
    """And no less."""
    guard = RedisGuard(client)
    maximum: dict[str, Any] = {
        "incarnation": INCARNATION_MAX,
        "ids": tuple(f"{n:020x}" for n in range(FENCE_HOLDERS_MAX)),
    }
    for fence in (token(TOKEN_MAX, **maximum), token(1), token(TOKEN_MAX, incarnation=INCARNATION_MAX)):
        client.set(RECORD, str(fence))
        guard.claim(fence)
        assert guard.seen(LINE) == fence


def test_record_of_another_type_refuses_every_call_with_rediss_own_error(guard: Any, client: redis.Redis) -> None:
    """It is not overwritten."""
    client.hset(RECORD, "a", "b")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        guard.set(token(2), "key", "x")
    assert client.keys() == [RECORD.encode()]


def test_wrong_input_is_refused_before_anything_is_sent(client: redis.Redis) -> None:
    """Nothing is sent for a call that can't be meant."""
    guard: Any = RedisGuard(client)
    with pytest.raises(InvalidFence):
        guard.claim("33")
    wrong: list[Callable[[], object]] = [
        lambda: guard.claim(token(1), ""),
        lambda: guard.claim(token(1), 7),
        lambda: guard.seen(None),
        lambda: guard.wrap(b"return 1"),
        lambda: guard.wrap("#!lua flags=no-writes\nreturn 1"),
        lambda: guard.wrap(INCREMENT)(token(1), keys="count"),
        lambda: guard.wrap(INCREMENT)(token(1), keys=["count"], args="5"),
        lambda: guard.set(token(1), RECORD, "0.9@billing/ledger"),
        lambda: guard.get(token(1), RECORD.encode()),
        lambda: guard.set(token(1), "tenure:fence:grüße".encode(), "x", resource="grüße"),
        lambda: guard.wrap(INCREMENT)(token(1), keys=["a", RECORD]),
        lambda: RedisGuard(client, prefix=""),
        lambda: RedisGuard(client, prefix=b"x"),  # type: ignore[arg-type]  # what a user may pass by mistake
    ]
    for call in wrong:
        with pytest.raises(InvalidOption):
            call()
    assert everything(client) == {}


def test_client_that_can_not_guard_is_refused_at_once(client: redis.Redis, url: str) -> None:
    """A pipeline has no answer to decide by, and each face has its own client."""
    other = redis.asyncio.Redis.from_url(url)
    with pytest.raises(InvalidOption, match="pipeline"):
        RedisGuard(client.pipeline())
    with pytest.raises(InvalidOption, match="pipeline"):
        AsyncRedisGuard(other.pipeline())
    with pytest.raises(InvalidOption, match=r"takes a redis\.Redis"):
        RedisGuard(other)
    with pytest.raises(InvalidOption, match=r"takes a redis\.asyncio\.Redis"):
        AsyncRedisGuard(client)


def test_missing_package_is_named_with_its_extra() -> None:
    """Whoever imports the guard without redis-py is told what to install."""
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "import tenure\n"
        "try:\n    import tenure.fencing.redis\n"
        "except tenure.ServerMissing as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'tenure[redis]'" in done.stdout
