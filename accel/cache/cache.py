"""One cache of three tiers, each bounded in bytes, with one single-flight in front.

Metadata (file handles, dictionary pages, listings, tail hints), bytes (data pages) and results (rows, and which rows
matched). Memory comes first, then the disk, which only holds metadata.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from accel.cache.single_flight import SingleFlight
from accel.options import MIB
from accel.store.identity import lasts

if TYPE_CHECKING:
    from accel.cache.byte_tier import ByteTier
    from accel.cache.disk import Disk
    from accel.cache.result_tier import ResultTier

__all__ = ["Cache", "CacheKey", "CacheStats", "Entry", "file_key"]

# Results may take up this part of what metadata and data may, beside it.
_RESULTS_SHARE = 64

Loader = Callable[[], Awaitable[tuple[Any, int]]]


class Entry(enum.Enum):
    """What a cache entry is."""

    FILE = enum.auto()
    """The handle of a file, whatever its version: `MetadataFreshness` decides whether it may be used."""
    CURRENT = enum.auto()
    """The check whether a version is the current one."""
    DICTIONARY = enum.auto()
    TAIL_HINT = enum.auto()
    LISTING = enum.auto()
    DIRECTORY = enum.auto()
    """A source that is named like a file, and was found to be a directory."""
    PAGES = enum.auto()
    ROWS = enum.auto()
    MATCHES = enum.auto()
    """Which rows matched a predicate."""


class CacheKey(NamedTuple):
    """What an entry of any tier is stored under."""

    store: str
    """The token of the client: nobody reads what another's credentials fetched."""
    path: str
    version: Hashable
    kind: Entry
    place: Any = None
    """What of the object, or of what is asked about it: a range, a predicate, ..."""


def file_key(token: str, path: str) -> CacheKey:
    """Return the key of a file's handle, and of the load that brings it."""
    return CacheKey(token, path, None, Entry.FILE)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """A moment's view of a cache."""

    entries: int
    """Entries of metadata and dictionary pages."""
    nbytes: int
    """Their bytes."""
    limit: int
    """`Cache.memory`."""
    hits: int
    """Lookups that found an entry."""
    misses: int
    """Lookups that found none."""
    evictions: int
    """Entries that were evicted."""
    disk_hits: int = 0
    """Files whose metadata this cache object read from its directory."""
    disk_misses: int = 0
    """Files whose metadata is not there."""
    disk_nbytes: int = 0
    """Bytes of the directory, whichever process wrote them."""
    data_entries: int = 0
    """Byte ranges of data."""
    data_nbytes: int = 0
    """Their bytes."""
    data_hits: int = 0
    """Wanted ranges that were there as a whole."""
    data_misses: int = 0
    """Wanted ranges that were not."""
    data_evictions: int = 0
    """Ranges that were evicted."""
    row_entries: int = 0
    """Decoded results of one question over part of a file."""
    row_nbytes: int = 0
    """Their bytes."""
    result_nbytes: int = 0
    """Bytes of all results: such rows, and which rows matched recent predicates."""


class _Recent(LRUCache[Hashable, Any]):
    """By what values are said to weigh: an object around each would be one more for the garbage collector to follow."""

    evictions = 0
    weight = 0
    """Of the value that is being put."""

    def getsizeof(self, value: Any) -> int:  # type: ignore[override]  # a static one for whom it is enough
        return self.weight

    def popitem(self) -> tuple[Hashable, Any]:
        self.evictions += 1
        return super().popitem()

    def clear(self) -> None:
        evictions = self.evictions
        super().clear()  # older versions of cachetools do it by `popitem`
        self.evictions = evictions


class Cache:
    """Metadata, data and results of scans, the least recently used evicted first.

    Parameters
    ----------
    memory : int
        Bytes that metadata may hold: file handles, dictionary pages, listings. 0 stores nothing, yet loads of one file
        are still shared.
    data : int
        Bytes of data pages to hold beside that: a lookup that is repeated within `max_age` sends no request. A read of
        more than 1/64 of this, or whatever a scan reads beyond 1/8, is stored the second time that it is read, before
        as much as half of this has been read in between: so larger questions are answered from here from the third
        time on, and large scans leave it alone. While half of this is empty, what a scan reads up to 1/16 is stored the
        first time, whatever its size. Only of objects with a strong etag, and not of local files, which the kernel
        caches. 0 stores none.
        Results take up to 1/64 of `memory` and `data` more: which rows matched the last predicates and, from the second
        time on, the few rows that a question came to.
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
        self._metadata = _Recent(maxsize=memory)
        self.single_flight = SingleFlight()
        """Loads under way, each shared by whoever asks for the same meanwhile."""
        self._byte_tier: ByteTier | None = None
        self._result_tier: ResultTier | None = None
        self._hits = 0
        self._misses = 0

    def __repr__(self) -> str:
        disk = "" if self.disk is None else f", disk={self.disk!r}, disk_limit={self.disk_limit}"
        return f"Cache(memory={self.memory}, data={self.data}, max_age={self.max_age}{disk})"

    def __reduce__(self) -> tuple[Callable[..., Cache], tuple[int, float, str | None, int, int]]:
        return _fresh, (self.memory, self.max_age, self.disk, self.disk_limit, self.data)

    @property
    def byte_tier(self) -> ByteTier:
        """Byte ranges of data, by version of their object."""
        if self._byte_tier is None:
            from accel.cache.byte_tier import ByteTier

            with self._lock:
                if self._byte_tier is None:
                    self._byte_tier = ByteTier(self.data)
        return self._byte_tier

    @property
    def result_tier(self) -> ResultTier:
        """What questions came to."""
        if self._result_tier is None:
            from accel.cache.result_tier import ResultTier

            with self._lock:
                if self._result_tier is None:
                    self._result_tier = ResultTier((self.memory + self.data) / _RESULTS_SHARE)
        return self._result_tier

    def disk_for(self, token: str) -> Disk | None:
        """Return the disk, for a client whose token means the same in every process; else None."""
        return self._disk if lasts(token) else None

    def get(self, key: Hashable) -> Any | None:
        """Return the metadata of a key, which is then the most recently used, or None."""
        with self._lock:
            value = self._metadata.get(key)
            if value is None:
                self._misses += 1
                return None
            self._hits += 1
            return value

    def peek(self, key: Hashable) -> Any | None:
        """Return what `get` does, and count nothing."""
        with self._lock:
            return self._metadata.get(key)

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Store a value in place of what was there; for one that has grown see `reweigh`.

        A value that alone exceeds the limit is not stored.
        """
        with self._lock:
            self._place(key, value, nbytes)

    def _place(self, key: Hashable, value: Any, nbytes: int) -> None:
        self._metadata.pop(key, None)
        if 0 <= nbytes <= self.memory and self.memory:
            self._metadata.weight = nbytes
            self._metadata[key] = value

    def reweigh(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Note that a value has grown, if it is still the one that is stored."""
        with self._lock:
            if self._metadata.get(key) is value:
                self._place(key, value, nbytes)

    def drop(self, key: Hashable) -> None:
        """Forget one value, if it is there."""
        with self._lock:
            self._metadata.pop(key, None)

    def clear(self) -> None:
        """Forget everything, and remove all entries from the disk.

        Loads under way go on, and are stored when they end.
        """
        with self._lock:
            self._metadata.clear()
        self.result_tier.clear()
        self.byte_tier.clear()
        if self._disk is not None:
            self._disk.clear()

    def stats(self) -> CacheStats:
        """Count entries, bytes, hits and misses so far; this reads the directory of the cache, if there is one.

        Returns
        -------
        CacheStats
            The counts.
        """
        disk = self._disk
        on_disk = {} if disk is None else {"disk_hits": disk.hits, "disk_misses": disk.misses}
        if disk is not None:
            on_disk["disk_nbytes"] = disk.nbytes()
        data, results = self.byte_tier, self.result_tier
        row_entries, row_nbytes = results.rows()
        with self._lock:
            return CacheStats(
                entries=len(self._metadata),
                nbytes=int(self._metadata.currsize),
                limit=self.memory,
                hits=self._hits,
                misses=self._misses,
                evictions=self._metadata.evictions,
                data_entries=len(data),
                data_nbytes=data.nbytes,
                data_hits=data.hits,
                data_misses=data.misses,
                data_evictions=data.evictions,
                row_entries=row_entries,
                row_nbytes=row_nbytes,
                result_nbytes=results.nbytes,
                **on_disk,
            )

    async def load(self, key: Hashable, loader: Loader) -> Any:
        """Return what `loader` finds for a key, awaited once for all who ask meanwhile, and store it.

        Parameters
        ----------
        key : hashable
        loader : callable
            Returns, awaited, the value and the bytes that it holds.
        """
        return await self.single_flight.share(key, lambda: self._load(key, loader))

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
