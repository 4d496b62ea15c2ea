"""The suite of `tenure.testing.conformance` on our own backends, but for test_delegation, which has a file here."""

from tenure.testing.conformance.test_aio import *  # noqa: F403
from tenure.testing.conformance.test_guarded import *  # noqa: F403
from tenure.testing.conformance.test_laws import *  # noqa: F403
from tenure.testing.conformance.test_lock_delay import *  # noqa: F403
from tenure.testing.conformance.test_operating import *  # noqa: F403
from tenure.testing.conformance.test_recipes import *  # noqa: F403
from tenure.testing.conformance.test_verbs import *  # noqa: F403
