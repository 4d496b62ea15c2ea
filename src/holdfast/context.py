"""What is held here: holds entered with `with` are found again deep in the call tree, without passing them on.

"Here" is the context of contextvars: a task started within the block inherits it, a new thread does not
(`asyncio.to_thread` and `contextvars.copy_context().run` do carry it over). An inherited hold that was released
or lost meanwhile is not held.
"""

from __future__ import annotations

from contextvars import ContextVar

from holdfast.errors import NotHeld
from holdfast.hold import Holding, HoldState

_entered: ContextVar[tuple[Holding, ...]] = ContextVar("holdfast_entered", default=())


def enter(hold: Holding) -> None:
    """`hold` was entered with `with`."""
    _entered.set((*_entered.get(), hold))


def leave(hold: Holding) -> None:
    """Its block is over. By value: a block may be left in another context than it was entered in."""
    _entered.set(tuple(other for other in _entered.get() if other is not hold))


def assert_held(name: str) -> Holding:
    """The hold of `name` that was entered around this call, proven at this moment.

    For code that must not run without it: `ledger = assert_held("ledger"); write(fence=ledger.fence)`. Asks
    nobody. Raises NotHeld where none was entered here, LeaseLost where it can't be proven any longer.
    """
    found = [hold for hold in _entered.get() if hold.resource == name]
    if not found:
        known = ", ".join(sorted({repr(hold.resource) for hold in _entered.get()})) or "nothing"
        raise NotHeld(
            f"{name!r} is not held here; {known} is. Enter it with `with` around this call, in this task, or in this "
            "thread (a new thread inherits no holds)"
        )
    living = [hold for hold in found if hold.state in (HoldState.HELD, HoldState.SUSPECT)]
    hold = (living or found)[-1]
    hold.check()
    return hold
