"""`holdfast.testing.conformance.test_lock_delay` over containers."""

from holdfast.testing.conformance.test_lock_delay import *  # noqa: F403
