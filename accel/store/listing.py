"""Listings of a prefix: pages are requested concurrently if an earlier listing has shown at which keys they begin."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby, pairwise, starmap
from typing import Final

from cachetools import LRUCache

from accel.errors import StoreError
from accel.metrics import Metrics
from accel.ranges import Kind
from accel.store.fetch import Retry
from accel.store.gate import Gate
from accel.store.range_store import LIST_PAGE, Lister, ObjectEntry, Pager, PageSeen, RangeStore
from accel.store.request_errors import foremost
from accel.store.tasks import Group, breathe

__all__ = ["Cuts", "Listings", "PageWalk"]

_MOST_REPEATS: Final = 3
"""Maximum pages in a row without a new key. One is legal: a file and a directory marker of its name are listed alike."""
_MOST_EMPTY: Final = 1_000
"""Maximum empty pages in a row. Servers may send some for ranges of deleted objects."""


class PageWalk:
    """One listing, from one key on, page by page.

    Parameters
    ----------
    store : Pager
    prefix : str
    after : str or None
        As in `Pager.pages`.
    page_keys : int
        Keys in a full page.
    """

    def __init__(self, store: Pager, prefix: str, *, after: str | None, page_keys: int) -> None:
        self.entries: list[ObjectEntry] = []
        """All entries so far, in the order of the store, including repeated ones."""
        self.requests = 0
        self._store = store
        self._prefix = prefix
        self._after = after
        self._page_keys = page_keys
        self._pages = self._repeats = self._empty = 0
        self._furthest = ""
        # Paths of the first `_counted` entries, collected only if entries do not come in order.
        self._paths: set[str] = set()
        self._counted = 0

    async def pages(self) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """Yield the pages that are not empty, each after it was added to `entries`.

        A server that has only version 1 of ListObjects gives no token for the next page, which obstore takes for the end.
        So a listing that ends with a full page is requested once more, from its last key on.

        Raises
        ------
        StoreError
            The store failed, repeats its keys, or may have left out what follows its first page.
        """
        after = self._after
        while True:
            last: Sequence[ObjectEntry] = ()
            answered = False
            async with aclosing(self._store.pages(self._prefix, after=after)) as pages:
                while True:
                    self.requests += 1
                    page = await anext(pages, None)
                    if page is None:
                        self.requests -= answered  # the last response was also the end
                        break
                    answered = True
                    new = self._brings_new(page)
                    if page and not new and not last and self._pages:
                        self._check_end(page, after)
                        return
                    self._check_progress(page, new)
                    if page:
                        self._pages += 1
                        self.entries += page
                        last = page
                        yield page
            if len(last) < self._page_keys or not self._store.cuts_listings:
                return
            after = last[-1].path

    def _brings_new(self, page: Sequence[ObjectEntry]) -> bool:
        if not page:
            return False
        if page[-1].path > self._furthest:
            self._furthest = page[-1].path
            return True
        # The keys are repeated, or come in another order than that of code points, such as UTF-16.
        self._paths.update(entry.path for entry in self.entries[self._counted :])
        self._counted = len(self.entries)
        return any(entry.path not in self._paths for entry in page)

    def _check_progress(self, page: Sequence[ObjectEntry], new: bool) -> None:
        if new:
            self._repeats = self._empty = 0
        elif page:
            self._repeats += 1
        else:
            self._empty += 1
        if self._repeats >= _MOST_REPEATS:
            raise StoreError(
                "the store lists the same keys over and over",
                path=self._prefix,
                hint="its continuation tokens lead nowhere: name the files",
            )
        if self._empty >= _MOST_EMPTY:
            raise StoreError("the store sends empty pages without an end", path=self._prefix)

    def _check_end(self, page: Sequence[ObjectEntry], after: str | None) -> None:
        """Check the end of a listing: the page after the last key brought nothing new.

        It may hold a directory marker of the last name. Else the store cannot list from a key, and whether there is more
        is known only if its continuation tokens have worked.
        """
        if self._after is None and self._pages == 1 and any(entry.path != after for entry in page):
            raise StoreError(
                f"the listing may be cut short after its first {len(self.entries)} keys: this store lists from no key",
                path=self._prefix,
                hint="it may only know ListObjects of version 1: name the files, or smaller directories",
            )


_AT_ONCE: Final = 16
"""Ranges of keys that are listed concurrently, if the gate has room."""
_REMEMBERED: Final = 1 << 20
"""Bytes of cuts that are remembered."""
_OVERHEAD: Final = 64
"""Bytes of a cut besides its characters."""

_path_of = operator.attrgetter("path")


class Cuts(LRUCache[str, tuple[str, ...]]):
    """The last keys of full pages, for the prefixes listed last; an empty tuple for a prefix that cannot be cut.

    The cuts of a million keys take a tenth of the limit.
    """

    def __init__(self, limit: int = _REMEMBERED) -> None:
        super().__init__(limit, getsizeof=_size)


class Listings:
    """The listings of one store. Used on one event loop.

    Parameters
    ----------
    store : RangeStore
        A `Pager`, or at least a `Lister`.
    gate : Gate
        Each range of keys takes the room of one request, as it waits for one page at a time.
    retry : Retry
    cuts : Cuts, optional
        Where earlier listings can be cut. Nothing else is remembered, as the objects can change at any time.
    """

    def __init__(self, store: RangeStore, *, gate: Gate, retry: Retry, cuts: Cuts | None = None) -> None:
        self._store = store
        self._gate = gate
        self._retry = retry
        self._cuts = Cuts() if cuts is None else cuts

    async def list_below(
        self, prefix: str, metrics: Metrics, *, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        """Return the objects at or below `prefix`, each path once, sorted by code point. Each page counts as a request.

        If there are several pages, `begun` is called with the first, and again if the listing is retried. Each range of
        keys is listed as it was at some moment of the call, as it is if pages are requested one by one.

        Raises
        ------
        StoreError
            The store cannot list, failed, repeats its keys, or lists two different objects by one name.
        """
        store = self._store
        if not isinstance(store, Pager):
            if not isinstance(store, Lister):
                raise StoreError("this store cannot list", path=prefix, hint="name the files")
            return _in_order(await self._walk(store, prefix, metrics))
        cuts = self._cuts.get(prefix)
        if cuts:
            try:
                found = await self._at_once(store, prefix, cuts, metrics, begun)
            except _UnfitError:
                cuts = self._cuts[prefix] = ()
            else:
                self._learn(prefix, found)
                return found
        entries = await self._list_range(store, prefix, metrics, begun=begun)
        if cuts is None and prefix and store.cuts_listings and _fits(entries):
            self._learn(prefix, entries)
        return _in_order(entries)

    def _learn(self, prefix: str, entries: Sequence[ObjectEntry]) -> None:
        """Remember the last key of each full page, even of the last page: what may follow it is requested in any case (see
        `PageWalk.pages`)."""
        cuts = tuple([entry.path for entry in entries[LIST_PAGE - 1 :: LIST_PAGE]])
        if cuts and _size(cuts) <= self._cuts.maxsize:
            self._cuts[prefix] = cuts
        else:
            self._cuts.pop(prefix, None)

    async def _at_once(
        self,
        store: Pager,
        prefix: str,
        cuts: Sequence[str],
        metrics: Metrics,
        begun: PageSeen | None,
    ) -> list[ObjectEntry]:
        """List all ranges between cuts concurrently; raises _UnfitError if the keys are not in the expected order."""
        parts: list[list[ObjectEntry]] = [[] for _ in range(len(cuts) + 1)]
        waiting = deque(enumerate(pairwise((None, *cuts, None))))

        async def work() -> None:
            while waiting:
                place, (after, until) = waiting.popleft()
                parts[place] = await self._list_range(
                    store,
                    prefix,
                    metrics,
                    after=after,
                    until=until,
                    check=True,
                    begun=None if place else begun,
                )

        try:
            async with Group() as group:
                for _ in range(min(_AT_ONCE, len(parts))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            _, others = failures.split(_UnfitError)
            failure = _UnfitError() if others is None else foremost(others)
        else:
            return [entry for part in parts for entry in part]
        raise failure from None

    async def _list_range(
        self,
        store: Pager,
        prefix: str,
        metrics: Metrics,
        *,
        after: str | None = None,
        until: str | None = None,
        check: bool = False,
        begun: PageSeen | None = None,
    ) -> list[ObjectEntry]:
        """Return the objects whose keys are greater than `after` and not greater than `until`, page by page."""

        async def attempt() -> list[ObjectEntry]:
            walk = PageWalk(store, prefix, after=after, page_keys=LIST_PAGE)
            entries, last = walk.entries, after
            try:
                async with self._gate.slot(), aclosing(walk.pages()) as pages:
                    async for page in pages:
                        if check and not _fits(page, last):
                            raise _UnfitError
                        if begun is not None and len(entries) == len(page) >= LIST_PAGE:
                            begun(page if _fits(page) else _in_order(list(page)))
                        last = page[-1].path
                        if until is not None and last >= until:
                            del entries[bisect_right(entries, until, key=_path_of) :]
                            break
            finally:
                for _ in range(walk.requests):
                    metrics.count_request(Kind.LISTING, 0)
            return entries

        return await self._retry.run(attempt, on_retry=lambda: metrics.add("retries"))

    async def _walk(self, store: Lister, prefix: str, metrics: Metrics) -> list[ObjectEntry]:
        """List a store that has no pages; a request is counted for each page that S3 would have sent."""
        entries: list[ObjectEntry] = []

        async def attempt() -> None:
            entries.clear()
            try:
                async with self._gate.slot():
                    async for entry in store.list(prefix):
                        entries.append(entry)
                        if not len(entries) % LIST_PAGE:
                            await breathe()
            finally:
                for _ in range(max(1, -(-len(entries) // LIST_PAGE))):
                    metrics.count_request(Kind.LISTING, 0)

        await self._retry.run(attempt, on_retry=lambda: metrics.add("retries"))
        return entries


class _UnfitError(Exception):
    """The keys of a page are not in order, or not in the requested range."""


def _fits(page: Sequence[ObjectEntry], after: str | None = None) -> bool:
    """Return whether the keys ascend, and follow `after`, in an order on which all servers agree.

    That is so only for ASCII, as some servers compare UTF-16.
    """
    paths = [entry.path for entry in page]
    if after is not None:
        paths.insert(0, after)
    return all(map(str.isascii, paths)) and _ascend(paths)


def _ascend(paths: Sequence[str]) -> bool:
    return all(starmap(operator.lt, pairwise(paths)))


def _in_order(entries: list[ObjectEntry]) -> list[ObjectEntry]:
    """Return the entries sorted by path, with each path once."""
    entries.sort(key=_path_of)
    if _ascend([entry.path for entry in entries]):
        return entries
    return [_one_of(list(same)) for _, same in groupby(entries, key=_path_of)]


def _one_of(same: Sequence[ObjectEntry]) -> ObjectEntry:
    """Return the object that several entries of one path stand for.

    A directory marker `x.parquet/` is listed as `x.parquet`, and a server may list a key twice. An entry with bytes is
    preferred to an empty one. Two different entries with bytes are refused, as the rows of one would be missing.
    """
    first, *others = [entry for entry in same if entry.size] or same[:1]
    if any((other.size, other.etag) != (first.size, first.etag) for other in others):
        raise StoreError(
            "the store lists two different objects by this name",
            path=first.path,
            hint="one may have a / at its end: rename it, or delete it",
        )
    return first


def _size(cuts: Sequence[str]) -> int:
    return sum(map(len, cuts)) + _OVERHEAD * (len(cuts) + 1)
