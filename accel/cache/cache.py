"""One cache of three tiers, each bounded in bytes, with one single-flight in front.

Metadata (file handles, dictionary pages, listings, tail hints), bytes (data pages) and results (rows).
Memory comes first, then the disk and a shared server, which only hold metadata.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from accel.cache.byte_tier import ByteTier
from accel.cache.result_tier import ResultTier
from accel.cache.single_flight import SingleFlight
from accel.errors import AccelError, forget_frames
from accel.options import MIB
from accel.runtime.forks import lock_over_forks
from accel.store.identity import lasts

if TYPE_CHECKING:
    from accel.cache.disk import Disk
    from accel.cache.shared import SharedTier

__all__ = ["Cache", "CacheStats"]

# Results may take this part of the bytes that metadata and data may take, in addition to these.
_RESULTS_SHARE = 64

Loader = Callable[[], Awaitable[tuple[Any, int]]]


def _disk_at(directory: str, limit: int) -> Disk:
    """Return the cache in a directory."""
    from accel.cache.disk import Disk

    return Disk(directory, limit=limit)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The sizes and counts of a cache at one moment."""

    entries: int
    """Entries of the metadata tier: file handles, dictionary pages, listings."""
    nbytes: int
    """Bytes of these entries, as estimated when they were stored."""
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
    shared_hits: int = 0
    """Files whose metadata this cache object read from the shared server."""
    shared_misses: int = 0
    """Files whose metadata it did not get there."""
    shared_written: int = 0
    """Files whose metadata it has stored there. This happens behind the scans' backs."""
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
    result_entries: int = 0
    """Results: the rows of one row group for one question."""
    result_nbytes: int = 0
    """Their bytes."""


class _MetadataTier(LRUCache[Hashable, Any]):
    """An LRU cache of values that are weighed by the caller.

    The weights are not stored beside the values, as a pair around each value would be one more object for the
    garbage collector to follow.
    """

    evictions = 0
    weight = 0
    """The weight of the value that is being stored."""

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
    """Metadata, data and results of scans; the least recently used entries are evicted first.

    Parameters
    ----------
    memory : int
        Bytes of metadata to cache: file handles, dictionary pages, listings. With 0 nothing is stored, but
        concurrent scans still share the reading of a file's metadata.
    data : int
        Bytes of data pages to cache in addition, so that a lookup that is repeated within `max_age` sends no
        request. A small read (up to 1/64 of this, while its scan has read no more than 1/8) is stored at
        once. A larger read is stored at once only while half of this is unused and its scan has read no more
        than 1/16; else it is stored when it is read a second time before other such reads have brought half
        of this. Large scans therefore do not evict what lookups use. Data is cached only for objects with a
        strong etag, and not for local files, which the kernel caches. With 0 no data is stored. Results take
        up to 1/64 of `memory` and `data` more: the few rows of a query, from the second time that it runs.
    max_age : float
        Seconds for which the metadata of a file is used without asking the store whether the file has
        changed. With 0 every scan revalidates it at the store. Local files are checked every time.
    disk : path, optional
        A directory in which metadata outlives the process, shared by all processes of one user on one
        machine. It is created if it does not exist (mode 0700, its files 0600). By default nothing is
        written. Only files with a strong etag that are named by a URL or a path are stored, and what
        describes a table and never changes (commits, checkpoints, manifests, deletion vectors); files of a
        `store=`, or read with credentials that are an object, are not.
    disk_limit : int
        Bytes that the files in that directory may take.
    shared : str, optional
        The URL of a server on which metadata is shared by many machines: `redis://`, `rediss://`,
        `postgresql://` or `cassandra://` (docs/stores.md), or `memory://name` for the caches of one process.
        It is consulted after memory and disk. The same files are stored as on disk, but for local ones.
        Whoever may write there can change what scans return.

    Raises
    ------
    TypeError
        A limit is not a number, `disk` is not a path, or `shared` is not text.
    ValueError
        A limit is negative or NaN, or `disk` is empty.
    StoreError
        `shared` is no URL that can be used.
    AccelError
        The package for that server is missing.

    Notes
    -----
    A cache may be used by several threads and scans. It is pickled as an empty cache with the same limits and
    the same directory and server. A directory that cannot be used, and a server that does not answer within a
    tenth of a second, cost requests and a warning in the metrics, never an answer.

    Examples
    --------
    >>> cache = Cache(memory=64 << 20, data=0, max_age=300)
    >>> cache.stats().entries
    0
    """

    def __init__(
        self,
        *,
        memory: int = 256 * MIB,
        data: int = 256 * MIB,
        max_age: float = 60.0,
        disk: str | os.PathLike[str] | None = None,
        disk_limit: int = 1024 * MIB,
        shared: str | None = None,
    ) -> None:
        limits = {"memory": memory, "data": data, "max_age": max_age, "disk_limit": disk_limit}
        for name, limit in limits.items():
            if isinstance(limit, bool) or not isinstance(limit, Real):
                unit = "seconds" if name == "max_age" else "bytes"
                raise TypeError(f"{name} of a cache is a number of {unit}, not {limit!r}")
        if not all(limit >= 0 for limit in limits.values()):  # false for NaN
            raise ValueError(f"not limits of a cache: {memory=!r}, {data=!r}, {max_age=!r}, {disk_limit=!r}")
        self.memory = memory
        self.data = data
        self.max_age = max_age
        self.disk = None if disk is None else _directory(disk)
        self.disk_limit = disk_limit
        self._disk = None if self.disk is None else _disk_at(self.disk, disk_limit)
        self.shared_tier: SharedTier | None = None
        self._shared_url = shared
        if shared is not None:
            from accel.cache.shared_stores import open_shared

            try:
                self.shared_tier = open_shared(shared)
            except AccelError as error:
                del shared  # credentials must not stay in the variables of a frame that a traceback may show
                forget_frames(error)
                raise
        self._lock = lock_over_forks()
        self.metadata_tier = _MetadataTier(maxsize=memory)
        self.single_flight = SingleFlight()
        """Loads under way, each shared by all who ask for the same key meanwhile."""
        self.byte_tier = ByteTier(data)
        """Byte ranges of data, by version of their object."""
        self.result_tier = ResultTier((memory + data) / _RESULTS_SHARE)
        """Rows that questions came to."""
        self._hits = 0
        self._misses = 0

    def __repr__(self) -> str:
        disk = "" if self.disk is None else f", disk={self.disk!r}, disk_limit={self.disk_limit}"
        shared = "" if self.shared_tier is None else f", shared={str(self.shared_tier)!r}"
        return f"Cache(memory={self.memory}, data={self.data}, max_age={self.max_age}{disk}{shared})"

    def __reduce__(self) -> tuple[Callable[..., Cache], tuple[int, float, str | None, int, int, str | None]]:
        return _fresh, (
            self.memory,
            self.max_age,
            self.disk,
            self.disk_limit,
            self.data,
            self._shared_url,
        )

    @property
    def outlives_process(self) -> bool:
        """Whether it has a directory or a server."""
        return self.disk is not None or self._shared_url is not None

    def disk_for(self, token: str) -> Disk | None:
        """Return the disk, for a client whose token means the same in every process; else None."""
        return self._disk if lasts(token) else None

    def shared_for(self, token: str) -> SharedTier | None:
        """Return the shared tier, for a client whose token means the same in every process; else None.

        The metadata of local files is read faster where they are.
        """
        return self.shared_tier if lasts(token) and not token.startswith("file-") else None

    def get(self, key: Hashable) -> Any | None:
        """Return the metadata of a key, which is then the most recently used, or None."""
        with self._lock:
            # `get` of cachetools looks the key up twice.
            try:
                value = self.metadata_tier[key]
            except KeyError:
                self._misses += 1
                return None
            self._hits += 1
            return value

    def peek(self, key: Hashable) -> Any | None:
        """Return what `get` returns, and count nothing."""
        with self._lock:
            try:
                return self.metadata_tier[key]
            except KeyError:
                return None

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Store a value; one that exceeds the limit by itself is not stored."""
        with self._lock:
            self._place(key, value, nbytes)

    def _place(self, key: Hashable, value: Any, nbytes: int) -> None:
        self.metadata_tier.pop(key, None)
        if 0 <= nbytes <= self.memory and self.memory:
            self.metadata_tier.weight = nbytes
            self.metadata_tier[key] = value

    def reweigh(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Set the bytes of a value that has grown, if it is still stored."""
        with self._lock:
            if self.metadata_tier.get(key) is value:
                self._place(key, value, nbytes)

    def drop(self, key: Hashable) -> None:
        """Remove one value, if it is there."""
        with self._lock:
            self.metadata_tier.pop(key, None)

    def clear(self) -> None:
        """Remove all entries, also those in the directory, but not those on the shared server.

        Loads that are under way go on, and are stored when they end.
        """
        with self._lock:
            self.metadata_tier.clear()
        self.result_tier.clear()
        self.byte_tier.clear()
        if self._disk is not None:
            self._disk.clear()

    def stats(self) -> CacheStats:
        """Count entries, bytes, hits and misses so far; this reads the directory of the cache, if there is
        one.

        Returns
        -------
        CacheStats
            The counts.
        """
        disk = self._disk
        elsewhere = {} if disk is None else {"disk_hits": disk.hits, "disk_misses": disk.misses}
        if disk is not None:
            elsewhere["disk_nbytes"] = disk.nbytes()
        shared = self.shared_tier
        if shared is not None:
            elsewhere["shared_hits"], elsewhere["shared_misses"] = shared.hits, shared.misses
            elsewhere["shared_written"] = shared.written
        data, results = self.byte_tier, self.result_tier
        with self._lock:
            return CacheStats(
                entries=len(self.metadata_tier),
                nbytes=int(self.metadata_tier.currsize),
                limit=self.memory,
                hits=self._hits,
                misses=self._misses,
                evictions=self.metadata_tier.evictions,
                data_entries=len(data),
                data_nbytes=data.nbytes,
                data_hits=data.hits,
                data_misses=data.misses,
                data_evictions=data.evictions,
                result_entries=len(results),
                result_nbytes=results.nbytes,
                **elsewhere,
            )

    async def load(self, key: Hashable, loader: Loader) -> Any:
        """Await `loader` once for all who ask for the key meanwhile, store its value, and return it.

        `loader` returns the value and its bytes.
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


def _fresh(
    memory: int, max_age: float, disk: str | None, disk_limit: int, data: int, shared: str | None
) -> Cache:
    return Cache(memory=memory, data=data, max_age=max_age, disk=disk, disk_limit=disk_limit, shared=shared)
