"""The guard for a file: scripted interleavings, kills and stops at every step, and the rule itself."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import random
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import FenceMismatch, GuardBusy, InvalidFence, InvalidOption, StaleToken, StoreRefused
from tenure.fencing._fence import Fence, admit
from tenure.fencing.file import FileGuard

from .conftest import Rivals

# 3.12 and later warn of a fork with threads running; the children here do file work and _exit
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

CHILD_SECONDS = 20
_PR_SET_PDEATHSIG = 1
DONE, FAILED, REFUSED, BUSY, BROKEN = 0, 1, 3, 4, 5
STEPS = ("open", "os.rename", "os.remove", "os.scandir", "os.chmod", "os.chown", "fcntl.lockf")
STEPS_MAX = 60
Observed = tuple[str, tuple[Any, ...]]  # an audit event: its name and arguments


def token(number: int, **more: Any) -> Fence:
    return Fence("billing/ledger", number, **more)


class Child:
    """A forked process that does `work`. Killed at the end of the `with`, stopped or not."""

    def __init__(self, work: Callable[[], object]) -> None:
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _live(work)
        self._status: int | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            self.kill()

    def stopped(self) -> bool:
        """Wait until it has stopped (True) or ended (False); a child that hangs is ended by its own alarm."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._status = status
        return False

    def go_on(self) -> int:
        if self._status is None:
            os.kill(self.pid, signal.SIGCONT)
        return self.outcome()

    def outcome(self) -> int:
        """The way in which it ended:

        DONE, REFUSED, BUSY, BROKEN, FAILED; minus the signal's number where one ended it.
        """
        if self._status is None:
            _, self._status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(self._status)

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return self.outcome()


def _live(work: Callable[[], object]) -> None:
    outcome = FAILED
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped child would outlive a killed test
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)
        work()
        outcome = DONE
    except StaleToken:
        outcome = REFUSED
    except GuardBusy:
        outcome = BUSY
    except FileNotFoundError:
        outcome = BROKEN
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(outcome)


def signalled(when: Callable[[Observed], bool], number: signal.Signals, work: Callable[[], object]) -> Child:
    """A child that sends itself the signal right before the first operation that is `when`."""

    def watched() -> None:
        waiting = [True]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if waiting and when((event, args)):
                waiting.clear()
                os.kill(os.getpid(), number)

        sys.addaudithook(hook)
        work()

    return Child(watched)


def renaming_to(path: Path) -> Callable[[Observed], bool]:
    return lambda observed: observed[0] == "os.rename" and observed[1][1] == str(path)


def at_step(number: int) -> Callable[[Observed], bool]:
    """The n-th operation on the file system."""
    left = itertools.count(1)
    return lambda observed: observed[0] in STEPS and next(left) == number


def at_turn(number: int) -> Callable[[Observed], bool]:
    """The n-th operation that matters between two writers: looks at the record, temporary files, renames, sweeps."""

    def matters(event: str, args: tuple[Any, ...]) -> bool:
        if event != "open":
            return event in ("os.rename", "os.scandir")
        return str(args[0]).endswith(".fence") or (str(args[0]).endswith(".tmp") and args[1] is None)

    left = itertools.count(1)
    return lambda observed: matters(*observed) and next(left) == number


def children(number: signal.Signals, work: Callable[[int], object]) -> Iterator[tuple[int, Child]]:
    """A child for each step of `work(step)`, signalled before that; ends with the first that has no such step."""
    for step in range(1, STEPS_MAX):
        with signalled(at_step(step), number, partial(work, step)) as child:
            if not child.stopped() and child.outcome() == DONE:
                assert step > 8  # the hook did see the steps
                return
            yield step, child
    pytest.fail(f"more than {STEPS_MAX} steps")


def lose_lock(path: Path) -> None:
    """Lose the lock, as when an NFS server gives a silent client's lock away: whoever comes next gets one."""
    path.with_name(f".{path.name}.lock").unlink(missing_ok=True)


def stopped_writer(path: Path, when: Callable[[Observed], bool], fence: Fence, data: bytes) -> Child:
    return signalled(when, signal.SIGSTOP, lambda: FileGuard(path).replace(fence, data))


@contextmanager
def held_by_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thread of this process is in the middle of a replace, right before its last rename."""
    inside, go_on = threading.Event(), threading.Event()
    rename, parent = os.rename, os.getpid()

    def slow(source: str, target: str) -> None:
        if target == str(path) and os.getpid() == parent:
            inside.set()
            assert go_on.wait(CHILD_SECONDS)
        rename(source, target)

    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:
        patch.setattr(os, "rename", slow)
        writing = pool.submit(FileGuard(path).replace, token(1), b"of the thread")
        assert inside.wait(CHILD_SECONDS)
        try:
            yield
        finally:
            go_on.set()
        writing.result(CHILD_SECONDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


def beside(path: Path) -> list[str]:
    """All there should ever be."""
    return [f".{path.name}.fence", f".{path.name}.lock", path.name]


# The interleavings, with real holds.


def test_deposed_holder_that_resumes_is_refused_and_the_second_ones_data_stands(rivals: Rivals, path: Path) -> None:
    """A stopped, B writes, A writes: A is told both tokens, and B's data is intact."""
    mine, theirs = FileGuard(path), FileGuard(path)
    mine.replace(rivals.first.fence, b"first")
    second = rivals.depose()
    assert theirs.read(second.fence) == b"first"
    theirs.replace(second.fence, b"second")
    rivals.resume()
    with pytest.raises(StaleToken) as refused:
        mine.replace(rivals.first.fence, b"late")
    assert str(rivals.first.token) in str(refused.value)
    assert str(second.token) in str(refused.value)
    assert (refused.value.offered, refused.value.seen) == (str(rivals.first.fence), str(second.fence))
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("end", ["killed", "goes on"])
def test_holder_stopped_in_the_middle_of_its_replace_makes_the_second_busy_until_it_ends(
    rivals: Rivals, path: Path, end: str
) -> None:
    """A's write is in flight when B comes: B is told by whom it is held up, and loses nothing whatever A does."""
    first = rivals.first.fence
    guard = FileGuard(path, timeout=0.1)
    guard.replace(first, b"before")
    with signalled(renaming_to(path), signal.SIGSTOP, lambda: FileGuard(path).replace(first, b"in flight")) as child:
        assert child.stopped()
        second, began = rivals.depose().fence, time.monotonic()
        with pytest.raises(GuardBusy, match=rf"\.ledger\.json\.lock was held by process {child.pid} for 0\.1 s"):
            guard.replace(second, b"second")
        assert 0.09 < time.monotonic() - began < 2
        if end == "killed":
            child.kill()
            assert guard.read(second) == b"before"
        else:
            assert child.go_on() == DONE
            assert guard.read(second) == b"in flight"
    guard.replace(second, b"second")
    assert path.read_bytes() == b"second"
    assert names(path) == beside(path)
    with pytest.raises(StaleToken):
        guard.replace(first, b"late")


def test_holder_stopped_in_its_replace_that_lost_its_lock_is_refused_when_it_goes_on(
    rivals: Rivals, path: Path
) -> None:
    """A's very last step is in flight, and the lock is no longer his (an NFS server gave it away): it does not land."""
    first = rivals.first.fence
    guard = FileGuard(path)
    guard.replace(first, b"before")
    with signalled(renaming_to(path), signal.SIGSTOP, lambda: FileGuard(path).replace(first, b"in flight")) as child:
        assert child.stopped()
        lose_lock(path)
        second = rivals.depose().fence
        assert guard.read(second) == b"before"
        guard.replace(second, b"second")
        assert child.go_on() == REFUSED
    assert path.read_bytes() == b"second"
    assert names(path) == beside(path)


def test_late_write_after_the_second_only_read_is_refused(rivals: Rivals, path: Path) -> None:
    """Reads register: what B has read stays true until B writes."""
    guard = FileGuard(path)
    guard.replace(rivals.first.fence, b"1")
    second = rivals.depose().fence
    assert guard.read(second) == b"1"
    with pytest.raises(StaleToken):
        guard.replace(rivals.first.fence, b"late")
    assert guard.read(second) == b"1"


def test_retried_write_of_the_second_is_accepted(rivals: Rivals, path: Path) -> None:
    """The same fence again, as an object or as its text, is the same holder."""
    guard = FileGuard(path)
    second = rivals.depose().fence
    guard.replace(second, b"second")
    guard.replace(str(second), b"second")
    assert guard.read(second) == b"second"
    assert guard.seen() == second


def test_seats_held_together_write_in_turn_and_a_dead_one_is_refused_after_a_newer_claimed(
    world: Any, path: Path
) -> None:
    """Two seats have two tokens and both count, until one is gone and its successor has come."""
    clients = [world.client(owner=str(n), ttl=60) for n in range(3)]
    seats = [client.semaphore("seats", limit=2) for client in clients]
    first, second = (seat.acquire(timeout=10) for seat in seats[:2])
    guard = FileGuard(path)
    for fence in (second.fence, first.fence, second.fence, first.fence):
        guard.replace(fence, str(fence.token).encode())
    world.cut(clients[0])
    world.expire(first)
    third = seats[2].acquire(timeout=20)
    guard.claim(third.fence)
    with pytest.raises(StaleToken):
        guard.replace(first.fence, b"dead")
    guard.replace(second.fence, b"alive")
    assert guard.seen() == third.fence
    world.heal(clients[0])


# Kills and stops, at every step and at random.


@pytest.mark.parametrize("existing", [True, False])
def test_writer_killed_before_any_of_its_steps_leaves_old_or_new_data_and_the_next_writer_works(
    path: Path, existing: bool
) -> None:
    """A crash at any point: whole data, no stale write accepted afterwards, and no temporary file after the next."""
    guard = FileGuard(path)
    if existing:
        path.write_bytes(b"0" * 5000)
    before = path.read_bytes() if existing else None
    for step, child in children(signal.SIGKILL, lambda step: guard.replace(token(step + 1), b"1" * 5000)):
        assert child.outcome() == -signal.SIGKILL
        assert (path.read_bytes() if path.exists() else None) in (before, b"1" * 5000)
        assert guard.seen() == token(step + 1) or not path.exists() or path.read_bytes() == before
        guard.replace(token(step + 1), b"2" * 5000)  # the same holder tries again
        assert guard.read(token(step + 1)) == b"2" * 5000
        assert names(path) == beside(path)
        with pytest.raises(StaleToken):
            guard.replace(token(step), b"stale")
        before = path.read_bytes()


@pytest.mark.parametrize("verb", ["replace", "read", "claim"])
def test_writer_stopped_before_any_of_its_steps_that_lost_its_lock_never_lands_after_a_younger_claim(
    tmp_path: Path, verb: str
) -> None:
    """The order of the steps alone, without a lock, keeps a stale write from landing, wherever it was stopped."""
    path = tmp_path / "data"
    refused = 0
    for _, child in children(signal.SIGSTOP, lambda _: FileGuard(path).replace(token(1), b"stale")):
        lose_lock(path)
        guard = FileGuard(path)
        getattr(guard, verb)(token(2), *([b"young"] if verb == "replace" else []))
        after = path.read_bytes() if path.exists() else None
        outcome = child.go_on()
        assert outcome in (DONE, REFUSED)
        refused += outcome == REFUSED
        assert (path.read_bytes() if path.exists() else None) == after
        assert guard.seen() == token(2)
        guard.replace(token(3), b"next")
        assert names(path) == beside(path)
        for name in names(path):
            (tmp_path / name).unlink()
    assert refused > 8


@pytest.mark.parametrize("begins", ["older", "younger"])
@pytest.mark.parametrize("ends", ["older", "younger"])
def test_two_writers_stopped_before_any_pair_of_steps_with_no_lock_between_them_end_with_the_younger_ones_data(
    tmp_path: Path, begins: str, ends: str
) -> None:
    """Every pair of places, whoever begins and ends: the older is never last, the younger may have to try again."""
    path = tmp_path / "data"
    fences = {"older": token(1), "younger": token(2)}
    for steps in itertools.product(range(2, 10), repeat=2):  # before the first, nothing has happened
        with ExitStack() as undo:
            writers: dict[str, Child] = {}
            for name, step in zip(sorted(fences, key=lambda name: name != begins), steps, strict=True):
                writers[name] = undo.enter_context(stopped_writer(path, at_turn(step), fences[name], name.encode()))
                writers[name].stopped()  # or refused before that step
                lose_lock(path)
            for name in sorted(fences, key=lambda name: name == ends):
                writers[name].go_on()
        assert writers["older"].outcome() in (DONE, REFUSED, BROKEN), steps
        if writers["younger"].outcome() == BROKEN:
            FileGuard(path).replace(fences["younger"], b"younger")
        else:
            assert writers["younger"].outcome() == DONE, steps
        assert path.read_bytes() == b"younger", steps
        assert FileGuard(path).seen() == fences["younger"], steps
        for name in names(path):
            (tmp_path / name).unlink()


def test_writer_killed_at_random_moments_a_hundred_times_leaves_whole_data(path: Path) -> None:
    """kill -9, wherever it hits."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    sizes = (1, 4096, 300_000)
    guard = FileGuard(path)

    def write_on(base: int) -> None:
        for number in itertools.count(base):
            FileGuard(path).replace(token(number), bytes([number % 251]) * sizes[number % 3])

    for base in range(1, 100_000_000, 1_000_000):
        with Child(partial(write_on, base)) as child:
            time.sleep(dice.uniform(0, 0.012))
            child.kill()
        if path.exists():
            data = path.read_bytes()
            assert len(data) in sizes, f"seed {seed}"
            assert len(set(data)) == 1, f"seed {seed}"
        guard.replace(token(base + 999_999), b"x")
        assert names(path) == beside(path), f"seed {seed}"


# Many at once.

Accepted = list[tuple[int, int]]  # value written, token


def count_up(guard: Any, worker: int, times: int, meet: Callable[[], object]) -> Accepted:
    """Increments, each under a token above all before, tried until none younger came between read and write.

    Everybody meets once, each with its first value read and not yet written.
    """
    accepted: Accepted = []
    while len(accepted) < times:
        fence = token(time.monotonic_ns() << 3 | worker)
        try:
            value = int(guard.read(fence) or 0) + 1
            meet, met = _nothing, meet
            met()
            guard.replace(fence, str(value).encode())
            accepted.append((value, fence.token))
        except StaleToken:
            continue
    return accepted


def _nothing() -> None:
    pass


def count_up_in_threads(guard: Any, *, workers: int, times: int) -> Accepted:
    everybody = threading.Barrier(workers, timeout=CHILD_SECONDS)
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(count_up, guard, worker, times, everybody.wait) for worker in range(workers)]
        return sorted(pair for run in runs for pair in run.result(CHILD_SECONDS))


def check_counted(accepted: Accepted, path: Path) -> None:
    """Check that no increment is lost or doubled, and each is under a higher token than the one before."""
    assert [value for value, _ in accepted] == list(range(1, len(accepted) + 1))
    tokens = [token for _, token in accepted]
    assert tokens == sorted(set(tokens))
    assert path.read_bytes() == str(len(accepted)).encode()


class Unguarded:
    """The same file without the guard."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, _: Fence) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def replace(self, _: Fence, data: bytes) -> None:
        self._path.write_bytes(data)


def test_increments_of_many_threads_lose_none_and_accept_no_stale_one(path: Path) -> None:
    """Threads of one process, which POSIX locks would not keep apart."""
    check_counted(count_up_in_threads(FileGuard(path), workers=4, times=20), path)


def test_increments_of_many_threads_without_the_guard_lose_updates(path: Path) -> None:
    """The positive control: the same run can lose, and this test can see it."""
    accepted = count_up_in_threads(Unguarded(path), workers=4, times=20)
    with pytest.raises(AssertionError):
        check_counted(accepted, path)


def test_increments_of_many_processes_lose_none_and_accept_no_stale_one(path: Path, tmp_path: Path) -> None:
    """Processes, which only the lock file keeps apart."""

    def work(worker: int) -> None:
        accepted = count_up(FileGuard(path), worker, 20, _nothing)
        (tmp_path / f"accepted-{worker}").write_text("".join(f"{value} {token}\n" for value, token in accepted))

    running = [Child(partial(work, worker)) for worker in range(4)]
    assert [child.outcome() for child in running] == [DONE] * 4
    lines = [line.split() for log in tmp_path.glob("accepted-*") for line in log.read_text().splitlines()]
    accepted = sorted((int(value), int(token)) for value, token in lines)
    assert len(accepted) == 80
    check_counted(accepted, path)


# One file under several names, several guards in one process, and forks.


def test_guards_of_one_path_in_other_spellings_exclude_each_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, with dots, through a linked directory, through a link to the file: one file, one turn."""
    folder = path.parent
    (folder / "sub").mkdir()
    (folder / "linked").symlink_to(folder)
    (folder / "link.json").symlink_to(path.name)
    monkeypatch.chdir(folder)
    spellings = (path.name, folder / "sub" / ".." / path.name, folder / "linked" / path.name, folder / "link.json")
    guards = [FileGuard(spelling, timeout=0) for spelling in spellings]
    with held_by_a_thread(path, monkeypatch):
        for guard in guards:
            with pytest.raises(GuardBusy, match="another thread of this process"):
                guard.claim(token(2))
            with Child(partial(guard.claim, token(2))) as child:
                assert child.outcome() == BUSY
    FileGuard("link.json").replace(token(2), b"through the link")
    assert (folder / "link.json").is_symlink()
    assert path.read_bytes() == b"through the link"
    assert FileGuard(path).seen() == token(2)


def test_thread_that_finds_the_file_busy_does_not_drop_the_lock_of_its_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POSIX drops a process's locks at its first close of the file, whoever closes."""
    with held_by_a_thread(path, monkeypatch):
        with pytest.raises(GuardBusy):
            FileGuard(path, timeout=0.01).read(token(2))
        FileGuard(path).seen()
        with Child(lambda: FileGuard(path, timeout=0).read(token(2))) as child:
            assert child.outcome() == BUSY


def test_child_forked_while_a_thread_holds_the_file_waits_for_the_parent_and_then_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn is inherited: the child is told of the parent's process, and has its turn once that is done."""
    parent, guard = os.getpid(), FileGuard(path, timeout=0.02)
    reading, writing = os.pipe()

    def work() -> None:
        with pytest.raises(GuardBusy, match=f"held by process {parent} for"):
            guard.claim(token(2))
        os.write(writing, b".")
        FileGuard(path).replace(token(2), b"of the child")

    with held_by_a_thread(path, monkeypatch):
        child = Child(work)
        told = os.read(reading, 1)
        os.close(reading)
        os.close(writing)
    assert (told, child.outcome()) == (b".", DONE)
    assert path.read_bytes() == b"of the child"


def test_guard_made_for_a_relative_path_stays_with_its_file_after_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file is was said when the guard was made."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    guard = FileGuard("data")
    monkeypatch.chdir(tmp_path / "other")
    guard.replace(token(1), b"x")
    assert (tmp_path / "data").read_bytes() == b"x"


def test_lock_file_replaced_while_waited_for_is_not_taken_for_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a deleted file excludes nobody: the guard tries again on the one that is there."""
    lock = path.with_name(f".{path.name}.lock")
    lockf = FileGuard.__init__.__globals__["fcntl"].lockf
    taken: list[bool] = []

    def late(descriptor: int, *args: int) -> None:
        lockf(descriptor, *args)
        if not taken:
            lock.unlink()
        taken.append(lock.exists())

    monkeypatch.setattr("fcntl.lockf", late)
    FileGuard(path).replace(token(1), b"x")
    assert taken == [False, True]


def test_link_switched_while_its_target_is_waited_for_is_followed_to_where_it_leads_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `replace` returned for is what the path shows, with the fence of that file."""
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "link"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    link.symlink_to(old)
    switch_when_locked(monkeypatch, link, [new])
    FileGuard(link).replace(token(2), b"x")
    assert (link.read_bytes(), new.read_bytes(), old.read_bytes()) == (b"x", b"x", b"old")
    assert FileGuard(new).seen() == token(2)
    assert FileGuard(old).seen() is None


def test_link_that_is_switched_again_and_again_makes_the_call_busy_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends, and wrote nowhere."""
    targets = [tmp_path / "a", tmp_path / "b"]
    link = tmp_path / "link"
    link.symlink_to(targets[1])
    switch_when_locked(monkeypatch, link, itertools.cycle(targets))
    with pytest.raises(GuardBusy, match=r"link led to .* it led to .* Nothing was written"):
        FileGuard(link, timeout=0.05).replace(token(1), b"x")
    assert [target for target in targets if target.exists()] == []


def switch_when_locked(monkeypatch: pytest.MonkeyPatch, link: Path, targets: Iterable[Path]) -> None:
    """Each time a lock is taken, the link leads to the next one already."""
    lockf, left = FileGuard.__init__.__globals__["fcntl"].lockf, iter(targets)

    def switching(*args: int) -> None:
        lockf(*args)
        if (target := next(left, None)) is not None:
            link.unlink()
            link.symlink_to(target)

    monkeypatch.setattr("fcntl.lockf", switching)


class Interrupted(BaseException):
    """The exception that a signal handler raises."""


# Its death closes it, as any file's does, and Python says so.
@pytest.mark.filterwarnings("ignore:.*unclosed file.*:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_call_interrupted_at_any_place_by_a_signal_handler_that_raises_keeps_no_lock(path: Path) -> None:
    """Ctrl-C or an alarm: the process that goes on does not hold the file from all others, nor from itself."""
    guard = FileGuard(path, timeout=0.0)
    guard.replace(token(1), b"x")
    for interrupted in itertools.count():
        try:
            with raising_at(interrupted):
                guard.read(token(1))
        except Interrupted:
            pass
        else:
            break
        with Child(partial(guard.read, token(1))) as child:  # now that the traceback is gone, too
            assert child.outcome() == DONE, interrupted
    assert interrupted > 100


@contextmanager
def raising_at(number: int) -> Iterator[None]:
    """Raise where Python runs signal handlers: as a function of its own begins, and as one of C has returned."""
    left = itertools.count()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and next(left) == number:
            sys.setprofile(None)
            raise Interrupted

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


# The rule.

_IDS = [f"{number:020x}" for number in range(4)]
_TOKENS = [1, 2, 3, 10, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
FENCES = st.builds(
    Fence,
    line=st.sampled_from(["billing/ledger"] * 5 + ["billing/other"]),
    token=st.sampled_from(_TOKENS),
    incarnation=st.sampled_from([0] * 8 + [1, 2**31 - 1]),
    ids=st.one_of(st.just(()), st.lists(st.sampled_from(_IDS), min_size=1, max_size=3, unique=True).map(tuple)),
)


@settings(deadline=None)  # files are as fast as the disk is
@given(st.lists(st.tuples(st.sampled_from(["claim", "read", "replace"]), FENCES), max_size=12))
def test_any_sequence_of_fences_is_admitted_and_refused_as_the_rule_says(calls: list[tuple[str, Fence]]) -> None:
    """The guard is `admit` with a file behind it, and a refused call changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        guard = FileGuard(os.path.join(folder, "data"))
        seen, content = None, None
        for number, (verb, fence) in enumerate(calls):
            data = str(number).encode()
            call = getattr(guard, verb)
            arguments = (fence, data) if verb == "replace" else (fence,)
            try:
                seen = admit(seen, fence)
            except (StaleToken, FenceMismatch) as expected:
                with pytest.raises(type(expected)) as refused:
                    call(*arguments)
                assert str(refused.value) == str(expected)
            else:
                content = data if verb == "replace" else content
                assert call(*arguments) == (content if verb == "read" else None)
            assert guard.seen() == seen
        assert guard.read(seen) == content if seen else not os.listdir(folder)


def test_raised_incarnation_is_accepted_and_the_lower_one_refused(path: Path) -> None:
    """The store was restored and its tokens begin again: the operator's number decides."""
    guard = FileGuard(path)
    guard.replace(token(900), b"before")
    guard.replace(token(3, incarnation=1), b"after")
    with pytest.raises(StaleToken, match=r"incarnation 1 \(token 3\) was seen"):
        guard.replace(token(901), b"late")
    assert guard.read(token(3, incarnation=1)) == b"after"


def test_fence_of_another_line_is_refused(path: Path) -> None:
    """One lock name for one file."""
    guard = FileGuard(path)
    guard.replace(token(5), b"x")
    for call in (guard.claim, guard.read, lambda fence: guard.replace(fence, b"y")):
        with pytest.raises(FenceMismatch, match="billing/other"):
            call(Fence("billing/other", 9))
    assert path.read_bytes() == b"x"


def test_guard_before_any_claim_has_seen_none_and_makes_nothing(path: Path) -> None:
    """To look claims nothing."""
    assert FileGuard(path).seen() is None
    assert names(path) == []


def test_calls_with_asyncio_go_through_to_thread(path: Path) -> None:
    """The way the docstring says."""

    async def replaced() -> bytes | None:
        guard = FileGuard(path)
        await asyncio.to_thread(guard.replace, token(1), b"x")
        return await asyncio.to_thread(guard.read, token(1))

    assert asyncio.run(replaced()) == b"x"


# Bad input, bad files.


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\n",
        b"garbage\n",
        b"0.3@billing/ledger",
        b"0.3@billing\n",
        b"\xff\n",
        b"0.3@billing/ledger\nx\n",
        b"0" * 9000,
    ],
)
def test_damaged_record_refuses_every_call_and_says_what_to_do(path: Path, record: bytes) -> None:
    """Nobody can say what is stale, so nobody is let in."""
    guard = FileGuard(path)
    guard.replace(token(3), b"x")
    path.with_name(f".{path.name}.fence").write_bytes(record)
    calls: list[Callable[[], object]] = [
        lambda: guard.replace(token(4), b"y"),
        lambda: guard.read(token(4)),
        lambda: guard.claim(token(4)),
        guard.seen,
    ]
    for call in calls:
        with pytest.raises(StoreRefused, match=r"\.ledger\.json\.fence is damaged.*Write the present .* or delete it"):
            call()
    assert path.read_bytes() == b"x"
    assert names(path) == beside(path)


@pytest.mark.parametrize("beside", [".ledger.json.fence", ".ledger.json.lock", "ledger.json"])
def test_pipe_in_the_place_of_a_file_raises_and_does_not_hang(path: Path, beside: str) -> None:
    """Nobody ever writes to it."""
    guard = FileGuard(path)
    os.mkfifo(path.with_name(beside))

    def work() -> None:
        for call in (guard.claim, guard.read, lambda fence: guard.replace(fence, b"x")):
            with pytest.raises(OSError, match="Not a regular file"):
                call(token(1))
        if beside.endswith("lock"):
            assert guard.seen() is None  # it takes no lock
            return
        with pytest.raises(OSError, match="Not a regular file"):
            guard.seen()

    with Child(work) as child:
        assert child.outcome() == DONE


def test_name_too_long_for_a_temporary_file_beside_it_is_refused_when_the_guard_is_made(tmp_path: Path) -> None:
    """In bytes; and of the target, where it is a link."""
    longest = tmp_path / ("n" * 233)
    FileGuard(longest).replace(token(1), b"x")
    assert longest.read_bytes() == b"x"
    (tmp_path / "link").symlink_to("n" * 234)
    for name in ("n" * 234, "ü" * 117, "link"):
        with pytest.raises(InvalidOption, match=r"has 234 bytes, and a guarded file at most 233"):
            FileGuard(tmp_path / name)


def test_record_mended_by_hand_as_the_message_says_counts(path: Path) -> None:
    """An operator writes the fence and a line break."""
    guard = FileGuard(path)
    path.with_name(f".{path.name}.fence").write_text("0.33@billing/ledger\n")
    with pytest.raises(StaleToken):
        guard.claim(token(32))
    guard.claim(token(33))


def test_wrong_input_is_refused_before_anything_is_made(path: Path) -> None:
    """Nothing is locked or written for a call that can't be meant."""
    guard: Any = FileGuard(path)
    with pytest.raises(InvalidFence):
        guard.claim("33")
    with pytest.raises(TypeError):
        guard.replace(token(1), "text")
    for timeout in (-1, float("nan"), True, None, "5"):
        with pytest.raises(InvalidOption):
            FileGuard(path, timeout=timeout)  # type: ignore[arg-type]  # what a user may pass by mistake
    assert names(path) == []


def test_path_that_can_hold_no_file_raises_the_systems_own_error(tmp_path: Path) -> None:
    """A directory, a missing one, a file in the place of one, a device, a link to itself."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_bytes(b"")
    wrong = {
        tmp_path: IsADirectoryError,
        tmp_path / "missing" / "data": FileNotFoundError,
        tmp_path / "file" / "data": NotADirectoryError,
        Path("/dev/null"): OSError,
        tmp_path / "loop": OSError,
    }
    for path, expected in wrong.items():
        with pytest.raises(expected):
            FileGuard(path).replace(token(1), b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_directory_that_may_not_be_written_raises_permission_error(tmp_path: Path) -> None:
    """And nothing hides it."""

    def work() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        with pytest.raises(PermissionError):
            FileGuard(tmp_path / "data").replace(token(1), b"x")

    tmp_path.chmod(0o500)
    with Child(work) as child:
        assert child.outcome() == DONE


def test_disk_that_is_full_leaves_the_old_data_and_no_temporary_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while writing is the writer's; the file has not changed, and the same call works later."""
    guard = FileGuard(path)
    guard.replace(token(1), b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            guard.replace(token(2), b"new")
    assert path.read_bytes() == b"old"
    assert names(path) == beside(path)
    guard.replace(token(2), b"new")
    assert path.read_bytes() == b"new"


def test_everything_is_on_disk_before_the_step_that_builds_on_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses power keeps the order: the record, its name, the data, its name."""
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        steps.append("sync " + ("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"))
        fsync(descriptor)

    def noted_rename(source: str, target: str) -> None:
        steps.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    FileGuard(path).replace(token(1), b"x")
    record = ["sync file", "rename .ledger.json.fence", "sync folder"]
    data = ["sync file", "rename ledger.json", "sync folder"]
    assert steps == [*record, *data]
    FileGuard(path).replace(token(1), b"y")
    assert steps[6:] == ["sync folder", *data]  # the record's name once more: a killed one may not have come so far


def test_mode_and_owner_of_the_file_are_kept(path: Path) -> None:
    """A new file takes the place of the old one and looks like it; a first one is made as the umask says."""
    guard = FileGuard(path)
    umask = os.umask(0o027)
    try:
        guard.replace(token(1), b"x")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o4751)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
        path.chmod(0o4751)
    before = path.stat()
    guard.replace(token(1), b"y")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


def test_file_of_another_owner_that_cant_be_given_to_him_is_replaced_without_his_rights(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root gives files away: the data is written all the same, and nobody's set-user-id bit is lent."""

    def refuse(descriptor: int, owner: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    path.write_bytes(b"x")
    path.chmod(0o6664)
    monkeypatch.setattr(os, "fchown", refuse)
    FileGuard(path).replace(token(1), b"y")
    assert path.read_bytes() == b"y"
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_neighbours_with_names_like_temporary_files_are_left_alone(path: Path) -> None:
    """Only what this guard's writers made is swept, and all of that."""
    left = f".{path.name}.0123456789abcdef.tmp"
    others = [f".{path.name}.note.tmp", f".other.{path.name}.0123456789abcdef.tmp", f".{path.name}.0123456789abcdef"]
    for name in (left, *others):
        path.with_name(name).write_bytes(b"")
    FileGuard(path).claim(token(1))
    assert set(others) < set(names(path))
    assert left not in names(path)
