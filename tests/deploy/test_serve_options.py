"""What manifests and compose files tell `tenure serve` is what it takes."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kustomize import build, containers

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def told() -> list[Any]:
    """The arguments of every tenure that is started there, with the place they stand in."""
    manifests = [
        (str(overlay.relative_to(DEPLOY)), one["args"])
        for overlay in sorted((DEPLOY / "kubernetes" / "overlays").iterdir())
        for one in containers(build(overlay))
        if one["name"] == "tenure"
    ]
    composed = [
        (str(path.relative_to(DEPLOY)), yaml.safe_load(path.read_text())["services"]["tenure"]["command"])
        for path in sorted((DEPLOY / "compose").glob("*.yaml"))
    ]
    return [pytest.param(arguments, id=where) for where, arguments in manifests + composed]


@lru_cache
def help_of(command: str) -> str:
    """What it says of itself."""
    return subprocess.run(
        [sys.executable, "-m", "tenure.cli", command, "--help"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("arguments", told())
def test_options_are_those_of_the_program(arguments: list[str]) -> None:
    """A renamed option breaks this test, and not a rollout."""
    command, *options = arguments
    assert command == "serve"
    for option in options:
        assert f"{option.partition('=')[0]} " in help_of(command).replace("\n", " \n"), option
