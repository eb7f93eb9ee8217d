"""What is worth keeping between scans, by bytes, and loaded once however many ask."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from cachetools import FIFOCache, LRUCache

from accel.cache.folders import Folders
from accel.cache.shared_reads import SharedReads
from accel.cache.single_flight import Flights
from accel.options import MIB
from accel.store.storage_options import lasts

if TYPE_CHECKING:
    from accel.cache.data_cache import DataCache
    from accel.cache.disk import Disk
    from accel.cache.kept_rows import KeptRows

__all__ = ["Cache", "CacheStats", "file_key"]

# Rows as they were decoded may take up this part of what data may, beside it.
_DECODED = 64
# Questions that are known to have been asked.
_MOST_ASKED = 4096

Loader = Callable[[], Awaitable[tuple[Any, int]]]


def file_key(token: str, path: str) -> tuple[str, str, str]:
    """Of a file's handle in a cache, and of the load that brings it."""
    return "file", token, path


@dataclass(frozen=True, slots=True)
class CacheStats:
    """A moment's view of a cache."""

    entries: int
    """Of metadata and dictionary pages."""
    nbytes: int
    """What they were said to hold, in bytes."""
    limit: int
    """`Cache.memory`."""
    hits: int
    """Times that one was there when it was asked for."""
    misses: int
    evictions: int
    disk_hits: int = 0
    """Times that the metadata of a file came from the disk tier, through this cache object."""
    disk_misses: int = 0
    disk_nbytes: int = 0
    """What all entries in the directory hold, whichever process wrote them."""
    data_entries: int = 0
    """Byte ranges of data."""
    data_nbytes: int = 0
    data_hits: int = 0
    """Ranges that were wanted and held whole."""
    data_misses: int = 0
    data_evictions: int = 0
    row_entries: int = 0
    """Parts of files whose few rows are kept as they were decoded, for one question each."""
    row_nbytes: int = 0


class _Recent(LRUCache[Hashable, Any]):
    """By what values were said to hold: an object around each would be one more for the garbage collector to follow."""

    evictions = 0
    said = 0
    """Of the value that is being put."""

    def getsizeof(self, value: Any) -> int:  # type: ignore[override]  # a static one for whom it is enough
        return self.said

    def popitem(self) -> tuple[Hashable, Any]:
        self.evictions += 1
        return super().popitem()

    def clear(self) -> None:
        evictions = self.evictions
        super().clear()  # of older cachetools, by `popitem`
        self.evictions = evictions


class Cache:
    """Metadata (and dictionary pages) and data of files, kept between scans, the least recently used going first.

    Parameters
    ----------
    memory : int
        Bytes that the entries may hold: metadata, with which rows matched the last predicates, and dictionary pages.
        0 keeps nothing, yet loads of one file are still shared.
    data : int
        Bytes of data pages to keep beside that: a lookup that is repeated within `max_age` sends no request, but
        the second time for what came with the metadata. What was read once is displaced first. What reads more than
        1/64 of this at once, or more than 1/8 in one scan, is kept when it is read a second time, before as much as
        half of this has been read in between: so larger questions are answered from here from the third time on,
        and large scans leave it alone. While half of this is empty, what a scan reads up to 1/16 is kept the first
        time, whatever its size. Only of objects with a strong etag, and not of local files, which the kernel caches.
        What a question came to, if it is little, is kept as it was decoded in 1/64 of this more. 0 keeps none.
    max_age : float
        Seconds for which a file's metadata is used without asking the store whether the file has
        changed; 0 asks at every scan. Local files are looked at every time.
    disk : path, optional
        A directory in which metadata outlives the process, for all processes of one user on one machine:
        made where there is none (0700, its files 0600). By default nothing is written. Only files of a URL's
        or path's store with a strong etag are kept; of a `store=`, or of credentials that are an object, nothing.
    disk_limit : int
        Bytes that the files in that directory may have, the least recently used going first.

    Notes
    -----
    May be used from several threads and scans. It pickles as an empty cache of the same limits and the same
    directory. Whatever is wrong with the directory costs requests and a warning in the metrics, never an answer.
    """

    def __init__(
        self,
        *,
        memory: int = 256 * MIB,
        data: int = 256 * MIB,
        max_age: float = 60.0,
        disk: str | os.PathLike[str] | None = None,
        disk_limit: int = 1024 * MIB,
    ) -> None:
        limits = {"memory": memory, "data": data, "max_age": max_age, "disk_limit": disk_limit}
        for name, limit in limits.items():
            if isinstance(limit, bool) or not isinstance(limit, Real):
                unit = "seconds" if name == "max_age" else "bytes"
                raise TypeError(f"{name} of a cache is a number of {unit}, not {limit!r}")
        if not all(limit >= 0 for limit in limits.values()):  # NaN is none, too
            raise ValueError(f"not limits of a cache: {memory=!r}, {data=!r}, {max_age=!r}, {disk_limit=!r}")
        self.memory = memory
        self.data = data
        self.max_age = max_age
        self.disk = None if disk is None else _directory(disk)
        self.disk_limit = disk_limit
        self._disk: Disk | None = None
        if self.disk is not None:
            from accel.cache.disk import Disk

            self._disk = Disk(self.disk, limit=disk_limit)
        self._lock = threading.Lock()
        self._entries = _Recent(maxsize=memory)
        self.flights = Flights()
        """Loads under way, each shared by whoever asks for the same meanwhile."""
        self.shared_reads = SharedReads()
        """Ranges of data that are being read."""
        self.folders = Folders()
        """Sources named like a file that turned out to be a directory: asked for as both at once the next time."""
        self._data_tier: DataCache | None = None
        self._rows: KeptRows | None = None
        self._asked: FIFOCache[int, None] = FIFOCache(_MOST_ASKED)
        self._hits = 0
        self._misses = 0

    def __repr__(self) -> str:
        kept = "" if self.disk is None else f", disk={self.disk!r}, disk_limit={self.disk_limit}"
        return f"Cache(memory={self.memory}, data={self.data}, max_age={self.max_age}{kept})"

    def __reduce__(self) -> tuple[Callable[..., Cache], tuple[int, float, str | None, int, int]]:
        return _fresh, (self.memory, self.max_age, self.disk, self.disk_limit, self.data)

    @property
    def data_tier(self) -> DataCache:
        """Byte ranges of data, by version of their object."""
        if self._data_tier is None:
            from accel.cache.data_cache import DataCache

            with self._lock:
                if self._data_tier is None:
                    self._data_tier = DataCache(self.data)
        return self._data_tier

    @property
    def rows(self) -> KeptRows:
        """What small questions came to."""
        if self._rows is None:
            from accel.cache.kept_rows import KeptRows

            with self._lock:
                if self._rows is None:
                    self._rows = KeptRows(self.data / _DECODED)
        return self._rows

    def meet(self, mark: int) -> bool:
        """Whether a question of that hash was asked lately; it is noted. Another may have the same."""
        with self._lock:
            met = mark in self._asked
            if not met:
                self._asked[mark] = None
            return met

    def disk_for(self, token: str) -> Disk | None:
        """The disk tier, for a client whose token means the same in every process; else None."""
        return self._disk if lasts(token) else None

    def get(self, key: Hashable) -> Any | None:
        """The value, which is then the most recently used, or None."""
        with self._lock:
            value = self._entries.get(key)
            if value is None:
                self._misses += 1
                return None
            self._hits += 1
            return value

    def peek(self, key: Hashable) -> Any | None:
        """As `get`, and not counted: somebody else asks for it again."""
        with self._lock:
            return self._entries.get(key)

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value, in place of what was there; for one that has grown see `reweigh`.

        A value that alone exceeds the limit is not kept.
        """
        with self._lock:
            self._place(key, value, nbytes)

    def _place(self, key: Hashable, value: Any, nbytes: int) -> None:
        self._entries.pop(key, None)
        if 0 <= nbytes <= self.memory and self.memory:
            self._entries.said = nbytes
            self._entries[key] = value

    def reweigh(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Note that a value has grown, if it is still the one that is kept."""
        with self._lock:
            if self._entries.get(key) is value:
                self._place(key, value, nbytes)

    def drop(self, key: Hashable) -> None:
        """Forget one value, if it is there."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget all values and data, and remove all entries from the disk.

        Loads under way go on, and are kept when they end.
        """
        with self._lock:
            self._entries.clear()
            self.folders.clear()
            self._asked.clear()
        self.rows.clear()
        self.data_tier.clear()
        if self._disk is not None:
            self._disk.clear()

    def stats(self) -> CacheStats:
        """Sizes and counts up to now. Looks through the directory, where there is one."""
        disk = self._disk
        on_disk = {} if disk is None else {"disk_hits": disk.hits, "disk_misses": disk.misses}
        if disk is not None:
            on_disk["disk_nbytes"] = disk.nbytes()
        data, rows = self.data_tier, self.rows
        with self._lock:
            return CacheStats(
                entries=len(self._entries),
                nbytes=int(self._entries.currsize),
                limit=self.memory,
                hits=self._hits,
                misses=self._misses,
                evictions=self._entries.evictions,
                data_entries=len(data),
                data_nbytes=data.nbytes,
                data_hits=data.hits,
                data_misses=data.misses,
                data_evictions=data.evictions,
                row_entries=len(rows),
                row_nbytes=rows.nbytes,
                **on_disk,
            )

    async def load(self, key: Hashable, loader: Loader) -> Any:
        """What `loader` finds for a key that is not held, awaited once for all who ask meanwhile (`Flights`).

        Parameters
        ----------
        key : hashable
        loader : callable
            Returns, awaited, the value and the bytes that it holds.
        """
        return await self.flights.share(key, lambda: self._load(key, loader))

    async def _load(self, key: Hashable, loader: Loader) -> Any:
        value, nbytes = await loader()
        self.put(key, value, nbytes)
        return value


def _directory(disk: Any) -> str:
    path = os.fspath(disk)
    if not isinstance(path, str):
        raise TypeError(f"disk of a cache is a directory, named by text, not {path!r:.80}")
    if not path:
        raise ValueError("disk of a cache is empty: name a directory, '.' for this one, or None for none")
    return path


def _fresh(memory: int, max_age: float, disk: str | None, disk_limit: int, data: int) -> Cache:
    return Cache(memory=memory, data=data, max_age=max_age, disk=disk, disk_limit=disk_limit)
