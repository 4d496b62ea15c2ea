"""Other packages' backends: how one is made known, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tenure import backends
from tenure._backends.memory import MemoryBackend
from tenure._core.base import schemes
from tenure._core.base.options import Options, parse
from tenure._core.lease import Backend, BackendContext


def open_toy(options: Options, context: BackendContext) -> Backend:
    return MemoryBackend(options, context)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test registers is its own."""
    known = dict(schemes._registered)
    yield
    schemes._registered.clear()
    schemes._registered.update(known)


def test_registered_scheme_is_opened_by_its_opener_on_both_faces() -> None:
    """Whatever `connect` can do, it can do with somebody else's backend."""
    backends.register("toy", open_toy)
    with tenure.connect("toy://one,two:7/ns") as client:
        assert client.lock("a").try_acquire() is not None
    assert tenure.aio.connect("toy://one").statistics()
    assert parse("toy://one,two:7/ns", {}).endpoints == (("one", 0), ("two", 7))


class Maker:
    @classmethod
    def open(cls, options: Options, context: BackendContext) -> Backend:
        return open_toy(options, context)


def test_same_method_may_be_registered_twice() -> None:
    """A module that is imported twice does so, and a method is another object each time it is named."""
    backends.register("toy", Maker.open)
    backends.register("toy", Maker.open)


def test_unknown_scheme_is_refused_and_the_known_ones_are_named() -> None:
    """The error helps whoever mistyped, and whoever forgot to install."""
    backends.register("toy", open_toy)
    known = r"etcd, etcd\+grpc, http, https, memory, toy, zookeeper"
    with pytest.raises(tenure.InvalidURL, match=f"'toi'.*known are {known}"):
        tenure.connect("toi://h")


@pytest.mark.parametrize("scheme", ["etcd", "etcd+grpc", "memory", "zookeeper"])
def test_our_own_schemes_can_not_be_replaced(scheme: str) -> None:
    """Which store a URL means does not depend on what was imported."""
    with pytest.raises(tenure.InvalidOption, match="own"):
        backends.register(scheme, open_toy)


def test_scheme_has_one_opener_for_good() -> None:
    """The same one again is nothing new; another one is refused."""
    backends.register("toy", open_toy)
    backends.register("toy", open_toy)
    with pytest.raises(tenure.InvalidOption, match="already"):
        backends.register("toy", MemoryBackend)


@pytest.mark.parametrize("scheme", ["", "Toy", "1toy", "to y", "toy://", "t" * 33, 7, None])
def test_scheme_that_no_url_could_have_is_refused(scheme: str) -> None:
    """Lower case, a letter first, at most 32."""
    with pytest.raises(tenure.InvalidOption, match="scheme"):
        backends.register(scheme, open_toy)


def test_opener_that_can_not_be_called_is_refused_at_once() -> None:
    """Not at the first connect."""
    with pytest.raises(tenure.InvalidOption, match="can't be called"):
        backends.register("toy", "toystore:open_toy")  # type: ignore[arg-type]  # what users pass


def test_what_is_no_backend_is_named_with_what_it_lacks() -> None:
    """An opener's mistake is told where it is made, not in the first acquire."""
    backends.register("toy", lambda options, context: object())  # type: ignore[arg-type, return-value]  # the mistake
    with pytest.raises(TypeError, match="no name, open, statistics, close"):
        tenure.connect("toy://h")


def install(directory: Path, package: str, entry: str) -> None:
    """What an installer leaves of a package with one entry point."""
    info = directory / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tenure.backends]\n{entry}\n")


def run(directory: Path, program: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(directory)!r})\nimport tenure\n{program}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_installed_backend_is_found_by_its_entry_point_and_imported_only_for_its_url(tmp_path: Path) -> None:
    """Nothing has to be called: the package's metadata is enough."""
    install(tmp_path, "toystore", "toy = toystore:open_toy")
    (tmp_path / "toystore.py").write_text(
        "from tenure._backends.memory import MemoryBackend\n"
        "def open_toy(options, around):\n    return MemoryBackend(options, around)\n"
    )
    done = run(
        tmp_path,
        "tenure.connect('memory://x').close(); assert 'toystore' not in sys.modules\n"
        "with tenure.connect('toy://h/ns') as client, client.lock('a') as hold:\n    print(hold.token > 0)",
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_installed_backend_that_can_not_be_imported_is_named(tmp_path: Path) -> None:
    """Which package it was, and what it said."""
    install(tmp_path, "toystore", "toy = toystore:open_toy")
    (tmp_path / "toystore.py").write_text("raise ImportError('no libtoy')")
    done = run(tmp_path, "tenure.connect('toy://h')")
    assert "InvalidURL: toy:// is brought by toystore:open_toy of toystore" in done.stderr
    assert "no libtoy" in done.stderr


def test_two_packages_that_bring_one_scheme_are_both_named(tmp_path: Path) -> None:
    """Which of them is meant is not tenure's to guess."""
    install(tmp_path, "first", "toy = first:open_toy")
    install(tmp_path, "second", "toy = second:open_toy")
    done = run(tmp_path, "tenure.connect('toy://h')")
    assert "first:open_toy of first, second:open_toy of second" in done.stderr
