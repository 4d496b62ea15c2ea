"""The keys of one lease's tickets: few, and used again.

etcd walks over deleted keys as over living ones until they are compacted away. If every ticket had a key of its
own, each that ever stood in a line would make every later one slower, by about half a microsecond of the server's
time. So a ticket takes a place of its line that no other ticket of this lease has now; its id stands in its value.

A place is used again only once its ticket is known to be gone and no request that would put or delete it can still be
under way. Where that is in doubt it never is: what a put that comes late puts must never be taken for another ticket,
and what a delete that comes late deletes must never be one. Nobody remembers those places, of which there may be any
number: a doubt ends a round, and no place of an earlier round is taken any more.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

from holdfast.backends.etcd import codec
from holdfast.lease import Entry

_TRIED_IN_ORDER: Final = 8


class Places:
    """Thread-safe without a lock: a signal handler may enter a line while its thread is in here."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._rounds = itertools.count()
        # Each comes out of the counter once, and so no round comes back, however late a thread sets it.
        self._round = next(self._rounds)
        self._taken: dict[bytes, str] = {}  # by key: the id of its ticket, which may stand
        self._keys: dict[str, bytes] = {}  # by id
        self._doubted: set[str] = set()  # ids whose put may still be under way

    def take(self, entry: Entry, lease: int) -> bytes:
        """A key for this entry, the same one at every call."""
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
        """Where the ticket stands, or may come to stand."""
        return self._keys.get(ticket_id)

    def doubt(self, ticket_id: str) -> None:
        """A request that puts it may be carried out again, at any time."""
        self._doubted.add(ticket_id)

    def free(self, ticket_id: str) -> None:
        """The ticket is gone."""
        if ticket_id in self._doubted:
            self.give_up(ticket_id)
            self.forget(ticket_id)
        elif (key := self._keys.pop(ticket_id, None)) is not None:
            self._taken.pop(key, None)

    def avoid(self, ticket_id: str) -> None:
        """Somebody else's key stands there: the next `take` is of another place."""
        self.give_up(ticket_id)
        self._keys.pop(ticket_id, None)

    def give_up(self, ticket_id: str) -> None:
        """Nobody wants the ticket any more, and whether it stands is not known."""
        if (key := self._keys.get(ticket_id)) is not None:
            self._round = next(self._rounds)  # first: who takes the key from here on finds that its round is over
            if self._taken.get(key) == ticket_id:
                self._taken.pop(key, None)

    def forget(self, ticket_id: str) -> None:
        """One that was given up need not be removed any more."""
        self._keys.pop(ticket_id, None)
        self._doubted.discard(ticket_id)

    def abolish(self, key: bytes) -> bool:
        """Have no ticket stand at this key ever, so that what does may be deleted; False where one may stand."""
        if key in self._taken:
            return False
        self._round = next(self._rounds)
        return key not in self._taken
