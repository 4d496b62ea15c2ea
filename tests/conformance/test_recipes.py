"""`holdfast.testing.conformance.test_recipes` on our own backends."""

from holdfast.testing.conformance.test_recipes import *  # noqa: F403
