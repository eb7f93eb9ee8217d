"""obstore's asynchronous calls that its threads have not let go of yet.

Each ends on a thread that Python does not know of, which takes the interpreter to hand over the outcome, also of a
call that was cancelled. One that comes too late finds its event loop closed, or the interpreter gone, and aborts the
process: so whoever ends these waits until `all_let_go`. A thread holds the call's future until it is done with it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Generic, TypeVar

__all__ = ["Watched", "all_let_go", "watched"]

T = TypeVar("T")
A = TypeVar("A", bound=Awaitable[Any])

_held: set[weakref.ref[Any]] = set()


def watched(call: A) -> A:
    """The same call, looked after until it is let go of. Every asynchronous call of obstore's goes through here."""
    _held.add(weakref.ref(call, _held.discard))
    return call


class Watched(Generic[T]):
    """The same stream of obstore's, each step of it watched."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> Watched[T]:
        return self

    def __anext__(self) -> Awaitable[T]:
        return watched(self._stream.__anext__())


def all_let_go() -> bool:
    """Whether no thread of obstore's will take the interpreter any more. From any thread."""
    if not _held:
        return True
    from obstore.store import MemoryStore

    # What its threads dropped without the interpreter is dropped by whoever calls it next.
    MemoryStore()
    return not _held


# The parent's threads are not there.
os.register_at_fork(after_in_child=_held.clear)
