"""`holdfast.testing.conformance.test_lock_delay` on our own backends."""

from holdfast.testing.conformance.test_lock_delay import *  # noqa: F403
