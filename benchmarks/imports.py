"""What `import holdfast` costs and brings in, each time in a fresh interpreter, in turns with kazoo's."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from benchmarks.measure import Spread

STORE_CLIENTS: Final = ("etcd3gw", "kazoo", "requests", "urllib3", "websockets")
_PROGRAM: Final = """
import json, sys, time
began = time.perf_counter()
import {module}
print(json.dumps([time.perf_counter() - began, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


@dataclass(frozen=True)
class Imports:
    """Against kazoo's client, the lighter of the two; `import kazoo` alone loads nothing."""

    holdfast_to_kazoo: Spread
    holdfast_seconds: float
    store_clients: tuple[str, ...]


def compare(rounds: int) -> Imports:
    pairs = [(_import("holdfast"), _import("kazoo.client")) for _ in range(rounds)]
    low, median, high = statistics.quantiles([ours[0] / theirs[0] for ours, theirs in pairs], n=4)
    loaded = set(pairs[0][0][1])
    return Imports(
        Spread(median, low, high),
        statistics.median(ours[0] for ours, _ in pairs),
        tuple(name for name in STORE_CLIENTS if name in loaded),
    )


def _import(module: str) -> tuple[float, list[str]]:
    program = [sys.executable, "-c", _PROGRAM.format(module=module)]
    told = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60).stdout
    seconds, loaded = json.loads(told)
    return seconds, loaded
