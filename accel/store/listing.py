"""Listings of a prefix: pages are requested concurrently if an earlier listing has shown at which keys they
begin."""

from __future__ import annotations

import enum
import operator
import time
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
from accel.runtime.tasks import Group, breathe
from accel.store.fetch import Retry
from accel.store.gate import Gate
from accel.store.range_store import LIST_PAGE, Lister, ObjectEntry, Pager, PageSeen, RangeStore
from accel.store.request_errors import foremost

__all__ = ["Cuts", "Listings", "PageWalk"]

_MOST_REPEATS: Final = 3
"""Maximum pages in a row without a new key. One is legal: a file and a directory marker of its name are
listed alike."""
MOST_EMPTY: Final = 1_000
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
        self.refused = False
        """Whether the store has refused to list from a key on."""
        self._store = store
        self.prefix = prefix
        self._after = after
        self._page_keys = page_keys
        self._stream: AsyncGenerator[Sequence[ObjectEntry], None] | None = None
        self._reset()

    def _reset(self) -> None:
        """Begin from the first page."""
        self.entries.clear()
        self._pages = self._repeats = self._empty = 0
        self._furthest = ""
        # Paths of the first `_counted` entries, collected only if entries do not come in order.
        self._paths: set[str] = set()
        self._counted = 0
        self._begin(self._after, _Reason.FIRST)

    def _begin(self, start: str | None, reason: _Reason) -> None:
        """Set where the next stream begins."""
        self._start = start
        self._reason = reason
        self._last: Sequence[ObjectEntry] = ()
        self._answered = False

    async def pages(self) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """Yield the pages that are not empty, each after it was added to `entries`.

        A server that has only version 1 of ListObjects gives no token for the next page, which obstore takes
        for the end. So a listing that ends with a full page is requested once more, from its last key on,
        unless the server has said that it ends. After a failure, `resume` and another call go on.

        Raises
        ------
        StoreError
            The store failed, repeats its keys, or may have left out what follows its first page.
        """
        resumable = False
        try:
            while True:
                page = await self._next()
                if page is None:
                    if not await self._goes_on():
                        return
                    continue
                new = self._brings_new(page)
                if page and not new and not self._last and self._pages:
                    if self._reason is _Reason.END:
                        self._check_end(page)
                        return
                    if self._reason is _Reason.RESUMED:
                        # The store lists from no key.
                        await self._close()
                        self._reset()
                        continue
                self._check_progress(page, new)
                if page:
                    self._pages += 1
                    self.entries += page
                    self._last = page
                    yield page
        except StoreError as error:
            resumable = error.transient and getattr(self._stream, "resumable", False)
            raise
        finally:
            if not resumable:
                await self._close()

    def resume(self) -> bool:
        """Prepare for another call of `pages` after a failure; return whether what has come is kept.

        The page that failed is requested again if the store can do that, or what follows the last key. Else
        the listing begins anew.
        """
        if self._stream is not None:
            return True
        store = self._store
        from_keys = store.cuts_listings or getattr(store, "lists_from_keys", False)
        if self.entries and from_keys and not self.refused and _fits(self.entries, self._after):
            self._begin(self.entries[-1].path, _Reason.RESUMED)
            return True
        self._reset()
        return False

    async def _next(self) -> Sequence[ObjectEntry] | None:
        """Return the next page of the stream, None at its end, and count the request."""
        if self._stream is None:
            self._stream = self._store.pages(self.prefix, after=self._start)
        self.requests += 1
        try:
            page = await anext(self._stream, None)
        except StoreError as error:
            if self._reason is _Reason.FIRST or not refuses_start(error):
                raise
            self.refused = True
            await self._without_start(error)
            return None
        if page is None:
            self.requests -= self._answered  # the last response was also the end
        else:
            self._answered = True
        return page

    async def _without_start(self, refusal: StoreError) -> None:
        """Go on after the store has refused to list what follows the last key."""
        await self._close()
        if self._reason is _Reason.RESUMED:
            self._reset()
        elif self._pages == 1:
            raise self._cut_short() from refusal

    async def _goes_on(self) -> bool:
        """Return whether something may follow the end of the stream, which is requested next."""
        last, more = self._last, getattr(self._stream, "more", None)
        ended, self._stream = self._stream, None
        if ended is not None:
            await ended.aclose()
        elif self._reason is _Reason.FIRST:
            return True  # it begins anew
        if more is False or self.refused:
            return False
        if more:
            if not last:
                raise StoreError(
                    "the store says that more pages follow, and gives no continuation token",
                    path=self.prefix,
                )
            self._begin(last[-1].path, _Reason.END)
            return True
        if len(last) >= self._page_keys and self._store.cuts_listings:
            self._begin(last[-1].path, _Reason.END)
            return True
        if self._is_doubtful(last):
            self._begin(self._furthest or self._after, _Reason.END)
            return True
        return False

    def _is_doubtful(self, last: Sequence[ObjectEntry]) -> bool:
        """Return whether the end of the stream may be an answer that is no listing, which obstore takes for a
        last page.

        A stream that came to an end after some keys of the first page is believed: its only page was a
        listing.
        """
        if not getattr(self._store, "confirms_listings", False):
            return False
        if self._reason is _Reason.END and not last:
            return False  # it has been confirmed
        return not last or self._after is not None or len(self.entries) >= self._page_keys

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

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
                path=self.prefix,
                hint="its continuation tokens lead nowhere: name the files",
            )
        if self._empty >= MOST_EMPTY:
            raise StoreError("the store sends empty pages without an end", path=self.prefix)

    def _check_end(self, page: Sequence[ObjectEntry]) -> None:
        """Check the end of a listing: the page after the last key brought nothing new.

        It may hold a directory marker of the last name. Else the store cannot list from a key, and whether
        there is more is known only if its continuation tokens have worked.
        """
        if self._after is not None or self._pages > 1 or not self._store.cuts_listings:
            return
        if any(entry.path != self._start for entry in page):
            raise self._cut_short()

    def _cut_short(self) -> StoreError:
        return StoreError(
            f"the listing may be cut short after its first {len(self.entries)} keys: this store lists from "
            "no key",
            path=self.prefix,
            hint="it may only know ListObjects of version 1: name the files, or smaller directories",
        )


class _Reason(enum.Enum):
    """Why a stream of pages is requested."""

    FIRST = "the first pages"
    END = "what may follow the end of the stream before"
    RESUMED = "what follows the last key before a failure"


def refuses_start(error: StoreError) -> bool:
    """Return whether a store refuses to list from a key on, rather than to list."""
    return error.status in (400, 405, 501) and not error.transient


AT_ONCE: Final = 16
"""Ranges of keys that are listed concurrently, if the gate has room."""
_REMEMBERED: Final = 1 << 20
"""Bytes of cuts that are remembered."""
_OVERHEAD: Final = 64
"""Bytes of a cut besides its characters."""

_path_of = operator.attrgetter("path")


class Cuts(LRUCache[str, tuple[str, ...]]):
    """The last keys of full pages, for the prefixes listed last; an empty tuple for a prefix that cannot be
    cut.

    The cuts of a million keys take a tenth of the limit.
    """

    def __init__(self, limit: int = _REMEMBERED) -> None:
        super().__init__(limit, getsizeof=size_of_cuts)
        self.refused = False
        """Whether the store has refused to list from a key on, so that its listings are not cut again."""


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
        self.gate = gate
        self._retry = retry
        self.cuts = Cuts() if cuts is None else cuts

    async def list_below(
        self,
        prefix: str,
        metrics: Metrics,
        *,
        begun: PageSeen | None = None,
        after: str | None = None,
    ) -> list[ObjectEntry]:
        """Return the objects at or below `prefix`, each path once, sorted by code point. Each page counts as
        a request.

        With `after` only objects of greater paths are returned; a store that can list from a key on is not
        asked for the others.

        If there are several pages, `begun` is called with the first, and again if the listing is retried.
        Each range of keys is listed as it was at some moment of the call, as it is if pages are requested one
        by one.

        Raises
        ------
        StoreError
            The store cannot list, failed, repeats its keys, or lists two different objects by one name.
        """
        store = self._store
        if not isinstance(store, Pager):
            if not isinstance(store, Lister):
                raise StoreError("this store cannot list", path=prefix, hint="name the files")
            return _after(_in_order(await self._walk(store, prefix, metrics)), after)
        if after is not None:
            start = after if store.cuts_listings and not self.cuts.refused else None
            return _after(_in_order(await self._list_range(store, prefix, metrics, after=start)), after)
        cuts = () if self.cuts.refused else self.cuts.get(prefix)
        if cuts:
            try:
                found = await self._at_once(store, prefix, cuts, metrics, begun)
            except _UnfitError:
                cuts = self.cuts[prefix] = ()
            else:
                self._learn(prefix, found)
                return found
        entries = await self._list_range(store, prefix, metrics, begun=begun)
        if cuts is None and prefix and store.cuts_listings and _fits(entries):
            self._learn(prefix, entries)
        return _in_order(entries)

    def _learn(self, prefix: str, entries: Sequence[ObjectEntry]) -> None:
        """Remember the last key of each full page, even of the last page: what may follow it is requested in
        any case (see `PageWalk.pages`)."""
        cuts = tuple([entry.path for entry in entries[LIST_PAGE - 1 :: LIST_PAGE]])
        if cuts and size_of_cuts(cuts) <= self.cuts.maxsize:
            self.cuts[prefix] = cuts
        else:
            self.cuts.pop(prefix, None)

    async def _at_once(
        self,
        store: Pager,
        prefix: str,
        cuts: Sequence[str],
        metrics: Metrics,
        begun: PageSeen | None,
    ) -> list[ObjectEntry]:
        """List all ranges between cuts concurrently; raises _UnfitError if the keys are not in the expected
        order."""
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
                for _ in range(min(AT_ONCE, len(parts))):
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
        """Return the objects whose keys are greater than `after` and not greater than `until`, page by page.

        After a failure it goes on with the page that failed, if the store can do that; then only failures
        without a page between them count together.
        """
        walk = PageWalk(store, prefix, after=after, page_keys=LIST_PAGE)
        failures, since = 0, self._retry.clock()
        while True:
            came = len(walk.entries)
            try:
                await self._follow(walk, metrics, after=after, until=until, check=check, begun=begun)
                return walk.entries
            except StoreError as error:
                if check and after is not None and refuses_start(error):
                    self.cuts.refused = True
                    raise _UnfitError from None
                failure = error
            finally:
                self.cuts.refused = self.cuts.refused or walk.refused
            came = len(walk.entries) - came
            failures = 1 if walk.resume() and came > 0 else failures + 1
            since = self._retry.clock() if came > 0 else since
            await self._retry.wait(failures, failure, since=since)
            metrics.add("retries")

    async def _follow(
        self,
        walk: PageWalk,
        metrics: Metrics,
        *,
        after: str | None,
        until: str | None,
        check: bool,
        begun: PageSeen | None,
    ) -> None:
        """Take the pages of a walk, up to the key `until`."""
        entries, sent = walk.entries, walk.requests
        last = entries[-1].path if entries else after
        began = time.perf_counter()
        try:
            async with self.gate.slot(), aclosing(walk.pages()) as pages:
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
            took = time.perf_counter() - began
            for _ in range(walk.requests - sent):
                metrics.count_request(Kind.LISTING, 0)
                metrics.report_request(Kind.LISTING, walk.prefix, place=None, nbytes=0, seconds=took)

    async def _walk(self, store: Lister, prefix: str, metrics: Metrics) -> list[ObjectEntry]:
        """List a store that has no pages; a request is counted for each page that S3 would have sent."""
        entries: list[ObjectEntry] = []

        async def attempt() -> None:
            entries.clear()
            began = time.perf_counter()
            try:
                async with self.gate.slot():
                    async for entry in store.list(prefix):
                        entries.append(entry)
                        if not len(entries) % LIST_PAGE:
                            await breathe()
            finally:
                took = time.perf_counter() - began
                for _ in range(max(1, -(-len(entries) // LIST_PAGE))):
                    metrics.count_request(Kind.LISTING, 0)
                    metrics.report_request(Kind.LISTING, prefix, place=None, nbytes=0, seconds=took)

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


def _after(entries: list[ObjectEntry], after: str | None) -> list[ObjectEntry]:
    """Return the entries whose paths are greater than a key."""
    return entries if after is None else [entry for entry in entries if entry.path > after]


def _in_order(entries: list[ObjectEntry]) -> list[ObjectEntry]:
    """Return the entries sorted by path, with each path once."""
    entries.sort(key=_path_of)
    if _ascend([entry.path for entry in entries]):
        return entries
    return [_one_of(list(same)) for _, same in groupby(entries, key=_path_of)]


def _one_of(same: Sequence[ObjectEntry]) -> ObjectEntry:
    """Return the object that several entries of one path stand for.

    A directory marker `x.parquet/` is listed as `x.parquet`, and a server may list a key twice. An entry with
    bytes is preferred to an empty one. Two different entries with bytes are refused, as the rows of one would
    be missing.
    """
    first, *others = [entry for entry in same if entry.size] or same[:1]
    if any((other.size, other.etag) != (first.size, first.etag) for other in others):
        raise StoreError(
            "the store lists two different objects by this name",
            path=first.path,
            hint="one may have a / at its end: rename it, or delete it",
        )
    return first


def size_of_cuts(cuts: Sequence[str]) -> int:
    return sum(map(len, cuts)) + _OVERHEAD * (len(cuts) + 1)
