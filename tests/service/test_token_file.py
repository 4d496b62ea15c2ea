"""The file of tokens while it is being changed: half a file, or none, takes no token from anybody."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest

from tenure.service.auth.tokens import Tokens
from tests.service.http.program import Token

ONE, TWO = Token("one", "first", "t"), Token("two", "second", "t")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of two tokens."""
    path = tmp_path / "tokens"
    path.write_text(ONE.line + TWO.line)
    return path


def known(tokens: Tokens) -> list[str]:
    """The tokens that are good."""
    return [one.token for one in (ONE, TWO) if tokens.find(hashlib.sha256(one.token.encode()).digest()) is not None]


def test_file_is_taken_once_two_looks_agree(file: Path) -> None:
    """Who writes it in place is not overtaken, at whichever line the first look comes."""
    tokens = Tokens(file)
    for part in ("", "# half\n", ONE.line, f"{ONE.line}# of two\n"):
        file.write_text(part)
        tokens.look()
        assert known(tokens) == ["one", "two"]
    tokens.look()
    assert known(tokens) == ["one"]


def test_look_at_a_file_that_stays_reads_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is a file that can't be taken refused more than once."""
    tokens = Tokens(file)
    file.write_text("nonsense\n")
    for _ in range(5):
        tokens.look()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("text", ["", "# nobody\n"])
def test_empty_file_leaves_the_tokens_as_they_were(file: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where there were some: a service that begins with none lets nobody in until there is one."""
    tokens = Tokens(file)
    file.write_text(text)
    assert tokens.reload() is False
    assert known(tokens) == ["one", "two"]
    assert "the tokens stay as they were" in caplog.text
    assert "has no token in it any more" in caplog.text
    fresh = Tokens(file)
    assert known(fresh) == []
    file.write_text(TWO.line)
    assert fresh.reload() is True
    assert known(fresh) == ["two"]
