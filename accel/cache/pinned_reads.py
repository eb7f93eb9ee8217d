"""Reads of one version of an object, by a chain of byte sources: the byte tier, what concurrent reads share,
and the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from accel.arrays import own_copy
from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry, version_key
from accel.coalesce import Merging
from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import MIB
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Stash, Want
from accel.runtime.threads import WORK
from accel.store.client import Client
from accel.store.location import LOCAL_ROOT
from accel.versions import is_weak

if TYPE_CHECKING:
    from accel.cache.byte_tier import ByteTier, CachedRange

__all__ = ["ByteSource", "PinnedReads"]

# Shorter data is copied before it is cached, as a transport may have returned a piece of its buffer. So is
# any part of a larger response, so that the rest can be freed.
_COPIED = 512 * 1024
# A range that another read has fetched is copied out of a response that is more than twice as long.
_SLACK = 2
# What the cache counts for the moment at which a version was current.
_CONFIRMED_BYTES = 512
_DATA = (Kind.PAGE, Kind.CHUNK, Kind.DICTIONARY)


class ByteSource(Protocol):
    """Ranges of one version of an object. Each source but the last wraps the next, which it asks for what it
    has not."""

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that has to be requested of the store; None if none of it."""
        ...

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, and the round trips that they took."""
        ...


class PinnedReads:
    """Reads ranges of a pinned version: from the byte tier, by the requests of concurrent reads, and of the
    store, which are sources that wrap each other.

    Parameters
    ----------
    client : Client
    cache : Cache
    file : ObjectId
    metrics : Metrics
    current : bool
        Whether the version was current within `Cache.max_age`, so that cached and shared bytes may be used.
        Otherwise each read sends a request.
    merging : Merging, optional
        How ranges become requests, where some have to be requested.
    dictionaries : bool
        Whether dictionary pages are stored in the byte tier, not in the metadata tier as those of lookups.
    confirms : bool
        Whether the answer to a pinned request counts as a check that the version is current. It does for
        tasks that were planned elsewhere, as this process has no metadata of their files.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        *,
        file: ObjectId,
        metrics: Metrics,
        current: bool,
        merging: Merging | None = None,
        dictionaries: bool = False,
        confirms: bool = False,
    ) -> None:
        strong = file.etag is not None and not is_weak(file.etag)
        self.shares = current and strong
        """Whether bytes that other reads of this version fetched may be used."""
        # The kernel caches local files.
        cacheable = strong and cache.data > 0 and client.root != LOCAL_ROOT
        caches = self.shares and cacheable
        confirms = confirms and cacheable
        requests = StoreReads(client, file, metrics=metrics, merging=merging)
        source: ByteSource = StoringReads(
            requests,
            cache,
            token=client.token,
            file=file,
            metrics=metrics,
            stores=caches or confirms,
            dictionaries=dictionaries,
            confirms=confirms,
        )
        if self.shares:
            source = SharedReads(source, cache, token=client.token, file=file)
        if caches:
            source = CachedReads(source, cache.byte_tier, token=client.token, file=file, metrics=metrics)
        self._source = source

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that has to be fetched; None if all of it is cached."""
        return self._source.missing(want)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes and their round trips: none or one, or two if a shared read failed.

        Raises
        ------
        ObjectChangedError
            The cached bytes of the object are removed then.
        StoreError
        """
        return await self._source.read(wants)


class StoreReads:
    """The last source: requests to the store, of one version."""

    __slots__ = ("_client", "_file", "_merging", "_metrics")

    def __init__(
        self,
        client: Client,
        file: ObjectId,
        *,
        metrics: Metrics,
        merging: Merging | None = None,
    ) -> None:
        self._client = client
        self._file = file
        self._metrics = metrics
        self._merging = merging

    def missing(self, want: Want) -> ByteRange | None:
        """Return the range."""
        return want.range

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, after one round trip."""
        stash = await self._client.read(
            self._file.path, wants, pin=self._file, metrics=self._metrics, merging=self._merging
        )
        return stash, 1


class StoringReads:
    """Teaches the cache what answers of the store show: bytes, that the version is current, or that it is
    not.

    Parameters
    ----------
    below : ByteSource
    cache : Cache
    token, file : str, ObjectId
        The client's token, and the version.
    metrics : Metrics
        Shows how much its scan has read.
    stores : bool
        Whether the bytes are stored, as far as the byte tier admits them.
    dictionaries, confirms : bool
        See `PinnedReads`.
    """

    __slots__ = ("_below", "_cache", "_confirms", "_dictionaries", "_file", "_metrics", "_stores", "_token")

    def __init__(
        self,
        below: ByteSource,
        cache: Cache,
        *,
        token: str,
        file: ObjectId,
        metrics: Metrics,
        stores: bool,
        dictionaries: bool,
        confirms: bool,
    ) -> None:
        self._below = below
        self._cache = cache
        self._token = token
        self._file = file
        self._metrics = metrics
        self._stores = stores
        self._dictionaries = dictionaries
        self._confirms = confirms

    def missing(self, want: Want) -> ByteRange | None:
        """Return what the next source misses."""
        return self._below.missing(want)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, which are stored on the way."""
        sent_at = time.monotonic()
        try:
            stash, trips = await self._below.read(wants)
        except ObjectChangedError:
            self._cache.byte_tier.drop(self._token, self._file.path)
            raise
        if self._confirms:
            self._cache.put(version_key(self._token, self._file), sent_at, _CONFIRMED_BYTES)
        if self._stores:
            await self._store(wants, stash)
        return stash, trips

    async def _store(self, wants: Sequence[Want], stash: Stash) -> None:
        if not self._dictionaries:
            wants = [want for want in wants if want.key.kind is not Kind.DICTIONARY]
        tier, came = self._cache.byte_tier, self._metrics.bytes_by_kind
        so_far = sum(came.get(kind, 0) for kind in _DATA)
        admitted = tier.admit(self._token, self._file, [want.range for want in wants], so_far=so_far)
        stored = [want for want, is_admitted in zip(wants, admitted, strict=True) if is_admitted]
        views = [stash[want.key] for want in stored]
        if sum(view.nbytes for view in views) > MIB:  # to copy so much would block the loop
            views = await WORK.run(lambda: list(map(_own_part, views)))
        else:
            views = list(map(_own_part, views))
        for want, view in zip(stored, views, strict=True):
            tier.put(self._token, self._file, want.range.start, view)


class SharedReads:
    """Reads that are under way for several who want the same range are made once."""

    __slots__ = ("_below", "_cache", "_file", "_token")

    def __init__(self, below: ByteSource, cache: Cache, *, token: str, file: ObjectId) -> None:
        self._below = below
        self._cache = cache
        self._token = token
        self._file = file

    def missing(self, want: Want) -> ByteRange | None:
        """Return what the next source misses."""
        return self._below.missing(want)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Read the ranges that no other read is fetching, and wait for the others.

        If another read fails, everything is fetched here, so that its failure is not passed on.
        """
        file = self._file
        version = (file.size, file.etag)
        keys = [CacheKey(self._token, file.path, version, Entry.PAGES, want.range) for want in wants]
        # One range may be wanted by two keys.
        by_key = dict(zip(keys, wants, strict=True))
        own: set[CacheKey] = set()
        own_failed = False

        async def fetch(led: Sequence[CacheKey]) -> dict[CacheKey, memoryview]:
            nonlocal own_failed
            own.update(led)
            try:
                stash, _ = await self._below.read([by_key[key] for key in led])
            except Exception:
                own_failed = True
                raise
            return {key: stash[by_key[key].key] for key in led}

        try:
            found = await self._cache.single_flight.share_all(keys, fetch)
        except StoreError:
            if own_failed:
                raise
            stash, trips = await self._below.read(wants)
            return stash, trips + 1
        return {
            want.key: found[key] if key in own else _without_slack(found[key])
            for key, want in zip(keys, wants, strict=True)
        }, 1


class CachedReads:
    """What the byte tier has of the wanted ranges is not read again."""

    __slots__ = ("_below", "_file", "_metrics", "_tier", "_token")

    def __init__(
        self, below: ByteSource, tier: ByteTier, *, token: str, file: ObjectId, metrics: Metrics
    ) -> None:
        self._below = below
        self._tier = tier
        self._token = token
        self._file = file
        self._metrics = metrics

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that neither the tier nor the next source has."""
        rest = self._tier.missing(self._token, self._file, want.range)
        return None if rest is None else self._below.missing(Want(want.key, rest))

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, and the round trips of those that are not cached."""
        parts = self._tier.find(self._token, self._file, [want.range for want in wants])
        hits = nbytes = 0
        stash: dict[ReadKey, memoryview] = {}
        lacking: list[tuple[Want, CachedRange]] = []
        for want, part in zip(wants, parts, strict=True):
            if part.missing is None:
                hits += 1
                stash[want.key] = part.complete(None)
            else:
                lacking.append((Want(want.key, part.missing), part))
            nbytes += part.nbytes
        if nbytes:
            self._metrics.add("data_hits", hits)
            self._metrics.add("cached_bytes", nbytes)
        if not lacking:
            return stash, 0
        came, trips = await self._below.read([want for want, _ in lacking])
        if len(lacking) == len(wants) and not nbytes:
            return came, trips
        for want, part in lacking:
            stash[want.key] = part.complete(came[want.key])
        return stash, trips


def _own_part(view: memoryview) -> memoryview:
    """Return the bytes in memory that nothing else shares: Python's, as Arrow's is counted for scans."""
    is_whole = view.nbytes > _COPIED and memoryview(view.obj).nbytes == view.nbytes
    return view if is_whole else memoryview(bytes(view))


def _without_slack(view: memoryview) -> memoryview:
    """Return the bytes, copied if they would keep a much larger response in memory."""
    return view if memoryview(view.obj).nbytes <= _SLACK * view.nbytes else memoryview(own_copy(view))
