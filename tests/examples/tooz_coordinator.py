"""Driver of docs/examples/tooz_driver.py with groups that need no creation: tooz's tests of leaders begin with one."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from tooz import coordination

from docs.examples.tooz_driver import TenureDriver


class Coordinator(TenureDriver):
    """The driver, with as much of groups as elections are tested with."""

    def create_group(self, group_id: bytes) -> Any:
        """Nothing, done."""
        return self._done()

    def join_group(self, group_id: bytes, capabilities: Any = None) -> Any:
        """Nothing, done."""
        return self._done()

    def _done(self) -> Any:
        done: Future[None] = Future()
        done.set_result(None)
        return coordination.CoordinatorResult(done)
