"""The last listing of a directory or pattern, cached beside the metadata of its files.

It answers nothing by itself: a scan reads by it while the source is listed again, and returns no row before
that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey
from accel.planning.file_entry import FileBlock, FileEntry
from accel.runtime.tasks import breathe, each

__all__ = ["LastListing"]

_SHARE: Final = 8
"""A listing takes at most an eighth of the memory of a cache: the metadata of its files is worth more."""
_FILE_BYTES: Final = 320
"""Bytes of a listed file besides its name."""
_BLOCK: Final = 256
"""Files compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    block: FileBlock
    nbytes: int
    steady: bool
    """Whether the listing before was the same, or there was none."""


class LastListing:
    """The last listing of one source. Used on one event loop.

    Parameters
    ----------
    cache : Cache
        Where it is.
    key : CacheKey
        The store and its credentials, the name of the source, and the arguments that decide which files it
        yields.
    """

    def __init__(self, cache: Cache, key: CacheKey) -> None:
        self._cache = cache
        self._key = key
        self._recalled: _Entry | None = None
        """The entry that a scan reads by; the scan itself may evict it from the cache."""

    def recall(self) -> FileBlock | None:
        """Return the last listing if it equals the one before, so that the next is likely to be the same."""
        found = self._find()
        self._recalled = found if found is not None and found.steady else None
        return None if self._recalled is None else self._recalled.block

    async def note(self, block: FileBlock) -> FileBlock:
        """Remember a new listing; return it, or the last one with its own file objects if they are equal."""
        in_cache = self._find()
        found = in_cache or self._recalled
        if found is not None and await _are_equal(found.block, block):
            if in_cache is None or not in_cache.steady:
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


async def _are_equal(one: FileBlock, other: FileBlock) -> bool:
    """Return whether two listings have the same versions of the same files."""
    if len(one.files) != len(other.files) or one.partition_schema != other.partition_schema:
        return False
    for start in range(0, len(one.files), _BLOCK):
        if one.files[start : start + _BLOCK] != other.files[start : start + _BLOCK]:
            return False
        await breathe()
    return True
