"""Bodies of pages that were decompressed lately: lookups, many at once or one after the other, meet the same pages.

A body is told from others by all of its bytes: nothing depends on where they came from, or on what becomes of their buffer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

__all__ = ["MetBodies", "met_bodies"]

Body: TypeAlias = npt.NDArray[np.uint8]
_Key: TypeAlias = tuple[int, int, int, bytes, bytes]
_Met: TypeAlias = tuple[bytes, Body]

# Bytes of all bodies, compressed and not, and of one.
_LIMIT: Final = 16 << 20
_MOST_EACH: Final = 512 << 10
# Less is decompressed as soon as it is looked up.
_LEAST: Final = 4 << 10
# Of each end: two bodies that agree in those and in their length are told apart, but do not stay side by side.
_SAMPLE: Final = 32


class MetBodies:
    """What stored bodies decompress to, the least recently used forgotten first. For use by several threads.

    Parameters
    ----------
    limit : int
        Bytes that it may hold.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[_Key, _Met] = LRUCache(limit, _weight)

    def __len__(self) -> int:
        return len(self._kept)

    def decompress(
        self, body: memoryview, codec: int, size: int, unpack: Callable[[memoryview, int, int], Body | None]
    ) -> Body | None:
        """What `unpack` makes of a body of a codec that is to come to `size` bytes: now, or when it was met before.

        What is remembered cannot be written to. None, which `unpack` says of what does not decompress, is not.
        """
        if not _LEAST <= size <= _MOST_EACH - len(body):
            return unpack(body, codec, size)
        key = codec, size, len(body), bytes(body[:_SAMPLE]), bytes(body[-_SAMPLE:])
        stored = bytes(body)
        with self._lock:
            met = self._kept.get(key)
        if met is not None and met[0] == stored:
            return met[1]
        found = unpack(body, codec, size)
        if found is not None and len(stored) + found.nbytes <= self._kept.maxsize:
            found.flags.writeable = False
            with self._lock:
                self._kept[key] = stored, found
        return found

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()


def _weight(met: _Met) -> int:
    stored, body = met
    return len(stored) + body.nbytes


met_bodies: Final = MetBodies()
