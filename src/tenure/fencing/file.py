"""The guard for one file, local or shared over NFS: a stale holder can't replace it, and nobody sees half of it.

    guard = FileGuard("/srv/books/ledger.json")
    old = guard.read(hold.fence)                  claim, then read: reads register too
    guard.replace(hold.fence, new)                claim, then replace

With asyncio: `await asyncio.to_thread(guard.replace, hold.fence, new)`. A task that is cancelled there does not stop
the thread: the replace may still happen.

What it promises. After `replace` returned, the file holds the new data, on disk. After any crash it holds the old or
the new, never half. Once a fence is claimed, no `replace` with an older one lands, not even one that was under way
in a process that was stopped and lost its lock meanwhile. Mode and owner stay as they were, as far as the system lets
this process set them. A symbolic link stays, and its target is replaced. Lock, record and fence belong to the target:
a call goes where the link leads once it has its turn, and a link that is switched leads to another file, with what
was claimed there.

How. Next to NAME stand `.NAME.fence`, the record of the youngest fence, and `.NAME.lock`, which one guard at a time
holds with fcntl.lockf. Record and data are each written as a temporary file, and renamed when that is on disk; the
record comes first. The lock alone would not be enough: a writer may be stopped right before its last rename for so
long that an NFS server gives its lock away, or while an operator deletes the lock file. Therefore a claim writes the
record, then removes all temporary files, then looks at the record again; and whoever renames makes its file, then
looks at the record, then renames. An older writer made its file before that removal, and its rename fails; or after,
and it sees the younger fence.

What it does not.
- Whoever opens the file without the guard is not checked.
- Readers without the guard see old or new data; they hold nobody up.
- Two hard links to one file become two files. ACLs and extended attributes are not kept.
- Where POSIX locks don't reach all hosts (NFS with `nolock` or `local_lock`), calls at the same time can make each
  other fail with FileNotFoundError; nothing stale lands.
- Lock and record are made as the umask says, and keep the mode and owner they have: users who share a file must be
  able to write all three.
- Each call lists the directory once, to find what killed writers left: many thousand files in it make it slow.
- Leave the lock file where it is, and don't open it elsewhere in a process that guards: POSIX drops the lock at the
  first close of the file by that process.

Waiting is bounded by `timeout`: whoever was stopped in the middle of a write makes the others fail with GuardBusy.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import secrets
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from tenure._core.base import validation
from tenure._core.base.clock import SYSTEM_CLOCK
from tenure._core.base.signals import Signal
from tenure.errors import GuardBusy, InvalidFence, InvalidOption, StoreRefused
from tenure.fencing._fence import Fence, FenceLike, admit

__all__ = ["FileGuard"]

_PAUSE_FIRST: Final = 0.001
_PAUSE_MAX: Final = 0.05
_CLAIM_ROUNDS_MAX: Final = 8
_RECORD_BYTES_MAX: Final = 8192  # more than any fence's text has
_NAME_BYTES_MAX: Final = 255 - len("..0123456789abcdef.tmp")  # the longest name that stands next to it
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_LOCK: Final = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW
_FLOCK: Final = "hhqqi4x"  # Linux's struct flock: type, whence, start, len, pid


class FileGuard:
    """Guards the file at `path`, which need not exist yet; its directory must.

    Keeps nothing open between calls: use it from any thread, and in a forked child. `timeout` is how many seconds a
    call waits for another guard of the same file. A name has at most 233 bytes: those of lock, record and temporary
    files are longer. Raises InvalidOption.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._path = os.path.join(os.getcwd(), os.fspath(path))  # where it is now, whatever chdir comes
        _refuse_long(os.path.basename(os.path.realpath(self._path)))
        self._timeout = validation.seconds(timeout, "timeout", minimum=0.0)

    def __repr__(self) -> str:
        return f"<tenure.FileGuard {self._path!r}>"

    def claim(self, fence: FenceLike) -> None:
        """Register the fence: from here on no older one is accepted.

        Raises StaleToken, FenceMismatch, InvalidFence, GuardBusy, StoreRefused (the record is damaged), OSError.
        """
        offered = Fence.of(fence)
        with self._alone() as guarded:
            guarded.claim(offered)

    def read(self, fence: FenceLike) -> bytes | None:
        """Claim, then read; None where there is no file yet. Raises as `claim`."""
        offered = Fence.of(fence)
        with self._alone() as guarded:
            guarded.claim(offered)
            return guarded.content()

    def replace(self, fence: FenceLike, data: bytes) -> None:
        """Claim, then make `data` the whole content of the file, at once.

        Raises as `claim`. After an OSError the file holds the old or the new data; the same call may be made again.
        """
        offered, content = Fence.of(fence), memoryview(data)
        with self._alone() as guarded:
            guarded.claim(offered)
            guarded.replace(offered, content)

    def seen(self) -> Fence | None:
        """The youngest fence that was claimed, or None. Claims nothing, and waits for nobody.

        Raises StoreRefused (the record is damaged), OSError.
        """
        return _GuardedFile.of(self._path).record()

    @contextmanager
    def _alone(self) -> Iterator[_GuardedFile]:
        """Hold the file alone: no other guard of it goes on, of this process, then of others."""
        until = SYSTEM_CLOCK.now() + self._timeout
        guarded = _GuardedFile.of(self._path)
        while True:  # ends by the deadline
            with _turn(guarded, self._timeout, until), _locked(guarded, self._timeout, until):
                found = _GuardedFile.of(self._path)
                if found == guarded:
                    yield guarded
                    return
            if SYSTEM_CLOCK.now() >= until:
                raise GuardBusy(
                    f"{self._path} led to {guarded.path}, and by the time that was free it led to {found.path}: "
                    f"{self._timeout:g} s are over. Nothing was written. Try again"
                )
            guarded = found  # a link was switched while we waited


@dataclass(frozen=True, slots=True)
class _GuardedFile:
    """A guarded file and the names of its lock and its record. `path` is the real one, no link."""

    path: str
    folder: str
    name: str

    @classmethod
    def of(cls, path: str) -> _GuardedFile:
        real = os.path.realpath(path)
        _status(real)  # a directory is refused before anything is made
        return cls(real, *os.path.split(real))

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, f".{self.name}.lock")

    @property
    def fence(self) -> str:
        return os.path.join(self.folder, f".{self.name}.fence")

    def identity(self) -> _Identity:
        """Return the same value for every path that leads here, through links and mounts."""
        folder = os.stat(self.folder)
        return folder.st_dev, folder.st_ino, self.name

    def content(self) -> bytes | None:
        try:
            with _opened(self.path, os.O_RDONLY) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def record(self) -> Fence | None:
        """The fence that was recorded. Raises StoreRefused where what is there is none."""
        try:
            with _opened(self.fence, os.O_RDONLY) as file:
                text = file.read(_RECORD_BYTES_MAX).decode("ascii", "replace")
        except FileNotFoundError:
            return None
        try:
            if not text.endswith("\n"):
                raise InvalidFence("its end is missing")
            return Fence.parse(text[:-1])
        except InvalidFence as error:
            raise self._damaged(text) from error

    def claim(self, offered: Fence) -> None:
        """Record it and see it stand, with nothing left that an older writer could still rename."""
        seen = self.record()
        for _ in range(_CLAIM_ROUNDS_MAX):
            if (youngest := admit(seen, offered)) != seen:
                self._put(self.fence, f"{youngest}\n".encode(), offered)
            self._sweep()
            seen = self.record()
            if admit(seen, offered) == seen:
                break
        else:  # only where the lock does not lock
            raise GuardBusy(f"{self.fence} changes under us: do POSIX locks work there? Nothing was written.")
        self._sync()  # also a rename that a killed one made and did not sync: never newer data than fence

    def replace(self, offered: Fence, content: memoryview) -> None:
        self._put(self.path, content, offered)
        self._sync()

    def busy(self, seconds: float, who: str) -> GuardBusy:
        return GuardBusy(
            f"{self.lock} was held by {who} for {seconds:g} s: a guarded write is under way there, or was stopped in "
            "the middle. Nothing was written. Try again; a process that never goes on must be ended. Leave the lock "
            "file where it is."
        )

    def _put(self, path: str, content: bytes | memoryview, offered: Fence) -> None:
        """A new file at `path`, at once, while nobody younger has come."""
        new = os.path.join(self.folder, f".{self.name}.{secrets.token_hex(8)}.tmp")
        try:
            _write(new, content, like=_status(path))
            admit(self.record(), offered)  # only now, with the file there: see the top
            os.rename(new, path)
        except FileNotFoundError:
            admit(self.record(), offered)  # a younger one removed it
            raise
        finally:
            with suppress(FileNotFoundError):  # renamed, or never made
                os.unlink(new)

    def _sweep(self) -> None:
        """Remove the temporary files: of killed writers, and of those who are older and don't know yet."""
        ours = re.compile(re.escape(f".{self.name}.") + r"[0-9a-f]{16}\.tmp")
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if ours.fullmatch(entry.name):
                    with suppress(FileNotFoundError):  # its writer was quicker
                        os.unlink(entry.path)

    def _sync(self) -> None:
        """Bring renames to disk, which are there when the directory is."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _damaged(self, text: str) -> StoreRefused:
        return StoreRefused(
            f"{self.fence} is damaged: it holds {text[:60]!r}, which is no fence and a line break, so nobody can say "
            "what is stale. Nothing was written. Write the present holder's fence there, or delete it once no older "
            "holder can still write"
        )


def _status(path: str) -> os.stat_result | None:
    """Look at the file; None where there is none. Raises OSError where a directory or device is in its place."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    _refuse_irregular(found, path)
    return found


def _refuse_long(name: str) -> None:
    if (name_bytes := len(os.fsencode(name))) > _NAME_BYTES_MAX:
        raise InvalidOption(
            f"the name {name[:60]!r}... has {name_bytes} bytes, and a guarded file at most {_NAME_BYTES_MAX}: "
            "temporary files next to it have longer names. Choose a shorter one"
        )


def _refuse_irregular(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[io.BufferedReader]:
    """The file, without waiting for whoever writes to a pipe. Raises OSError where it is no regular file.

    A signal handler may raise between any two steps, so an object of C has the descriptor before it is locked, under a
    `with`: it is closed there, or when that object dies. No lock outlives the call and its traceback.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, flags | os.O_NONBLOCK, 0o666)) as file:
        _refuse_irregular(os.fstat(file.fileno()), path)
        yield file


def _write(path: str, content: bytes | memoryview, *, like: os.stat_result | None) -> None:
    """A new file that is on disk; where it replaces one, with that one's mode and owner."""
    mode = 0o666 if like is None else 0o600  # private until it has the mode of what it replaces
    with open(path, "wb", opener=lambda name, _: os.open(name, _NEW, mode)) as file:
        if like is not None:
            _resemble(file.fileno(), like)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _resemble(descriptor: int, like: os.stat_result) -> None:
    mode = stat.S_IMODE(like.st_mode)
    if not _given(descriptor, like.st_uid, like.st_gid):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # these would lend the rights of somebody else
        _given(descriptor, -1, like.st_gid)
    os.fchmod(descriptor, mode)


def _given(descriptor: int, owner: int, group: int) -> bool:
    """Hand the file over; False where only root may. A writer in the group is no owner, and must be able to write."""
    try:
        os.fchown(descriptor, owner, group)
    except PermissionError:
        return False
    return True


# Turns between guards. POSIX locks belong to the process: within it they exclude nobody, and closing any descriptor of
# the lock file drops them. So the threads of a process take turns first, and open the file only when it is theirs.

_Identity: TypeAlias = tuple[int, int, str]
_turns_guard = threading.RLock()  # guards _turns; a signal handler may re-enter
_turns: WeakValueDictionary[_Identity, threading.Lock] = WeakValueDictionary()  # a turn lives while it is wanted


def _forget_turns() -> None:
    """Forget the turns in a forked child: holders of them, and changers of the table, stayed in the parent."""
    global _turns_guard, _turns
    _turns_guard, _turns = threading.RLock(), WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_turns)


def _turn_at(identity: _Identity) -> threading.Lock:
    with _turns_guard:
        return _turns.setdefault(identity, threading.Lock())


@contextmanager
def _turn(guarded: _GuardedFile, seconds: float, until: float) -> Iterator[None]:
    turn = _turn_at(guarded.identity())
    left = max(0.0, until - SYSTEM_CLOCK.now())
    if not turn.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
        raise guarded.busy(seconds, "another thread of this process")
    try:
        yield
    finally:
        turn.release()


@contextmanager
def _locked(guarded: _GuardedFile, seconds: float, until: float) -> Iterator[None]:
    """Hold the lock file. Raises GuardBusy."""
    pause = _PAUSE_FIRST
    # The kernel has no lock with a time-out outside of signals, which belong to the main thread: so we try, and rest.
    while True:  # ends by the deadline
        with _opened(guarded.lock, _LOCK) as lock:
            if _try_lock(lock.fileno(), guarded.lock):
                yield
                return
        now = SYSTEM_CLOCK.now()
        if now >= until:
            raise guarded.busy(seconds, _holder(guarded.lock))
        SYSTEM_CLOCK.wait(Signal(), min(until, now + pause))
        pause = min(2 * pause, _PAUSE_MAX)


def _try_lock(descriptor: int, path: str) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):  # POSIX leaves the choice
            return False
        raise
    return _is_at(descriptor, path)  # who locks a deleted file has nothing


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: str) -> str:
    """Name the holder of the lock, as far as the kernel tells: on Linux, of processes that this one can name."""
    if sys.platform != "linux":
        return "another process"
    with _opened(path, _LOCK) as lock:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock.fileno(), fcntl.F_GETLK, asked))
    return f"process {pid}" if kind != fcntl.F_UNLCK and pid > 0 else "another process"  # 0: elsewhere, by NFS
