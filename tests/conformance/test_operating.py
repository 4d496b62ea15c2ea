"""`holdfast.testing.conformance.test_operating` on our own backends."""

from holdfast.testing.conformance.test_operating import *  # noqa: F403
