"""Steps driven by a plain function in place of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accel.planning.need import Need, NeedTail, Steps, Tail
from accel.ranges import Stash

__all__ = ["drive"]

T = TypeVar("T")


def drive(steps: Steps[T], answer: Callable[[Need | NeedTail], Stash | Tail]) -> T:
    """Run a step to its end: whatever it needs, `answer` gives."""
    try:
        need = next(steps)
        while True:
            need = steps.send(answer(need))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
