"""How a ticket is written in etcd: text that every reader of JSON understands."""

from __future__ import annotations

import json

import pytest

from tenure._backends.etcd.codec import read_ticket, write_value
from tenure._backends.etcd.requests import KeyValue
from tenure._core.lease import Entry, Mode

NASTY = ["", "plain", 'a "quoted" \\ one', "é ✓ 𝄞", "a\tb\nc\x00\x1f\x7f", "{}[],:", "\u2028</script>"]


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("mode", Mode)
def test_value_of_a_ticket_is_json_that_says_what_the_entry_said(text: str, mode: Mode) -> None:
    """Whatever an owner or a leader calls itself, others read the same."""
    entry = Entry("line", text, mode, 2, 3, text)
    told = json.loads(write_value(entry, 1234.567))
    assert (told["tenure"], told["id"], told["owner"], told["at"]) == (1, entry.id, text, 1234.567)
    assert told.get("value", "") == text
    ticket = read_ticket(KeyValue(b"ns/line/1a-0", write_value(entry, 1234.567), 7, 8), "ns", "line")
    assert ticket is not None
    assert (ticket.id, ticket.owner, ticket.value, ticket.mode) == (entry.id, text, text, mode)
    assert (ticket.weight, ticket.limit) == ((2, 3) if mode is Mode.SEAT else (1, 1))
