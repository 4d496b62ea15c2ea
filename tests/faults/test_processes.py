"""Law 14 in servers that fork: gunicorn with `--preload`, Celery's prefork pool; and `os.fork` on every store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import tenure
from tests.cli.program import environment, eventually
from tests.conformance.services import RunningService
from tests.servers import Cluster

SECONDS = 60.0
KINDS = ("etcd", "etcd+grpc", "zookeeper", "http")
USES = ("unused", "reconnect", "refuse")

THREADS = """
import os, signal, sys, tenure

url, use = sys.argv[1:]
client = tenure.connect(url, ttl=20, after_fork="reconnect" if use == "reconnect" else "refuse")
lock = client.lock("a")
hold = None if use == "unused" else client.lock("held").acquire()

def child():
    if hold is not None:
        for call in (hold.check, hold.renew, hold.release):
            try:
                call()
            except tenure.ForkedClient:
                continue
            raise SystemExit("the child could use its parent's hold")
        assert client.lock("held").try_acquire() is None
    with lock as mine:
        assert mine.renew() > 0
        assert mine.owner.endswith(f":{os.getpid()}"), mine.owner
        print(mine.token, flush=True)

children = []
for _ in range(3):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(40)                                   # kills a child that hangs
        child()
        sys.exit(0)                                        # as usual: atexit handlers, garbage, sockets and all
assert not any([os.waitpid(pid, 0)[1] for pid in children])
with lock:
    pass
if hold is not None:
    assert hold.renew() > 0
    assert hold.release() is True
"""
ASYNCIO = """
import asyncio, os, signal, sys, tenure

url, use = sys.argv[1:]
client = tenure.aio.connect(url, ttl=20, after_fork="reconnect" if use == "reconnect" else "refuse")
lock = client.lock("a")

async def child(hold):
    if hold is not None:
        for call in (hold.renew, hold.release):
            try:
                await call()
            except tenure.ForkedClient:
                continue
            raise SystemExit("the child could use its parent's hold")
        assert await client.lock("held").try_acquire() is None
    async with lock as mine:
        assert await mine.renew() > 0
        assert mine.owner.endswith(f":{os.getpid()}"), mine.owner
        print(mine.token, flush=True)

async def parent():
    hold = None if use == "unused" else await client.lock("held").acquire()
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            signal.alarm(40)
            asyncio.events._set_running_loop(None)         # the parent's loop is not the child's
            try:
                asyncio.run(child(hold))
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
    assert not any([os.waitpid(pid, 0)[1] for pid in children])
    async with lock:
        pass
    if hold is not None:
        assert await hold.renew() > 0
        assert await hold.release() is True

asyncio.run(parent())
"""
WEB = """
import os, tenure

client = tenure.connect(os.environ["STORE"], ttl=20, after_fork="reconnect" if {use!r} == "reconnect" else "refuse")
lock, gate = client.lock("a"), client.lock("gate")
if {use!r} != "unused":
    with lock:
        pass

def app(environ, start_response):
    with gate.acquire(timeout=40):
        pass
    with lock as hold:
        hold.renew()
        start_response("200 OK", [])
        return [f"{{os.getpid()}} {{hold.token}}".encode()]
"""
TASKS = """
import os, tenure
from celery import Celery

app = Celery("tasks", broker="filesystem://", backend="file://" + os.environ["RESULTS"])
app.conf.broker_transport_options = {{
    "data_folder_in": os.environ["MESSAGES"],
    "data_folder_out": os.environ["MESSAGES"],
    "control_folder": os.environ["MESSAGES"],
}}
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True
client = tenure.connect(os.environ["STORE"], ttl=20, after_fork="reconnect" if {use!r} == "reconnect" else "refuse")
lock, gate = client.lock("a"), client.lock("gate")
if {use!r} != "unused":
    with lock:
        pass

@app.task
def work():
    with gate.acquire(timeout=40):
        pass
    with lock as hold:
        hold.renew()
        return [os.getpid(), hold.token]

if __name__ == "__main__":
    import json
    results = [work.delay() for _ in range(4)]
    found = [result.get(timeout=50, propagate=False) for result in results]
    print(json.dumps([each if isinstance(each, list) else type(each).__name__ for each in found]))
"""


@pytest.fixture(scope="module")
def service(singles: dict[str, Cluster]) -> Iterator[RunningService]:
    """`tenure serve` on etcd."""
    running = RunningService(singles["etcd"], "etcd")
    yield running
    running.close()


@pytest.fixture
def url(request: pytest.FixtureRequest, singles: dict[str, Cluster]) -> str:
    """URL of a place of its own, in the store of this kind; etcd where none is asked for."""
    kind, place = getattr(request, "param", "etcd"), f"forks-{uuid.uuid4().hex}"
    if kind == "http":
        found: str = f"http://{request.getfixturevalue('service').endpoint}/{place}"
        return found
    return singles[kind].url(place)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("url", KINDS, indirect=True)
def test_children_of_one_client_take_turns_with_their_parent(url: str, use: str, face: str) -> None:
    """Each child has a lease of its own where the client was not used before, or reconnects; else it is refused."""
    program = THREADS if face == "threads" else ASYNCIO
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, url, use],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if use == "refuse":
        assert done.returncode != 0
        assert done.stderr.count("ForkedClient") >= 3, done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        tokens = [int(line) for line in done.stdout.split()]
        assert len(set(tokens)) == 3
    with tenure.connect(url) as client:
        for name in ("a", "held"):
            assert not client.operator().line(name).tickets


@contextmanager
def running(command: list[str], place: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a session of its own, which writes to `log` and ends by SIGTERM."""
    with (place / "log").open("wb") as log:
        given = environment({"PYTHONWARNINGS": "ignore::DeprecationWarning", **variables})
        process = subprocess.Popen(command, cwd=place, env=given, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
            process.terminate()
            assert process.wait(SECONDS) == 0, (place / "log").read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def until_logged(process: subprocess.Popen[bytes], place: Path, text: str, times: int = 1) -> None:
    """Wait until the server has said so; fail with what it did say where it ends before."""

    def looked() -> bool:
        over, said = process.poll() is not None, (place / "log").read_text()
        assert not over, said
        return said.count(text) >= times

    eventually(looked)


@pytest.mark.parametrize("use", USES)
def test_gunicorn_with_preload(url: str, use: str, tmp_path: Path) -> None:
    """A client made as the module is imported, in the parent, serves each worker, with a lease of its own."""
    (tmp_path / "web.py").write_text(textwrap.dedent(WEB.format(use=use)))
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "--preload",
        "-w",
        "2",
        "-b",
        "unix:socket",
        "--timeout",
        "50",
        "web:app",
    ]
    with tenure.connect(url, ttl=20) as client, running(command, tmp_path, STORE=url) as server:
        until_logged(server, tmp_path, "Booting worker", 2)
        with ThreadPoolExecutor(2) as requests:
            with client.lock("gate"):  # keeps each worker at its first request until both have one
                answers = [requests.submit(get, tmp_path / "socket") for _ in range(2)]
                if use != "refuse":
                    eventually(lambda: len(client.operator().line("gate").waiters) == 2)
            said = [answer.result(SECONDS) for answer in answers]
        if use == "refuse":
            assert [status for status, _ in said] == [500, 500]
            until_logged(server, tmp_path, "tenure.errors.ForkedClient: the client belongs to the process", 2)
        else:
            pids, tokens = zip(*(text.split() for _, text in said), strict=True)
            assert len(set(pids)) == len(set(tokens)) == 2
    assert_clean(url)


def get(path: Path) -> tuple[int, str]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=SECONDS) as browser:
        answer = browser.get("http://web/")
        return answer.status_code, answer.text


@pytest.mark.parametrize("use", USES)
def test_celery_with_prefork(url: str, use: str, tmp_path: Path) -> None:
    """A client made as the tasks are imported, in the parent, serves each process of the pool."""
    (tmp_path / "tasks.py").write_text(textwrap.dedent(TASKS.format(use=use)))
    folders = {"MESSAGES": str(tmp_path / "messages"), "RESULTS": str(tmp_path / "results"), "STORE": url}
    for name in ("messages", "results"):
        (tmp_path / name).mkdir()
    worker = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", "2"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"]
    with tenure.connect(url, ttl=20) as client, running(worker, tmp_path, **folders) as server:
        until_logged(server, tmp_path, "ready.")
        with client.lock("gate"):
            asks = subprocess.Popen(
                [sys.executable, "tasks.py"], cwd=tmp_path, env=environment(folders), stdout=subprocess.PIPE
            )
            if use != "refuse":
                eventually(lambda: len(client.operator().line("gate").waiters) == 2)
        output, _ = asks.communicate(timeout=SECONDS)
        found: list[Any] = json.loads(output)
        if use == "refuse":
            assert found == ["ForkedClient"] * 4
        else:
            assert len({pid for pid, _ in found}) == 2
            assert len({token for _, token in found}) == 4
    assert_clean(url)


def assert_clean(url: str) -> None:
    """Both lines are empty."""
    with tenure.connect(url) as client:
        assert not [line for line in client.operator().lines() if line.holders or line.waiters]
