"""Bounds of a run: the bytes and pieces in memory, and the rows left by a limit."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import TypeAlias

from accel.errors import MemoryLimitError
from accel.planning.task import ScanTask, truncate_task

__all__ = [
    "Admission",
    "Budget",
    "Place",
    "Priority",
    "part_of",
]

Priority: TypeAlias = tuple[int, ...]
"""Priority of a piece: (file number, piece number), and of a part of one (file number, piece number, part
number). Lower goes first."""

# The least part of a full-size piece that a piece counts as. A small one counts twice, because it is decoded
# no faster.
_LEAST_PART = 1 / 16
_SMALL_PART = 1 / 4


def part_of(weight: float, full: float) -> float:
    """Return the part of a full-size piece that a piece of some weight counts as; both are in bytes."""
    share = weight / full
    return min(1.0, max(_LEAST_PART, share, min(_SMALL_PART, 2 * share)))


@dataclass(slots=True)
class Admission:
    """Bounds the pieces in memory at once, by bytes and by number. The piece that comes next is always
    admitted."""

    limit_bytes: int
    limit_pieces: float
    """In full-size pieces; a smaller one counts as the `part` given to `enter`."""
    admitted: dict[Priority, int] = field(default_factory=dict)
    pinned: dict[Priority, int] = field(default_factory=dict)
    _parts: dict[Priority, float] = field(default_factory=dict)
    _waiting: list[tuple[Priority, int, float, asyncio.Future[None]]] = field(default_factory=list)

    async def enter(self, order: Priority, nbytes: int, part: float = 1.0) -> None:
        """Wait for room for `nbytes` bytes, and for that part of a full-size piece."""
        if nbytes > self.limit_bytes:
            raise MemoryLimitError(
                f"a piece that cannot be cut takes about {nbytes} bytes, the limit is {self.limit_bytes}",
                hint=(
                    "raise `options.memory_limit`, select fewer columns, or write smaller row groups or a "
                    "page index"
                ),
            )
        if not self._waiting and self._fits(order, nbytes, part):
            self._hold(order, nbytes, part)
            return
        ready = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, nbytes, part, ready))
        self._admit()
        try:
            await ready
        except asyncio.CancelledError:
            # Whether or not it was admitted meanwhile, others may have waited behind it.
            self.leave(order)
            raise

    def leave(self, order: Priority) -> None:
        """Release the room of `order`, whose rows have been handed out or dropped."""
        self.admitted.pop(order, None)
        self.pinned.pop(order, None)
        self._parts.pop(order, None)
        self._admit()

    def pin(self, order: Priority) -> None:
        """Keep counting the bytes of `order`, but let its parts be admitted."""
        self.pinned[order] = self.admitted.pop(order)
        self._parts.pop(order, None)
        self._admit()

    def grow(self, pieces: float) -> None:
        self.limit_pieces = max(self.limit_pieces, pieces)
        self._admit()

    def _hold(self, order: Priority, nbytes: int, part: float) -> None:
        self.admitted[order] = nbytes
        self._parts[order] = part

    def _fits(self, order: Priority, nbytes: int, part: float) -> bool:
        if self._is_next(order):
            return True
        if sum(self._parts.values()) + part > self.limit_pieces:
            return False
        return sum(self.admitted.values()) + sum(self.pinned.values()) + nbytes <= self.limit_bytes

    def _is_next(self, order: Priority) -> bool:
        """Return whether no earlier piece is under way, except one that this piece is a part of."""
        whole = all(order < other or order[: len(other)] == other for other in self.pinned)
        return whole and all(order < other for other in self.admitted)

    def _admit(self) -> None:
        while self._waiting:
            order, nbytes, part, ready = self._waiting[0]
            if not ready.done():
                if not self._fits(order, nbytes, part):
                    return
                self._hold(order, nbytes, part)
                ready.set_result(None)
            heapq.heappop(self._waiting)


@dataclass(slots=True)
class Budget:
    """Rows that may still be read from one file under a `limit`; None for no limit.

    A task without a filter spends its rows before they are read.
    """

    left: int | None

    def cut(self, task: ScanTask) -> ScanTask:
        """Return the task with no more rows than are left."""
        if self.left is None or task.needs_filter:
            return task
        task = truncate_task(task, self.left)
        self.left -= task.rows.count
        return task

    @property
    def spent(self) -> bool:
        return self.left is not None and self.left <= 0


Place: TypeAlias = tuple[int, Priority]
"""Lower goes first: filters before the columns that wait for their result, then pieces in order."""
