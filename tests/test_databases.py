"""The databases the tests write into, as real servers: they start, stop as told, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tenure.testing.servers.processes import free_port
from tests.servers import (
    Database,
    DatabaseServer,
    MariaDB,
    PostgreSQL,
    Redis,
    ServerFailed,
    ServersMissing,
    start_database,
)
from tests.servers import databases as databases_module

ROOT = Path(__file__).resolve().parent.parent
WAIT_SECONDS = 10.0
SHORT_SECONDS = 0.2
DATABASES = (PostgreSQL, MariaDB, Redis)
FIXTURES = ("postgresql", "mariadb", "redis_server")
DRIVERS = ("postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql")


@pytest.fixture(params=FIXTURES)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """The run's own server of each kind; who breaks it mends it."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, of this test only, that PostgreSQL's user may pass through; tmp_path is not."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-"))
    folder.chmod(0o711)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


# --- asking


@pytest.mark.parametrize("driver", DRIVERS)
def test_sqlalchemy_reaches_the_server_by_its_url(request: pytest.FixtureRequest, driver: str) -> None:
    """The URL for a driver is all that SQLAlchemy needs."""
    server = request.getfixturevalue("postgresql" if driver.startswith("postgresql") else "mariadb")
    engine = sqlalchemy.create_engine(server.url(driver))
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT 6 * 7")) == 42
    engine.dispose()


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+aiomysql"])
def test_sqlalchemy_reaches_the_server_from_asyncio(request: pytest.FixtureRequest, driver: str) -> None:
    """The same URLs serve asynchronous engines."""
    server = request.getfixturevalue("postgresql" if driver.startswith("postgresql") else "mariadb")

    async def ask() -> object:
        engine = create_async_engine(server.url(driver))
        async with engine.connect() as connection:
            answer: object = await connection.scalar(sqlalchemy.text("SELECT 6 * 7"))
        await engine.dispose()
        return answer

    assert asyncio.run(ask()) == 42


def test_tables_can_be_made_where_the_url_points(mariadb: DatabaseServer, postgresql: DatabaseServer) -> None:
    """The login of the URL may create, fill and drop tables, in transactions, in any alphabet."""
    for server in (mariadb, postgresql):
        engine = sqlalchemy.create_engine(server.url())
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE letters (word VARCHAR(20))"))
            connection.execute(sqlalchemy.text("INSERT INTO letters VALUES ('žluť 🔒')"))
            assert connection.scalar(sqlalchemy.text("SELECT word FROM letters")) == "žluť 🔒"
            connection.execute(sqlalchemy.text("DROP TABLE letters"))
        engine.dispose()


def test_redis_answers_by_its_url(redis_server: DatabaseServer) -> None:
    """The URL is all that redis-py needs."""
    with redis.Redis.from_url(redis_server.url()) as client:
        assert client.ping()


def test_a_driver_of_another_database_is_refused(server: DatabaseServer) -> None:
    """A URL that could not work is not made."""
    with pytest.raises(ValueError, match="is no driver for"):
        server.url("oracle+oracledb")


def test_many_clients_at_once_are_welcome(postgresql: DatabaseServer) -> None:
    """A hundred connections fit, for tests that race many workers."""
    connections = [psycopg.connect(postgresql.url("postgresql")) for _ in range(100)]
    for connection in connections:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.close()


# --- breaking and mending


def test_a_paused_server_answers_nothing_until_resumed(server: DatabaseServer) -> None:
    """A pause stops everything that could answer, an open connection's own process included; resuming loses nothing."""
    with conversation(server) as ask, ThreadPoolExecutor() as pool:
        assert ask()
        server.pause()
        try:
            asked = [pool.submit(ask), pool.submit(greet, server)]
            assert not wait(asked, SHORT_SECONDS).done
        finally:
            server.resume()
        assert all(question.result(WAIT_SECONDS) for question in asked)
    server.wait_ready()


@pytest.mark.parametrize("make", [PostgreSQL, MariaDB])
def test_what_was_committed_outlives_a_kill(make: Callable[[], Database]) -> None:
    """A killed server starts again on the same port, with the row that was committed last."""
    with closing(start_database(make())) as server:
        engine = sqlalchemy.create_engine(server.url(), poolclass=sqlalchemy.NullPool)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE kept (word VARCHAR(20))"))
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO kept VALUES ('yes')"))
        pids = server.pids
        server.kill()
        server.kill()
        assert all(map(is_gone, pids))
        server.start()
        assert not set(pids) & set(server.pids)
        with engine.begin() as connection:
            assert connection.scalar(sqlalchemy.text("SELECT word FROM kept")) == "yes"


def test_a_killed_redis_starts_again_empty() -> None:
    """Redis keeps nothing on disk here."""
    with closing(start_database(Redis())) as server, redis.Redis.from_url(server.url()) as client:
        client.set("kept", "no")
        server.kill()
        with pytest.raises(ServerFailed, match="no running process"):
            server.pause()
        server.start()
        with redis.Redis.from_url(server.url()) as newcomer:
            assert newcomer.get("kept") is None


def test_starting_a_server_that_runs_is_refused(server: DatabaseServer) -> None:
    """There are never two servers over one data directory."""
    with pytest.raises(ServerFailed, match="still runs"):
        server.start()


def test_a_port_somebody_else_took_is_replaced_by_another(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot bind is tried again on another port; who answers on the first is not mistaken for it."""
    taken = [server.port]
    monkeypatch.setattr(databases_module, "free_port", lambda: taken.pop() if taken else free_port())
    with closing(start_database(server.database)) as second:
        assert not taken
        assert second.port != server.port
        assert not set(second.pids) & set(server.pids)


# --- nothing is left behind


@pytest.mark.parametrize("make", DATABASES)
def test_close_ends_every_process_and_removes_every_file(make: Callable[[], Database], open_folder: Path) -> None:
    """After close there is no process and no file, paused or not, closed once or twice."""
    for paused in (False, True):
        server = start_database(make())
        with conversation(server) as ask:
            assert ask()
            pids = server.pids
            assert list(open_folder.iterdir()) == [server.directory]
            if paused:
                server.pause()
            server.close()
            server.close()
            assert all(map(is_gone, pids))
            assert not list(open_folder.iterdir())


@pytest.mark.parametrize("then", ["", "for server in made: server.pause()\n"], ids=["running", "paused"])
def test_servers_die_with_a_killed_test_process(open_folder: Path, then: str) -> None:
    """SIGKILL to the test process ends its servers and the children that serve open connections, even stopped ones."""
    script = (
        "import sys, threading, psycopg\n"
        "from tests.servers import *\n"
        "made = []\n"
        "def start(): made.extend(start_database(kind()) for kind in (PostgreSQL, MariaDB, Redis))\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        "for server in made: server.wait_ready()\n"
        "line = psycopg.connect(made[0].url('postgresql')); line.execute('SELECT 1')\n"
        "pids = [str(pid) for server in made for pid in server.pids]\n"
        f"{then}"
        "sys.stdout.write(' '.join(pids) + '\\n'); sys.stdout.flush()\n"
        "sys.stdin.read()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) > len(DATABASES)
        assert not any(map(is_gone, pids))
        parent.send_signal(signal.SIGKILL)
        parent.wait(WAIT_SECONDS)
    wait_for(lambda: all(map(is_gone, pids)))


def test_a_forked_child_that_closes_harms_nothing(server: DatabaseServer) -> None:
    """A server belongs to the process that started it."""
    child = os.fork()
    if child == 0:
        try:
            server.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert greet(server)


# --- servers that are not there


@pytest.mark.parametrize("make", DATABASES)
def test_a_program_that_is_missing_says_what_to_do(
    make: Callable[[], Database], monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    """The error names the script that installs it, and nothing is left of the attempt."""
    monkeypatch.setenv("PATH", str(open_folder))
    monkeypatch.setattr(databases_module, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(databases_module, "_POSTGRESQL_ROOT", open_folder)
    with pytest.raises(ServersMissing, match=r"run tests/servers/install\.sh"):
        start_database(make())
    assert not list(open_folder.iterdir())


# --- helpers


@contextmanager
def conversation(server: DatabaseServer) -> Iterator[Callable[[], bool]]:
    """One connection, opened now; each call asks a question over it and tells whether the answer was right."""
    if isinstance(server.database, PostgreSQL):
        with psycopg.connect(server.url("postgresql"), autocommit=True) as line:
            yield lambda: line.execute("SELECT 1").fetchone() == (1,)
    elif isinstance(server.database, MariaDB):
        with closing(pymysql.connect(host=server.host, port=server.port, user="root")) as talk:
            yield lambda: bool(talk.query("SELECT 1") == 1)
    else:
        with redis.Redis.from_url(server.url(), single_connection_client=True) as client:
            yield lambda: bool(client.ping())


def greet(server: DatabaseServer) -> bool:
    """A question over a connection of its own."""
    with conversation(server) as ask:
        return ask()


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie nobody has waited for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
