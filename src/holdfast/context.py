"""What is held here: holds entered with `with` are found again deep in the call tree, without passing them on.

"Here" is the context of contextvars: a task started within the block inherits it, a new thread does not
(`asyncio.to_thread` and `contextvars.copy_context().run` do carry it over). An inherited hold that was released
or lost meanwhile is not held.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, TypeVar

from holdfast.errors import NotHeld
from holdfast.hold import Holding, HoldState, House

HoldOfFace = TypeVar("HoldOfFace", bound=Holding)
_LIVING: Final = (HoldState.HELD, HoldState.SUSPECT)
_entered: ContextVar[tuple[Holding, ...]] = ContextVar("holdfast_entered", default=())


def enter(hold: Holding) -> None:
    """`hold` was entered with `with`. Those that were given up in another context are forgotten by the way."""
    _entered.set((*(other for other in _entered.get() if other.state is not HoldState.RELEASED), hold))


def leave(hold: Holding) -> None:
    """Its block is over. By value: a block may be left in another context than it was entered in."""
    _entered.set(tuple(other for other in _entered.get() if other is not hold))


def held_here(name: str, kind: type[HoldOfFace], house: House | None) -> HoldOfFace:
    """The innermost living hold of `name` that was entered here, proven at this moment. Raises NotHeld, LeaseLost."""
    found = [
        hold
        for hold in _entered.get()
        if isinstance(hold, kind) and hold.resource == name and (house is None or hold._house is house)
    ]
    if not found:
        raise NotHeld(_not_held(name, kind))
    living = [hold for hold in found if hold.state in _LIVING]
    hold = (living or found)[-1]
    hold.check()
    return hold


def _not_held(name: str, kind: type[Holding]) -> str:
    others = [hold for hold in _entered.get() if not isinstance(hold, kind)]
    if any(hold.resource == name for hold in others):
        return f"{name!r} is held here by the other face: use the `assert_held` of holdfast.aio for `async with`"
    known = ", ".join(sorted({repr(hold.resource) for hold in _entered.get() if hold.state in _LIVING})) or "nothing"
    return (
        f"{name!r} is not held here; {known} is. Enter it with `with` around this call, in this task, or in this "
        "thread (a new thread inherits no holds)"
    )
