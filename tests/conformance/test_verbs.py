"""`holdfast.testing.conformance.test_verbs` on our own backends."""

from holdfast.testing.conformance.test_verbs import *  # noqa: F403
