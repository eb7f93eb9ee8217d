"""What is known of objects of the caller's, each told from all others for as long as it lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["ByIdentity"]

T = TypeVar("T")


class ByIdentity(Generic[T]):
    """What was made for an object: the same for the same object, and never for another that has its address later.

    Parameters
    ----------
    make : callable
        Called with an object that is not known.
    forget : callable, optional
        Called with what was made for an object that is gone: in any thread, and at exit without its module's names.
    most_held : int
        How many objects that take no weak reference are kept alive so as to be known.

    Notes
    -----
    Has no lock, as objects go in the middle of anything: two threads that bring a new one at once may each have their
    own of it made, of which the second is kept.
    """

    def __init__(
        self, make: Callable[[Any], T], *, forget: Callable[[T], object] | None = None, most_held: int = 0
    ) -> None:
        self._make = make
        self._forget = forget
        self._most_held = most_held
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}
        self._held: dict[int, tuple[object, T]] = {}

    def of(self, thing: object) -> T:
        """What is known of it.

        Raises
        ------
        TypeError
            It takes no weak reference, and none of that kind is held.
        """
        identity = id(thing)
        entry = self._known.get(identity)
        if entry is not None and entry[0]() is thing:
            return entry[1]
        held = self._held.get(identity)
        if held is not None:
            return held[1]
        made = self._make(thing)
        known, forget = self._known, self._forget

        def gone(which: weakref.ref[Any]) -> None:
            last = known.get(identity)
            if last is not None and last[0] is which:
                del known[identity]
                if forget is not None:
                    forget(last[1])

        try:
            known[identity] = weakref.ref(thing, gone), made
        except TypeError:
            if not self._most_held:
                raise
            if len(self._held) >= self._most_held:
                self._held.clear()
            # The entry keeps it alive: its id stays its own.
            self._held[identity] = thing, made
        return made
