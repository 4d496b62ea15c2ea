"""`holdfast.testing.conformance.test_guarded` over containers."""

from holdfast.testing.conformance.test_guarded import *  # noqa: F403
