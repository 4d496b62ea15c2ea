"""`holdfast.testing.conformance.test_laws` over containers."""

from holdfast.testing.conformance.test_laws import *  # noqa: F403
