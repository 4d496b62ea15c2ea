"""tenure: every recipe, on each store and each face."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import tenure
from benchmarks.contestants.place import SEATS, AsyncPlace, Blocking, Contestant, Door, Loop, Place, Tasked
from tenure._core.base import schemes
from tenure.errors import TenureError

GRPC: Final = "etcd+grpc"
OURS: Final = "tenure "
"""How all of our contestants' names begin."""
RECIPES: Final = ("lock", "semaphore", "rwlock, read", "rwlock, write", "election")
_STORES: Final = {"etcd": "etcd", GRPC: "etcd", "zookeeper": "zookeeper", "memory": "memory"}
_WAIT_SECONDS: Final = 120.0
_PROBE: Final = "127.0.0.1:1"

AnyClient: TypeAlias = Any  # either face's: they have the same names, and no type in common
AnyPlace: TypeAlias = Any


def label(recipe: str, *, scheme: str = "etcd", face: str = "") -> str:
    """How a contestant of ours is called in tables."""
    suffix = {"": "", "asyncio": ", asyncio"}[face]
    over = " over gRPC" if scheme == GRPC else ""
    where = {"zookeeper": " on ZooKeeper", "memory": " in memory"}.get(scheme, "")
    return f"{OURS}{recipe}{where}{over}{suffix}"


def at(client: AnyClient, recipe: str, name: str) -> AnyPlace:
    """The recipe of that word, under that name."""
    makers: dict[str, Callable[[], AnyPlace]] = {
        "lock": lambda: client.lock(name),
        "semaphore": lambda: client.semaphore(name, limit=SEATS),
        "rwlock, read": lambda: client.rwlock(name).read(),
        "rwlock, write": lambda: client.rwlock(name).write(),
        "election": lambda: client.election(name, value="10.0.0.7:8080").campaign(),
    }
    return makers[recipe]()


class _Held:
    def __init__(self, place: tenure.Lock) -> None:
        self._place = place

    def enter(self) -> int:
        self._hold = self._place.acquire(_WAIT_SECONDS)
        return self._hold.token

    def leave(self) -> bool:
        return self._hold.release()


class _AsyncHeld:
    def __init__(self, place: tenure.aio.Lock) -> None:
        self._place = place

    async def enter(self) -> int:
        self._hold = await self._place.acquire(_WAIT_SECONDS)
        return self._hold.token

    async def leave(self) -> bool:
        return await self._hold.release()


def url(scheme: str, endpoint: str) -> str:
    return f"{scheme}://{endpoint}/bench"


def opening(scheme: str, recipe: str) -> Callable[[Door], Callable[[], Place]]:
    def opener(door: Door) -> Callable[[], Place]:
        client = door.stack.enter_context(tenure.connect(url(scheme, door.endpoint), ttl=door.ttl))
        return lambda: _Held(at(client, recipe, door.name))

    return opener


def _aopen(scheme: str, recipe: str) -> Callable[[Door], Callable[[], AsyncPlace]]:
    """The client is closed from a loop of its own, as the one it was used on may be gone by then."""

    def opener(door: Door) -> Callable[[], AsyncPlace]:
        client = tenure.aio.connect(url(scheme, door.endpoint), ttl=door.ttl)
        closing = Loop(door.stack)
        door.stack.callback(lambda: closing.run(client.close()))
        return lambda: _AsyncHeld(at(client, recipe, door.name))

    return opener


@functools.cache
def without_grpc() -> str | None:
    """Why tenure can't be reached over gRPC here; None where it can."""
    if not schemes.is_known(GRPC):
        return f"this tenure does not know {GRPC}:// yet"
    try:
        tenure.connect(url(GRPC, _PROBE)).close()
    except TenureError as error:
        return str(error)
    return None


def _missing(scheme: str) -> Callable[[], str | None]:
    return without_grpc if scheme == GRPC else lambda: None


def _all() -> list[Contestant]:
    """Blocking and asyncio. Contention is watched at a lock and a semaphore; a take-over at an election."""
    found: list[Contestant] = []
    for scheme, store in _STORES.items():
        for recipe in RECIPES:
            common = {
                "store": store,
                "recipe": recipe,
                "contends": recipe in ("lock", "semaphore"),
                "leads": recipe == "election",
                "missing": _missing(scheme),
            }
            found += [
                Blocking(label(recipe, scheme=scheme), open=opening(scheme, recipe), **common),  # type: ignore[arg-type]
                Tasked(label(recipe, scheme=scheme, face="asyncio"), open=_aopen(scheme, recipe), **common),  # type: ignore[arg-type]
            ]
    return found


ALL: Final = _all()
