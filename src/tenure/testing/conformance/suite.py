"""The whole suite, to be imported with a star where it is to run. See the package."""

import pytest

from tenure.testing.conformance.test_aio import *  # noqa: F403
from tenure.testing.conformance.test_delegation import *  # noqa: F403
from tenure.testing.conformance.test_guarded import *  # noqa: F403
from tenure.testing.conformance.test_laws import *  # noqa: F403
from tenure.testing.conformance.test_lock_delay import *  # noqa: F403
from tenure.testing.conformance.test_operating import *  # noqa: F403
from tenure.testing.conformance.test_recipes import *  # noqa: F403
from tenure.testing.conformance.test_verbs import *  # noqa: F403

pytestmark: list[pytest.MarkDecorator] = [
    pytest.mark.filterwarnings("ignore:the hold of .* was forgotten:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.* is waited for without a time-out:RuntimeWarning"),
]
"""Tests drop holds, which end with their clients, and wait for themselves; a run that makes errors of warnings is to
pass all the same."""
