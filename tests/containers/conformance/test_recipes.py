"""`holdfast.testing.conformance.test_recipes` over containers."""

from holdfast.testing.conformance.test_recipes import *  # noqa: F403
