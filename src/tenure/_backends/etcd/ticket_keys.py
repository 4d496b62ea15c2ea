"""The keys of one lease's tickets: few, and used again; and an audit, so that no unknown key stands (law 7).

etcd walks over deleted keys as over living ones until they are compacted away. If every ticket had a key of its
own, each that ever stood in a line would make every later one slower, by about half a microsecond of the server's
time. So a ticket takes a key of its line that no other ticket of this lease has now; the ticket's id stands in the
value.

A key is used again only once its ticket is known to be gone and no request that would put or delete it can still be
under way. Where that is in doubt it never is: what a put that comes late puts must never be taken for another ticket,
and what a delete that comes late deletes must never be one. Nobody remembers those keys, of which there may be any
number: a doubt ends a round, and no key of an earlier round is taken any more.

A try of `enter` whose answer was lost may be carried out late: a member that was stopped with the request in its socket
puts the key when it goes on, minutes later, long after the ticket was removed. No time is late enough to be safe. So
once there was such a try, or a ticket was given up without knowing its fate, KeyAudit reads the lease's own list of
keys, soon at first and then once a TTL for as long as the lease lives; a key whose ticket is not among ours is deleted.
An orphan blocks its line no longer than a crashed holder would.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from typing import Final

from tenure._backends.etcd import codec
from tenure._backends.etcd.requests import LeaseGone
from tenure._backends.etcd.wire import Wire
from tenure._core.base.limits import REQUEST_TIMEOUT_DEFAULT
from tenure._core.base.retry import jittered
from tenure._core.base.threads import generation
from tenure._core.lease import BackendContext, Entry, LeaseState
from tenure.errors import ClientClosed, TenureError

_TRIED_IN_ORDER: Final = 8


class TicketKeys:
    """The keys in use. Thread-safe without a lock: a signal handler may enter a line while its thread is in here."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._rounds = itertools.count()
        # Each comes out of the counter once, and so no round comes back, however late a thread sets it.
        self._round = next(self._rounds)
        self._taken: dict[bytes, str] = {}  # by key: the id of its ticket, which may stand
        self._keys: dict[str, bytes] = {}  # by id
        self._doubted: set[str] = set()  # ids whose put may still be under way

    def take(self, entry: Entry, lease: int) -> bytes:
        """Take a key for this entry, the same one at every call."""
        if (known := self._keys.get(entry.id)) is not None:
            return known
        tried = 0
        while True:  # ends: sooner or later most of the numbers that lots are drawn from are free
            now = self._round
            number = tried if tried < _TRIED_IN_ORDER else random.randrange(1 << min(tried - 3, 60))
            key = codec.ticket_key(self._namespace, entry.resource, lease, now, number)
            if self._taken.setdefault(key, entry.id) == entry.id:
                if self._round == now:
                    self._keys[entry.id] = key
                    return key
                self._taken.pop(key, None)  # the round ended just then, perhaps for this very key
            tried += 1

    def key(self, ticket_id: str) -> bytes | None:
        """The key at which the ticket stands, or may come to stand."""
        return self._keys.get(ticket_id)

    def doubt(self, ticket_id: str) -> None:
        """Note that a request that puts the ticket may be carried out again, at any time."""
        self._doubted.add(ticket_id)

    def free(self, ticket_id: str) -> None:
        """Release the key of a ticket that is gone, for another ticket unless there was a doubt."""
        if ticket_id in self._doubted:
            self.give_up(ticket_id)
            self.forget(ticket_id)
        elif (key := self._keys.pop(ticket_id, None)) is not None:
            self._taken.pop(key, None)

    def avoid(self, ticket_id: str) -> None:
        """Give the key up: somebody else's stands there, and the next `take` has to be another."""
        self.give_up(ticket_id)
        self._keys.pop(ticket_id, None)

    def give_up(self, ticket_id: str) -> None:
        """Stop using the ticket's key: nobody wants the ticket any more, and whether it stands is not known."""
        if (key := self._keys.get(ticket_id)) is not None:
            self._round = next(self._rounds)  # first: who takes the key from here on finds that its round is over
            if self._taken.get(key) == ticket_id:
                self._taken.pop(key, None)

    def forget(self, ticket_id: str) -> None:
        """Forget a ticket that was given up and has been removed."""
        self._keys.pop(ticket_id, None)
        self._doubted.discard(ticket_id)

    def abolish(self, key: bytes) -> bool:
        """Have no ticket stand at this key ever, so that what does may be deleted; False where one may stand."""
        if key in self._taken:
            return False
        self._round = next(self._rounds)
        return key not in self._taken


_SOON: Final = 0.25
_GROWS_BY: Final = 3


class KeyAudit:
    """Repeated look at the keys of one lease. Costs nothing until there is a doubt."""

    def __init__(self, wire: Wire, keys: TicketKeys, state: Callable[[], LeaseState], context: BackendContext) -> None:
        self._wire = wire
        self._keys = keys
        self._state = state
        self._context = context
        self._born = generation()
        self._guard = threading.RLock()  # guards the two below
        self._lease = 0
        self._pause: float | None = None  # None: no doubt yet

    def doubt(self, lease: int, ttl: float) -> None:
        """Begin to audit: there may be, or come to be, a key that nobody owns."""
        if not lease or self._born != generation():
            return  # nothing was sent yet; or a child drops what is its parent's
        with self._guard:
            running = self._pause is not None
            self._lease, self._pause = lease, _SOON
        if not running:
            self._look_later(ttl)

    def _look_later(self, ttl: float) -> None:
        with self._guard:
            pause = min(self._pause or _SOON, ttl)
            self._pause = pause * _GROWS_BY
        clock = self._context.clock
        clock.schedule(clock.now() + jittered(pause), lambda: self._submit(ttl))

    def _submit(self, ttl: float) -> None:
        if self._state() in (LeaseState.LOST, LeaseState.CLOSED):
            return
        try:
            self._context.workers.submit(lambda: self._look(ttl))
        except ClientClosed:
            return
        except TenureError:  # no thread for it just now
            self._look_later(ttl)

    def _look(self, ttl: float) -> None:
        until = self._context.clock.now() + REQUEST_TIMEOUT_DEFAULT
        try:
            for key in self._wire.life(self._lease, until, keys=True).keys:
                self._delete_if_unknown(key, until)
        except (TenureError, LeaseGone):
            pass  # the next look is the retry. A deposed leader does not know a lease that lives; what is gone ends us
        self._look_later(ttl)

    def _delete_if_unknown(self, key: bytes, until: float) -> None:
        """Delete a key without a ticket of ours: ours are known from before a key is sent until after it is gone.

        The key may have been listed before its ticket left: the next ticket must not be put there.
        """
        lease = f"{self._lease:x}"
        if not key.rpartition(b"/")[2].startswith(f"{lease}-".encode()) or not self._keys.abolish(key):
            return
        if self._wire.delete(key, until):
            self._context.hub.emit("reaped", lease_id=lease, reason="a request that was given up was carried out late")
