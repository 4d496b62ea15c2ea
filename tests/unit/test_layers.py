"""Layers point one way. The imports are read from the source, so a lazy import counts like any other."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
STORE_CLIENTS = ("etcd3gw", "hpack", "kazoo", "requests", "websockets", "tenacity", "urllib3")

GROUND = {
    # no further down than this: each line may import only from the lines above it
    **dict.fromkeys(("errors", "limits", "signals", "locks", "events", "aside"), 0),
    **dict.fromkeys(("clock", "forks", "checks", "jsonlog", "names", "schemes"), 1),
    **dict.fromkeys(("options", "retry", "helpers"), 2),
    "tls": 3,
    "fence": 3,
}
RANKS = {
    **GROUND,
    "lease": 10,
    "operating": 12,
    "entrusting": 12,
    "reports": 14,
    "remote": 14,
    "belief": 20,
    "reaper": 20,
    "links": 25,
    "beats": 25,
    "turn": 30,
    "keys": 35,
    "desk": 35,
    "drivers": 40,
    "lanes": 42,
    "hold": 40,
    "context": 45,
    "aiodriver": 45,
    "journal": 45,
    "recipes": 50,
    "house": 60,
    "client": 70,
    "aio": 70,
    "fencing": 75,  # guards: they know fences, and no client
    "metrics": 75,  # subscribers: they know events, and no client
    "tracing": 75,
    "": 80,  # holdfast itself: what users import
    # Ordinary users of the face; one of the commands starts the service.
    "sidecar": 85,
    "cli": 90,
    "testing": 90,
    "__main__": 100,
}
INSIDE_RECIPES = {"": 0, "ask": 0, "lock": 1, "semaphore": 1, "rwlock": 2, "election": 2}
FOR_BACKENDS = {*GROUND, "lease", "operating", "entrusting", "belief", "reaper", "links", "remote", "beats"}


def imports_of(module: str, source: str, *, package: bool) -> Iterator[str]:
    """The modules of holdfast that `source` imports, lazily or not; names from a package count as its modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "holdfast")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + (1 if package else 0)]
                base = ".".join([*parents, *([base] if base else [])])
            if base.split(".")[0] == "holdfast":
                yield from (f"{base}.{a.name}" for a in node.names)


def all_sources() -> dict[str, tuple[str, bool]]:
    """Every module of the package by its full name: its source, and whether it is a package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["holdfast", *path.relative_to(ROOT).with_suffix("").parts]
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
    a, b = module.split(".")[1:], target.split(".")[1:]
    top_a, top_b = (a or [""])[0], (b or [""])[0]
    if top_a == "backends" or top_b == "backends":
        return _wrong_at_backends(a, b)
    for top in (top_a, top_b):
        if top not in RANKS:
            return f"{top!r} has no place in the layers: give it one"
    if top_a == top_b:
        if top_a == "recipes":
            return _upward(INSIDE_RECIPES, (a[1:] or [""])[0], (b[1:] or [""])[0])
        return None  # inside one package of the top layer
    return _upward(RANKS, top_a, top_b)


def _upward(ranks: Mapping[str, int], a: str, b: str) -> str | None:
    if a not in ranks or b not in ranks:
        return f"{a!r} or {b!r} has no place in its package: give it one"
    if ranks[a] > ranks[b]:
        return None
    return "sideways" if ranks[a] == ranks[b] else "upwards"


def _wrong_at_backends(a: list[str], b: list[str]) -> str | None:
    if (a or [""])[0] != "backends":
        if a == ["house"] and b == ["backends"]:
            return None
        return "only the house opens backends, and only through their package"
    if (b or [""])[0] != "backends":
        return None if (b or [""])[0] in FOR_BACKENDS else "a backend needs ground, lease and what is beside it only"
    if len(a) == 1 or len(b) == 1:
        return None if len(a) == 1 else "a backend does not need the others' package"
    return None if a[1] == b[1] else "backends do not know each other"


def test_no_module_imports_upwards_or_sideways() -> None:
    """Layers, one way: every edge of the package points down."""
    assert violations(all_sources()) == []


def test_every_module_of_the_package_is_looked_at() -> None:
    """The checker has read what it says it has read."""
    sources = all_sources()
    assert {"holdfast", "holdfast.lease", "holdfast.recipes.lock", "holdfast.backends.memory"} <= sources.keys()
    found = set(edges(sources))
    assert ("holdfast.turn", "holdfast.lease") in found
    assert ("holdfast.house", "holdfast.backends") in found
    assert ("holdfast.backends", "holdfast.backends.etcd") in found  # a lazy one
    assert len(found) > 80


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("holdfast.lease", "from holdfast.turn import Turn", "upwards"),
        ("holdfast.lease", "from .turn import Turn", "upwards"),
        ("holdfast.lease", "from . import turn", "upwards"),
        ("holdfast.lease", "import holdfast.turn", "upwards"),
        ("holdfast.lease", "import holdfast", "upwards"),
        ("holdfast.turn", "def f() -> None:\n    from holdfast import house", "upwards"),
        ("holdfast.client", "from holdfast.aio import connect", "sideways"),
        ("holdfast.belief", "from holdfast.reaper import Reaper", "sideways"),
        ("holdfast.names", "from holdfast.options import parse", "upwards"),
        ("holdfast.hold", "from holdfast import drivers", "sideways"),
        ("holdfast.recipes.lock", "from holdfast.house import House", "upwards"),
        ("holdfast.recipes.lock", "from holdfast.recipes import rwlock", "upwards"),
        ("holdfast.recipes.lock", "from holdfast.backends.memory import MemoryLease", "only the house"),
        ("holdfast.recipes.lock", "from holdfast import backends", "only the house"),
        ("holdfast.client", "from holdfast.backends import open_backend", "only the house"),
        ("holdfast.house", "from holdfast.backends.memory import store", "only the house"),
        ("holdfast.backends.memory.server", "from holdfast.turn import Turn", "ground, lease"),
        ("holdfast.backends.memory.server", "from holdfast.backends.etcd import EtcdBackend", "know each other"),
        ("holdfast.backends.memory.server", "from .. import etcd", "know each other"),
        ("holdfast.backends.memory.server", "from holdfast.backends import open_backend", "others' package"),
        ("holdfast.lease", "from holdfast import novelty", "no place"),
    ],
)
def test_checker_given_a_bad_edge_as_source_names_it(module: str, line: str, why: str) -> None:
    """The checker can fail: each kind of wrong edge is found, however it is written."""
    sources = all_sources()
    assert not sources[module][1]
    known = {
        name: ("", package)
        for name, (_, package) in {**sources, "holdfast.novelty": ("", False)}.items()
        if name != module
    }
    found = violations({**known, module: (f"import os\n{line}\n", False)})
    assert len(found) == 1
    assert found[0].startswith(f"{module} -> holdfast")
    assert why in found[0]


def test_checker_given_good_edges_as_source_is_silent() -> None:
    """What is allowed is not reported."""
    sources = {name: ("", package) for name, (_, package) in all_sources().items()}
    sources["holdfast.turn"] = ("from holdfast.lease import Lease\nfrom .clock import Clock\nimport os", False)
    sources["holdfast.backends"] = ("from .memory import MemoryBackend", True)
    sources["holdfast.backends.memory.server"] = ("from holdfast import reaper, belief, lease, names", False)
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("holdfast.house", "from holdfast.sidecar.keeping import Keeper", "upwards"),
        ("holdfast.metrics", "from holdfast.sidecar import traffic", "upwards"),
        ("holdfast.sidecar.app", "from holdfast.cli.session import Session", "upwards"),
        ("holdfast.sidecar.app", "from holdfast.backends.etcd import EtcdBackend", "only the house"),
    ],
)
def test_sidecar_stands_above_the_faces_and_below_the_command_that_starts_it(module: str, line: str, why: str) -> None:
    """Nobody below may import it, and it may import no command and no backend."""
    found = wrong(module, line.split()[1])
    assert found is not None
    assert why in found
    assert wrong("holdfast.cli.commands.serve", "holdfast.sidecar.serving") is None


def test_recipes_name_no_store() -> None:
    """Adding a backend changes no recipe: not even in words."""
    for name, (source, _) in all_sources().items():
        if name.startswith("holdfast.recipes"):
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
    """The table itself is in the order of DESIGN.md."""
    ladder = ["retry", "lease", "belief", "turn", "drivers", "recipes", "house", "client", "cli"]
    assert all(RANKS[low] < RANKS[high] for low, high in itertools.pairwise(ladder))


def test_help_of_serve_imports_no_web_server() -> None:
    """The extra is needed by who serves, and by nobody else."""
    program = (
        "import holdfast.cli.commands.serve, sys\n"
        "print(sorted(m for m in ('uvicorn', 'uvloop', 'httptools', 'prometheus_client') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("what", ["import holdfast", "import holdfast; holdfast.connect('memory://x').close()"])
def test_importing_holdfast_imports_no_stores_client(what: str) -> None:
    """Nobody pays for a store's client before the first connect of its kind."""
    program = f"{what}\nimport sys\nprint(sorted(m for m in {STORE_CLIENTS!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
