"""The distribution of a whole run over its processes: what takes long goes first, what shares servers stays together.

A module is one piece of work where it, or the conftest beside it, has fixtures that live as long as a module: in two
processes they would be made twice. Of all other modules each test is a piece by itself. `long_tests.txt` has the
seconds that were measured, and the heaviest pieces go first; `--write-long-tests` writes it anew.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

LONG_TESTS: Final = Path(__file__).parent / "long_tests.txt"
_ROOT: Final = Path(__file__).parent.parent
_LONG_SECONDS: Final = 1.0
_SHARED: Final = re.compile(r"""scope=["'](?:class|module|package)["']""")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-long-tests", action="store_true", help="measure, and write tests/long_tests.txt anew")


class Pieces(LoadScopeScheduling):  # type: ignore[misc]  # xdist's scheduler is Any without its types
    """Hands out a piece of work at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return piece(nodeid)


@pytest.hookimpl(optionalhook=True)  # a run without processes of its own does not know it
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Pieces | None:
    return Pieces(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    seconds = _measured()
    together: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        together[piece(item.nodeid)].append(item)

    def weight(name: str) -> float:
        return sum(seconds.get(item.nodeid, 0.0) for item in together[name])

    items[:] = [item for name in sorted(together, key=weight, reverse=True) for item in together[name]]


def piece(nodeid: str) -> str:
    """The name of the piece of work that a test is in: its module's or its own."""
    module = nodeid.partition("::")[0]
    return module if _shares(module) else nodeid


@functools.cache
def _shares(module: str) -> bool:
    path = _ROOT / module
    texts = [one.read_text() for one in (path, path.with_name("conftest.py")) if one.exists()]
    return any(_SHARED.search(text) for text in texts)


def _measured() -> dict[str, float]:
    if not LONG_TESTS.exists():
        return {}
    pairs = (line.split(" ", 1) for line in LONG_TESTS.read_text().splitlines())
    return {name: float(seconds) for seconds, name in pairs}


class _Stopwatch:
    """The seconds of all tests, set-up and end included, in the process that hears of them all."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        rows = [(s, name) for name, s in self._seconds.items() if s >= _LONG_SECONDS]
        LONG_TESTS.write_text("".join(f"{s:.0f} {name}\n" for s, name in sorted(rows, reverse=True)))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-long-tests") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch())
