"""The SQL guard decides as `admit` does, whatever comes: the rule in SQL, against the rule in Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tenure.errors import FenceMismatch, StaleToken
from tenure.fencing._fence import Fence, admit

from .test_sql_bank import KINDS, Bank, opened

EXAMPLES = {"sqlite": 300, "postgresql": 60, "mariadb": 60}
_IDS = [f"{number:020x}" for number in (1, 2, 0x10, 0xABCDEF)]
_resources = itertools.count(1)

fences = st.builds(
    Fence,
    line=st.sampled_from(["billing/ledger", "billing/ledger", "billing/ledger", "billing/Ledger"]),
    token=st.integers(1, 6) | st.sampled_from([2**31, 2**53 + 1, 2**53 + 2, 2**63 - 1]),
    incarnation=st.sampled_from([0, 0, 0, 1, 2, 2**31 - 1]),
    ids=st.just(()) | st.lists(st.sampled_from(_IDS), min_size=1, max_size=3, unique=True).map(tuple),
)


def _seat(token: int, *ids: int) -> Fence:
    return Fence("billing/seats", token, ids=tuple(_IDS[one] for one in ids))


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Each database once; each example has a resource of its own in it."""
    with opened(request, request.param) as made:
        yield made


def _told_by_rule(seen: Fence | None, offered: Fence) -> tuple[Fence | None, str]:
    try:
        return admit(seen, offered), ""
    except (StaleToken, FenceMismatch) as error:
        return seen, str(error)


def _told_by_guard(bank: Bank, offered: Fence, resource: str) -> tuple[Fence | None, str]:
    told = ""
    with bank.engine.begin() as connection:  # which commits, also after a refusal: that must have written nothing
        try:
            bank.guard.claim(connection, offered, resource=resource)
        except (StaleToken, FenceMismatch) as error:
            told = str(error)
    return bank.seen(resource), told


def test_guard_decides_and_remembers_as_admit_does(database: Bank) -> None:
    """After every claim of a random sequence: the same record, and where it refuses, the same words."""

    @settings(
        max_examples=EXAMPLES[database.kind],
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(sequence=st.lists(fences, min_size=1, max_size=8))
    @example(sequence=[_seat(3, 0), _seat(5, 1, 0), _seat(3, 0), _seat(4, 2), _seat(5, 3), _seat(5), _seat(4, 1)])
    @example(sequence=[_seat(5), _seat(4, 0), _seat(5, 0), _seat(4, 0), _seat(6, 0)])
    def decides_the_same(sequence: list[Fence]) -> None:
        seen, resource = None, f"{database.resource} sequence {next(_resources)}"
        for offered in sequence:
            expected = _told_by_rule(seen, offered)
            assert _told_by_guard(database, offered, resource) == expected
            seen = expected[0]

    decides_the_same()
