"""What is below a prefix: asked of the store each time, all pages at once where the last listing tells where they begin."""

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
"""Pages in a row that bring no key that was not there before. One may: a file and a marker of its name are listed alike."""
_MOST_EMPTY: Final = 1_000
"""Empty pages in a row. Servers may send some, where they have only passed over what was deleted."""


class PageWalk:
    """One listing, from one key on.

    Parameters
    ----------
    store : Pager
    prefix : str
    after : str or None
        As in `Pager.pages`.
    page_keys : int
        Keys of a full page.
    """

    def __init__(self, store: Pager, prefix: str, *, after: str | None, page_keys: int) -> None:
        self.entries: list[ObjectEntry] = []
        """All that has come, in the store's order, repeats included."""
        self.requests = 0
        self._store = store
        self._prefix = prefix
        self._after = after
        self._page_keys = page_keys
        self._pages = self._repeats = self._empty = 0
        self._furthest = ""
        # Paths of the first `_counted` entries, gathered where they do not come in order.
        self._known: set[str] = set()
        self._counted = 0

    async def pages(self) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """The pages that hold something, each after it was added to `entries`.

        obstore does not tell a listing that is over from one whose next page the server gave no token for, as those do
        that only know ListObjects of version 1. So what ends with a full page is asked for once more, from there on.

        Raises
        ------
        StoreError
            The store failed, goes round in circles, or may have left out what comes after its first page.
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
                        self.requests -= answered  # the last answer has told the end, too
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
        # Round in a circle, or in another order than that of code points, as UTF-16 has.
        self._known.update(entry.path for entry in self.entries[self._counted :])
        self._counted = len(self.entries)
        return any(entry.path not in self._known for entry in page)

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
        """What came after the last key was there before. A marker of its name may be; else the store lists from no key,
        and whether there is more is only known where its tokens were seen to work."""
        if self._after is None and self._pages == 1 and any(entry.path != after for entry in page):
            raise StoreError(
                f"the listing may be cut short after its first {len(self.entries)} keys: this store lists from no key",
                path=self._prefix,
                hint="it may only know ListObjects of version 1: name the files, or smaller directories",
            )


_AT_ONCE: Final = 16
"""Stretches of one listing that are asked for at a time, where the gate has room."""
_REMEMBERED: Final = 1 << 20
"""Bytes of cuts, of the prefixes listed last."""
_OVERHEAD: Final = 64
"""Bytes of a cut besides its letters."""

_path_of = operator.attrgetter("path")


class Cuts(LRUCache[str, tuple[str, ...]]):
    """Of the prefixes listed last, the keys that full pages ended with; none where it cannot be cut.

    Some 1 MiB of them at most: those of a million keys take a tenth of that.
    """

    def __init__(self, limit: int = _REMEMBERED) -> None:
        super().__init__(limit, getsizeof=_size)


class Listings:
    """The listings of one store. Used on one event loop.

    Parameters
    ----------
    store : RangeStore
        One that is a `Pager`, or at least a `Lister`.
    gate : Gate
        Each stretch takes the room of one request, as it waits for one page at a time.
    retry : Retry
    cuts : Cuts, optional
        What is remembered. Nothing else may be kept of it: what is below a prefix can change at any time.
    """

    def __init__(self, store: RangeStore, *, gate: Gate, retry: Retry, cuts: Cuts | None = None) -> None:
        self._store = store
        self._gate = gate
        self._retry = retry
        self._cuts = Cuts() if cuts is None else cuts

    async def list_below(
        self, prefix: str, metrics: Metrics, *, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        """Objects at or below `prefix`, each path once, sorted (by code point). Counts a request for each page.

        Where there are several, `begun` is called with the first page as it has come, in the store's order if no path
        comes twice; once more where the listing is tried again.

        Between two pages objects may come and go, and do so here as they would if pages were asked for one by one:
        each stretch of keys is as it was at some moment of the call.

        Raises
        ------
        StoreError
            The store cannot list, failed to, goes round in circles, or lists two different objects by one name.
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
        entries = await self._stretch(store, prefix, metrics, begun=begun)
        if cuts is None and prefix and store.cuts_listings and _fits(entries):
            self._learn(prefix, entries)
        return _in_order(entries)

    def _learn(self, prefix: str, entries: Sequence[ObjectEntry]) -> None:
        """Remember where pages end: the last key of each full one. Where that is the last, too, what may follow it is
        asked for in any case (`PageWalk.pages`), and so along with the others."""
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
        """All stretches between cuts; _UnfitError where the store's answers do not let them be told apart."""
        parts: list[list[ObjectEntry]] = [[] for _ in range(len(cuts) + 1)]
        waiting = deque(enumerate(pairwise((None, *cuts, None))))

        async def work() -> None:
            while waiting:
                place, (after, until) = waiting.popleft()
                parts[place] = await self._stretch(
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

    async def _stretch(
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
        """The objects whose keys come after one key and not after another, page by page."""

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
        """What a store lists that knows no pages; those that S3 would have sent are counted."""
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
    """The keys of a page are not in the order, or not of the stretch, that they should be."""


def _fits(page: Sequence[ObjectEntry], after: str | None = None) -> bool:
    """Whether these follow each other, and `after`, in an order that is the same for all who compare bytes or letters.

    Only ASCII is taken to be that: some servers compare UTF-16.
    """
    paths = [entry.path for entry in page]
    if after is not None:
        paths.insert(0, after)
    return all(map(str.isascii, paths)) and _ascend(paths)


def _ascend(paths: Sequence[str]) -> bool:
    return all(starmap(operator.lt, pairwise(paths)))


def _in_order(entries: list[ObjectEntry]) -> list[ObjectEntry]:
    """Sorted by path, and each path once; the list itself where that is so."""
    entries.sort(key=_path_of)
    if _ascend([entry.path for entry in entries]):
        return entries
    return [_one_of(list(same)) for _, same in groupby(entries, key=_path_of)]


def _one_of(same: Sequence[ObjectEntry]) -> ObjectEntry:
    """The object that entries of one path are of.

    A marker `x.parquet/` is listed as `x.parquet`, and a server may list a key twice: its rows are there once. An empty
    one says less than one with bytes, which is read as the version it is listed as, or not at all. Which of two such
    versions the path is read as cannot be told, and rows of the other would be missing: neither is taken.
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
