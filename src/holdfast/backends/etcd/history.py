"""Law 4 for etcd: the store never goes back behind what this client has already seen."""

from __future__ import annotations

import threading

from holdfast.backends.etcd.words import Header
from holdfast.errors import StoreRefused, StoreUnavailable, StoreWentBack


class History:
    """Law 4 for one store: it never goes back behind what this client has already seen."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._guard = threading.RLock()  # guards everything below
        self._cluster: int | None = None
        self._revision = 0
        self._behind = 0
        self._broken = ""  # why, once it is; an error is made for each who asks: one would keep all their frames

    @property
    def revision(self) -> int:
        """The highest seen so far. Read it before sending: an answer must not be below."""
        self.check_unbroken()
        return self._revision

    def check_unbroken(self) -> None:
        """Raises StoreWentBack where that was found out before."""
        if self._broken:
            raise StoreWentBack(self._broken)

    def check(self, header: Header, least: int) -> None:
        """Raises StoreWentBack for good, StoreUnavailable where it may just be stale, StoreRefused where it is none."""
        cluster, revision = header
        if not cluster:  # says nothing of the store's history; the client must not stop for good because of it
            raise StoreRefused(f"{self._store} answered without saying which cluster it is")
        with self._guard:
            if self._cluster is None:
                self._cluster = cluster
            if cluster != self._cluster:
                self._broken = (
                    f"{self._store} is another cluster now (id {cluster}, was {self._cluster}): it was restored or "
                    "replaced. Tokens of the two can't be compared, so this client stops. Fence what it protected, "
                    "then connect anew."
                )
                raise StoreWentBack(self._broken)
            if revision >= least:
                self._behind = 0
                self._revision = max(self._revision, revision)
                return
            self._behind += 1
            if self._behind < 3:
                # One member may answer from its past once (etcd #20418). A store that went back does so always.
                raise StoreUnavailable(f"{self._store} answered from its past (revision {revision} after {least})")
            self._broken = (
                f"{self._store} went back to revision {revision}, after this client had seen {least}: it was restored "
                "from a snapshot. Its tokens would repeat, so this client stops. Fence what it protected, then connect "
                "anew."
            )
            raise StoreWentBack(self._broken)
