"""A listing read page after page to where it really ends: servers that go round, or stop short, are found out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from accel.errors import StoreError
from accel.store.range_store import ObjectEntry, Pager

__all__ = ["PageWalk"]

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
