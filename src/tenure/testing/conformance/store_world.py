"""The world of one backend: what its author gives to the suite, and the fixtures that make it.

`StoreWorld` is a store, clients of it, and the faults between the two, to be inherited from. `url`, `expire`, `delete`,
`tickets` and `left` are every backend's to define. The rest are faults and counts: each one that is not defined skips
the tests that need it, by name. The facts say in which of the ways that the laws leave open a store goes; a fact that
is not so fails a test. A world lives for one test, promises nothing about the store beyond that test's own namespace,
and fails its test by what it leaves in the store. The one fixture that is the author's, `make_world`, gives a function
from a `Face` to a world.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import pytest

from tenure._core.base.limits import NAME_BYTES_MAX
from tenure.testing.conformance.faces import Face

Test = TypeVar("Test", bound=Callable[..., Any])
_numbers = itertools.count(1)
_IS_RECORD: Final = re.compile(r"/%(audit|journal)(/|\Z)")
_NEEDS: Final = "tenure_needs"


class StoreWorld:
    """The store of one test. Every client has its own connection to it, which can be broken alone."""

    url: str = ""
    """The store, without a namespace: `toy://127.0.0.1:7000`. May be set by `__init__`."""

    # Facts.

    repeats_enter: ClassVar[bool] = True
    """An entry that is entered twice is one ticket at any time; False: only the retry of a lost answer finds it."""
    leave_checks_token: ClassVar[bool] = True
    """`leave` compares tokens; False: the ticket's key is never used again, and that is why nobody else is hit."""
    ttl_min: ClassVar[float] = 0.0
    """Nothing shorter is granted."""
    refuses_long_leases: ClassVar[str] = ""
    """A word of the refusal of a lease of more than seven minutes; "" where the store grants one."""
    name_bytes_max: int = NAME_BYTES_MAX
    """Longer names are refused: less than usual where all names begin with something."""
    for_operators: ClassVar[bool] = True
    """Its leases have `operating`."""
    writes_records: ClassVar[bool] = True
    """Its operators' verbs write the records that they are given; False: a service writes its own."""
    has_delegation: ClassVar[bool] = False
    """Its backend has `entrusting`: holds that others renew."""
    tells_time_left: ClassVar[bool] = True
    """The store can say how long anybody's lease stands if nobody renews it."""

    def __init__(self, face: Face) -> None:
        self.face = face
        self.namespace: str = f"test-{next(_numbers)}-{time.monotonic_ns():x}"
        self.clients: list[Any] = []  # Any: of either face
        self.keeps_records = False  # a test that uses the audit or the journal sets it: law 12 does not hold for those

    def client(self, **options: Any) -> Any:
        """A client of the face under test. Any: either face's."""
        client = self.face.connect(f"{self.url}/{self.namespace}", **options)
        self.clients.append(client)
        return client

    def close(self) -> None:
        """Mend what is broken, and close the clients."""
        if self.can("cut"):
            for client in self.clients:
                self.heal(client)
        self.face.close()

    def can(self, fault: str) -> bool:
        """True where this world defines the fault or count."""
        if fault in ("for_operators", "writes_records", "has_delegation"):
            return bool(getattr(self, fault))
        return getattr(type(self), fault) is not getattr(StoreWorld, fault)

    # What every backend's author defines.

    def expire(self, hold: Any) -> None:
        """End the lease `hold.lease_id` at the store, as an administrator or the TTL would."""
        raise NotImplementedError

    def delete(self, name: str, ticket: str) -> None:
        """Delete this ticket of the line at the store, as an administrator would."""
        raise NotImplementedError

    def tickets(self, name: str) -> list[str]:
        """The tickets in the line in their order, as the store itself says.

        Where these strings do not have the tickets' ids in them, `remove` is to be defined too.
        """
        raise NotImplementedError

    def left(self) -> list[str]:
        """Everything the store has under the test's namespace."""
        raise NotImplementedError

    def forgotten(self) -> list[str]:
        """Names in `left` that should be gone.

        Stored records may stay where the test made some, and what stands above them.
        """
        left = self.left()
        if not self.keeps_records:
            return left
        return [place for place in left if not _IS_RECORD.search(place) and place.strip("/") != self.namespace]

    # Faults and counts. Not defined: the tests that need it are skipped.

    def lose_answer(self, client: Any, verb: str, times: int = 1) -> None:
        """The next request of this verb happens, and its answer is lost.

        Verbs: those of the Lease protocol, and `remove` of Operating.
        """
        raise NotImplementedError

    def lose_request(self, client: Any, verb: str, times: int = 1) -> None:
        """The next request of this verb never arrives."""
        raise NotImplementedError

    def forget(self, client: Any) -> None:
        """Lost answers and requests that have not met their request are off. Goes with the two above."""
        raise NotImplementedError

    def cut(self, client: Any) -> None:
        """Cut the client off: nothing gets through in either direction, and neither side is told."""
        raise NotImplementedError

    def heal(self, client: Any) -> None:
        """End `cut` and `delay`: everything gets through again."""
        raise NotImplementedError

    def reset(self, client: Any) -> None:
        """Break the connections; new ones work."""
        raise NotImplementedError

    def delay(self, client: Any, seconds: float) -> None:
        """Delay what the client sends from now on by so much, until `heal`. A world without it skips no test."""
        raise NotImplementedError

    def leases(self) -> int:
        """The number of leases in the store; others may use it too."""
        raise NotImplementedError

    def work(self) -> dict[str, float]:
        """The work of the server so far, counted: requests, messages to watchers."""
        raise NotImplementedError

    def arrive_late(self, lease: Any, ticket: Any, value: str) -> None:
        """Carry out now what a first try of `lease.amend(ticket, value)` sent. Nothing, where none can arrive late."""

    # What follows from these.

    def remove(self, hold: Any) -> None:
        """Delete this hold's ticket at the store."""
        for ticket in self.tickets(hold.resource):
            if hold.id in ticket:
                self.delete(hold.resource, ticket)


def needs(*faults: str) -> Callable[[Test], Test]:
    """The test uses these faults or counts: without them it means nothing."""

    def marked(test: Test) -> Test:
        setattr(test, _NEEDS, faults)
        return test

    return marked


def missing(world: StoreWorld, test: Any) -> list[str]:
    """The faults that `test` needs and `world` has not."""
    return [fault for fault in getattr(test, _NEEDS, ()) if not world.can(fault)]


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until `what` comes true, and return whether it did. For things whose moment only the store knows."""
    give_up = time.monotonic() + seconds
    while not what():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def inner(thing: Any) -> Any:
    """The face's own object, for tests that must look below it."""
    return getattr(thing, "_inner", thing)


MakeWorld: TypeAlias = Callable[[Face], StoreWorld]


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Face:
    """Blocking calls, or asyncio behind blocking calls."""
    return Face(request.param)


@pytest.fixture
def world(request: pytest.FixtureRequest, make_world: MakeWorld, face: Face) -> Iterator[StoreWorld]:
    """A store of its own for each test, as far as the test can see; it must be empty again at the end."""
    with _world(request, face, make_world) as made:
        yield made


@pytest.fixture
def world_below(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[StoreWorld]:
    """A store without a face in front of it that matters."""
    with _world(request, Face("threads"), make_world) as made:
        yield made


@pytest.fixture
def world_aio(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[StoreWorld]:
    """A store whose clients are the asyncio face itself; the test closes them on its own loop."""
    with _world(request, Face("plain asyncio"), make_world) as made:
        yield made


@contextmanager
def _world(request: pytest.FixtureRequest, face: Face, make_world: MakeWorld) -> Iterator[StoreWorld]:
    made = make_world(face)
    try:
        test: Any = getattr(request, "function", None)
        if unknown := missing(made, test):
            pytest.skip(f"{type(made).__name__} does not define {', '.join(unknown)}")
        yield made
    finally:
        made.close()
    # A store may take a moment: ZooKeeper removes the empty containers of a lost session in time.
    assert eventually(lambda: made.forgotten() == []), f"left in the store: {made.forgotten()}"
