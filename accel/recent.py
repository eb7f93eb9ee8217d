"""Mappings that hold so much and no more: what was used longest ago goes first.

As `cachetools.LRUCache`, against which its tests hold it. That one loads `random` and what hashes for it: 2 ms
and 200 objects of every fresh process, before anything is cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key. Several threads need a lock of theirs.

    Parameters
    ----------
    limit : int
        What all values may have together, as `size_of` counts them.
    size_of : callable, optional
        What one value counts; by default 1.
    """

    def __init__(self, limit: int, *, size_of: Callable[[V], int] | None = None) -> None:
        self.limit = limit
        self.size = 0
        """What the values that are held have together."""
        self.evictions = 0
        """Values that had to make room."""
        self._size_of = size_of
        self._values: OrderedDict[K, V] = OrderedDict()
        # Apart from the values: a pair of each would be one more object for the garbage collector to follow.
        self._sizes: dict[K, int] = {}

    def get(self, key: K) -> V | None:
        """The value, which is the one used last from now on; None where there is none."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: K, value: V, size: int | None = None) -> None:
        """Keep a value, in place of the one that the key had; `size` says what it counts, if not `size_of`.

        Raises
        ------
        ValueError
            It counts more than the limit.
        """
        if size is None:
            size = 1 if self._size_of is None else self._size_of(value)
        if size > self.limit:
            raise ValueError(f"a value of {size}, where all may have {self.limit}")
        self.pop(key)
        while self.size + size > self.limit:
            gone, _ = self._values.popitem(last=False)
            self.size -= self._sizes.pop(gone)
            self.evictions += 1
        self._values[key] = value
        self._sizes[key] = size
        self.size += size

    def pop(self, key: K) -> None:
        """Forget a value, if it is there."""
        if key in self._sizes:
            del self._values[key]
            self.size -= self._sizes.pop(key)

    def clear(self) -> None:
        """Forget all of them."""
        self._values.clear()
        self._sizes.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)
