"""README.md and the pages of docs/, as tests read them: their blocks of code, their links, their headings."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
README: Final = ROOT / "README.md"
DOCS: Final = sorted((ROOT / "docs").glob("*.md"))
FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its page, its language, its text."""

    page: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file that the block is, where its first line says so; else ""."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named[1] if named else ""


def blocks(language: str) -> list[Block]:
    """Blocks in that language, README first; the same text only once."""
    found: dict[str, Block] = {}
    for page in (README, *DOCS):
        for tongue, text in FENCED.findall(page.read_text()):
            if tongue == language:
                found.setdefault(text, Block(str(page.relative_to(ROOT)), tongue, text))
    return list(found.values())


def links(page: Path) -> Iterator[str]:
    """Targets of the page's links and images."""
    yield from re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Names that may stand after `#` in a link to the page, as GitHub makes them of the headings."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def put_program(directory: Path, name: str, text: str) -> None:
    """Write an executable script into the directory."""
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


def put_tenure(directory: Path) -> None:
    """Write the command `tenure` into the directory, run by this very interpreter."""
    put_program(directory, "tenure", f'exec {sys.executable} -m tenure.cli "$@"')
