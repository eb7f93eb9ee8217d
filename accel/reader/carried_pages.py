"""Pages that straddle a cut: the first piece that needs one fetches it, the others wait for it, and with the last of
them it is let go. A row group may have as many of them as it has pages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from accel.arrays import own_copy
from accel.planning.pages import LeafReads
from accel.ranges import Buffer

__all__ = ["CarriedPages"]


@dataclass(slots=True)
class _Page:
    came: asyncio.Future[Buffer]
    takers: int = 0
    """Pieces that wait for it, or will."""
    until: int = 0
    """Pieces that begin before this row may yet come to want it."""


class CarriedPages:
    """Those of one task, by leaf and ordinal. Used on one event loop."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], _Page] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def expect(self, reads: LeafReads, at: int) -> None:
        """Announce a later piece that will take this page; once for each such piece."""
        self._page(reads, at).takers += 1

    def offer(self, reads: LeafReads, at: int) -> None:
        """Announce a page about to be fetched that later pieces may claim."""
        self._page(reads, at).until = int(reads.stop_row[at])

    def claim(self, leaf: int, ordinal: int) -> bool:
        """Whether a page is on its way, or here, for another piece: then whoever asks takes it."""
        page = self._pages.get((leaf, ordinal))
        if page is None:
            return False
        page.takers += 1
        return True

    def bring(self, reads: LeafReads, at: int, page: memoryview) -> None:
        """Hand a page that was fetched to all who take it; a copy, that what it came in can go."""
        waited = self._pages.get(_key(reads, at))
        if waited is not None and not waited.came.done():
            waited.came.set_result(own_copy(page))

    def fail(self, reads: LeafReads, at: int) -> None:
        """A page does not come: whoever waits for it is cancelled."""
        waited = self._pages.get(_key(reads, at))
        if waited is not None:
            waited.came.cancel()

    async def take(self, reads: LeafReads, at: int, *, until: int) -> memoryview:
        """A page that was expected or claimed, for a piece that ends before the row `until`."""
        key = _key(reads, at)
        page = self._pages[key]
        try:
            return memoryview(await asyncio.shield(page.came))
        finally:
            page.takers -= 1
            if not page.takers and page.until <= until:
                self._pages.pop(key, None)

    def pass_by(self, row: int) -> None:
        """Let go of what was offered to pieces that end before this row, and claimed by none."""
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
