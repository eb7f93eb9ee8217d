"""What comes of a file's pieces: a line of those under way, and an outbox of what has come, both in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from accel.reader.admission import Priority

__all__ = ["Item", "Line", "Outbox", "Reading"]

Reading: TypeAlias = asyncio.Task[list[pa.RecordBatch] | Exception]
"""A piece that is being read; what it fails of is told in its turn."""


class Line:
    """Pieces under way, in order, and in place of what is not cut yet the line of its parts."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Priority, Reading] | Line | Exception | None] = asyncio.Queue()
        self.put = self._queue.put_nowait
        """None after the last, or what keeps the rest from coming."""

    async def __aiter__(self) -> AsyncIterator[tuple[Priority, Reading]]:
        while (found := await self._queue.get()) is not None:
            if isinstance(found, Exception):
                raise found
            if isinstance(found, Line):
                async for one in found:
                    yield one
            else:
                yield found


@dataclass(slots=True, repr=False)
class Item:
    """A batch that may come out, and the piece that it is of."""

    batch: pa.RecordBatch
    order: Priority
    last: bool
    """The last batch of its piece: taking it ends what the piece holds."""


class Outbox:
    """What has come of a file, for the one who takes it: a queue without what serves several."""

    __slots__ = ("_came", "_items")

    def __init__(self) -> None:
        self._items: deque[Item | Exception | None] = deque()
        self._came: asyncio.Future[None] | None = None

    def put(self, item: Item | Exception | None) -> None:
        """None after the last; nothing follows an error either."""
        self._items.append(item)
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    async def get(self) -> Item | Exception | None:
        while not self._items:
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        return self._items.popleft()

    def clear(self) -> None:
        self._items.clear()
