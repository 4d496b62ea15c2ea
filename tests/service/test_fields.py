"""The fields of requests, and the ids of holds: what is read, and what is refused."""

from __future__ import annotations

import re
import unicodedata

import pytest

from tenure.service.holds import hold_id
from tenure.service.holds.hold_id import DelegatedId, NoSuchHold, TimedId
from tenure.service.http.fields import InvalidField, Text

OWN = DelegatedId("a/b", 33, "694d81417acd4754", False, "secret", ("0" * 20,))


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
def test_id_of_a_hold_says_what_was_written_however_often_it_is_read(what: DelegatedId | TimedId) -> None:
    """The second time from memory, which has a bound."""
    text = hold_id.write_id(what)
    assert hold_id.read_id(text) == hold_id.read_id(text) == what
    for number in range(3000):
        hold_id.read_id(hold_id.write_id(TimedId(f"n-{number}", "i", "", "s")))
    assert len(hold_id._known) == hold_id._KNOWN_MAX < 3000
    assert text not in hold_id._known
    assert hold_id.read_id(text) == what


@pytest.mark.parametrize("text", ["", "o", "t!", "x" * 9000, "ö", ["a"], None, 7, hold_id.write_id(OWN)[:-4]])
def test_what_is_no_id_of_a_hold_is_refused_each_time(text: str) -> None:
    """A refusal is remembered as nothing else."""
    for _ in range(2):
        with pytest.raises(NoSuchHold):
            hold_id.read_id(text)
