"""Objects put by this process, and when: what was known of one before says nothing of it any more.

A cache trusts what it holds for a while (`Cache.max_age`). Somebody else's overwrite it cannot know of; one of this
process it can, and then asks the store.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator
from typing import Final

from cachetools import LRUCache

from accel.errors import StoreError
from accel.options import MIB
from accel.store.client import Client
from accel.store.range_store import Writer

__all__ = ["PART_BYTES", "put_object", "written_since"]

PART_BYTES: Final = 8 * MIB
"""What the parts of an object are best cut to: a multipart upload then sends each as it comes."""

_MOST: Final = 4096
"""Objects that are remembered one by one."""


class _Written(LRUCache[tuple[str, str], float]):
    """When objects were written last, by root and path; and when those were that are remembered no more."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.others = -math.inf

    def popitem(self) -> tuple[tuple[str, str], float]:
        key, moment = super().popitem()
        self.others = max(self.others, moment)
        return key, moment


_written = _Written(_MOST)
_lock = threading.Lock()


def written_since(root: str, path: str, *, moment: float) -> bool:
    """Whether this process may have written an object at or after a moment of the monotonic clock.

    True of some that it has not, where it has written more objects than are remembered.
    """
    if not _written:
        return False
    with _lock:
        return moment <= max(_written.get((root, path), _written.others), _written.others)


async def put_object(
    client: Client, path: str, *, parts: AsyncIterator[bytes], size: int, if_match: str | None = None
) -> None:
    """Put an object, as `Writer.write` does; from then on nothing cached of it is used before the store was asked.

    Raises
    ------
    StoreError
        The store cannot be written to, or did not take it. What is there then may be either.
    """
    writer = client.store
    if not isinstance(writer, Writer):
        raise StoreError("this store cannot be written to", path=path)
    try:
        await writer.write(path, parts, size=size, if_match=if_match)
    finally:
        with _lock:
            _written[client.root, path] = time.monotonic()
