"""Real PostgreSQL, MariaDB and Redis servers as child processes on loopback, for the guards that write into them.

`start_database(PostgreSQL())` answers a DatabaseServer that serves; `url()` is what SQLAlchemy or redis-py takes. What
is committed outlives `kill()` and `start()`, except in Redis, which keeps nothing on disk; it would not outlive the
machine, as nothing is synced. Whatever ends the test process ends the servers, paused ones too; only `close()` (also
run at interpreter exit) removes their directories. Programs come from PATH or from where Debian puts them.
"""

from __future__ import annotations

import atexit
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import psycopg
import pymysql
import redis

from tenure.testing.servers.processes import PortTaken, ServerProcess, _die_with_parent, free_port, give_back
from tenure.testing.servers.specs import ServerFailed, ServersMissing

CONNECTIONS_MAX = 200
_HOST = "127.0.0.1"
_READY_SECONDS = 30.0
_PREPARE_SECONDS = 60.0
_ANSWER_SECONDS = 2  # whole: psycopg takes no less and no fraction
_POLL_SECONDS = 0.01
_GUARD_END_SECONDS = 10.0
_CHILD_END_MS = 10_000
_START_TRIES_MAX = 5
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")  # on root's PATH only, but anybody may run what is there
_POSTGRESQL_ROOT = Path("/usr/lib/postgresql")


class Database(Protocol):
    """A server program: how to prepare and start it, and what to ask to know that it is the one that answers."""

    name: str
    dialects: tuple[str, ...]  # of SQLAlchemy; the first part of a URL's driver
    default_driver: str
    login: str
    path: str

    def prepare(self, directory: Path) -> None:
        """Make the files a first start needs. Raises ServersMissing without the program."""

    def command(self, directory: Path, port: int) -> list[str]: ...

    def serves_from(self, port: int) -> Path | None:
        """The data directory of whoever answers on this port; None while nobody does."""


def start_database(database: Database) -> DatabaseServer:
    """A server that serves, in a new directory and on a new port; close it from the process that started it.

    Raises ServersMissing without the program, ServerFailed when it does not come up.
    """
    for _ in range(_START_TRIES_MAX - 1):
        try:
            return _start_once(database)
        except PortTaken:
            continue
    return _start_once(database)


class DatabaseServer:
    """A running server. Not for two threads at once."""

    def __init__(
        self, database: Database, *, port: int, directory: Path, processes: ProcessFamily, close: Callable[[], None]
    ) -> None:
        self.database = database
        self.host = _HOST
        self.port = port
        self.directory = directory
        self._processes = processes
        self._close = close
        self._closed = False
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<DatabaseServer {self.database.name} {self.host}:{self.port}>"

    @property
    def pids(self) -> list[int]:
        """The server's process, then those it forked; a running server may fork another at any moment."""
        return [self._processes.pid, *_children(self._processes.pid)]

    def url(self, driver: str | None = None) -> str:
        """The address for SQLAlchemy with this driver, "mysql+aiomysql" for one; for redis-py without any.

        A bare "postgresql" is what psycopg itself takes. Raises ValueError for a driver of another database.
        """
        driver = driver or self.database.default_driver
        if driver.partition("+")[0] not in self.database.dialects:
            raise ValueError(f"{driver!r} is no driver for {self.database.name}: {', '.join(self.database.dialects)}")
        return f"{driver}://{self.database.login}{self.host}:{self.port}/{self.database.path}"

    def pause(self) -> None:
        """SIGSTOP to all of its processes: connections are accepted by the kernel, nothing is answered."""
        self._processes.pause()

    def resume(self) -> None:
        """SIGCONT; what was sent in the meantime is now answered."""
        self._processes.resume()

    def kill(self) -> None:
        """SIGKILL to all of its processes, and wait until they are gone. Killing a killed server does nothing."""
        self._processes.kill()

    def start(self) -> None:
        """Start a killed server again, same data and port, and wait until it serves. Raises ServerFailed."""
        self._processes.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the server answers a query. Raises ServerFailed after a bound, with its log."""
        deadline = time.monotonic() + _READY_SECONDS
        data = self.directory / "data"
        while time.monotonic() < deadline:
            self._processes.check_alive()
            if self.database.serves_from(self.port) == data:  # not somebody else's server, while ours fails to bind
                return
            time.sleep(_POLL_SECONDS)
        raise ServerFailed(f"{self!r} not ready within {_READY_SECONDS} s; its log:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last few kilobytes the server wrote to its log, over all its starts."""
        return self._processes.log_tail()

    def close(self) -> None:
        """End the server and remove its files. Idempotent; does nothing in a forked child."""
        if self._closed or os.getpid() != self._owner_pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._close()


class PostgreSQL:
    """Superuser `postgres` without a password, database `postgres`; a process for each connection."""

    name = "PostgreSQL"
    dialects: tuple[str, ...] = ("postgresql",)
    default_driver = "postgresql+psycopg"
    login = "postgres@"
    path = "postgres"

    def prepare(self, directory: Path) -> None:
        program = _find_postgres()
        data = directory / "data"
        data.mkdir(mode=0o700)
        if user := _user_for_postgres():
            os.chown(data, user.pw_uid, user.pw_gid)
            directory.chmod(0o711)  # to be passed through, not read, by that user
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        initdb = str(program.with_name("initdb"))
        _run_to_end([*_as_user(user), initdb, f"--pgdata={data}", *options], directory)

    def command(self, directory: Path, port: int) -> list[str]:
        # Not synchronous_commit=off: that would lose commits with the process, and not only with the machine.
        settings = {
            "listen_addresses": _HOST,
            "unix_socket_directories": "",
            "max_connections": str(CONNECTIONS_MAX),
            "fsync": "off",
            "full_page_writes": "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        program = str(_find_postgres())
        return [*_as_user(_user_for_postgres()), program, "-D", str(directory / "data"), "-p", str(port), *options]

    def serves_from(self, port: int) -> Path | None:
        try:
            with psycopg.connect(
                host=_HOST, port=port, user="postgres", dbname="postgres", connect_timeout=_ANSWER_SECONDS
            ) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return None
        return Path(row[0]) if row else None


class MariaDB:
    """User `root` without a password, an empty database `test`, utf8mb4 with MariaDB's own collation."""

    name = "MariaDB"
    dialects: tuple[str, ...] = ("mysql", "mariadb")
    default_driver = "mysql+pymysql"
    login = "root@"
    path = "test"

    def prepare(self, directory: Path) -> None:
        _find("mariadbd", self.name)
        install = _find("mariadb-install-db", self.name)
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        _run_to_end([str(install), "--no-defaults", *options, *self._options(directory)], directory)
        # The installation's own `test` would be latin1, whatever the server's character set.
        (directory / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS test;\n", "ascii")

    def command(self, directory: Path, port: int) -> list[str]:
        options = [
            f"--bind-address={_HOST}",
            f"--port={port}",
            "--socket=mariadbd.sock",  # within the data directory; a full path may be too long for a socket
            f"--pid-file={directory / 'pid'}",
            f"--init-file={directory / 'init.sql'}",
            "--character-set-server=utf8mb4",
            "--skip-name-resolve",
            f"--max-connections={CONNECTIONS_MAX}",
            "--innodb-flush-log-at-trx-commit=2",  # written at each commit, synced once a second
        ]
        return [str(_find("mariadbd", self.name)), "--no-defaults", *self._options(directory), *options]

    def serves_from(self, port: int) -> Path | None:
        limits = {"connect_timeout": _ANSWER_SECONDS, "read_timeout": _ANSWER_SECONDS}
        try:
            with pymysql.connect(host=_HOST, port=port, user="root", **limits) as connection:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT @@datadir")
                    return Path(cursor.fetchone()[0])
        except pymysql.err.OperationalError:
            return None

    def _options(self, directory: Path) -> list[str]:
        """The options on which the installation and the server must agree."""
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        files = [f"--datadir={directory / 'data'}", f"--tmpdir={directory}", "--innodb-log-file-size=8M"]
        return [*files, "--innodb-use-native-aio=0", *as_root]


class Redis:
    """Database 0, no password, nothing on disk: what it held is gone with `kill()`."""

    name = "Redis"
    dialects: tuple[str, ...] = ("redis",)
    default_driver = "redis"
    login = ""
    path = "0"

    def prepare(self, directory: Path) -> None:
        _find("redis-server", self.name)
        (directory / "data").mkdir()

    def command(self, directory: Path, port: int) -> list[str]:
        address = ["--bind", _HOST, "--port", str(port), "--maxclients", str(CONNECTIONS_MAX)]
        files = ["--dir", str(directory / "data"), "--save", "", "--appendonly", "no"]
        return [str(_find("redis-server", self.name)), *address, *files]

    def serves_from(self, port: int) -> Path | None:
        try:
            with redis.Redis(host=_HOST, port=port, socket_timeout=_ANSWER_SECONDS, decode_responses=True) as client:
                return Path(client.config_get("dir")["dir"])
        except redis.RedisError:
            return None


class ProcessFamily:
    """A server process together with the children it forked, for a server that answers from its children.

    Ending the parent is enough to end the children, which watch for it, but not while they are stopped. So as long as
    any are, a guard waits for the end of the test process, and lets them go on, to their end.
    """

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._stopped: list[int] = []
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        self._process.launch()

    def pause(self) -> None:
        self._stopped = self._children_at_rest()
        self._set_guard()
        _signal_all(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        _signal_all(self._stopped, signal.SIGCONT)
        self._process.resume()
        self._end_guard()
        self._stopped = []

    def kill(self) -> None:
        """The children too, and not by their own choice: they would still write when the directory is removed."""
        try:
            children = self._children_at_rest()
        except ServerFailed:  # it has ended; its children followed it, unless they were stopped
            children = self._stopped
        with ExitStack() as undo:
            handles = [handle for child in children if (handle := _open_process(child, undo)) is not None]
            self._process.kill()
            for handle in handles:
                _end_process(handle)
        self._end_guard()
        self._stopped = []

    def check_alive(self) -> None:
        self._process.check_alive()

    def log_tail(self) -> str:
        return self._process.log_tail()

    def _children_at_rest(self) -> list[int]:
        """The children of the parent, which is stopped first: then it forks none and reaps none, and the list is whole.

        Raises ServerFailed when the parent has ended. The wait has no bound, as nothing can refuse SIGSTOP; WNOWAIT
        leaves the news to whoever waits for the process.
        """
        pid = self.pid
        self._process.pause()
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return _children(pid)

    def _set_guard(self) -> None:
        """The pipe ends with the test process, however that ends."""
        if self._stopped and self._guard is None:
            words = ["sh", "-c", 'read -r _; kill -CONT "$@"', "sh", *map(str, self._stopped)]
            self._guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait(_GUARD_END_SECONDS)
            if guard.stdin is not None:
                guard.stdin.close()


def _start_once(database: Database) -> DatabaseServer:
    """Start the server. Everything that has to be undone is put on one stack as soon as it exists."""
    with ExitStack() as undo:
        directory = Path(tempfile.mkdtemp(prefix="tenure-database-")).resolve()
        undo.callback(shutil.rmtree, directory)
        port = free_port()
        undo.callback(give_back, port)
        database.prepare(directory)
        processes = ProcessFamily(ServerProcess(database.command(directory, port), directory))
        undo.callback(processes.kill)
        processes.launch()
        server = DatabaseServer(
            database, port=port, directory=directory, processes=processes, close=undo.pop_all().close
        )
    try:
        server.wait_ready()
    except BaseException:  # an interrupt must not leave servers behind either
        server.close()
        raise
    return server


def _run_to_end(command: Sequence[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            timeout=_PREPARE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ServerFailed(f"{' '.join(command)} did not end within {_PREPARE_SECONDS} s") from late
    if done.returncode != 0:
        raise ServerFailed(f"{' '.join(command)} failed:\n{done.stdout.decode('utf-8', 'replace')}")


def _find(program: str, name: str) -> Path:
    """Raises ServersMissing."""
    found = shutil.which(program) or shutil.which(program, path=os.pathsep.join(_SYSTEM_FOLDERS))
    if found is None:
        raise ServersMissing(f"{name} ({program}) is not installed: run tests/servers/install.sh (Debian packages).")
    return Path(found)


def _find_postgres() -> Path:
    """The one on PATH, else Debian's newest, which is not on PATH. Raises ServersMissing."""
    installed = _POSTGRESQL_ROOT.glob("*/bin/postgres")
    newest = max(installed, key=lambda path: _version(path.parts[-3]), default=None)
    if newest is None or shutil.which("postgres"):
        return _find("postgres", "PostgreSQL").resolve()  # initdb is next to the program, not to a link to it
    return newest


def _version(folder: str) -> float:
    try:
        return float(folder)  # "9.6" was one
    except ValueError:
        return 0.0


def _user_for_postgres() -> pwd.struct_passwd | None:
    """The user to become, as PostgreSQL refuses to run as root. Raises ServersMissing."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError as missing:
        raise ServersMissing(
            "PostgreSQL does not run as root, and there is no user `postgres`: run tests/servers/install.sh."
        ) from missing


def _as_user(user: pwd.struct_passwd | None) -> list[str]:
    """The words that run a command as another user. That clears the wish to die with the parent, which is therefore
    renewed behind it.
    """
    if user is None:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServersMissing("PostgreSQL does not run as root, and there is no `setpriv` (util-linux) for it.")
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *_die_with_parent()]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for names in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended since
            found += map(int, names.read_text("ascii").split())
    return found


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a child may end by itself
            os.kill(pid, number)


def _open_process(pid: int, undo: ExitStack) -> int | None:
    """A handle that waits for a process that is not our child; None when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    undo.callback(os.close, handle)
    return handle


def _end_process(handle: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    end = select.poll()
    end.register(handle, select.POLLIN)
    if not end.poll(_CHILD_END_MS):
        raise ServerFailed(f"a killed child of a server still runs after {_CHILD_END_MS} ms")
