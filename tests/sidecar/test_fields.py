"""The fields of requests, and the ids of holds: what is read, and what is refused."""

from __future__ import annotations

import re
import unicodedata

import pytest

from holdfast.sidecar import holdids
from holdfast.sidecar.errors import NoSuchHold
from holdfast.sidecar.fields import InvalidField, Text
from holdfast.sidecar.holdids import OwnId, TimedId

OWN = OwnId("a/b", 33, "694d81417acd4754", False, "secret", ("0" * 20,))


def test_control_characters_are_refused_and_no_others() -> None:
    """Wherever they stand; the document's pattern says the same."""
    kind = Text(100)
    pattern = re.compile(kind.schema()["pattern"])
    for character in map(chr, [*range(0x300), 0x2028, 0xFFFF, 0x1F512]):
        text = f"a{character}b"
        assert bool(pattern.match(text)) == (unicodedata.category(character) != "Cc")
        assert Text(100, free=True).parse("name", text) == text
        if pattern.match(text):
            assert kind.parse("name", text) == text
        else:
            with pytest.raises(InvalidField, match="control character"):
                kind.parse("name", text)


@pytest.mark.parametrize("what", [OWN, TimedId("a", "instance", "http://h:1", "secret")])
def test_id_of_a_hold_says_what_was_written_however_often_it_is_read(what: OwnId | TimedId) -> None:
    """The second time from memory, which has a bound."""
    text = holdids.write(what)
    assert holdids.read(text) == holdids.read(text) == what
    for number in range(3000):
        holdids.read(holdids.write(TimedId(f"n-{number}", "i", "", "s")))
    assert len(holdids._known) == holdids._KNOWN_MAX < 3000
    assert text not in holdids._known
    assert holdids.read(text) == what


@pytest.mark.parametrize("text", ["", "o", "t!", "x" * 9000, "ö", ["a"], None, 7, holdids.write(OWN)[:-4]])
def test_what_is_no_id_of_a_hold_is_refused_each_time(text: str) -> None:
    """A refusal is remembered as nothing else."""
    for _ in range(2):
        with pytest.raises(NoSuchHold):
            holdids.read(text)
