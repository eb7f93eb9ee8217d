"""What a directory or a pattern held when it was last listed, cached beside the metadata of its files.

Nothing is answered by it: a run reads by it while the source is listed anew, and hands out no row before that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey
from accel.planning.file_entry import FileBlock, FileEntry
from accel.store.tasks import breathe, each

__all__ = ["LastListing"]

_SHARE: Final = 8
"""A listing takes at most one part in so many of a cache's memory: the metadata of its files is worth more."""
_FILE_BYTES: Final = 320
"""Of a listed file, besides its letters."""
_BLOCK: Final = 256
"""Files compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    block: FileBlock
    nbytes: int
    steady: bool
    """The source held the same the time before, or was not listed before."""


class LastListing:
    """The last listing of one source. Used on one event loop.

    Parameters
    ----------
    cache : Cache
    key : CacheKey
        The store and who lists it, what is listed, and all that decides what comes of it.
    """

    def __init__(self, cache: Cache, key: CacheKey) -> None:
        self._cache = cache
        self._key = key
        self._recalled: _Entry | None = None
        """What a run reads by meanwhile: the run itself may push it out of the cache."""

    def recall(self) -> FileBlock | None:
        """What the source held, if it is likely to hold the same now: it did not change from one listing to the last."""
        found = self._find()
        self._recalled = found if found is not None and found.steady else None
        return None if self._recalled is None else self._recalled.block

    async def note(self, block: FileBlock) -> FileBlock:
        """Remember what the source holds now; returns the block with the files of before, themselves, where the source
        holds the same."""
        cached = self._find()
        found = cached or self._recalled
        if found is not None and await _alike(found.block, block):
            if cached is None or not cached.steady:
                self._cache.put(self._key, replace(found, steady=True), found.nbytes)
            return replace(found.block, round_trips=block.round_trips)
        if any(file.etag is None or file.size is None for file in block.files):
            self._cache.drop(self._key)
            return block
        nbytes = sum(await each(block.files, _nbytes))
        if nbytes <= self._cache.memory // _SHARE:
            self._cache.put(self._key, _Entry(block, nbytes, found is None), nbytes)
        else:
            self._cache.drop(self._key)
        return block

    def _find(self) -> _Entry | None:
        found = self._cache.get(self._key)
        return found if isinstance(found, _Entry) else None


def _nbytes(file: FileEntry) -> int:
    return _FILE_BYTES + len(file.path) + len(file.url) + len(file.etag or "")


async def _alike(one: FileBlock, other: FileBlock) -> bool:
    """Whether two listings are of the same versions of the same files."""
    if len(one.files) != len(other.files) or one.partition_schema != other.partition_schema:
        return False
    for start in range(0, len(one.files), _BLOCK):
        if one.files[start : start + _BLOCK] != other.files[start : start + _BLOCK]:
            return False
        await breathe()
    return True
