"""Reads of one version of an object, from the byte tier or by requests that concurrent reads share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accel.arrays import own_copy
from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry, version_key
from accel.coalesce import Merging
from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import MIB
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Stash, Want
from accel.store.client import Client
from accel.store.location import LOCAL_ROOT
from accel.store.range_store import is_weak
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.cache.byte_tier import CachedRange

__all__ = ["PinnedReads"]

# Shorter data is copied before it is cached, as a transport may have returned a piece of its buffer. So is any part of a
# larger response, so that the rest can be freed.
_COPIED = 512 * 1024
# A range that another read has fetched is copied out of a response that is more than twice as long.
_SLACK = 2
# What the cache counts for the moment at which a version was current.
_CONFIRMED_BYTES = 512
_DATA = (Kind.PAGE, Kind.CHUNK, Kind.DICTIONARY)


class PinnedReads:
    """Reads ranges of a pinned version.

    Parameters
    ----------
    client : Client
    cache : Cache
    file : ObjectId
    metrics : Metrics
    current : bool
        Whether the version was current within `Cache.max_age`, so that cached and shared bytes may be used. Otherwise
        each read sends a request.
    merging : Merging, optional
        How ranges become requests.
    dictionaries : bool
        Whether dictionary pages are stored in the byte tier, not in the metadata tier as those of lookups.
    confirms : bool
        Whether the answer to a pinned request counts as a check that the version is current. It does for tasks that were
        planned elsewhere, as this process has no metadata of their files.
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
        self._client = client
        self._merging = merging
        self._dictionaries = dictionaries
        self._cache = cache
        self._file = file
        self._metrics = metrics
        strong = file.etag is not None and not is_weak(file.etag)
        self.shares = current and strong
        """Whether bytes that other reads of this version fetched may be used."""
        # The kernel caches local files.
        cacheable = strong and cache.data > 0 and client.root != LOCAL_ROOT
        self._caches = self.shares and cacheable
        self._confirms = confirms and cacheable

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that has to be fetched; None if all of it is cached."""
        if not self._caches:
            return want.range
        return self._cache.byte_tier.missing(self._client.token, self._file, want.range)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes and their round trips: none or one, or two if a shared read failed.

        Raises
        ------
        ObjectChangedError
            The cached bytes of the object are removed then.
        StoreError
        """
        cached = self._find(wants) if self._caches else {}
        fetched: list[Want] = []
        stash: dict[ReadKey, memoryview] = {}
        for want in wants:
            part = cached.get(want.key)
            if part is None:
                fetched.append(want)
            elif part.missing is None:
                stash[want.key] = part.complete(None)
            else:
                fetched.append(Want(want.key, part.missing))
        if not fetched:
            return stash, 0
        try:
            came, trips = await self._share(fetched) if self.shares else (await self._fetch(fetched), 1)
        except ObjectChangedError:
            self._cache.byte_tier.drop(self._client.token, self._file.path)
            raise
        if not cached:
            return came, trips
        for want in fetched:
            part = cached.get(want.key)
            stash[want.key] = came[want.key] if part is None else part.complete(came[want.key])
        return stash, trips

    def _find(self, wants: Sequence[Want]) -> dict[ReadKey, CachedRange]:
        """Return the cached parts of the wants that have any."""
        found, hits, nbytes = {}, 0, 0
        ranges = [want.range for want in wants]
        parts = self._cache.byte_tier.find(self._client.token, self._file, ranges)
        for want, part in zip(wants, parts, strict=True):
            if part.before or part.after:
                found[want.key] = part
                hits += part.missing is None
                nbytes += part.nbytes
        if nbytes:
            self._metrics.add("data_hits", hits)
            self._metrics.add("cached_bytes", nbytes)
        return found

    async def _share(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Fetch the ranges that no other read is fetching, and wait for the others.

        If another read fails, everything is fetched here, so that its failure is not passed on.
        """
        token, file = self._client.token, self._file
        keys = [CacheKey(token, file.path, (file.size, file.etag), Entry.PAGES, want.range) for want in wants]
        # One range may be wanted by two keys.
        by_key = dict(zip(keys, wants, strict=True))
        own: set[CacheKey] = set()
        own_failed = False

        async def fetch(led: Sequence[CacheKey]) -> dict[CacheKey, memoryview]:
            nonlocal own_failed
            own.update(led)
            try:
                stash = await self._fetch([by_key[key] for key in led])
            except Exception:
                own_failed = True
                raise
            return {key: stash[by_key[key].key] for key in led}

        try:
            found = await self._cache.single_flight.share_all(keys, fetch)
        except StoreError:
            if own_failed:
                raise
            return await self._fetch(wants), 2
        stash = {
            want.key: found[key] if key in own else _without_slack(found[key])
            for key, want in zip(keys, wants, strict=True)
        }
        return stash, 1

    async def _fetch(self, wants: Sequence[Want]) -> Stash:
        asked = time.monotonic()
        stash = await self._client.read(
            self._file.path, wants, pin=self._file, metrics=self._metrics, merging=self._merging
        )
        if self._confirms:
            self._cache.put(version_key(self._client.token, self._file), asked, _CONFIRMED_BYTES)
        if self._caches or self._confirms:
            await self._store(wants, stash)
        return stash

    async def _store(self, wants: Sequence[Want], stash: Stash) -> None:
        """Store fetched ranges in the byte tier, as far as it admits them."""
        if not self._dictionaries:
            wants = [want for want in wants if want.key.kind is not Kind.DICTIONARY]
        tier, token, came = self._cache.byte_tier, self._client.token, self._metrics.bytes_by_kind
        so_far = sum(came.get(kind, 0) for kind in _DATA)
        admitted = tier.admit(token, self._file, [want.range for want in wants], so_far=so_far)
        stored = [want for want, is_admitted in zip(wants, admitted, strict=True) if is_admitted]
        views = [stash[want.key] for want in stored]
        if sum(view.nbytes for view in views) > MIB:  # to copy so much would block the loop
            views = await WORK.run(lambda: list(map(_own_part, views)))
        else:
            views = list(map(_own_part, views))
        for want, view in zip(stored, views, strict=True):
            tier.put(token, self._file, want.range.start, view)


def _own_part(view: memoryview) -> memoryview:
    """Return the bytes in memory that nothing else shares: Python's, as Arrow's is counted for scans."""
    is_whole = view.nbytes > _COPIED and memoryview(view.obj).nbytes == view.nbytes
    return view if is_whole else memoryview(bytes(view))


def _without_slack(view: memoryview) -> memoryview:
    """Return the bytes, copied if they would keep a much larger response in memory."""
    return view if memoryview(view.obj).nbytes <= _SLACK * view.nbytes else memoryview(own_copy(view))
