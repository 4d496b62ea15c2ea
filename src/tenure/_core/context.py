"""Entered holds: those of a `with` block are found again deep in the call tree, without passing them on.

`Entered` keeps the holds of one lock object, which several threads or tasks may enter at once. `held_here` finds a hold
by its name in the present context; that is the context of contextvars: a task started within the block inherits it, a
new thread does not (`asyncio.to_thread` and `contextvars.copy_context().run` do carry it over). An inherited hold that
was released or lost meanwhile is not held.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Generic, NoReturn, TypeVar

from tenure._core.hold import HoldContext, Holding
from tenure._core.hold_watch import FINAL, HoldState
from tenure.errors import NotHeld

HoldOfFace = TypeVar("HoldOfFace", bound=Holding)
Held = TypeVar("Held", bound=Holding)
_LIVING: Final = (HoldState.HELD, HoldState.SUSPECT)
_entered: ContextVar[tuple[Holding, ...]] = ContextVar("tenure_entered", default=())


class Entered(Generic[Held]):
    """Holds of one lock object that were entered with `with`, each with the thread or task that entered it."""

    def __init__(self) -> None:
        self._holds: list[tuple[object, Held]] = []

    def push(self, body: object, hold: Held) -> None:
        self._holds.append((body, hold))

    def pop(self, body: object) -> Held:
        """The hold that `body` entered last. Where a block is left by another thread or task than entered it: a hold
        that is over, else the oldest."""
        mine = [index for index, (by, _) in enumerate(self._holds) if by == body]
        # The lost ones before the oldest: nobody's living hold is to be given up in place of one that was lost.
        over = [index for index, (_, hold) in enumerate(self._holds) if hold.state in FINAL]
        return self._holds.pop((mine[-1:] or over or [0])[0])[1]

    def __len__(self) -> int:
        return len(self._holds)


def refuse_other_with(kinds: tuple[type, ...], right: str, wrong: str, elsewhere: str) -> None:
    """Have `with` of the other face say which one to use, where Python would only say that there is none."""

    def refuse(self: object, *_: object) -> NoReturn:
        raise TypeError(
            f"{self!r} is entered with `{right}`, not `{wrong}`: its body was not begun. The face that has `{wrong}` "
            f"is made by {elsewhere}(…)"
        )

    enter, leave = ("__aenter__", "__aexit__") if wrong == "async with" else ("__enter__", "__exit__")
    for kind in kinds:  # not in the classes' bodies: there a type checker would take the wrong one for right
        setattr(kind, enter, refuse)
        setattr(kind, leave, refuse)


def enter(hold: Holding) -> None:
    """Remember that `hold` was entered with `with`; forget those that were released in another context."""
    _entered.set((*(other for other in _entered.get() if other.state is not HoldState.RELEASED), hold))


def leave(hold: Holding) -> None:
    """Forget `hold`: its block is over."""
    # By value, not by a token of the context: a block may be left in another context than it was entered in.
    _entered.set(tuple(other for other in _entered.get() if other is not hold))


def held_here(name: str, kind: type[HoldOfFace], runtime: HoldContext | None) -> HoldOfFace:
    """The innermost living hold of `name` that was entered here, proven at this moment. Raises NotHeld, LeaseLost."""
    found = [
        hold
        for hold in _entered.get()
        if isinstance(hold, kind) and hold.resource == name and (runtime is None or hold._runtime is runtime)
    ]
    if not found:
        raise NotHeld(_not_held(name, kind))
    # A lost one only where none lives: its `check` then says why, which helps more than "not held here".
    living = [hold for hold in found if hold.state in _LIVING]
    hold = (living or found)[-1]
    hold.check()
    return hold


def _not_held(name: str, kind: type[Holding]) -> str:
    others = [hold for hold in _entered.get() if not isinstance(hold, kind)]
    if any(hold.resource == name for hold in others):
        return f"{name!r} is held here by the other face: use the `assert_held` of tenure.aio for `async with`"
    known = ", ".join(sorted({repr(hold.resource) for hold in _entered.get() if hold.state in _LIVING})) or "nothing"
    return (
        f"{name!r} is not held here; {known} is. Enter it with `with` around this call, in this task, or in this "
        "thread (a new thread inherits no holds)"
    )
