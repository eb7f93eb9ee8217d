"""Reads of one version of one object: from the byte tier, or in one round trip that others share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from accel.arrays import own_copy
from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
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

# A part of a larger answer is copied, so that the rest of it may go; and whatever is no longer than this: a transport
# may have handed out a piece of its buffer.
_COPIED = 512 * 1024
# A range that somebody else read is copied out of an answer that is more than so many times as long.
_SLACK = 2
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
        Whether the version is known to be the current one, as far as `Cache.max_age` asks: what was read of it before
        may stand for it then. Otherwise each read asks the store.
    merging : Merging, optional
        How ranges become requests.
    dictionaries : bool
        Whether dictionary pages are stored in the byte tier. Those of lookups are in the metadata tier.
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
    ) -> None:
        self._client = client
        self._merging = merging
        self._dictionaries = dictionaries
        self._cache = cache
        self._file = file
        self._metrics = metrics
        strong = file.etag is not None and not is_weak(file.etag)
        self.shares = current and strong
        """Whether what others read of this version may stand for what is asked here."""
        # The kernel caches local files.
        self._caches = self.shares and cache.data > 0 and client.root != LOCAL_ROOT

    def missing(self, want: Want) -> ByteRange | None:
        """Return what has to be fetched of a range: all, none, or what lies between parts that are cached."""
        if not self._caches:
            return want.range
        return self._cache.byte_tier.missing(self._client.token, self._file, want.range)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, and the round trips that they took: none or one, and one more where another's read
        that was to bring them failed.

        Raises
        ------
        ObjectChangedError
            What was cached of the object is forgotten then.
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
        """Return what is cached of the wants of which anything is."""
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
        """Fetch the ranges that nobody is fetching of this version; wait for the others.

        Where another's read fails, everything is fetched here: nobody fails by what happened to somebody else.
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
        stash = await self._client.read(
            self._file.path, wants, pin=self._file, metrics=self._metrics, merging=self._merging
        )
        if self._caches:
            await self._store(wants, stash)
        return stash

    async def _store(self, wants: Sequence[Want], stash: Stash) -> None:
        """Put what was fetched into the byte tier, as far as that admits it."""
        if not self._dictionaries:
            wants = [want for want in wants if want.key.kind is not Kind.DICTIONARY]
        tier, token, came = self._cache.byte_tier, self._client.token, self._metrics.bytes_by_kind
        so_far = sum(came.get(kind, 0) for kind in _DATA)
        admitted = tier.admit(token, self._file, [want.range for want in wants], so_far=so_far)
        stored = [want for want, is_admitted in zip(wants, admitted, strict=True) if is_admitted]
        views = [stash[want.key] for want in stored]
        if sum(view.nbytes for view in views) > MIB:  # to copy so much would hold up the loop
            views = await WORK.run(lambda: list(map(_own_part, views)))
        else:
            views = list(map(_own_part, views))
        for want, view in zip(stored, views, strict=True):
            tier.put(token, self._file, want.range.start, view)


def _own_part(view: memoryview) -> memoryview:
    """Return the bytes in memory of their own: in Python's, as what the cache holds is not the scan's."""
    is_whole = view.nbytes > _COPIED and memoryview(view.obj).nbytes == view.nbytes
    return view if is_whole else memoryview(bytes(view))


def _without_slack(view: memoryview) -> memoryview:
    """Return the bytes without keeping much else in memory."""
    return view if memoryview(view.obj).nbytes <= _SLACK * view.nbytes else memoryview(own_copy(view))
