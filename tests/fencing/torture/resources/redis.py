"""Three keys in Redis, written by one script: behind the guard's check, or bare."""

from __future__ import annotations

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tenure import Hold
from tenure.fencing.redis import RedisGuard
from tests.fencing.torture.check import Contents, Entry
from tests.fencing.torture.events import What

from . import end_of_ours

_COUNTER, _ELEMENTS, _JOURNAL, _RECORD = KEYS = (
    "torture:counter", "torture:elements", "torture:journal", "torture:fence:counter",
)  # fmt: skip
_WRITE: Final = """
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[3])
redis.call('RPUSH', KEYS[3], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
"""


class RedisResource:
    """The guard's `get` and a wrapped script; the control's GET and EVAL."""

    def __init__(self, address: str, *, guarded: bool) -> None:
        self._client = _client(address)
        self._guard = RedisGuard(self._client, prefix="torture:fence:") if guarded else None
        self._write = None if self._guard is None else self._guard.wrap(_WRITE)

    def read(self, hold: Hold) -> int:
        if self._guard is None:
            return int(self._client.get(_COUNTER))
        return int(self._guard.get(hold.fence, _COUNTER, resource="counter") or 0)

    def write(self, hold: Hold, count: int, element: str) -> None:
        keys = [_COUNTER, _ELEMENTS, _JOURNAL]
        values: list[str | int] = [count, hold.token, element]
        if self._write is None:
            self._client.eval(_WRITE, len(keys), *keys, *values)
        else:
            self._write(hold.fence, keys, values, resource="counter")

    def turn_over(self) -> None:
        """Nothing is left of it."""

    def end_of(self, error: Exception) -> What | None:
        return What.INFO if isinstance(error, RedisError) else end_of_ours(error)

    def close(self) -> None:
        self._client.close()


class RedisTarget:
    """The keys, deleted first and last."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = _client(address)
        self._client.delete(*KEYS)
        self._client.set(_COUNTER, 0)

    def contents(self) -> Contents:
        journal = [line.split() for line in self._client.lrange(_JOURNAL, 0, -1)]
        return Contents(
            int(self._client.get(_COUNTER)),
            frozenset(self._client.smembers(_ELEMENTS)),
            tuple(Entry(int(count), int(token), element) for count, token, element in journal),
        )

    def close(self) -> None:
        self._client.delete(*KEYS)
        self._client.close()


def _client(address: str) -> Any:  # Any: redis-py is not typed for us
    """A client without retries: a script that runs twice is an increment that counts twice, and the run would blame the
    guard.
    """
    return redis.Redis.from_url(address, decode_responses=True, socket_timeout=10, retry=Retry(NoBackoff(), 0))
