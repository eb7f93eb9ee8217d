"""What a directory or a pattern held when it was last listed, kept where the metadata of its files is.

Nothing is answered by it: it tells what may be read while the source is listed anew (`early_run`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from accel.cache.cache import Cache, CacheKey
from accel.planning.file import DataFile, Listing
from accel.store.tasks import breathe, each

__all__ = ["LastListing"]

_SHARE: Final = 8
"""A listing holds at most one part in so many of a cache's memory: the metadata of its files is worth more."""
_FILE_BYTES: Final = 320
"""Of a listed file, besides its letters."""
_BLOCK: Final = 256
"""Files compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    listing: Listing
    nbytes: int
    steady: bool
    """It was the same the time before, or there was no time before."""


class LastListing:
    """The last listing of one source, as one scan asks for it. Used on one event loop.

    Parameters
    ----------
    cache : Cache
    key : callable
        Returns the key of the listing: the store and who lists it, what is listed, and all that decides what comes of it.
    """

    def __init__(self, cache: Cache, key: Callable[[], CacheKey]) -> None:
        self._cache = cache
        self._make_key = key
        self._recalled: _Kept | None = None
        """What is read early: it may be pushed out of the cache by just that."""

    def recall(self) -> Listing | None:
        """What the source held, if it is likely to hold the same now: it did not change from one listing to the last."""
        found = self._find()
        self._recalled = found if found is not None and found.steady else None
        return None if self._recalled is None else self._recalled.listing

    @property
    def _key(self) -> CacheKey:
        return self._make_key()

    async def note(self, listing: Listing) -> Listing:
        """Keep what the source holds now; returned with the files that were kept, themselves, where it holds the same."""
        kept = self._find()
        found = kept or self._recalled
        if found is not None and await _alike(found.listing, listing):
            if kept is None or not kept.steady:
                self._cache.put(self._key, replace(found, steady=True), found.nbytes)
            return replace(found.listing, round_trips=listing.round_trips)
        if any(file.etag is None or file.size is None for file in listing.files):
            self._cache.drop(self._key)
            return listing
        nbytes = sum(await each(listing.files, _nbytes))
        if nbytes <= self._cache.memory // _SHARE:
            self._cache.put(self._key, _Kept(listing, nbytes, found is None), nbytes)
        else:
            self._cache.drop(self._key)
        return listing

    def _find(self) -> _Kept | None:
        found = self._cache.get(self._key)
        return found if isinstance(found, _Kept) else None


def _nbytes(file: DataFile) -> int:
    return _FILE_BYTES + len(file.path) + len(file.url) + len(file.etag or "")


async def _alike(one: Listing, other: Listing) -> bool:
    """Whether two listings are of the same versions of the same files."""
    if len(one.files) != len(other.files) or one.partition_schema != other.partition_schema:
        return False
    for start in range(0, len(one.files), _BLOCK):
        if one.files[start : start + _BLOCK] != other.files[start : start + _BLOCK]:
            return False
        await breathe()
    return True
