"""Pages that several pieces of a task share: data pages that straddle a cut, and dictionary pages.

The first piece that needs one fetches it, and the others wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field

from accel.arrays import own_copy
from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
from accel.decode.codecs import StoredPage, UncompressedPage, store_page
from accel.metrics import Metrics
from accel.options import MIB
from accel.planning.pages import LeafReads, Piece, dictionary_wants
from accel.planning.task import ScanTask
from accel.ranges import Buffer, ByteRange, ObjectId, ReadKey, Stash, Want
from accel.runtime.threads import WORK
from accel.store.client import Client

__all__ = [
    "CarriedPages",
    "DictionaryReads",
    "Sought",
    "cache_dictionary",
    "cached_dictionary",
    "dictionary_key",
    "until_done",
]


@dataclass(slots=True)
class _Page:
    came: asyncio.Future[Buffer]
    takers: int = 0
    """The number of pieces that wait for it, or will."""
    until: int = 0
    """Pieces that begin before this row may still claim it."""


class CarriedPages:
    """The data pages of one task that straddle a cut, by leaf and ordinal. It is used on one event loop."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], _Page] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def expect(self, reads: LeafReads, at: int) -> None:
        """Announce a later piece that will take this page."""
        self._page(reads, at).takers += 1

    def offer(self, reads: LeafReads, at: int) -> None:
        """Announce a page about to be fetched that later pieces may claim."""
        self._page(reads, at).until = int(reads.stop_row[at])

    def claim(self, leaf: int, ordinal: int) -> bool:
        """Return whether another piece fetches a page; if so, the caller has to take it."""
        page = self._pages.get((leaf, ordinal))
        if page is None:
            return False
        page.takers += 1
        return True

    def bring(self, reads: LeafReads, at: int, page: memoryview) -> None:
        """Hand a copy of a fetched page to all who wait for it; the response can then be freed."""
        waited = self._pages.get(_key(reads, at))
        if waited is not None and not waited.came.done():
            waited.came.set_result(own_copy(page))

    def fail(self, reads: LeafReads, at: int) -> None:
        """Cancel all who wait for a page that will not arrive."""
        waited = self._pages.get(_key(reads, at))
        if waited is not None:
            waited.came.cancel()

    async def take(self, reads: LeafReads, at: int, *, until: int) -> memoryview:
        """Return a page that was expected or claimed, for a piece that ends before the row `until`."""
        key = _key(reads, at)
        page = self._pages[key]
        try:
            return memoryview(await asyncio.shield(page.came))
        finally:
            page.takers -= 1
            if not page.takers and page.until <= until:
                self._pages.pop(key, None)

    def pass_by(self, row: int) -> None:
        """Drop the pages that were offered to pieces before this row, and that none has claimed."""
        gone = [key for key, page in self._pages.items() if not page.takers and page.until <= row]
        for key in gone:
            del self._pages[key]

    def _page(self, reads: LeafReads, at: int) -> _Page:
        key = _key(reads, at)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page(asyncio.get_running_loop().create_future())
        return page


def _key(reads: LeafReads, at: int) -> tuple[int, int]:
    return reads.leaf, int(reads.ordinal[at])


# Bytes of a dictionary page below which decompressing it at each lookup takes no noticeable time.
WORTH_STORING = 16 << 10
# Bytes below which a task counts as a lookup.
SCANNED = 4 * MIB
# Bytes of a piece's dictionary pages below which they are not counted.
_FELT = 128 << 10
# Bytes of a cache entry beside its page.
_ENTRY_BYTES = 256

_Due = tuple[ReadKey, int, asyncio.Future[None]]
"""A page to be stored, its codec, and the future that others wait for."""
Read = Callable[[list[Want]], Awaitable[tuple[Stash, int]]]
"""Returns the bytes of ranges, and the round trips that they took."""


def dictionary_key(client: Client, file: ObjectId, *, place: ByteRange | None) -> CacheKey:
    """Return the cache key of a dictionary page, by its place in the file."""
    return CacheKey(client.token, file.path, (file.size, file.etag), Entry.DICTIONARY, place)


def cached_dictionary(cache: Cache, key: Hashable) -> bytes | None:
    """Return the page, if it is cached under its `dictionary_key`."""
    found = cache.get(key)
    return found if isinstance(found, bytes) else None


def cache_dictionary(cache: Cache, key: Hashable, page: bytes) -> None:
    """Cache a page under its `dictionary_key`."""
    cache.put(key, page, len(page) + _ENTRY_BYTES)


@dataclass(slots=True)
class Sought:
    """The dictionary pages of a piece, by where they come from."""

    stash: dict[ReadKey, memoryview] = field(default_factory=dict)
    """The pages that are in memory."""
    fetched: list[Want] = field(default_factory=list)
    """The pages to request."""
    awaited: list[Want] = field(default_factory=list)
    """The pages that another piece of the task requests."""
    again: list[ReadKey] = field(default_factory=list)
    """Cached pages that each lookup would decompress again; `pack` stores them uncompressed."""


@dataclass(slots=True)
class DictionaryReads:
    """Reads the dictionary pages of one task. It is used on one event loop."""

    task: ScanTask
    client: Client
    cache: Cache
    metrics: Metrics
    _pending: dict[ReadKey, asyncio.Future[memoryview]] = field(default_factory=dict)
    _counted: set[ReadKey] = field(default_factory=set)
    _places: dict[int, ByteRange | None] | None = None
    _keeps: bool | None = None
    _wanted: tuple[Piece, list[Want]] | None = None

    def wanted(self, piece: Piece) -> list[Want]:
        """Return the pages that a piece needs by the footer."""
        if self._wanted is None or self._wanted[0] is not piece:
            self._wanted = piece, dictionary_wants(piece, self.task.row_group)
        return self._wanted[1]

    def cached(self, key: ReadKey) -> bytes | None:
        """Return the page, if it is cached."""
        if self.task.file.id.etag is None:
            return None
        return cached_dictionary(self.cache, self._key(key))

    def count_bytes(self, piece: Piece) -> int:
        """Return the bytes of dictionary pages that a piece will fetch, each counted once a task; 0 where
        they are few."""
        wanted = self.wanted(piece)
        due = [want for want in wanted if want.key not in self._counted]
        if sum(want.range.length for want in due) < _FELT:
            return 0
        self._counted.update(want.key for want in due)
        return sum(want.range.length for want in due if self.cache.peek(self._key(want.key)) is None)

    def seek(self, wanted: Sequence[Want]) -> Sought:
        """Find where each page comes from.

        Other pieces wait for those in `fetched`, so `bring` or `give_up` must follow.
        """
        sought = Sought()
        for want in wanted:
            if want.key in self._pending:
                sought.awaited.append(want)
                continue
            found = self.cached(want.key)
            if found is not None:
                self.metrics.add("dictionary_hits")
                self._take(want.key, found, sought)
            else:
                self._pending[want.key] = asyncio.get_running_loop().create_future()
                sought.fetched.append(want)
        return sought

    def _take(self, key: ReadKey, page: bytes, sought: Sought) -> None:
        sought.stash[key] = memoryview(page)
        if len(page) >= WORTH_STORING and not isinstance(page, StoredPage):
            sought.again.append(key)

    def pack(self, piece: Piece, sought: Sought) -> asyncio.Task[None] | None:
        """Start to store uncompressed the pages that are read a second time; return the task to wait for, or
        None."""
        if not sought.again:
            return None
        again, sought.again = sought.again, []
        codecs = {part.reads.column: part.reads.codec for part in piece.leaves}
        due: list[_Due] = []
        for key in again:
            leading = self.cache.single_flight.lead(self._key(key))
            # If another lookup is about to store the page, this one takes the result when its own pages are
            # here.
            if leading is not None:
                due.append((key, codecs[key.column], leading))
        return asyncio.create_task(self._store(due, sought)) if due else None

    async def bring(self, piece: Piece, sought: Sought, came: Stash) -> None:
        """Hand the requested pages to the cache and to other pieces, and wait for pages that other pieces
        request."""
        first: dict[ReadKey, memoryview] = {}
        for want in sought.fetched:
            page = self.cached(want.key)
            if page is None:
                first[want.key] = memoryview(self._keep(want, came[want.key]))
            else:  # another lookup fetched it at the same time
                self._take(want.key, page, sought)
        await until_done(self.pack(piece, sought))
        await self._renew(sought)
        sought.stash |= first
        for want in sought.fetched:
            waiting = self._pending[want.key]
            if not waiting.done():
                waiting.set_result(sought.stash[want.key])
        for want in sought.awaited:
            sought.stash[want.key] = await asyncio.shield(self._pending[want.key])

    async def ask(self, wants: Sequence[Want], read: Read) -> tuple[dict[ReadKey, memoryview], int]:
        """Return pages from the cache or else from the store, and the round trips."""
        found = {want.key: memoryview(page) for want in wants if (page := self.cached(want.key)) is not None}
        missing = [want for want in wants if want.key not in found]
        came, trips = await read(missing)
        for want in missing:
            found[want.key] = memoryview(self._keep(want, came[want.key]))
        return found, trips

    def give_up(self, sought: Sought) -> None:
        """Cancel the pieces that wait for the pages of one that is not read to its end."""
        for want in sought.fetched:
            self._pending[want.key].cancel()

    async def _renew(self, sought: Sought) -> None:
        """Take pages that another lookup has stored uncompressed, or is about to."""
        for key, page in sought.stash.items():
            if len(page) < WORTH_STORING or isinstance(page.obj, UncompressedPage):
                continue
            storing = self.cache.single_flight.join(self._key(key))
            if storing is not None:
                await asyncio.wait((storing,))
            found = self.cached(key)
            if isinstance(found, UncompressedPage):
                sought.stash[key] = memoryview(found)

    async def _store(self, due: Sequence[_Due], sought: Sought) -> None:
        """Store pages uncompressed, for this read and the next."""
        pages = [(sought.stash[key], codec) for key, codec, _ in due]
        try:
            # One thread does all, because each thread has allocator memory of its own.
            stored = await WORK.run(lambda: [store_page(page, codec) for page, codec in pages])
            for (key, _, _), page in zip(due, stored, strict=True):
                cache_dictionary(self.cache, self._key(key), page)
                sought.stash[key] = memoryview(page)
        finally:
            for key, _, leading in due:
                self.cache.single_flight.land(leading, value=None)

    def _keep(self, want: Want, page: memoryview) -> Buffer:
        """Cache a page, and return one that does not keep its response alive.

        Pages of a large scan are not cached, because they would evict everything else.
        """
        if not self.keeps():
            return own_copy(page) if memoryview(page.obj).nbytes > page.nbytes else page
        data = bytes(page)
        cache_dictionary(self.cache, self._key(want.key), data)
        return data

    def keeps(self) -> bool:
        """Return whether pages are cached: not those of a task that reads much, and most of each column
        chunk."""
        # This is called for each page, and goes through all columns.
        if self._keeps is None:
            task = self.task
            self._keeps = task.file.id.etag is not None and (
                task.nbytes < SCANNED
                or not all(2 * len(leaf.ordinal) > leaf.total_pages for leaf in task.reads)
            )
        return self._keeps

    def _key(self, key: ReadKey) -> tuple[object, ...]:
        if self._places is None:
            self._places = {reads.column: reads.dictionary for reads in self.task.reads}
        return dictionary_key(self.client, self.task.file.id, place=self._places.get(key.column))


async def until_done(task: asyncio.Task[None] | None) -> None:
    """Wait until a task has ended, also where the caller is cancelled meanwhile."""
    if task is None:
        return
    try:
        await asyncio.wait((task,))
    finally:
        if not task.done():
            await asyncio.wait((task,))
