"""`holdfast.testing.conformance.test_guarded` on our own backends."""

from holdfast.testing.conformance.test_guarded import *  # noqa: F403
