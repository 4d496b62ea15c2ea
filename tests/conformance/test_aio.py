"""`holdfast.testing.conformance.test_aio` on our own backends."""

from holdfast.testing.conformance.test_aio import *  # noqa: F403
