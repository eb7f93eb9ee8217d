"""Byte sources of a task: what is in memory of its file wraps what reads the others."""

from __future__ import annotations

from collections.abc import Sequence

from accel.cache.pinned_reads import ByteSource
from accel.planning.task import TaskFile
from accel.ranges import ByteRange, ReadKey, Stash, Want

__all__ = ["GivenPages", "LoadedBytes"]


class LoadedBytes:
    """What came with the tasks of a file is not read: of a small file all, of chunks that were read to be
    cut, those."""

    __slots__ = ("_below", "_file")

    def __init__(self, file: TaskFile, below: ByteSource) -> None:
        self._file = file
        self._below = below

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that did not come with the tasks, and that the next source misses."""
        rest = self._file.missing(want.range)
        return None if rest is None else self._below.missing(Want(want.key, rest))

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, and the round trips of those that did not come with the tasks."""
        file = self._file
        rest = [Want(want.key, part) for want in wants if (part := file.missing(want.range)) is not None]
        came, trips = await self._below.read(rest) if rest else ({}, 0)
        return {want.key: file.complete(want.range, came.get(want.key)) for want in wants}, trips


class GivenPages:
    """Pages that were fetched along with those of other tasks.

    Parameters
    ----------
    pages : mapping
        By the keys of what is wanted. Of two tasks of a row group, as an aggregate makes them, one may want a
        shorter run that begins with the same page.
    below : ByteSource
    """

    __slots__ = ("_below", "_pages")

    def __init__(self, pages: Stash, below: ByteSource) -> None:
        self._pages = pages
        self._below = below

    def missing(self, want: Want) -> ByteRange | None:
        """Return None for a page that was given, else what the next source misses."""
        return None if want.key in self._pages else self._below.missing(want)

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        """Return the wanted bytes, and the round trips of those that were not given."""
        pages = self._pages
        found: dict[ReadKey, memoryview] = {}
        rest: list[Want] = []
        for want in wants:
            page = pages.get(want.key)
            if page is None:
                rest.append(want)
            else:
                start, end = want.range
                found[want.key] = page if len(page) == end - start else page[: end - start]
        if not rest:
            return found, 0
        came, trips = await self._below.read(rest)
        return {**found, **came}, trips
