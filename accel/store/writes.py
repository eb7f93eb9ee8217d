"""Writing objects: in one request or in parts, in place of a certain version, and what this process wrote.

What is cached of an object that was written here is not used again before a request to the store.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from cachetools import LRUCache

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import MIB
from accel.runtime.forks import lock_over_forks
from accel.store.client import Client
from accel.store.range_store import Writer

__all__ = ["PART_BYTES", "note_written", "put_object", "swap_bytes", "swap_object", "written_since"]

PART_BYTES: Final = 8 * MIB
"""Bytes of the parts of an object that a multipart upload sends as they come."""

_MOST: Final = 4096
"""Written objects that are remembered one by one."""


class RecentWrites(LRUCache[tuple[str, str], float]):
    """When objects were last written, by root and path, and the latest such time of evicted ones."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.others = -math.inf

    def popitem(self) -> tuple[tuple[str, str], float]:
        key, moment = super().popitem()
        self.others = max(self.others, moment)
        return key, moment


recent_writes = RecentWrites(_MOST)
_lock = lock_over_forks()


def written_since(root: str, path: str, *, moment: float) -> bool:
    """Return whether this process may have written an object at or after `moment` (monotonic clock).

    If it has written more objects than are remembered, this is also true for some that it has not written.
    """
    if not recent_writes:
        return False
    with _lock:
        return moment <= max(recent_writes.get((root, path), recent_writes.others), recent_writes.others)


def note_written(root: str, path: str) -> None:
    """Note that this process has just written an object, or may have: what is cached of it is not used
    unasked."""
    with _lock:
        recent_writes[root, path] = time.monotonic()


async def put_object(
    client: Client,
    path: str,
    *,
    parts: AsyncIterator[bytes],
    size: int,
    if_match: str | None = None,
    if_absent: bool = False,
) -> None:
    """Write an object, as `Writer.write` does.

    Its cached metadata is not used again before a request to the store.

    Raises
    ------
    StoreError
        The store cannot be written to, or the request failed; either version may be stored then.
    """
    writer = client.store
    if not isinstance(writer, Writer):
        raise StoreError("this store cannot be written to", path=path)
    try:
        if if_absent:
            await writer.write(path, parts, size=size, if_absent=True)
        else:
            await writer.write(path, parts, size=size, if_match=if_match)
    finally:
        note_written(client.root, path)


async def swap_object(
    client: Client,
    path: str,
    *,
    parts: Callable[[], AsyncIterator[bytes]],
    size: int,
    ending: bytes,
    if_match: str | None,
) -> None:
    """Put an object in the place of a certain version, or of none, and again where the store fails for a
    moment.

    An attempt may have been made though its answer was lost. That is noticed by the size and the last bytes,
    `ending`: if two callers put the same, both have.

    Raises
    ------
    ObjectChangedError
        The store holds another version.
    StoreError
        The store cannot be written to, or failed too often; either version may be stored then.
    """
    failures, since = 0, client.retry.clock()
    while True:
        try:
            await put_object(
                client, path, parts=parts(), size=size, if_match=if_match, if_absent=if_match is None
            )
        except ObjectChangedError:
            if failures and await _ends_with(client, path, size, ending):
                return
            raise
        except StoreError as error:
            failures += 1
            failure = error
        else:
            return
        await client.retry.wait(failures, failure, since=since)


async def swap_bytes(client: Client, path: str, data: bytes, *, if_match: str | None) -> None:
    """Put a small object as `swap_object` does."""

    async def parts() -> AsyncIterator[bytes]:
        yield data

    await swap_object(client, path, parts=parts, size=len(data), ending=data, if_match=if_match)


async def _ends_with(client: Client, path: str, size: int, ending: bytes) -> bool:
    try:
        tail = await client.read_tail(path, len(ending), metrics=Metrics())
    except ObjectNotFoundError:
        return False
    return tail.size == size and bytes(tail.data) == ending
