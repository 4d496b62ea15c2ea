"""The guard for Redis: one Lua script that decides and writes at once, alone or around a script of yours.

    guard = RedisGuard(redis.Redis())                   AsyncRedisGuard(redis.asyncio.Redis()), with await
    guard.set(hold.fence, "total", 5)                   claim and SET
    guard.get(hold.fence, "total")                      claim and GET: reads register too
    increment = guard.wrap("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    increment(hold.fence, keys=["total"], args=[5])     claim and your script

What it promises. The record of a resource is one key, prefix and resource, which holds the youngest fence seen as
text and never expires by itself. Check and write are one script, and Redis runs one at a time: a stale fence is
refused with StaleToken and its request writes nothing, however long that was under way. What goes through the guard is
protected, and no other command on the same keys.

What it does not.
- **A Redis that loses writes forgets fences**, and then accepts an older one until a younger comes. It does so at a
  failover (replication is asynchronous; `WAIT` and `min-replicas-to-write` narrow that and don't end it), after a
  restart without `appendfsync always`, under an `allkeys-*` eviction policy (use `noeviction` or `volatile-*`), and
  with FLUSHALL. Where that matters, `hold.store` and the SQL guard don't forget.
- **A replica.** The client must talk to the primary: what a replica that lags has not seen it can't refuse. Every
  accepted call writes the record, also with a fence that is known, so a replica answers READONLY.
- **A lost answer.** The same fence is accepted again, so `claim`, `set` and `get` may be retried. A wrapped script
  that is retried runs twice, and redis-py 6 and later retries by itself: build the client with
  `retry=Retry(NoBackoff(), 0)` where twice would be wrong. Such a retry may also be refused after the first try was
  accepted, when a younger fence came between them: then the first one's write was done before, in its turn. So a
  StaleToken from here says no more than "this try wrote nothing".
- **The order of one holder's own writes.** A request that was given up after a time-out may still arrive, and land
  on that holder's next one: their fence is the same.
- **An error inside your script** (or Redis out of memory) undoes nothing, as always in Redis: the claim stands, and
  so does what the script wrote before.

In a cluster the record and your keys must be in one slot, so they need one hash tag. Put it into the keys and into
the resource, or into the name of the lock, which is part of the default resource:

    guard.set(fence, "{account-7}:total", 5, resource="{account-7}")

Redis's own errors, of connections and of your script, pass through as redis-py raises them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from tenure.errors import InvalidFence, InvalidOption, ServerMissing, StoreRefused, how_to_install
from tenure.fencing._fence import Fence, FenceLike, admitted, stale

try:
    import redis.asyncio.client
    import redis.asyncio.cluster
    import redis.client
    import redis.cluster
    from redis.crc import key_slot
    from redis.exceptions import ClusterCrossSlotError, NoScriptError, RedisError, ResponseError
except ImportError as _error:
    raise ServerMissing(
        f"tenure.fencing.redis needs the package redis ({_error}): {how_to_install('redis')}"
    ) from _error

__all__ = ["AsyncRedisGuard", "AsyncWrapped", "RedisGuard", "Wrapped"]

Key: TypeAlias = str | bytes
Argument: TypeAlias = str | bytes | int | float

# The body first: it sees none of our locals. Its first line is the script's, so that the lines in Redis's errors are
# the body's own; the line break ends a comment that it may end with. `...` is there because a script may say it.
_BEFORE_BODY: Final = "local function body(KEYS, ARGV, ...) "
_AFTER_BODY: Final = r"""
end
-- Numbers have up to 19 digits, and one in Lua only 53 bits: they are compared as text of one length.
local function number(digits, most)
  if #digits > 19 or (#digits > 1 and string.sub(digits, 1, 1) == '0') then return nil end
  local function padded(text) return string.rep('0', 19 - #text) .. text end
  return padded(digits) <= padded(most) and padded(digits) or nil
end
local function read(text)  -- what Fence.parse reads, and no more; whoever asks compares the line with one that is good
  local incarnation, token, ids, line = string.match(text, '^(%d+)%.([1-9]%d*)([^@]*)@(.+)$')
  if not line then return nil end
  incarnation, token = number(incarnation, '2147483647'), number(token, '9223372036854775807')
  local left, count = string.gsub(ids, '%.' .. string.rep('[0-9a-f]', 20), '')
  if not incarnation or not token or left ~= '' or count > 128 then return nil end
  return {incarnation = incarnation, token = token, ids = ids, line = line}
end
local function together(seen, offered)  -- does the youngest name the offered one, whose own id comes first?
  local own = string.match(offered.ids, '^%.%x+')
  return own ~= nil and string.find(seen.ids, own, 1, true) ~= nil
end
local function rule(seen, offered)  -- what tenure.fencing._fence.admit says
  if seen == nil or seen.line ~= offered.line then return 'refuse' end
  if seen.incarnation ~= offered.incarnation then
    return seen.incarnation < offered.incarnation and 'record' or 'refuse'
  end
  if seen.token < offered.token then return 'record' end
  return (seen.token == offered.token or together(seen, offered)) and 'keep' or 'refuse'
end
local seen = redis.call('GET', KEYS[1])
local verdict = seen and rule(read(seen), read(ARGV[1])) or 'record'
if verdict == 'refuse' then return {0, seen} end
redis.call('SET', KEYS[1], verdict == 'record' and ARGV[1] or seen)  -- the same one, too: a replica refuses writes
local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 2, #ARGV do args[i - 1] = ARGV[i] end
local result = body(keys, args)
if result == nil then result = false end  -- a nil would end the table
return {1, result}  -- an error that the body returned, too: at the top it could be taken for one of ours
"""


class Wrapped(Protocol):
    """A script of yours behind the check, as `RedisGuard.wrap` makes it."""

    def __call__(
        self, fence: FenceLike, keys: Iterable[Key] = (), args: Iterable[Argument] = (), resource: str | None = None
    ) -> Any:
        """Claim, then run the script with these KEYS and ARGV; returns what it returns, as the client decodes it.

        Raises StaleToken, FenceMismatch, InvalidFence, InvalidOption (a script that does not compile, keys of several
        slots), StoreRefused (a damaged record), and redis-py's own errors, the script's among them.
        """


class AsyncWrapped(Protocol):
    """A script of yours behind the check, as `AsyncRedisGuard.wrap` makes it."""

    async def __call__(
        self, fence: FenceLike, keys: Iterable[Key] = (), args: Iterable[Argument] = (), resource: str | None = None
    ) -> Any:
        """Run the script as Wrapped does. Cancelled, it may or may not have happened."""


class RedisGuard:
    """A guard in Redis, on a `redis.Redis` or `redis.RedisCluster`. Keeps no state; as thread-safe as the client.

    `prefix` comes before the resource in the key of the record, and can't be empty. Raises InvalidOption.
    """

    def __init__(self, client: Any, *, prefix: str = "tenure:fence:") -> None:  # Any: redis-py is not typed for us
        _refuse_client(client, asyncio_wanted=False)
        self._client = client
        self._records = _RecordCalls(prefix, in_cluster=isinstance(client, _CLUSTERS))

    def claim(self, fence: FenceLike, resource: str | None = None) -> None:
        """Register the fence for `resource`, or for its line: from here on no older one is accepted.

        Raises StaleToken, FenceMismatch, InvalidFence, InvalidOption, StoreRefused (a damaged record), and redis-py's
        own errors.
        """
        self._run(self._records.call(_CLAIM, fence, resource))

    def set(self, fence: FenceLike, key: Key, value: Argument, resource: str | None = None) -> None:
        """Claim, and SET the key, in one. Like SET it ends a time to live of the key. Raises as `claim`."""
        self._run(self._records.call(_SET, fence, resource, (key,), (value,)))

    def get(self, fence: FenceLike, key: Key, resource: str | None = None) -> bytes | str | None:
        """Claim, and GET the key, in one: a late write of an older holder can't follow. Raises as `claim`.

        bytes; str where the client was made with `decode_responses=True`.
        """
        value: bytes | str | None = self._run(self._records.call(_GET, fence, resource, (key,)))
        return value

    def wrap(self, script: str) -> Wrapped:
        """Put your own Lua script behind the same check, with its own KEYS and ARGV. Nothing is sent yet.

        Retried after a lost answer it runs twice. A `#!lua` line can't be wrapped. Raises InvalidOption.
        """
        prepared = _Script.checked(script)

        def wrapped(
            fence: FenceLike, keys: Iterable[Key] = (), args: Iterable[Argument] = (), resource: str | None = None
        ) -> Any:
            return self._run(self._records.call(prepared, fence, resource, keys, args))

        return wrapped

    def seen(self, resource: str) -> Fence | None:
        """The youngest fence of `resource`; None where none was ever claimed, or it was forgotten. Claims nothing.

        Raises InvalidOption, StoreRefused (a damaged record), and redis-py's own errors.
        """
        key = self._records.key(resource)
        return _recorded(key, self._client.get(key))

    def forget(self, resource: str) -> bool:
        """Delete the record: was there one? For a resource that is gone: after it the oldest fence is accepted again.

        Raises InvalidOption, and redis-py's own errors.
        """
        return bool(self._client.delete(self._records.key(resource)))

    def _run(self, call: _FencedCall) -> Any:
        with call.telling_errors():
            try:
                answer = self._client.evalsha(*call.by_hash)
            except NoScriptError:  # a server that is new, restarted or flushed; by its text it is kept again
                answer = self._client.eval(*call.by_text)
        return call.result(answer)


class AsyncRedisGuard:
    """The guard on a `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`. A call that is cancelled may have happened.

    `prefix` comes before the resource in the key of the record, and can't be empty. Raises InvalidOption.
    """

    def __init__(self, client: Any, *, prefix: str = "tenure:fence:") -> None:  # Any: redis-py is not typed for us
        _refuse_client(client, asyncio_wanted=True)
        self._client = client
        self._records = _RecordCalls(prefix, in_cluster=isinstance(client, _CLUSTERS))

    async def claim(self, fence: FenceLike, resource: str | None = None) -> None:
        """Register the fence for `resource`, or for its line. Raises as `RedisGuard.claim`."""
        await self._run(self._records.call(_CLAIM, fence, resource))

    async def set(self, fence: FenceLike, key: Key, value: Argument, resource: str | None = None) -> None:
        """Claim, and SET the key, in one. Raises as `RedisGuard.claim`."""
        await self._run(self._records.call(_SET, fence, resource, (key,), (value,)))

    async def get(self, fence: FenceLike, key: Key, resource: str | None = None) -> bytes | str | None:
        """Claim, and GET the key, in one. Raises as `RedisGuard.claim`."""
        value: bytes | str | None = await self._run(self._records.call(_GET, fence, resource, (key,)))
        return value

    def wrap(self, script: str) -> AsyncWrapped:
        """Put your own Lua script behind the same check. Raises InvalidOption."""
        prepared = _Script.checked(script)

        async def wrapped(
            fence: FenceLike, keys: Iterable[Key] = (), args: Iterable[Argument] = (), resource: str | None = None
        ) -> Any:
            return await self._run(self._records.call(prepared, fence, resource, keys, args))

        return wrapped

    async def seen(self, resource: str) -> Fence | None:
        """The youngest fence of `resource`, or None. Raises as `RedisGuard.seen`."""
        key = self._records.key(resource)
        return _recorded(key, await self._client.get(key))

    async def forget(self, resource: str) -> bool:
        """Delete the record: after it the oldest fence is accepted again. Raises as `RedisGuard.forget`."""
        return bool(await self._client.delete(self._records.key(resource)))

    async def _run(self, call: _FencedCall) -> Any:
        with call.telling_errors():
            try:
                answer = await self._client.evalsha(*call.by_hash)
            except NoScriptError:  # a server that is new, restarted or flushed; by its text it is kept again
                answer = await self._client.eval(*call.by_text)
        return call.result(answer)


# What both faces share: everything but the sending.


@dataclass(frozen=True, slots=True)
class _Script:
    text: bytes
    hash: str

    @classmethod
    def checked(cls, body: str) -> _Script:
        if not isinstance(body, str):
            raise InvalidOption(f"a script is a str of Lua, not {type(body).__name__}")
        if body.startswith("#!"):
            raise InvalidOption("a script behind a guard can't begin with a `#!` line: the check comes before it")
        text = (_BEFORE_BODY + body + _AFTER_BODY).encode()  # ours, so that no client's encoding can change the hash
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_CLAIM: Final = _Script.checked("")
_SET: Final = _Script.checked("return redis.call('SET', KEYS[1], ARGV[1])")
_GET: Final = _Script.checked("return redis.call('GET', KEYS[1])")


class _RecordCalls:
    """The records' keys, and the calls that go there."""

    def __init__(self, prefix: str, *, in_cluster: bool) -> None:
        if not isinstance(prefix, str):
            raise InvalidOption(f"a prefix is a str, not {type(prefix).__name__}")
        if not prefix:
            raise InvalidOption("a prefix can't be empty: the records would be among your own keys")
        self._prefix = prefix
        self._in_cluster = in_cluster

    def key(self, resource: str) -> bytes:
        if not isinstance(resource, str) or not resource:
            raise InvalidOption(f"a resource is a name of at least one character, not {str(resource)[:60]!r}")
        return (self._prefix + resource).encode()

    def call(
        self,
        script: _Script,
        fence: FenceLike,
        resource: str | None,
        keys: Iterable[Key] = (),
        args: Iterable[Argument] = (),
    ) -> _FencedCall:
        if isinstance(keys, (str, bytes)) or isinstance(args, (str, bytes)):  # its letters would be taken for them
            raise InvalidOption("keys and args are lists: write keys=[key], args=[value]")
        offered = Fence.of(fence)
        key = self.key(offered.line if resource is None else resource)
        call = _FencedCall(script, offered, (key, *keys), tuple(args))
        call.refuse_record_as_key()
        if self._in_cluster:
            call.refuse_several_slots()
        return call


@dataclass(frozen=True, slots=True)
class _FencedCall:
    """A call, decided but for the sending. The first of its keys is the record's."""

    script: _Script
    fence: Fence
    keys: tuple[Key, ...]
    args: tuple[Argument, ...]

    @property
    def by_hash(self) -> tuple[str | int | Key | Argument, ...]:
        return (self.script.hash, *self._rest)

    @property
    def by_text(self) -> tuple[str | int | Key | Argument, ...]:
        return (self.script.text, *self._rest)

    @property
    def _rest(self) -> tuple[int | Key | Argument, ...]:
        return (len(self.keys), *self.keys, str(self.fence).encode(), *self.args)

    def result(self, answer: Any) -> Any:  # Any: what Redis returns
        accepted, found = answer
        if not accepted:
            seen = _recorded(self.keys[0], found)
            if admitted(seen, self.fence) is None:  # said less sure: redis-py may have tried before, and does not tell
                raise stale(seen, self.fence, written=_WRITTEN)
            raise RuntimeError(f"the script in Redis refused {self.fence} after {seen}, and the rule admits it")
        if isinstance(found, RedisError):  # returned by your script: redis-py raises those at the top only
            raise found
        return found

    @contextmanager
    def telling_errors(self) -> Iterator[None]:
        """Redis's two errors that are about how the guard is used, in our words; all others as they are."""
        try:
            yield
        except ClusterCrossSlotError:
            self.refuse_several_slots()
            raise
        except ResponseError as error:
            if str(error).startswith("Error compiling script"):
                raise InvalidOption(f"the script behind the guard is no Lua. Nothing was written. {error}") from error
            raise

    def refuse_record_as_key(self) -> None:
        record, *others = map(_raw, self.keys)
        if record in others:
            raise InvalidOption(
                f"the key {record!r} is the guard's own record: what a script writes there decides who is stale. "
                "Choose another key, or give the guard another prefix"
            )

    def refuse_several_slots(self) -> None:
        slots = {_slot(key): key for key in reversed(self.keys)}
        if len(slots) > 1:
            raise InvalidOption(
                f"the keys {sorted(map(str, slots.values()))} are in different slots of the cluster, and one script "
                "can't reach them all. Put one hash tag into the keys and the resource: "
                "guard.set(fence, '{account-7}:total', 5, resource='{account-7}')"
            )


def _slot(key: Key) -> int:
    slot: int = key_slot(_raw(key))
    return slot


def _raw(key: Key) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


def _recorded(key: Key, found: bytes | str | None) -> Fence | None:
    """The fence in a record. Raises StoreRefused where it is none: then nobody can say what is stale."""
    if found is None:
        return None
    text = found if isinstance(found, str) else found.decode("utf-8", "replace")
    try:
        return Fence.parse(text)
    except InvalidFence as error:
        raise StoreRefused(
            f"the record {key!r} in Redis holds {text[:60]!r}, and no fence: something else wrote there. Nothing was "
            "written. Give the guard a prefix of its own; then SET the record to the present holder's fence, or "
            "`forget` it once no older holder can still write"
        ) from error


_WRITTEN: Final = "This try wrote nothing; an earlier one whose answer was lost may have."
_CLUSTERS: Final = (redis.cluster.RedisCluster, redis.asyncio.cluster.RedisCluster)
_ASYNCIO: Final = (redis.asyncio.client.Redis, redis.asyncio.cluster.RedisCluster)
_PIPELINES: Final = (
    redis.client.Pipeline,
    redis.cluster.ClusterPipeline,
    redis.asyncio.client.Pipeline,
    redis.asyncio.cluster.ClusterPipeline,
)


def _refuse_client(client: Any, *, asyncio_wanted: bool) -> None:
    """A pipeline has no answer to decide by; the other face's client would never be awaited, or not awaitable."""
    if isinstance(client, _PIPELINES):
        raise InvalidOption("a guard needs each answer at once, and a pipeline has none: pass the client itself")
    if isinstance(client, _ASYNCIO) is not asyncio_wanted:
        wanted = "redis.asyncio.Redis (RedisGuard takes redis.Redis)"
        if not asyncio_wanted:
            wanted = "redis.Redis (AsyncRedisGuard takes redis.asyncio.Redis)"
        raise InvalidOption(f"this guard takes a {wanted}, not {type(client).__module__}.{type(client).__name__}")
