"""A ZooKeeper session through kazoo: requests with deadlines, errors of tenure's own tree, and the session's proof.

kazoo connects, reconnects, encodes and decodes. What it does not do is done here: a request ends by
its deadline; a session that is over stays over (kazoo would quietly start another one, whose tickets
are not ours); a server that swallows packets is given up in time for another one to save the session;
the negotiated time-out is known; parents are container nodes, which the server removes when empty.

A session's requests are answered in order. `ask` takes several and waits for the last.
"""

from __future__ import annotations

import collections
import copy
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NotEmptyError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    Watch,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tenure._backends.zookeeper.handler import CreateContainer, KazooHandler, Multi, TenureKazooClient, break_off, log
from tenure._core.base import yielding
from tenure._core.base.options import Options, shown
from tenure._core.base.signals import Signal
from tenure._core.belief import EXPIRED
from tenure._core.lease import BackendContext
from tenure._transport.session import PROBE_SECONDS, speaks_tls
from tenure.errors import (
    AuthenticationFailed,
    ClientClosed,
    LeaseLost,
    PermissionDenied,
    StoreRefused,
    StoreUnavailable,
    TenureError,
    TLSFailed,
)

Pending: TypeAlias = Any  # kazoo's AsyncResult; kazoo has no types
_EPHEMERAL_SEQUENTIAL: Final = 3
_CONTAINER: Final = 4
_SUSPICIOUS_SECONDS: Final = 0.5
"""Time without a session after which to look why."""
_APART: Final = 1 / 64
"""Share of a tick between heartbeats that are kept: bounds their number, and costs the proof no more than that."""
_OVER: Final = "the connection to ZooKeeper has ended, and nothing keeps the session alive any more"


class ZooKeeperSession:
    """A session. It is over once it expired, was closed, or may have been either."""

    def __init__(self, options: Options, ttl: float, context: BackendContext, listener: SessionListener) -> None:
        self._options = options
        self._clock = context.clock
        self._listener = listener
        self._settled = Signal()  # connected for the first time, or refused for good
        self._refused: TenureError | None = None
        self._last_error = ""
        self._tls_failed: set[tuple[str, int]] = set()
        self._meets_tls: bool | None = None  # of a server that was spoken to without; None: nobody has looked
        self._over = False
        self._stopping = threading.RLock()  # guards _stopper
        self._stopper: threading.Thread | None = None
        self.negotiated: float | None = None
        self.session_id = 0
        self.acl = _acl(options)
        self._handler = KazooHandler(options, ttl / (len(options.endpoints) + 2), self._connect_failed)
        self._client = TenureKazooClient(
            self._admitted,
            hosts=",".join(map(shown, options.endpoints)),
            timeout=ttl,
            handler=self._handler,
            auth_data=[("digest", f"{options.user}:{options.password or ''}")] if options.user else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.02, backoff=2, max_delay=0.5),
            use_ssl=options.tls,
            logger=log,
        )
        self._client.add_listener(self._state_changed)

    # Opening and closing.

    def start(self) -> None:
        """Begin to connect; returns at once. Raises StoreUnavailable where the process has no thread or file for it."""
        try:
            self._client.start_async()
        except (RuntimeError, OSError) as error:
            self._stop()  # at once: nothing of it has reached a server, and a thread for it may not be had either
            raise StoreUnavailable(f"there is no thread or file for a session with {self._options.display}") from error

    def wait_connected(self, until: float) -> None:
        """Wait until the session exists. Raises StoreUnavailable, TLSFailed, AuthenticationFailed."""
        yielding.elsewhere(lambda: self._wait_settled(until), until - self._clock.now())
        if self._refused is not None:
            raise copy.copy(self._refused)  # one that is raised again and again keeps the frames of each time
        if not self._settled.is_set():
            raise self._never_connected()

    def _wait_settled(self, until: float) -> None:
        if not self._clock.wait(self._settled, min(until, self._clock.now() + _SUSPICIOUS_SECONDS)):
            self._look_for_tls(until)
            self._clock.wait(self._settled, until)

    def stop(self, until: float) -> None:
        """End the session at the store; waits for that until `until`, and goes on in the background after."""
        self._refuse(ClientClosed("the client was closed before ZooKeeper answered"))
        with self._stopping:
            if self._stopper is None:
                self._over = True
                self._stopper = threading.Thread(target=self._stop, name="tenure-zookeeper-stop", daemon=True)
                try:
                    self._stopper.start()
                except RuntimeError:  # the process may have no more threads
                    self._stopper = None
                    self._let_go()
            stopper = self._stopper
        # not one that a signal handler finds before it was started
        if stopper is not None and stopper is not threading.current_thread() and stopper.is_alive():
            stopper.join(max(0.0, until - self._clock.now()))

    def forsake(self) -> None:
        """End the session here and not at the store, which ends it in its own time."""
        self._handler.cut()
        self.stop(self._clock.now())

    def _let_go(self) -> None:
        """Cut the connection without a thread or a wait: the server ends the session by its TTL."""
        self._client._stopped.set()  # or kazoo would connect again
        self._handler.cut()
        self._handler.dismiss()

    def _stop(self) -> None:
        for end in (self._client.stop, self._client.close):  # the second also where the first complains
            try:
                end()
            except Exception as error:  # kazoo raises its own and OSError here; the session ends by TTL then
                log.debug("a ZooKeeper session could not be closed cleanly: %s", error)

    # Requests.

    def ask(self, until: float, *requests: Pending) -> list[Any]:
        """Wait for answers to requests already sent. News about nodes (gone, there, not empty) stay kazoo's errors."""
        lane, last = yielding.lane(), requests[-1]
        if lane is None:
            last.wait(max(0.0, until - self._clock.now()))  # answered in order: the last one wakes us once
        elif not last.wait(lane.moment()):
            lane.called(last.tell, max(0.0, until - self._clock.now()))
        return [self._answer(request, until) for request in requests]

    def _answer(self, request: Pending, until: float) -> Any:
        seconds, lane = max(0.0, until - self._clock.now()), yielding.lane()
        if lane is not None and not request.ready():  # the last one was never sent, and those before it were
            lane.called(request.tell, seconds)
            seconds = 0.0
        try:
            return request.get(timeout=seconds)
        except KazooTimeoutError as error:
            raise StoreUnavailable(f"{self._options.display} did not answer in time") from error
        except KazooException as error:
            if type(error).__name__ in _NODE_NEWS:
                raise  # news about a node, not a failure
            raise self.translated(error) from error

    def translated(self, error: Exception) -> TenureError:
        """Translate kazoo's error into ours."""
        where = self._options.display
        match error:
            case ConnectionClosedError() if self._over:
                return LeaseLost(_OVER)
            case ConnectionClosedError() | ConnectionLoss() | SessionMovedError():
                return StoreUnavailable(f"the connection to {where} was lost before the answer came")
            case SessionExpiredError():  # after ConnectionClosedError, which for kazoo is a kind of it
                return LeaseLost(EXPIRED)
            case NoAuthError():
                who = f"user {self._options.user!r}" if self._options.user else "a client without user and password"
                return PermissionDenied(
                    f"{who} may not do this under {where}: its ACLs say no. Check user and password."
                )
            case NotEmptyError():
                return StoreRefused(f"{where} deletes no node that has others below it: delete those first")
            case NoChildrenForEphemeralsError():
                return StoreRefused(f"{where} has no nodes below an ephemeral one; choose another key")
            case AuthFailedError() | InvalidACLError():
                return AuthenticationFailed(f"{where} does not accept this user and password")
        return StoreRefused(f"{where} refused: {type(error).__name__} {error}".rstrip())

    # Not by kazoo's calls of these names: they copy each path that they are given, and a watch keeps that
    # for as long as it is armed; and the answers to some of them go through another thread.

    def send(self, request: Any) -> Pending:
        """Send a request of kazoo's, or one of that kind."""
        result = self._client.handler.async_result()
        self._client._call(request, result)
        return result

    def create_ticket(self, path: str, data: bytes) -> Pending:
        return self.send(Create2(path, data, self.acl, _EPHEMERAL_SEQUENTIAL))

    def create_container(self, path: str) -> Pending:
        return self.send(CreateContainer(path, b"", self.acl, _CONTAINER))

    def children(self, path: str, watch: Callable[[Any], None] | None = None) -> Pending:
        return self.send(GetChildren(path, watch))

    def children_and_stat(self, path: str) -> Pending:
        return self.send(GetChildren2(path, None))

    def exists(self, path: str, watch: Callable[[Any], None] | None = None) -> Pending:
        return self.send(Exists(path, watch))

    def get(self, path: str, watch: Callable[[Any], None] | None = None) -> Pending:
        return self.send(GetData(path, watch))

    def set(self, path: str, data: bytes, version: int = -1) -> Pending:
        return self.send(SetData(path, data, version))

    def delete(self, path: str) -> Pending:
        return self.send(Delete(path, -1))

    def commit(self, operations: Sequence[Any]) -> Pending:
        """Send `operations` (kazoo's requests), all or none; the answer has an outcome for each, and the zxid."""
        return self.send(Multi(list(operations)))

    def sync(self, path: str) -> Pending:
        return self.send(Sync(path))

    def agreement(self) -> Pending:
        """Have the quorum agree to nothing: what is asked behind it is answered as the quorum had it.

        Not by `sync`: a leader answers that by itself, for as long as it has not noticed that its followers are gone.
        """
        return self.send(Multi([CheckVersion("/", -1)]))

    def on_event(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the path of every event of every watch, on kazoo's own thread: it must not block.

        kazoo knows watches by the node they were set on, and a recursive one reports nodes below that.
        """
        reading = self._client._connection._read_watch_event

        def hearing(buffer: bytes, offset: int) -> None:
            heard(Watch.deserialize(buffer, offset)[0].path)
            reading(buffer, offset)

        self._client._connection._read_watch_event = hearing

    def drop(self) -> None:
        """Break the connection, as the server swallows our requests, so that kazoo tries the next one.

        kazoo finds out by itself only when nothing else is sent (any request resets its ping timer), and has
        no call for this; without the attribute we only wait for it longer.
        """
        sock = getattr(self._client._connection, "_socket", None)
        if sock is not None:
            break_off(sock)

    # Callbacks of kazoo, on its threads: they must not block.

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            if not self._settled.is_set():
                self._settled.set()
            self._listener.connected()
        elif state == KazooState.SUSPENDED:
            self._listener.suspended()
        elif not self._over:
            self._over = True
            if self._client.client_state == "AUTH_FAILED":
                self._refuse(AuthenticationFailed(f"{self._options.display} does not accept this user and password"))
            # anything else is kazoo's own end (its thread may fail): the store has said nothing, and keeps the tickets
            self._listener.over(EXPIRED if self._client.client_state == KeeperState.EXPIRED_SESSION else _OVER)
            self.stop(self._clock.now())  # kazoo would open another session; its tickets would not be ours

    def _connect_failed(self, address: tuple[str, int], error: Exception) -> None:
        self._last_error = str(error) or type(error).__name__
        if not isinstance(error, ssl.SSLError) or isinstance(error, TimeoutError):
            return
        self._tls_failed.add(address)
        if len(self._tls_failed) >= len(self._options.endpoints):  # nowhere to go: it is not one server's fault
            self._refuse(
                TLSFailed(
                    f"the TLS handshake with {self._options.display} failed: {error}. Check `tls`, `ca`, `cert` and "
                    "`key`, and that this port speaks TLS."
                )
            )

    def _refuse(self, error: TenureError) -> None:
        if not self._settled.is_set():
            self._refused = error
            self._settled.set()

    def _look_for_tls(self, until: float) -> None:
        """Look whether the server speaks TLS, and hence is silent. Once, and not longer than the caller has."""
        seconds = min(PROBE_SECONDS, until - self._clock.now())
        if self._options.tls or self._meets_tls is not None or seconds <= 0.0:
            return
        self._meets_tls = False  # one caller looks
        self._meets_tls = speaks_tls(self._options.endpoints[0], seconds)

    def _never_connected(self) -> TenureError:
        if self._meets_tls:
            return TLSFailed(f"{self._options.display} speaks TLS, and was spoken to without; give `ca` (or tls=true)")
        reason = f" ({self._last_error})" if self._last_error else ""
        return StoreUnavailable(
            f"no session with {self._options.display} in time{reason}. Is ZooKeeper running and reachable there, and "
            "does it have a quorum?"
        )

    def _admitted(self, answer: Any) -> None:  # Any: kazoo has no types
        """Take what the server has negotiated. An expired session has no time-out in its answer."""
        if answer.time_out > 0:
            self.negotiated = answer.time_out / 1000.0
            self.session_id = answer.session_id


class SessionProof:
    """The heartbeats sent in one session, and how late a time they prove that it lived.

    When is the session proven? An answered ping or read proves nothing: a follower that is cut off from its
    leader answers them. An answered `sync` went through the leader, so at that time the follower was linked
    to it. What keeps the session alive at the leader is the follower's report, once per half tick, of who has
    been heard from. So a heartbeat counts from its sending once a later `sync`, sent at least a tick after it,
    was answered: the report in between has carried it.
    """

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._heard: collections.deque[float] = collections.deque()  # in order of sending, some way apart

    def restart(self) -> None:
        """Forget all heartbeats: those sent on the old connection may not have arrived."""
        self._heard.clear()

    def answered(self, sent: float) -> float | None:
        """Take the answer to the `sync` of `sent`; return the latest time from which the session is proven, if any."""
        # The new one is left out, never the oldest: among thousands a second none would ever come to be a tick old.
        if not self._heard or sent - self._heard[-1] >= self._tick * _APART:
            self._heard.append(sent)
        proven = None
        while self._heard and self._heard[0] <= sent - self._tick:
            proven = self._heard.popleft()
        return proven


class SessionListener:
    """The listener of a session: the lease's three callbacks."""

    def __init__(
        self, connected: Callable[[], None], suspended: Callable[[], None], over: Callable[[str], None]
    ) -> None:
        self.connected = connected
        self.suspended = suspended
        self.over = over


_NODE_NEWS: Final = ("NoNodeError", "NodeExistsError", "NotEmptyError", "BadVersionError")


def _acl(options: Options) -> Sequence[Any]:
    """The ACL of new nodes: the user's alone where there is one; else open to all, as ZooKeeper's own default."""
    if options.user:
        return [make_digest_acl(options.user, options.password or "", all=True)]
    return list(OPEN_ACL_UNSAFE)
