"""gRPC and the process it lives in: forks, signals, interrupts, the missing package. Other gRPC libraries hang here."""

from __future__ import annotations

import dis
import gc
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import tenure
from tenure._core.base.limits import CONNECTIONS_MAX
from tenure._core.lease import LeaseState
from tenure._core.runtime import runtime_of
from tests.conformance.store_worlds import eventually
from tests.faults.transports import GRPC, over
from tests.servers import Cluster, EtcdSpec, Provider, etcdctl, start

FORKING = """
import os, signal, sys, threading, time
import tenure

url, ends = sys.argv[1:]
client = tenure.connect(url, ttl=5.0)
hold = client.lock("a").acquire()
hold.renew()                                               # the keep-alive stream is open,
waited = []
waiter = threading.Thread(target=lambda: waited.append(client.lock("a").acquire(timeout=60)))
waiter.start()
while client.statistics()["backend"]["watches"] < 1:       # the watch stream as well,
    time.sleep(0.01)
busy = threading.Event()
def keep_busy():                                           # and another thread is in the midst of requests
    while not busy.is_set():
        client.lock("busy").acquire().release()
worker = threading.Thread(target=keep_busy)
worker.start()

for number in range(5):
    child = os.fork()
    if child == 0:
        signal.alarm(30)                                   # kills a child that hangs
        for call in (client.lock("b").acquire, hold.check, hold.renew, hold.release, client.statistics):
            try:
                call()
            except tenure.ForkedClient:
                continue
            os._exit(3)
        client.close()
        with tenure.connect(url, ttl=5.0) as mine:       # its own works, streams and all
            with mine.lock(f"child-{number}") as own:
                assert own.renew() > 0
                other = threading.Thread(target=lambda: mine.lock(f"child-{number}").acquire(timeout=20).release())
                other.start()
                while mine.statistics()["backend"]["watches"] < 1:
                    time.sleep(0.01)
            other.join(20)
            assert not other.is_alive()
        if ends == "at once":
            os._exit(0)
        sys.exit(0)                                        # atexit handlers, garbage, open sockets and all
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"

renewals, left = 0, hold.remaining()                       # the parent goes on renewing, for two TTLs and more
give_up = time.monotonic() + 60
while renewals < 6 and time.monotonic() < give_up:
    time.sleep(0.01)
    renewals += hold.remaining() > left
    left = hold.remaining()
assert renewals == 6, f"renewed {renewals} times"
hold.check()
busy.set()
worker.join(20)
assert hold.release() is True
waiter.join(20)
assert waited[0].release() is True
print("token", waited[0].token, "over", client.statistics()["backend"]["endpoints_failed"], flush=True)
client.close()
"""


@pytest.fixture(scope="module")
def secure(provider: Provider) -> Iterator[Cluster]:
    """An etcd over TLS, with client certificates."""
    cluster = over(start(provider, EtcdSpec(tls="mutual")), GRPC)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("ends", ["at once", "as usual"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_forks_with_open_streams_leave_parent_and_children_whole(
    request: pytest.FixtureRequest, singles: dict[str, Cluster], tls: bool, ends: str
) -> None:
    """Law 14: the child is refused, has a client of its own and ends; the parent goes on renewing and waiting."""
    cluster = request.getfixturevalue("secure") if tls else singles[GRPC]
    address = cluster.url(f"forks-{time.monotonic_ns():x}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, address, ends],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"token \d+ over 0\n", done.stdout), done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_signal_handler_that_asks_the_store_may_come_at_any_line(singles: dict[str, Cluster]) -> None:
    """It comes while the main thread is in the midst of a request or a renewal; both get their answers."""
    with tenure.connect(singles[GRPC].url("signals"), ttl=20) as client:
        kept = client.lock("kept").acquire()
        handled = 0

        def handle(number: int, at: FrameType | None) -> None:
            nonlocal handled
            handled += 1
            kept.renew()
            assert client.lock("kept").try_acquire() is None

        before = signal.signal(signal.SIGVTALRM, handle)  # not SIGALRM, which bounds the tests themselves
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)  # of processor time
            give_up = time.monotonic() + 60.0
            while handled < 60 and time.monotonic() < give_up:
                client.lock("a").acquire(timeout=10).release()
                kept.renew()
                assert client.lock("kept").try_acquire() is None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)
        assert handled >= 60
        kept.check()
        assert kept.release() is True


class Interrupting:
    """A socket that passes everything on; Ctrl-C is pressed once, before or after one of its calls."""

    def __init__(self, sock: socket.socket, call: str, *, after: bool) -> None:
        self._sock = sock
        self._call = call
        self._after = after
        self._pressed = False

    def sendall(self, data: bytes) -> None:
        self._interrupted("sendall", data)

    def recv(self, size: int) -> bytes:
        data: bytes = self._interrupted("recv", size)
        return data

    def _interrupted(self, call: str, given: object) -> Any:  # Any: of either call
        pressed, self._pressed = self._pressed, self._pressed or call == self._call
        if not pressed and self._pressed and not self._after:
            raise KeyboardInterrupt
        outcome = getattr(self._sock, call)(given)
        if not pressed and self._pressed:
            raise KeyboardInterrupt
        return outcome

    def __getattr__(self, name: str) -> Any:  # Any: of a socket
        return getattr(self._sock, name)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["sendall", "recv"])
def test_interrupt_in_the_midst_of_a_request_costs_no_lease_and_leaves_no_ticket(
    singles: dict[str, Cluster], call: str, after: bool
) -> None:
    """Half an answer on a connection is nobody else's: what was interrupted is undone, and the next call works."""
    cluster = singles[GRPC]
    with tenure.connect(cluster.url(f"interrupts-{time.monotonic_ns():x}"), ttl=20) as client:
        kept = client.lock("kept").acquire()
        session: Any = runtime_of(client)._backend._wire._transport.session  # type: ignore[attr-defined]  # etcd's
        client.lock("a").acquire().release()
        for pool, ask in ((session._idle, client.lock("a").acquire), (session._dedicated, kept.renew)):
            kept.renew()
            while len(pool) > 1:  # another one, of a request in the background, would be interrupted later
                pool.pop().close()
            (connection,) = pool
            connection._sock = Interrupting(connection._sock, call, after=after)
            with pytest.raises(KeyboardInterrupt):
                ask()
            kept.check()
            assert kept.renew() > 0
            for connection in list(pool):
                assert isinstance(connection._sock, socket.socket), "the interrupted connection is used on"
            assert client.lock("a").acquire(timeout=5.0).release() is True
        assert kept.release() is True
        assert eventually(lambda: _keys(cluster, runtime_of(client).namespace) == "")


class AtMoment:
    """A tracer that presses Ctrl-C at the nth moment at which the interpreter would look for it, within some files.

    It looks after calls, at the entry of functions, and where loops go back.
    """

    LOOKS = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME")

    def __init__(self, moment: int, within: str = "/_backends/etcd/") -> None:
        self._left = moment
        self._within = within
        self._last: dict[FrameType, str] = {}
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> AtMoment | None:
        if self._within not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in self.LOOKS:
                self._left -= 1
                if self._left == 0:
                    sys.settrace(None)
                    self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    raise KeyboardInterrupt
        return self


@pytest.fixture
def sockets_may_be_dropped() -> Iterator[None]:
    """One that nobody has yet when the interrupt comes is closed by the garbage collector, with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.mark.usefixtures("sockets_may_be_dropped")
@pytest.mark.parametrize("kind", ["etcd", GRPC])
def test_interrupt_at_any_moment_of_a_request_leaves_a_client_that_works(
    singles: dict[str, Cluster], kind: str
) -> None:
    """No connection is used on with half an answer in it, and none is counted as in use for good."""
    cluster = singles[kind]
    with tenure.connect(cluster.url(f"moments-{time.monotonic_ns():x}"), ttl=60) as client:
        kept = client.lock("kept").acquire()
        value = b"x" * 40_000  # of several frames
        kept.store.put("k", value)
        session: Any = runtime_of(client)._backend._wire._transport.session  # type: ignore[attr-defined]  # etcd's
        for ask in (kept.renew, lambda: kept.store.get("k")):
            moment = 0
            while True:
                moment += 1
                ask()  # or what is found out is how it begins anew
                tracer = AtMoment(moment)
                sys.settrace(tracer)
                try:
                    ask()
                    break
                except KeyboardInterrupt:
                    assert tracer.where
                finally:
                    sys.settrace(None)
                assert kept.renew() > 0, tracer.where
                found = kept.store.get("k")
                assert found is not None
                assert found.value == value, tracer.where
                assert eventually(lambda: session._slots.qsize() == CONNECTIONS_MAX), tracer.where
            assert moment > 20
        kept.store.delete("k")
        assert kept.release() is True


@pytest.mark.usefixtures("sockets_may_be_dropped")
@pytest.mark.parametrize("kind", ["etcd", GRPC])
def test_interrupt_at_any_moment_of_a_first_acquire_leaves_a_lease_that_is_kept_and_closed(
    singles: dict[str, Cluster], kind: str
) -> None:
    """No lock stays locked, no lease goes unrenewed: another thread acquires next, and closes the client."""
    address = singles[kind].url(f"first-{time.monotonic_ns():x}")
    moment, where = 0, "nowhere"
    while where:
        moment += 1
        client = tenure.connect(address, ttl=60)
        tracer = AtMoment(moment, "/_backends/etcd/lease.py")
        sys.settrace(tracer)
        try:
            client.lock("a").acquire().release()
        except KeyboardInterrupt:
            assert tracer.where
        finally:
            sys.settrace(None)
        where = tracer.where
        lease: Any = runtime_of(client).lease(60)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(client.lock("b").acquire, 30.0).result(40).release() is True, where
            assert lease.state is LeaseState.HELD
            assert lease._heartbeat._timer is not None, f"nobody renews it: {where}"
            assert not lease._heartbeat._timer.cancelled, where
            other.submit(client.close).result(30)
    assert moment > 30


def _keys(cluster: Cluster, namespace: str) -> str:
    return etcdctl(cluster, "get", "--prefix", "--keys-only", f"{namespace}/").stdout.strip()


def test_missing_package_is_one_sentence_that_says_what_to_install() -> None:
    """Without `tenure[grpc]`: ServerMissing at connect; the gateway does without."""
    program = """
import sys
sys.modules["hpack"] = None
import tenure
tenure.connect("etcd://127.0.0.1:1/x").close()
try:
    tenure.connect("etcd+grpc://127.0.0.1:1/x")
except tenure.ServerMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'tenure[grpc]'" in done.stdout


@pytest.mark.parametrize(("scheme", "imported"), [("etcd", "set()"), ("etcd+grpc", "{'hpack'}")])
def test_each_transport_imports_its_own_client_alone(scheme: str, imported: str) -> None:
    """Nobody pays for the other one."""
    others = "'etcd3gw', 'websockets'" if scheme == "etcd+grpc" else "'hpack'"
    program = f"""
import sys, tenure
tenure.connect("{scheme}://127.0.0.1:1/x").close()
print({{'hpack'}} & set(sys.modules), [name for name in ({others},) if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{imported} []\n"
