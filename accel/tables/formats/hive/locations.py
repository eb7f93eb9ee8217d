"""The files of partitions: their locations are listed together, wherever they are."""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from accel.errors import AccelError, ObjectNotFoundError
from accel.planning.file_entry import FileEntry
from accel.runtime.tasks import Group
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import raising_foremost
from accel.tables.listed_files import visible_files
from accel.tables.metadata_objects import MetadataObjects
from accel.tables.named_source import NamedSource, SourceShape

__all__ = ["list_locations"]

_AT_ONCE: Final = 64
"""Locations that are being listed."""
_LISTED_TOGETHER: Final = 8
"""Partitions from which on the directory above all of them is listed, where no partition is left out."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A location, and its directory in a store."""

    source: NamedSource

    @property
    def below(self) -> str:
        """What the paths of its files begin with."""
        prefix = self.source.prefix
        return f"{prefix}/" if prefix else ""


async def list_locations(
    objects: MetadataObjects, locations: Sequence[str], *, above: str | None
) -> list[Sequence[FileEntry]]:
    """Return the files of each location: those below it whose names are not hidden, and that are not empty.

    Parameters
    ----------
    objects : MetadataObjects
    locations : sequence of str
    above : str, optional
        The directory of the table, where all of its partitions are wanted: locations below it are listed by
        one listing, whose pages are full.

    Raises
    ------
    StoreError
        A store does not list, or there is none for such URLs.
    """
    places = [_Place(_named(objects, one)) for one in locations]
    found: list[Sequence[FileEntry] | None] = [None] * len(places)
    if above is not None and len(places) >= _LISTED_TOGETHER:
        root = _Place(_named(objects, above))
        together = [at for at, place in enumerate(places) if _is_below(place, root)]
        if len(together) >= _LISTED_TOGETHER and not _are_nested([places[at].below for at in together]):
            entries = await _listed(objects, root.source.text)
            for at in together:
                found[at] = await visible_files(places[at].source, _slice(entries, places[at].below))
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def one(at: int) -> None:
        async with at_once:
            entries = await _listed(objects, locations[at])
            found[at] = await visible_files(places[at].source, entries)

    with raising_foremost():
        async with Group() as group:
            for at, files in enumerate(found):
                if files is None:
                    group.create_task(one(at))
    return [[file for file in files or () if file.size] for files in found]


def _named(objects: MetadataObjects, url: str) -> NamedSource:
    try:
        _, location = objects.locate(url)
    except AccelError as error:
        raise error.at(path=url) from None
    return NamedSource(url, location, SourceShape.DIRECTORY, url if url.endswith("/") else f"{url}/")


async def _listed(objects: MetadataObjects, url: str) -> list[ObjectEntry]:
    try:
        return await objects.list_below(url.rstrip("/") or "/")
    except ObjectNotFoundError:
        return []  # a partition whose directory nobody has made, as there are no directories in object stores


def _is_below(place: _Place, root: _Place) -> bool:
    same = place.source.location.root == root.source.location.root
    return same and place.below.startswith(root.below)


def _are_nested(prefixes: Sequence[str]) -> bool:
    ordered = sorted(prefixes)
    return any(later.startswith(earlier) for earlier, later in itertools.pairwise(ordered))


def _slice(entries: Sequence[ObjectEntry], below: str) -> Sequence[ObjectEntry]:
    """Return the entries, which are in the order of their paths, whose paths begin with a text."""
    start = bisect_left(entries, below, key=lambda entry: entry.path)
    stop = start
    while stop < len(entries) and entries[stop].path.startswith(below):
        stop += 1
    return entries[start:stop]
