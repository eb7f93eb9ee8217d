"""Reads of one version of one object: from the data cache, or in one round trip that others share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from accel.arrays import own_copy
from accel.cache.cache import Cache
from accel.errors import ObjectChangedError
from accel.metrics import Metrics
from accel.planning.coalesce import Merging
from accel.planning.file import ObjectId
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from accel.store.client import Client
from accel.store.location import LOCAL_ROOT
from accel.store.range_store import is_weak
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.cache.data_cache import Held

__all__ = ["PinnedReads"]

# A part of a larger answer is copied, that the rest of it may go; and whatever is no longer than this: a
# transport may have handed out a piece of its buffer.
_COPIED = 512 * 1024
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
        Whether the version is known to be the current one, as far as `Cache.max_age` asks: what was read of it
        before may stand for it then. Otherwise each read asks the store.
    merging : Merging, optional
        How ranges become requests.
    dictionaries : bool
        Whether dictionary pages are kept here. Those of lookups have a place of their own among the metadata.
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
        self._kept_apart = () if dictionaries else (Kind.DICTIONARY,)
        self._cache = cache
        self._file = file
        self._metrics = metrics
        strong = file.etag is not None and not is_weak(file.etag)
        self.shares = current and strong
        """What others read of this version may stand for what is asked here."""
        # The kernel caches local files.
        self._keeps = self.shares and cache.data > 0 and client.root != LOCAL_ROOT

    def missing(self, want: Want) -> ByteRange | None:
        """What of a range has to be asked for: all, none, or what lies between parts that are cached."""
        if not self._keeps:
            return want.range
        return self._cache.data_tier.missing(self._client.token, self._file, want.range)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """The wanted bytes, and the round trips that they took: none or one, and one more where another's read
        that was to bring them did not.

        Raises
        ------
        ObjectChangedError
            What was cached of the object is forgotten then.
        StoreError
        """
        held = self._find(wants) if self._keeps else {}
        asked: list[Want] = []
        stash: dict[ReadKey, memoryview] = {}
        for want in wants:
            rest = held.get(want.key)
            if rest is None:
                asked.append(want)
            elif rest.missing is None:
                stash[want.key] = rest.complete(None)
            else:
                asked.append(Want(want.key, rest.missing))
        if not asked:
            return stash, 0
        try:
            came, trips = await self._ask(asked)
        except ObjectChangedError:
            self._cache.data_tier.drop(self._client.token, self._file.path)
            raise
        if not held:
            return came, trips
        for want in asked:
            rest = held.get(want.key)
            stash[want.key] = came[want.key] if rest is None else rest.complete(came[want.key])
        return stash, trips

    def _find(self, wants: Sequence[Want]) -> dict[ReadKey, Held]:
        """What is held of the wants, of which not everything is to be asked for."""
        tier, found, hits, nbytes = self._cache.data_tier, {}, 0, 0
        parts = tier.find_all(self._client.token, self._file, wanted=[want.range for want in wants])
        for want, held in zip(wants, parts, strict=True):
            if held.before or held.after:
                found[want.key] = held
                hits += held.missing is None
                nbytes += held.nbytes
        if nbytes:
            self._metrics.add("data_hits", hits)
            self._metrics.add("cached_bytes", nbytes)
        return found

    async def _ask(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        if not self.shares:
            return await self._load(wants), 1
        # Whoever wants the same of the same version meanwhile gets the same answer.
        file = self._file
        version = (self._client.token, file.path, file.size, file.etag)
        return await self._cache.shared_reads.read(version, wants, self._load)

    async def _load(self, wants: Sequence[Want]) -> Stash:
        stash = await self._client.read(
            self._file.path, wants, pin=self._file, metrics=self._metrics, merging=self._merging
        )
        if self._keeps:
            await self._keep(wants, stash)
        return stash

    async def _keep(self, wants: Sequence[Want], stash: Stash) -> None:
        data = [want for want in wants if want.key.kind not in self._kept_apart]
        tier, token = self._cache.data_tier, self._client.token
        came = self._metrics.bytes_by_kind
        so_far = sum(came.get(kind, 0) for kind in _DATA)
        ranges = [want.range for want in data]
        known = tier.admit(token, self._file, ranges, so_far=so_far)
        if known is None:
            for want in data:
                view = stash[want.key]
                own = view.nbytes > _COPIED and memoryview(view.obj).nbytes == view.nbytes
                tier.keep(token, self._file, want.range.start, view if own else memoryview(bytes(view)))
            return
        for again in (True, False) if tier.has_room(ranges, so_far=so_far) else (True,):
            kept = [want for want, one in zip(data, known, strict=True) if one is again]
            # Copying many would hold up the loop.
            for start, view in await WORK.run(_own_parts, kept, stash) if kept else ():
                tier.keep(token, self._file, start, view, known=again)


def _own_parts(wants: Sequence[Want], stash: Stash) -> list[tuple[int, memoryview]]:
    """What came for the wants, apart from what else came: whole answers, where nothing else is in them, else copies."""
    parts: list[tuple[int, memoryview]] = []
    run: list[tuple[int, memoryview]] = []
    for want in sorted(wants, key=lambda want: want.range):
        view = stash[want.key]
        if run and (view.obj is not run[0][1].obj or want.range.start != run[-1][0] + run[-1][1].nbytes):
            parts += _own_run(run)
            run = []
        run.append((want.range.start, view))
    return parts + _own_run(run)


def _own_run(run: Sequence[tuple[int, memoryview]]) -> list[tuple[int, memoryview]]:
    """Of neighbours in one buffer: that buffer, where it is no more than they are."""
    start, first = run[0]
    whole = memoryview(first.obj)
    if _COPIED < whole.nbytes == sum(view.nbytes for _, view in run):
        return [(start, whole.cast("B").toreadonly())]
    return [(at, memoryview(own_copy(view))) for at, view in run]
