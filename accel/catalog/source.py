"""CatalogSource: the files of a source, without those that a catalog proves to hold nothing that is asked for."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.catalog.objects import directory_at
from accel.catalog.partitions import FilePartitions
from accel.catalog.pruning import BoundQuestion, CatalogPruner, FilePlace, Verdict
from accel.catalog.segments import CatalogSnapshot, SegmentReader, SegmentTables
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.range_store import ObjectEntry, PageSeen, Payload
from accel.store.request_errors import foremost
from accel.store.tasks import Group
from accel.tables.hive import settle_types, spelled_columns
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.catalog.learning import IndexLearner
    from accel.scanning.spec import ScanSpec

__all__ = ["PAGE_FILES", "CatalogSource", "Listing"]


_NO_COLUMNS = pa.schema([])
PAGE_FILES: Final = 100_000
"""Files of a catalog that are in memory at a time."""


class Listing(enum.StrEnum):
    """Where the list of files comes from."""

    STORE = "store"
    """The store lists them: whatever is there is read."""
    INDEX = "index"
    """The catalog lists them, as they were when it was refreshed last."""


@dataclass(frozen=True, slots=True, eq=False)
class _First:
    """The first file of a scan."""

    place: FilePlace
    opened: FileEntry
    """With its metadata."""
    asked: BoundQuestion | None
    """The predicate under the schema that it settles."""


class CatalogSource(FileSource):
    """The files of a source, pruned by a catalog.

    Parameters
    ----------
    files : FileSource
        Names the files where the store lists them.
    pruner : CatalogPruner
    spec : ScanSpec
        What the scan is asked for.
    listing : Listing
    in_store : bool
        The caller gave a store.
    page_files : int
        Files of the catalog that are in memory at a time, where it lists the files.
    learner : IndexLearner, optional
        Is shown the files that the scan has opened and that the catalog lacks.
    """

    def __init__(
        self,
        files: FileSource,
        pruner: CatalogPruner,
        spec: ScanSpec,
        *,
        listing: Listing,
        in_store: bool,
        page_files: int = PAGE_FILES,
        learner: IndexLearner | None = None,
    ) -> None:
        self._page_files = page_files
        self._files = files
        self._pruner = pruner
        self._spec = spec
        self._listing = listing
        self._in_store = in_store
        self._learner = learner

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """See `FileSource.blocks`: one block, or where the catalog lists more than `page_files` files, one for each page."""
        pruner, reader = self._pruner, self._pruner.reader(request)
        if self._listing is Listing.INDEX:
            snapshot, trips = await pruner.home.load(pruner.cache, request.reader.metrics)
            if not snapshot.head.complete:
                raise AccelError(
                    "the index does not list all files yet",
                    path=str(pruner.home),
                    hint="refresh it, or let the store list the files",
                )
            partition_schema = None
            if self._covers_all(snapshot):
                partition_schema = await self._partition_schema(snapshot, reader)
            if partition_schema is not None:
                trips += reader.round_trips
                async for block in self._pages(snapshot, partition_schema, trips, request):
                    yield block
                return
            await pruner.load_first(snapshot, reader, request)
            everything = [
                FilePlace(tables, at)
                for tables in snapshot.tables
                for at in np.flatnonzero(tables.live()).tolist()
            ]
            block = await self._listed_by(self._entries(everything, snapshot), snapshot, request)
            block = replace(block, round_trips=trips, catalog_trips=trips, listed=False)
            yield await pruner.prune(block, snapshot, reader, request)
            return
        try:
            async with Group() as group:
                loading = group.create_task(pruner.load(request.reader.metrics))
                # What is opened early would be opened whether the catalog rules it out or not.
                block = await anext(self._files.blocks(replace(request, on_entries=None)))
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
            raise failure from None
        loaded = loading.result()
        if loaded is not None:
            snapshot, trips = loaded
            more = max(0, trips - block.round_trips)
            block = replace(block, round_trips=block.round_trips + more, catalog_trips=more)
            block = await pruner.prune(block, snapshot, reader, request)
        elif not pruner.has_failed:
            pruner.unknown = block.files
        yield block

    def finish(self, request: SourceRequest) -> None:
        """See `FileSource.finish`: the catalog learns what the scan has opened."""
        unknown, self._pruner.unknown = self._pruner.unknown, ()
        if self._learner is None or not unknown:
            return
        now, reader = time.monotonic(), request.reader
        met = ((file, reader.at_hand(file, now)) for file in unknown)
        self._learner.meet(
            [(file, handle) for file, handle in met if handle is not None], request.reader.metrics
        )

    def hint_for(self, column: str, url: str) -> str | None:
        """See `FileSource.hint_for`."""
        return self._files.hint_for(column, url)

    def _covers_all(self, snapshot: CatalogSnapshot) -> bool:
        """Whether the source is the directory that the catalog covers: then files that are ruled out need not be listed."""
        source, spec = self._spec.source, self._spec
        if not isinstance(source, str | os.PathLike) or spec.selection is not None:
            return False
        if not snapshot.head.num_files:
            return False
        location = directory_at(source, in_store=self._in_store)
        return (location.root, location.path) == self._pruner.home.base(snapshot.head)

    async def _partition_schema(self, snapshot: CatalogSnapshot, reader: SegmentReader) -> pa.Schema | None:
        """The columns that the paths of all files spell, settled over all of them; None where these differ in their keys.

        The head tells that of segments of which no file was dropped. The paths of the others are read, one segment at a time.
        """
        partitioning = self._spec.partitioning
        if isinstance(partitioning, pa.Schema):
            return partitioning
        if partitioning is None or not any(one.spells_columns for one in snapshot.head.segments):
            return _NO_COLUMNS
        parts = []
        for tables in snapshot.tables:
            first_path, spelled = tables.segment.first_path, tables.segment.spelled
            if tables.segment.dropped or spelled is None:
                small = snapshot.head.num_files <= self._page_files
                read = tables if small else SegmentTables(tables.segment)  # which is not cached
                paths = (await reader.load_directory(read)).paths
                live = [paths[at] for at in np.flatnonzero(tables.live()).tolist()]
                first_path, spelled = live[0], spelled_columns(path.rpartition("/")[0] for path in live)
            if spelled is None:
                return None
            parts.append((first_path, spelled))
        parts.sort(key=lambda part: part[0])
        return settle_types([spelled for _, spelled in parts], as_text=self._spec.texts)

    async def _pages(
        self, snapshot: CatalogSnapshot, partition_schema: pa.Schema, trips: int, request: SourceRequest
    ) -> AsyncIterator[FileBlock]:
        """The files that may match, behind the first of all, in the order of their paths."""
        pages = _pages_of(snapshot.tables, self._page_files)
        first: _First | None = None
        for number, tables in enumerate(pages):
            last = number + 1 == len(pages)
            if first is not None and first.asked is not None:
                tables = self._without_ruled_out(tables, first.asked, partition_schema, request)
            # What is read of a catalog of several pages is not cached: it need not fit into memory.
            page = replace(
                snapshot,
                tables=tables if len(pages) == 1 else tuple(SegmentTables(one.segment) for one in tables),
            )
            reader = self._pruner.reader(request)
            await self._pruner.load_first(page, reader, request)
            if first is None:
                first = await self._first(page, partition_schema, reader, request)
            block = await self._matching(page, partition_schema, first, reader, request)
            self._pruner.home.reweigh(self._pruner.cache, snapshot)
            if block is not None:
                trips += block.round_trips if number == 0 else 0
                yield replace(block, round_trips=trips, catalog_trips=trips, more=not last)

    def _without_ruled_out(
        self,
        tables: tuple[SegmentTables, ...],
        asked: BoundQuestion,
        partition_schema: pa.Schema,
        request: SourceRequest,
    ) -> tuple[SegmentTables, ...]:
        """The segments that may hold files that match; the files of the others are counted."""
        left = tuple(one for one in tables if asked.may_hold(one.segment, partition_schema))
        gone = [one for one in tables if one not in left]
        self._pruner.count(
            sum(one.segment.num_live for one in gone),
            {one.segment.id: np.flatnonzero(one.live()) for one in gone},
            {one.segment.id: Verdict.of_none(one.segment) for one in gone},
            request.reader.metrics,
        )
        return left

    async def _first(
        self,
        page: CatalogSnapshot,
        partition_schema: pa.Schema,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> _First:
        """The first file, whose schema is that of the scan, with its metadata."""
        places = (FilePlace(tables, tables.first) for tables in page.tables)
        place = min(places, key=lambda place: place.path)
        entries = self._entries([place], page)
        (file,) = (await self._listed_by(entries, page, request, partition_schema)).files
        (opened,) = await self._pruner.enrich([(file, place)], None, reader, request)
        return _First(place, opened, await self._pruner.ask(opened, partition_schema, reader, request))

    async def _matching(
        self,
        page: CatalogSnapshot,
        partition_schema: pa.Schema,
        first: _First,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> FileBlock | None:
        """The files of a page that may match, and the first file where it is of the page; None where there are none."""
        pruner, metrics = self._pruner, request.reader.metrics
        partitions: dict[str, FilePartitions] = {}
        if first.asked is not None and first.asked.constant:
            for tables in page.tables:
                paths = (await reader.load_directory(tables)).paths
                partitions[tables.segment.id] = FilePartitions.of_paths(
                    partition_schema, paths, tables.live()
                )
        verdicts = await pruner.verdicts(first.asked, page, partitions, reader, request)
        places: list[FilePlace] = []
        dropped: dict[str, Int64s] = {}
        covered = 0
        for tables in page.tables:
            live = tables.live()
            left = live if verdicts is None else live & verdicts[tables.segment.id].may_match
            if tables is first.place.tables:
                left[first.place.ordinal] = True
            places += [FilePlace(tables, at) for at in np.flatnonzero(left).tolist()]
            covered += int(live.sum())
            gone = np.flatnonzero(live & ~left)
            if len(gone):
                dropped[tables.segment.id] = gone
        pruner.count(covered, dropped, verdicts, metrics)
        if not places:
            return None
        entries = self._entries(places, page)
        by_path = {entry.path: place for entry, place in zip(entries, places, strict=True)}
        block = await self._listed_by(entries, page, request, partition_schema)
        block = replace(block, round_trips=0, listed=False)
        found = [(file, by_path.get(file.path)) for file in block.files]
        found = [(first.opened if place == first.place else file, place) for file, place in found]
        return pruner.finish(block, await pruner.enrich(found, verdicts, reader, request), page, reader)

    def _entries(self, places: Sequence[FilePlace], snapshot: CatalogSnapshot) -> list[ObjectEntry]:
        """Files as a listing of the store has them."""
        _, base = self._pruner.home.base(snapshot.head)
        entries = []
        for place in places:
            directory, at = place.directory, place.ordinal
            entries.append(ObjectEntry(base + directory.paths[at], directory.sizes[at], directory.etags[at]))
        return entries

    async def _listed_by(
        self,
        entries: Sequence[ObjectEntry],
        snapshot: CatalogSnapshot,
        request: SourceRequest,
        partition_schema: pa.Schema | None = None,
    ) -> FileBlock:
        """The files that the source names among some that the catalog lists; `partition_schema` are the columns that their
        paths spell, where these are settled over more files."""
        partitioning = self._spec.partitioning if partition_schema is None else partition_schema
        home = self._pruner.home
        base_root, base = home.base(snapshot.head)
        listing = _CatalogListing(entries, base=base, index=str(home))

        def client_for(root: str) -> _CatalogListing:
            if root != base_root:
                raise StoreError("the index lists no files of that store", path=root, hint=f"it is {home}")
            return listing

        return await discover(
            self._spec.source,
            client_for=client_for,
            partitioning=partitioning if partitioning is None or len(partitioning) else None,
            glob=self._spec.glob,
            in_store=self._in_store,
            as_text=self._spec.texts,
            metrics=request.reader.metrics,
        )


def _pages_of(tables: Sequence[SegmentTables], most: int) -> list[tuple[SegmentTables, ...]]:
    """The segments by the paths of their files, in pages whose paths do not overlap, of so many files where that can be."""
    pages: list[list[SegmentTables]] = []
    last, files = "", 0
    for one in sorted(tables, key=lambda one: one.segment.first_path):
        segment = one.segment
        apart = bool(pages) and segment.first_path > last
        if not pages or (apart and files + segment.num_files > most):
            pages.append([])
            files = 0
        pages[-1].append(one)
        files += segment.num_files
        last = max(last, segment.last_path)
    return [tuple(page) for page in pages]


class _CatalogListing:
    """A `ListingClient` that lists what a catalog lists, of the directory `base`."""

    def __init__(self, entries: Sequence[ObjectEntry], *, base: str, index: str) -> None:
        self._base = base
        self._index = index
        self._entries = sorted(entries, key=lambda entry: entry.path)

    async def list_below(
        self, prefix: str, *, metrics: Metrics | None = None, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        if not below.startswith(self._base):
            # What lies beside the directory of the index would be missing.
            raise StoreError(
                f"the index lists files below {self._base} only",
                path=prefix,
                hint=f"scan that directory, or let the store list the files; the index is {self._index}",
            )
        return [entry for entry in self._entries if entry.path.startswith(below) or entry.path == prefix]

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        for entry in self._entries:
            if entry.path == path:
                return entry
        raise ObjectNotFoundError("the catalog lists no such file", path=path)

    async def read_tail(self, path: str, length: int, *, metrics: Metrics) -> Payload:
        # The commit of a catalog is its own: there is no journal beside its files.
        raise ObjectNotFoundError("the catalog lists no such file", path=path)
