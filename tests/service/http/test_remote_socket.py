"""The thin client at a UNIX socket: like any endpoint, on both faces; and the messages where it can't be reached."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest

import tenure
from tenure import aio
from tests.cli.program import eventually
from tests.cli.program import tenure as command
from tests.service.http.conftest import BILLING
from tests.service.http.program import Service, serving, write_tokens


def host(path: Path) -> str:
    """Write a path as it stands in a URL."""
    return quote(str(path), safe="")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The socket of the module's service: a name that a URL can't have as it is."""
    return tmp_path_factory.mktemp("socket") / "api: 1,@.sock"


@pytest.fixture(scope="module", autouse=True)
def at_socket(path: Path, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service there, and beside it on a port."""
    with serving(store_url, tmp_path_factory.mktemp("service"), "--listen", f"unix:{path}", "--listen", "0") as service:
        yield service


def test_threads_take_and_wait_at_a_socket(path: Path, client: tenure.Client, name: str) -> None:
    """Requests and the stream of what is waited for, both; in one line with whoever uses the library."""
    with tenure.connect(f"http://{host(path)}/jobs", ttl=20) as thin:
        assert str(path) in repr(thin)
        direct = client.lock(f"jobs/{name}").acquire()
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(thin.lock(name).acquire, 30.0)
            eventually(lambda: len(client.operator().line(f"jobs/{name}").tickets) == 2)
            direct.release()
            with waits.result() as hold:
                assert hold.token > direct.token
                assert hold.renew() > 10.0
        statistics = thin.statistics()["backend"]
        assert isinstance(statistics, dict)
        assert statistics["endpoint"] == f"unix:{path}"
        assert statistics["streams"] == 1


def test_asyncio_takes_and_waits_at_a_socket(path: Path, client: tenure.Client, name: str) -> None:
    """Escapes in the URL have small letters."""

    async def use() -> None:
        async with aio.connect(f"http://{host(path).replace('%2F', '%2f')}", ttl=20) as thin:
            direct = await asyncio.to_thread(client.lock(name).acquire)
            waits = asyncio.create_task(thin.lock(name).acquire(timeout=30))
            await asyncio.to_thread(eventually, lambda: len(client.operator().line(name).tickets) == 2)
            await asyncio.to_thread(direct.release)
            async with await waits as hold:
                assert hold.token > direct.token

    asyncio.run(use())


def test_token_is_shown_at_a_socket(url: str, tmp_path: Path) -> None:
    """`http://NAME:TOKEN@%2F…`, as everywhere; without it the service refuses."""
    path, tokens = tmp_path / "api.sock", write_tokens(tmp_path / "tokens", BILLING)
    with serving(url, tmp_path, "--listen", f"unix:{path}", "--tokens", str(tokens)):
        with tenure.connect(f"http://me:{BILLING.token}@{host(path)}", ttl=20) as thin, thin.lock("a") as hold:
            assert hold.fence.line.endswith("billing%2Fa")
            assert BILLING.token not in repr(thin)
        with tenure.connect(f"http://{host(path)}") as nobody, pytest.raises(tenure.AuthenticationFailed):
            nobody.lock("a").acquire(timeout=5)


@pytest.mark.parametrize("first", ["socket", "port"])
def test_client_goes_on_between_a_socket_and_a_port(
    first: str, path: Path, at_socket: Service, tmp_path: Path, name: str
) -> None:
    """Whichever is there serves: an address of either kind may stand beside the other."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead_port = f"127.0.0.1:{closed.getsockname()[1]}"
    living_port = at_socket.urls[1].removeprefix("http://").rstrip("/")
    both = f"{host(tmp_path / 'nobody')},{living_port}" if first == "socket" else f"{dead_port},{host(path)}"
    with tenure.connect(f"http://{both}", ttl=20) as thin, thin.lock(name) as hold:
        assert hold.renew() > 10.0


def test_socket_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    """The message has the path as people write it; a client that waited for the service finds it once it is there."""
    path = tmp_path / "api.sock"
    with tenure.connect(f"http://{host(path)}", timeout=0.5) as thin:
        with pytest.raises(tenure.StoreUnavailable, match="there is no such socket") as raised:
            thin.lock("a").acquire(timeout=0.5)
        assert f"unix:{path}" in str(raised.value)
        assert "%2F" not in str(raised.value)


def test_socket_of_a_killed_service_is_told_as_one_where_nobody_listens(url: str, tmp_path: Path) -> None:
    """The file of a killed service stays; a service that is started again serves the same client."""
    path = tmp_path / "api.sock"
    listen = ("--listen", f"unix:{path}")
    with serving(url, tmp_path, *listen) as service:
        service.process.kill()
        service.ended()
    with tenure.connect(f"http://{host(path)}", ttl=20, timeout=1.0) as thin:
        with pytest.raises(tenure.StoreUnavailable, match="nobody listens on it any more"):
            thin.lock("a").acquire(timeout=1.0)
        with serving(url, tmp_path, *listen):
            thin.lock("a").acquire(timeout=20).release()


def test_socket_of_others_is_told_at_once_as_what_may_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking again would change nothing. The kernel's own refusal where it makes one: root is refused nothing."""
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as others:
        others.bind(str(path))
        others.listen()
        path.chmod(0)
        if os.geteuid() == 0:
            refused = PermissionError(errno.EACCES, "Permission denied")
            monkeypatch.setattr("tenure._transport.http._connect_path", Mock(side_effect=refused))
        with tenure.connect(f"http://{host(path)}", timeout=20.0) as thin:
            with pytest.raises(tenure.PermissionDenied, match="run as that user, or in that group"):
                thin.lock("a").acquire(timeout=20)


def test_service_that_stands_still_is_told_as_silent(url: str, tmp_path: Path) -> None:
    """A connection is made without it, by the kernel; what ends the wait is the client's own time."""
    path = tmp_path / "api.sock"
    with serving(url, tmp_path, "--listen", f"unix:{path}") as service:
        service.process.send_signal(signal.SIGSTOP)
        try:
            with tenure.connect(f"http://{host(path)}", timeout=0.5) as thin:
                with pytest.raises(tenure.StoreUnavailable, match="timed out"):
                    thin.lock("a").acquire(timeout=0.5)
        finally:
            service.process.send_signal(signal.SIGCONT)


def test_command_line_works_at_a_socket(path: Path, name: str) -> None:
    """`tenure run` and `doctor`: the socket is nobody's but this machine's."""
    url = f"http://{host(path)}"
    ran = command("run", name, "--", "sh", "-c", "echo $TENURE_NAME", url=url)
    assert (ran.code, ran.out.strip()) == (0, name), ran.err
    looked = command("doctor", "--json", url=url)
    assert {one["check"]: one["state"] for one in looked.json["checks"]}["auth"] == "ok"
    assert looked.json["store"] == f"http://unix:{path}/"
    assert looked.code == 0


def test_doctor_says_what_to_do_about_a_socket_that_is_not_there(tmp_path: Path) -> None:
    """The advice refers to nothing that was not said before."""
    looked = command("doctor", "--json", url=f"http://{host(tmp_path / 'nobody')}?timeout=1")
    assert looked.code == 1
    (failed,) = [one for one in looked.json["checks"] if one["state"] == "fail"]
    assert "there is no such socket" in failed["found"]
    assert "above" not in failed["do"]
