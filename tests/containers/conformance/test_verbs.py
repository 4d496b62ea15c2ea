"""`holdfast.testing.conformance.test_verbs` over containers."""

from holdfast.testing.conformance.test_verbs import *  # noqa: F403
