"""Small pieces that are to be decoded on one event loop, and their pages decompressed meanwhile where they are many.

A piece alone is decoded at once. Those that come while others are decoded wait for the end of that turn of the loop, and
where they are many by then a thread decompresses the pages of all (`decode.chunks`), while the loop decodes those before them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from accel.decode.pool import DecodePool
from accel.format.model import Codec
from accel.planning.pages import Piece

if TYPE_CHECKING:
    from accel.decode.chunks import LeafBytes, SinglePage, Unpacked

__all__ = ["Unpacking", "unpacking_of"]

_FEWEST: Final = 8
"""Pieces; fewer are decoded before a thread has begun."""
_MOST_BYTES: Final = 16 << 20
"""Of pieces whose pages are decompressed in one call, as they are estimated to be held."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A piece that waits for its turn."""

    pages: Sequence[SinglePage]
    nbytes: int
    told: asyncio.Future[Sequence[Unpacked | None]]
    """What became of each page; nothing of none, where they are left to the decoder."""


class Unpacking:
    """Who waits on one event loop, whatever scans they are of."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._engaged = False
        """A piece was decoded in this turn of the loop, or a thread is at the pages of some."""

    async def before(
        self, piece: Piece, leaves: Mapping[int, LeafBytes], *, pool: DecodePool
    ) -> Mapping[int, LeafBytes]:
        """Awaited before a piece is decoded on the loop.

        Returns
        -------
        mapping
            Its leaves as given, or with pages decompressed.
        """
        loop = asyncio.get_running_loop()
        if not self._engaged:
            self._engaged = True
            loop.call_soon(self._look, pool)
            return leaves
        pages = _single_pages(piece, leaves)
        if not pages or pool.threads < 2:
            return leaves
        waiting = _Waiting(list(pages.values()), piece.held_bytes, loop.create_future())
        self._waiting.append(waiting)
        found = await waiting.told
        unpacked = dict(zip(pages, found, strict=False))
        return {
            leaf: held if (page := unpacked.get(leaf)) is None else replace(held, unpacked=page)
            for leaf, held in leaves.items()
        }

    def _look(self, pool: DecodePool) -> None:
        """Have the pages of those that wait decompressed, or let all go on where these are few."""
        waiting = [one for one in self._waiting if not one.told.done()]
        group: list[_Waiting] = []
        held = 0
        for one in waiting if len(waiting) >= _FEWEST else ():
            held += one.nbytes
            if group and held > _MOST_BYTES:
                break
            group.append(one)
        self._waiting = waiting[len(group) :]
        if not group or not self._begin(group, pool):
            self._engaged = False
            for one in (*group, *self._waiting):
                one.told.set_result(())
            self._waiting = []

    def _begin(self, group: Sequence[_Waiting], pool: DecodePool) -> bool:
        try:
            from accel.decode.chunks import unpack_pages

            call = pool.begin(unpack_pages, [page for one in group for page in one.pages])
        except Exception:  # noqa: BLE001 - the process ends, or has no memory left: nobody is left waiting
            return False
        call.add_done_callback(partial(self._came, group, pool))
        return True

    def _came(
        self, group: Sequence[_Waiting], pool: DecodePool, call: asyncio.Future[list[Unpacked | None]]
    ) -> None:
        """Let a group go on, and have the next one's pages decompressed meanwhile."""
        self._look(pool)
        # The decoder will meet what has failed here, and say what it was.
        found = [] if call.cancelled() or call.exception() is not None else call.result()
        start = 0
        for one in group:
            stop = start + len(one.pages)
            if not one.told.done():
                one.told.set_result(found[start:stop])
            start = stop


def _single_pages(piece: Piece, leaves: Mapping[int, LeafBytes]) -> dict[int, SinglePage]:
    """By leaf, the pages of those that have a single one, which is compressed."""
    return {
        part.reads.leaf: (leaves[part.reads.leaf].pages[0], part.reads.codec)
        for part in piece.leaves
        if part.reads.codec != Codec.UNCOMPRESSED and not part.reads.whole and part.hi - part.lo == 1
    }


def unpacking_of(loop: asyncio.AbstractEventLoop) -> Unpacking:
    """Who waits on a loop."""
    found = _of_loop.get(loop)
    if found is None:
        found = _of_loop[loop] = Unpacking()
    return found


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Unpacking] = weakref.WeakKeyDictionary()
