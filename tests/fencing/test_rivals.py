"""The stage of the guards' tests: the first holder is deposed and does not know."""

from __future__ import annotations

from .conftest import Rivals


def test_deposed_holder_still_believes_and_the_second_has_the_higher_token(rivals: Rivals) -> None:
    """What a guard is for: two that believe, one of them rightly."""
    second = rivals.depose()
    assert rivals.first.state.value in ("held", "suspect")
    assert second.token > rivals.first.token
