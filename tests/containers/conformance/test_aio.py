"""`holdfast.testing.conformance.test_aio` over containers."""

from holdfast.testing.conformance.test_aio import *  # noqa: F403
