"""`holdfast.testing.conformance.test_laws` on our own backends."""

from holdfast.testing.conformance.test_laws import *  # noqa: F403
