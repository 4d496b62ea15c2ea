"""The order of the tests in a whole run: what takes long goes first, and leaves no process alone with it at the end.

`long_tests.txt` has the seconds that were measured; `--write-long-tests` writes it anew. Files go by the sum of theirs,
and stay together, but for tests that share nothing with their module and take long by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

LONG_TESTS: Final = Path(__file__).parent / "long_tests.txt"
_LONG_SECONDS: Final = 3.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-long-tests", action="store_true", help="measure, and write tests/long_tests.txt anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    seconds = _measured()
    together: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        alone = item.nodeid in seconds and not _shares_with_its_module(item)
        together[item.nodeid if alone else item.nodeid.partition("::")[0]].append(item)

    def weight(name: str) -> float:
        return sum(seconds.get(item.nodeid, 0.0) for item in together[name])

    items[:] = [item for name in sorted(together, key=weight, reverse=True) for item in together[name]]


def _shares_with_its_module(item: pytest.Item) -> bool:
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info is not None else ()
    return any(definition.scope in ("class", "module", "package") for found in definitions for definition in found[-1:])


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
