"""The code of README.md and of docs/ runs as it stands, against a real etcd; their links lead somewhere.

Blocks for a shell that start the service run in tests/service/http/test_readme.py.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.program import environment
from tests.pages import DOCS, README, ROOT, Block, anchors, blocks, links, put_program, put_tenure
from tests.servers import Cluster, DatabaseServer, etcdctl

PROGRAMS = [block for block in blocks("python") if not block.file]
FILES = [block for block in blocks("python") if block.file]
SHELL = blocks("sh")
HOME = "https://github.com/tenure/tenure/blob/main/"
KINDS = {
    "installs": r"^pip install |pip install -q -e",
    "runs programs": r"^tenure (run|elect) ",
    "serves": r"^tenure serve ",
}
"""Kinds of blocks for a shell, by what they do. Each kind has its test."""
RUNNING = [block for block in SHELL if re.search(KINDS["runs programs"], block.text, re.MULTILINE)]
PAGES = [README, *DOCS, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md"))]
PAGES += [ROOT / folder / "README.md" for folder in ("tests", "deploy", "benchmarks")]


def named(block: Block) -> str:
    """The block's page, for the test's id."""
    return block.page


def test_pages_have_programs_for_both_faces() -> None:
    """The blocks below are found at all, and some of them are asyncio's."""
    assert len(PROGRAMS) >= 10
    assert sum("tenure.aio.connect" in block.text for block in PROGRAMS) >= 2


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda number: f"{number}-{PROGRAMS[number].page}")
def test_program_runs(singles: dict[str, Cluster], redis_server: DatabaseServer, tmp_path: Path, number: int) -> None:
    """Each block is a whole program that ends well and leaves nothing in the store but the records it asks for."""
    etcd = singles["etcd"]
    program = PROGRAMS[number].text.replace("127.0.0.1:2379/billing", f"{etcd.endpoints[0]}/readme-{number}")
    assert "2379" not in program, "programs use the store at 127.0.0.1:2379/billing"
    program = program.replace("6379", str(redis_server.port)).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    for prefix in (f"readme-{number}/", "ledger"):
        left = etcdctl(etcd, "get", "--prefix", "--keys-only", prefix).stdout.split()
        assert [key for key in left if "/%audit/" not in key and "/%journal/" not in key] == []


@pytest.mark.parametrize("page", sorted({block.page for block in FILES}))
def test_files_for_pytest_are_run(tmp_path: Path, page: str) -> None:
    """A block that begins with a file's name is that file. Those of backends.md have no store: they are collected."""
    for block in FILES:
        if block.page == page:
            (tmp_path / block.file).write_text(block.text)
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", str(tmp_path)]
    words += ["--collect-only"] if page.endswith("backends.md") else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* (passed|tests collected)", done.stdout)


@pytest.mark.parametrize("block", SHELL, ids=named)
def test_every_block_for_a_shell_has_a_test(block: Block) -> None:
    """Each block does exactly one of the things that are tested."""
    assert len([kind for kind, sign in KINDS.items() if re.search(sign, block.text, re.MULTILINE)]) == 1


def test_extras_exist() -> None:
    """Extras that the pages name are those that the distribution offers."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for page in PAGES:
        for wanted in re.findall(r"(?:tenure|\.)\[([\w,]+)\]", page.read_text()):
            assert set(wanted.split(",")) <= extras, f"{page}: {wanted}"


@pytest.mark.parametrize("block", RUNNING, ids=named)
def test_programs_run_under_their_holds(singles: dict[str, Cluster], tmp_path: Path, block: Block) -> None:
    """A shell runs the block: each program runs once, under the name of its line."""
    started = re.findall(r"^tenure \w+ (\S+).* -- (?:\./)?(\S+)", block.text, re.MULTILINE)
    put_tenure(tmp_path)
    for _, program in started:
        put_program(tmp_path, program, f'echo "{program} under $TENURE_NAME"; test -n "$TENURE_TOKEN"')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = block.text.replace("8081", str(port)).replace("/run/", f"{tmp_path}/")
    text = text.replace("--at-least 60s", "--at-least 1s")  # nobody waits here for cron's second machine
    done = subprocess.run(
        ["bash", "-eu", "-c", text],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
        env=environment({
            "TENURE_URL": singles["etcd"].url("readme-run"), "POD_IP": "10.0.0.7",
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path),
        }),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{program} under {name}" for name, program in started]


def test_example_for_every_guard() -> None:
    """Every guard has a whole program on some page."""
    for word in ("hold.store.put", "SQLGuard()", "RedisGuard(", "FencingMiddleware(", "FileGuard(", "lock_delay="):
        assert any(word in block.text for block in PROGRAMS), word


def test_first_lock_takes_at_most_ten_lines() -> None:
    """A first lock in ten lines, for each face, at the top of the README."""
    for block in PROGRAMS[:2]:
        assert block.page == "README.md"
        assert len([line for line in block.text.splitlines() if line.strip()]) <= 10


def test_readme_is_short_and_reads_right_elsewhere() -> None:
    """On a package index there is no repository around it: each link is absolute, and names a file that is here."""
    assert len(README.read_text().splitlines()) <= 160
    for link in links(README):
        assert link.startswith(HOME), link
        path, _, anchor = link.removeprefix(HOME).partition("#")
        assert (ROOT / path).is_file(), link
        assert not anchor or anchor in anchors(ROOT / path), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Each link names a file that is here and, if it names a heading, one of that page."""
    for link in links(page):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), link


def test_index_names_every_page() -> None:
    """docs/README.md leads to all pages beside it."""
    index = ROOT / "docs" / "README.md"
    assert {page.name for page in DOCS} - {"README.md"} <= set(links(index))


def test_contributing_names_files_that_are_there() -> None:
    """Commands and tables name paths; those of tests exist."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"\btests/[\w/.-]*\w", page))
    assert len(paths) > 50
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == [], "python -m tests.where --write"
