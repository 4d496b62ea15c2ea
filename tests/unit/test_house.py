"""How the code reads: its figures stay within their bounds."""

from __future__ import annotations

import importlib

import pytest

from tests.house import Figure, figures, public_modules


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.what)
def test_figure_is_within_its_bounds(figure: Figure) -> None:
    """`python -m tests.house` prints them all."""
    assert figure.holds, f"{figure.what}: {figure.value:.1f}, not within {figure.lowest:g} to {figure.highest:g}"


@pytest.mark.parametrize("name", public_modules())
def test_public_module_says_what_it_is(name: str) -> None:
    """Each has a docstring, and the package's own names it (test_maps.py)."""
    assert (importlib.import_module(f"tenure.{name}").__doc__ or "").strip()
