"""Scripts, Dockerfiles and compose files: what a tool can check of them without Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(
    path
    for folder in (DEPLOY, ROOT / "tests", ROOT / ".ci")
    for path in folder.rglob("*")
    if path.is_file()
    and path.suffix in ("", ".sh")
    and path.read_bytes()[:2] == b"#!"
    and b"sh\n" in path.read_bytes()[:22]
)
COMPOSED = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "compose").glob("*.yaml"))}


def tool(name: str, *arguments: str | Path) -> None:
    """One of those that pip put beside this interpreter."""
    done = subprocess.run(
        [Path(sys.executable).parent / name, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_scripts_are_found() -> None:
    """Those that matter are among them."""
    names = {str(path.relative_to(ROOT)) for path in SCRIPTS}
    assert {"deploy/images/build", "deploy/images/zookeeper", "deploy/compose/up", ".ci/run", "tests/run"} <= names


@pytest.mark.parametrize("script", SCRIPTS, ids=[str(path.relative_to(ROOT)) for path in SCRIPTS])
def test_script_is_clean(script: Path) -> None:
    """shellcheck has nothing to say."""
    tool("shellcheck", "--exclude=SC1091", script)  # SC1091: what is sourced is checked by itself


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.etcd"])
def test_dockerfile_is_clean(name: str) -> None:
    """hadolint has nothing to say."""
    tool("hadolint", DEPLOY / "images" / name)


def test_image_is_nobodys_and_sent_only_what_it_needs() -> None:
    """A number for a user, and a context that names what goes in."""
    text = (DEPLOY / "images" / "Dockerfile").read_text()
    assert re.search(r"^USER \d{5,}:\d{5,}$", text, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert "*" in ignored
    assert {line for line in ignored if line.startswith("!")} == {"!LICENSE", "!README.md", "!pyproject.toml", "!src"}


@pytest.mark.parametrize("store", COMPOSED)
def test_service_waits_for_three_healthy_members(store: str) -> None:
    """Each member has a health check and a volume, and the service starts when all are well."""
    services: dict[str, Any] = COMPOSED[store]["services"]
    members = [name for name in services if name != "tenure"]
    assert members == [f"{store}-{number}" for number in (1, 2, 3)]
    waits = services["tenure"]["depends_on"]
    assert waits == {name: {"condition": "service_healthy"} for name in members}
    for name in members:
        assert services[name]["healthcheck"]["test"]
        assert any(volume.startswith(f"{name}:") for volume in services[name]["volumes"])
        assert name in services["tenure"]["environment"]["TENURE_URL"]


@pytest.mark.parametrize("store", COMPOSED)
def test_nothing_is_open_to_other_machines(store: str) -> None:
    """The trial has no tokens and no TLS: loopback only."""
    for service in COMPOSED[store]["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("words", [[], ["redis"]])
def test_up_says_which_stores_there_are(words: list[str]) -> None:
    """Before anything is built or started."""
    done = subprocess.run([DEPLOY / "compose" / "up", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert "deploy/compose/up etcd" in done.stderr


def test_build_without_docker_says_so() -> None:
    """One sentence, and nothing is made."""
    nowhere = {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    done = subprocess.run(
        [DEPLOY / "images" / "build"], capture_output=True, text=True, timeout=60, check=False, env=nowhere
    )
    assert done.returncode == 1
    assert "docker does not answer" in done.stderr
