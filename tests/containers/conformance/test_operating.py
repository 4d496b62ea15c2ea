"""`holdfast.testing.conformance.test_operating` over containers."""

from holdfast.testing.conformance.test_operating import *  # noqa: F403
