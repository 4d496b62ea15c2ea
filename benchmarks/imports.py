"""What `import tenure` costs and brings in, each time in a fresh interpreter, in turns with kazoo's and tooz's.

Against kazoo's client, the lightest: `import kazoo` alone loads nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Final

from benchmarks.findings import Findings, Section, at_most
from benchmarks.ground import Ground
from benchmarks.measure import ratios
from benchmarks.report import milliseconds, table

_STORE_CLIENTS: Final = ("etcd3gw", "hpack", "kazoo", "requests", "urllib3", "websockets")
OURS: Final = "tenure"
AGAINST: Final = "kazoo.client"
MODULES: Final = (OURS, "tenure.aio", AGAINST, "etcd3gw", "tooz.coordination")
_PROGRAM: Final = """
import json, sys, time
began = time.perf_counter()
try:
    import {module}
except ImportError:
    print("null")
else:
    print(json.dumps([time.perf_counter() - began, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


def run(ground: Ground) -> Findings:
    """The part `imports`."""
    seconds: dict[str, list[float]] = {}
    brought: set[str] = set()
    order = list(MODULES)
    for number in range(ground.effort.imports):
        ground.tell(f"imports: round {number + 1} of {ground.effort.imports}")
        ground.shuffler.shuffle(order)
        for module in order:
            told = _import(module)
            if told is not None:
                seconds.setdefault(module, []).append(told[0])
                brought |= set(told[1]) if module == OURS else set()
    rows = [
        (f"`import {module}`", str(ratios(took, seconds[AGAINST])), milliseconds(statistics.median(took)))
        for module, took in seconds.items()
    ]
    clients = sorted(brought & set(_STORE_CLIENTS))
    lines = [
        *table(("", f"/ {AGAINST}", "ms"), rows),
        "",
        f"tenure brings in {', '.join(clients) or 'no store client'}.",
    ]
    return Findings(
        [Section("Import", lines)], [at_most("store clients that `import tenure` imports", 0, len(clients))]
    )


def _import(module: str) -> tuple[float, list[str]] | None:
    """None where it is not installed."""
    program = [sys.executable, "-c", _PROGRAM.format(module=module)]
    told = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60).stdout
    found = json.loads(told)
    return None if found is None else (found[0], found[1])
