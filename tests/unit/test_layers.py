"""Layers point one way. The imports are read from the source, so a lazy import counts like any other."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tenure

ROOT = Path(tenure.__file__).parent
STORE_CLIENTS = ("etcd3gw", "hpack", "kazoo", "requests", "websockets", "tenacity", "urllib3")

BASE = {
    # no further down than this: each line may import only from the lines above it
    **dict.fromkeys(("errors", "events", "_core.base.limits", "_core.base.signals", "_core.base.yielding"), 0),
    **dict.fromkeys(("jsonlog", "_core.base.clock", "_core.base.schemes", "_core.base.threads"), 1),
    "_core.base.validation": 1,
    **dict.fromkeys(("_core.base.options", "_core.base.retry"), 2),
    "fencing._fence": 3,
}
RANKS = {
    # by the longest name that is here; packages of several ranks have each module named
    **BASE,
    "_core": 0,
    "_core.base": 0,
    "_core.lease": 10,
    "_admin": 0,
    "_core.delegation": 12,
    "_admin.protocol": 12,
    "_admin.models": 14,
    "_transport.remote": 14,
    "_core.belief": 20,
    "_core.reaper": 20,
    "_transport": 25,
    "_core.heartbeat": 25,
    "_core.turn": 30,
    "_core.guarded_keys": 35,
    "_admin.operator": 35,
    "_core.drivers": 40,
    "_core.drivers.blocking": 40,
    "_core.hold_watch": 38,
    "_core.hold": 40,
    "_core.drivers.greenlets": 42,
    "_core.context": 45,
    "_core.drivers.asyncio": 45,
    "_admin.journal": 45,
    "_core.recipes": 50,
    "_core.recipes.request": 51,
    **dict.fromkeys(("_core.recipes.lock", "_core.recipes.semaphore"), 52),
    **dict.fromkeys(("_core.recipes.rwlock", "_core.recipes.election"), 53),
    "_core.runtime": 60,
    "_client": 70,
    "aio": 70,
    "fencing": 75,  # guards: they know fences, and no client
    "metrics": 75,  # subscribers: they know events, and no client
    "tracing": 75,
    "": 80,  # tenure itself: what users import
    # Ordinary users of the face; one of the commands starts the service.
    "service": 85,
    "cli": 90,
    "testing": 90,
    "__main__": 100,
}
MANY_RANKS = ("_core", "_core.base", "_core.recipes", "_core.drivers", "_admin")
"""Packages whose modules each need a rank of their own."""
FOR_BACKENDS = {
    *BASE,
    "_core.lease",
    "_admin.protocol",
    "_admin.models",
    "_core.delegation",
    "_core.belief",
    "_core.reaper",
}
FOR_BACKENDS |= {"_transport", "_transport.remote", "_core.heartbeat"}


def imports_of(module: str, source: str, *, package: bool) -> Iterator[str]:
    """The modules of tenure that `source` imports, lazily or not; names from a package count as its modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "tenure")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + (1 if package else 0)]
                base = ".".join([*parents, *([base] if base else [])])
            if base.split(".")[0] == "tenure":
                yield from (f"{base}.{a.name}" for a in node.names)


def all_sources() -> dict[str, tuple[str, bool]]:
    """Every module of the package by its full name: its source, and whether it is a package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["tenure", *path.relative_to(ROOT).with_suffix("").parts]
        package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if package else parts)] = (path.read_text(), package)
    return found


def edges(sources: Mapping[str, tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    """Who imports whom, by the longest name that is a module."""
    for module, (source, package) in sources.items():
        for imported in imports_of(module, source, package=package):
            target = imported if imported in sources else imported.rpartition(".")[0]
            if target != module:
                yield module, target


def violations(sources: Mapping[str, tuple[str, bool]]) -> list[str]:
    """Every upward, sideways or unplaced edge, in words."""
    return [f"{a} -> {b}: {why}" for a, b in sorted(set(edges(sources))) if (why := wrong(a, b))]


def wrong(module: str, target: str) -> str | None:
    """Why `module` may not import `target`, or None when it may."""
    a, b = module.partition(".")[2], target.partition(".")[2]
    if any(_is_backend(name) for name in (a, b)):
        return _wrong_at_backends(a, b)
    for name in (a, b):
        if _place(name) is None:
            return f"{name!r} has no place in the layers: give it one"
    if _place(a) == _place(b) and _place(a) not in MANY_RANKS:
        return None  # inside one package
    higher, lower = RANKS[str(_place(a))], RANKS[str(_place(b))]
    if higher > lower:
        return None
    return "sideways" if higher == lower else "upwards"


def _place(name: str) -> str | None:
    """The longest name in RANKS that `name` is or is inside of."""
    parts = name.split(".")
    found = next((p for n in range(len(parts), 0, -1) if (p := ".".join(parts[:n])) in RANKS), None)
    return None if found in MANY_RANKS and found != name else found


def _is_backend(name: str) -> bool:
    return name.split(".")[0] in ("_backends", "backends")


def _wrong_at_backends(a: str, b: str) -> str | None:
    if not _is_backend(a):
        return None if (a, b) == ("_core.runtime", "backends") else "only the runtime opens backends, by `backends`"
    if not _is_backend(b):
        return None if _place(b) in FOR_BACKENDS else "a backend needs the base, lease and what is beside it only"
    if a == "backends":
        return None
    if b == "backends":
        return "a backend does not need the others' package"
    return None if a.split(".")[1:2] == b.split(".")[1:2] else "backends do not know each other"


def test_no_module_imports_upwards_or_sideways() -> None:
    """Layers, one way: every edge of the package points down."""
    assert violations(all_sources()) == []


def test_every_module_of_the_package_is_looked_at() -> None:
    """The checker has read what it says it has read."""
    sources = all_sources()
    assert {"tenure", "tenure._core.lease", "tenure._core.recipes.lock", "tenure._backends.memory"} <= sources.keys()
    found = set(edges(sources))
    assert ("tenure._core.turn", "tenure._core.lease") in found
    assert ("tenure._core.runtime", "tenure.backends") in found
    assert ("tenure.backends", "tenure._backends.etcd") in found  # a lazy one
    assert len(found) > 80


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("tenure._core.lease", "from tenure._core.turn import Turn", "upwards"),
        ("tenure._core.lease", "from .turn import Turn", "upwards"),
        ("tenure._core.lease", "from . import turn", "upwards"),
        ("tenure._core.lease", "import tenure._core.turn", "upwards"),
        ("tenure._core.lease", "import tenure", "upwards"),
        ("tenure._core.turn", "def f() -> None:\n    from tenure._core import runtime", "upwards"),
        ("tenure._client", "from tenure.aio import connect", "sideways"),
        ("tenure._core.belief", "from tenure._core.reaper import Reaper", "sideways"),
        ("tenure._core.base.validation", "from tenure._core.base.options import parse", "upwards"),
        ("tenure._core.hold", "from tenure._core import drivers", "sideways"),
        ("tenure._core.recipes.lock", "from tenure._core.runtime import House", "upwards"),
        ("tenure._core.recipes.lock", "from tenure._core.recipes import rwlock", "upwards"),
        ("tenure._core.recipes.lock", "from tenure._backends.memory import MemoryLease", "only the runtime"),
        ("tenure._core.recipes.lock", "from tenure import backends", "only the runtime"),
        ("tenure._client", "from tenure.backends import open_backend", "only the runtime"),
        ("tenure._core.runtime", "from tenure._backends.memory import store", "only the runtime"),
        ("tenure._backends.memory.server", "from tenure._core.turn import Turn", "base, lease"),
        ("tenure._backends.memory.server", "from tenure._backends.etcd import EtcdBackend", "know each other"),
        ("tenure._backends.memory.server", "from .. import etcd", "know each other"),
        ("tenure._backends.memory.server", "from tenure.backends import open_backend", "others' package"),
        ("tenure._core.lease", "from tenure import novelty", "no place"),
    ],
)
def test_checker_given_a_bad_edge_as_source_names_it(module: str, line: str, why: str) -> None:
    """The checker can fail: each kind of wrong edge is found, however it is written."""
    sources = all_sources()
    assert not sources[module][1]
    known = {
        name: ("", package)
        for name, (_, package) in {**sources, "tenure.novelty": ("", False)}.items()
        if name != module
    }
    found = violations({**known, module: (f"import os\n{line}\n", False)})
    assert len(found) == 1
    assert found[0].startswith(f"{module} -> tenure")
    assert why in found[0]


def test_checker_given_good_edges_as_source_is_silent() -> None:
    """What is allowed is not reported."""
    sources = {name: ("", package) for name, (_, package) in all_sources().items()}
    sources["tenure._core.turn"] = (
        "from tenure._core.lease import Lease\nfrom .base.clock import Clock\nimport os",
        False,
    )
    sources["tenure.backends"] = ("from tenure._backends.memory import MemoryBackend", False)
    sources["tenure._backends.memory.server"] = ("from tenure._core import reaper, belief, lease", False)
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("tenure._core.runtime", "from tenure.service.holds.keeper import Keeper", "upwards"),
        ("tenure.metrics", "from tenure.service import metrics", "upwards"),
        ("tenure.service.http.app", "from tenure.cli.store import Session", "upwards"),
        ("tenure.service.http.app", "from tenure._backends.etcd import EtcdBackend", "only the runtime"),
    ],
)
def test_service_stands_above_the_faces_and_below_the_command_that_starts_it(module: str, line: str, why: str) -> None:
    """Nobody below may import it, and it may import no command and no backend."""
    found = wrong(module, line.split()[1])
    assert found is not None
    assert why in found
    assert wrong("tenure.cli.commands.serve", "tenure.service.server") is None


def test_recipes_name_no_store() -> None:
    """Adding a backend changes no recipe: not even in words."""
    for name, (source, _) in all_sources().items():
        if name.startswith("tenure._core.recipes"):
            code = ast.unparse(_without_docstrings(ast.parse(source))).lower()
            assert not any(store in code for store in ("etcd", "zookeeper", "kazoo", "memory")), name


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return tree


def test_ranks_grow_from_the_ground_to_the_faces() -> None:
    """The table itself is in the order of docs/how-it-works.md."""
    ladder = ["_core.base.retry", "_core.lease", "_core.belief", "_core.turn", "_core.drivers.blocking"]
    ladder += ["_core.recipes.lock", "_core.runtime", "_client", "cli"]
    assert all(RANKS[low] < RANKS[high] for low, high in itertools.pairwise(ladder))


def test_help_of_serve_imports_no_web_server() -> None:
    """The extra is needed by who serves, and by nobody else."""
    program = (
        "import tenure.cli.commands.serve, sys\n"
        "print(sorted(m for m in ('uvicorn', 'uvloop', 'httptools', 'prometheus_client') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("what", ["import tenure", "import tenure; tenure.connect('memory://x').close()"])
def test_importing_tenure_imports_no_stores_client(what: str) -> None:
    """Nobody pays for a store's client before the first connect of its kind."""
    program = f"{what}\nimport sys\nprint(sorted(m for m in {STORE_CLIENTS!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
