"""CatalogSource: the files of a source, without those that a catalog proves to hold nothing that matches."""

from __future__ import annotations

import enum
import os
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.catalog.asking.listed_versions import ListedVersions, replaced_text
from accel.catalog.asking.partitions import FilePartitions
from accel.catalog.asking.pruning import BoundQuestion, CatalogPruner, FilePlace
from accel.catalog.homes.objects import directory_at
from accel.catalog.segments import CatalogSnapshot, SegmentReader, SegmentTables
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.runtime.tasks import Group, ending
from accel.scanning.file_source import FileSource, SourceRequest, WrappingSource
from accel.store.location import url_in
from accel.store.range_store import ObjectEntry, PageSeen, Payload
from accel.store.request_errors import raising_foremost
from accel.tables.partition_paths import settle_types, spelled_columns
from accel.tables.path_source import PathRules, discover
from accel.tables.recognised_source import RecognisedSource
from accel.tables.table import TableSource

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.catalog.building.learning import IndexLearner
    from accel.planning.handle import FileHandle
    from accel.scanning.spec import ScanSpec

__all__ = ["PAGE_FILES", "CatalogSource", "Listing"]


T = TypeVar("T")

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
    bound_question: BoundQuestion | None
    """The predicate under the schema that it settles."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """A catalog that was asked for."""

    found: tuple[CatalogSnapshot, int] | None
    """It and its round trips; None where it cannot be used."""


async def _first_of(blocks: AsyncIterator[FileBlock]) -> FileBlock:
    return await anext(blocks)


class CatalogSource(WrappingSource):
    """The files of a source, pruned by a catalog.

    Parameters
    ----------
    files : FileSource
        Names the files where the store lists them.
    pruner : CatalogPruner
    spec : ScanSpec
        What the scan is to return.
    listing : Listing
    page_files : int
        Files of the catalog that are in memory at a time, where it lists the files.
    learner : IndexLearner, optional
        Is shown the files that the scan has opened and that the catalog lacks.
    versions : ListedVersions, optional
        What the runs of the scan know of the versions that the catalog lists.
    loaded : tuple of CatalogSnapshot and int, optional
        The catalog, if it is loaded already, and the round trips that it took.
    """

    def __init__(
        self,
        files: FileSource,
        pruner: CatalogPruner,
        spec: ScanSpec,
        *,
        listing: Listing,
        page_files: int = PAGE_FILES,
        learner: IndexLearner | None = None,
        versions: ListedVersions | None = None,
        loaded: tuple[CatalogSnapshot, int] | None = None,
    ) -> None:
        super().__init__(files)
        self._page_files = page_files
        self._pruner = pruner
        self._spec = spec
        self._listing = listing
        self._learner = learner
        self._versions = versions or ListedVersions()
        self._loaded = None if loaded is None else _Loaded(loaded)
        """The catalog, where it came beside the schema."""
        self._replaced: set[str] = set()
        """The URLs of files of this run that the catalog lists in another version."""

    async def schema(self, request: SourceRequest) -> pa.Schema | None:
        """Return the schema of the other source, and load the catalog while that one sends requests."""
        files = self.files
        if self._listing is Listing.INDEX or self._loaded is not None:
            return await files.schema(request)
        asks = isinstance(files, TableSource) or (
            isinstance(files, RecognisedSource) and await files.asks_first()
        )
        if not asks:
            return await files.schema(request)
        self._loaded, schema = await self._load_beside(files.schema(request), request)
        return schema

    async def _load_beside(self, work: Coroutine[Any, Any, T], request: SourceRequest) -> tuple[_Loaded, T]:
        """Load the catalog while something else is awaited."""
        with raising_foremost():
            async with Group() as group:
                loading = group.create_task(self._pruner.load(request.reader.metrics))
                done = await work
        return _Loaded(loading.result()), done

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield the files that may match: the blocks of the other source, or those of the catalog, a page
        each."""
        if self._listing is Listing.INDEX:
            async with aclosing(self._listed(request)) as blocks:
                async for block in blocks:
                    known, replaced = self._versions.without_replaced(block)
                    self._replaced.update(replaced)
                    yield known
            return
        pruner, reader = self._pruner, self._pruner.reader(request)
        # What is opened early would be opened whether the catalog rules it out or not.
        async with ending(self.files.blocks(replace(request, on_entries=None))) as listed:
            if self._loaded is None:
                self._loaded, block = await self._load_beside(_first_of(listed), request)
            else:
                block = await anext(listed)
            loaded, self._loaded = self._loaded.found, None
            if loaded is not None:
                more = max(0, loaded[1] - block.round_trips)
                block = replace(block, round_trips=block.round_trips + more, catalog_trips=more)
            while True:
                if loaded is not None:
                    yield await pruner.prune(block, loaded[0], reader, request)
                else:
                    if not pruner.has_failed:
                        pruner.unknown = [*pruner.unknown, *block.files]
                    yield block
                following = await anext(listed, None)
                if following is None:
                    return
                block = following

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Expect nothing: the last listing does not know what the catalog rules out."""
        return None

    async def _listed(self, request: SourceRequest) -> AsyncGenerator[FileBlock, None]:
        """Yield the files that the catalog lists."""
        pruner, metrics = self._pruner, request.reader.metrics
        snapshot, trips = await pruner.home.load(pruner.cache, metrics)
        begun = False
        try:
            async with aclosing(self._listed_in(snapshot, trips, request)) as blocks:
                async for block in blocks:
                    begun = True
                    yield block
        except (IndexFormatError, ObjectNotFoundError):
            # Its objects may have been removed, and its file replaced, since the head was read.
            newer = None if begun else await pruner.newer(snapshot, metrics)
            if newer is None:
                raise
        else:
            return
        async with aclosing(self._listed_in(*newer, request)) as blocks:
            async for block in blocks:
                yield block

    async def _listed_in(
        self, snapshot: CatalogSnapshot, trips: int, request: SourceRequest
    ) -> AsyncGenerator[FileBlock, None]:
        """Yield the files that one head lists."""
        pruner, reader = self._pruner, self._pruner.reader(request)
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
            async with aclosing(self._pages(snapshot, partition_schema, trips, request)) as blocks:
                async for block in blocks:
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

    def note_version(self, file: FileEntry, handle: FileHandle) -> None:
        """Note where a file that the catalog lists was replaced."""
        super().note_version(file, handle)
        if self._listing is Listing.STORE or file.etag is None or handle.etag is None:
            return
        if not file.version.is_same(handle.version):
            self._versions.note_replaced(file, index=str(self._pruner.home))
            self._replaced.add(file.url)

    def finish(self, request: SourceRequest) -> None:
        """Tell of files that were replaced, and have the catalog learn what the scan has opened."""
        super().finish(request)
        if self._listing is Listing.INDEX and request.answers is not None:
            self._versions.note_answered()
        replaced, self._replaced = self._replaced, set()
        if replaced:
            text = replaced_text(replaced, index=str(self._pruner.home))
            request.reader.metrics.add("catalog_stale", len(replaced))
            request.reader.metrics.warn(text, is_shown=True)
            warnings.warn(text, stacklevel=2)
        unknown, self._pruner.unknown = self._pruner.unknown, ()
        if self._learner is None or not unknown:
            return
        now, reader = time.monotonic(), request.reader
        met = ((file, reader.cached_handle(file, now)) for file in unknown)
        self._learner.meet(
            [(file, handle) for file, handle in met if handle is not None], request.reader.metrics
        )

    def _covers_all(self, snapshot: CatalogSnapshot) -> bool:
        """Return whether the source is the directory that the catalog covers.

        Then files that are ruled out need not be listed.
        """
        source, spec = self._spec.source, self._spec
        if not isinstance(source, str | os.PathLike) or spec.selection is not None:
            return False
        if not snapshot.head.num_files:
            return False
        location = directory_at(source, in_store=self._spec.in_store)
        return (location.root, location.path) == self._pruner.home.base(snapshot.head)

    async def _partition_schema(self, snapshot: CatalogSnapshot, reader: SegmentReader) -> pa.Schema | None:
        """Return the columns that the paths of all files spell, settled over all of them.

        None where these differ in their keys.

        The head tells that of segments of which no file was dropped. The paths of the others are read, one
        segment at a time.
        """
        partitioning = self._spec.partitioning
        if isinstance(partitioning, pa.Schema):
            # Whether the paths spell its keys in another case is for `discover` to see.
            return partitioning if self._spec.case_sensitive else None
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
        return settle_types(
            [spelled for _, spelled in parts], as_text=self._spec.texts, spelled_as=self._spec.spelled_as
        )

    async def _pages(
        self, snapshot: CatalogSnapshot, partition_schema: pa.Schema, trips: int, request: SourceRequest
    ) -> AsyncGenerator[FileBlock, None]:
        """Yield the files that may match, behind the first of all, in the order of their paths."""
        pages = _pages_of(snapshot.tables, self._page_files)
        first: _First | None = None
        for number, tables in enumerate(pages):
            last = number + 1 == len(pages)
            if first is not None and first.bound_question is not None:
                tables = self._without_ruled_out(tables, first.bound_question, partition_schema, request)
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
        bound_question: BoundQuestion,
        partition_schema: pa.Schema,
        request: SourceRequest,
    ) -> tuple[SegmentTables, ...]:
        """Return the segments that may hold files that match, and count the files of the others."""
        left = tuple(one for one in tables if bound_question.may_hold(one.segment, partition_schema))
        gone = [one for one in tables if one not in left]
        self._pruner.count_segments([one.segment for one in gone], request.reader.metrics)
        return left

    async def _first(
        self,
        page: CatalogSnapshot,
        partition_schema: pa.Schema,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> _First:
        """Return the first file, whose schema is that of the scan, with its metadata."""
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
        """Return the files of a page that may match, and the first file where it is of the page.

        None where there are none.
        """
        pruner, metrics = self._pruner, request.reader.metrics
        partitions: dict[str, FilePartitions] = {}
        if first.bound_question is not None and first.bound_question.constant:
            for tables in page.tables:
                paths = (await reader.load_directory(tables)).paths
                partitions[tables.segment.id] = FilePartitions.of_paths(
                    partition_schema, paths, tables.live()
                )
        verdicts = await pruner.verdicts(first.bound_question, page, partitions, reader, request)
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
        """Return files as a listing of the store has them."""
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
        """Return the files that the source names among some that the catalog lists.

        `partition_schema` are the columns that their paths spell, where these are settled over more files.
        """
        partitioning = self._spec.partitioning if partition_schema is None else partition_schema
        home = self._pruner.home
        base_root, base = home.base(snapshot.head)
        listing = _CatalogListing(entries, root=base_root, base=base, index=str(home))

        return await discover(
            self._spec.source,
            clients=listing,
            rules=PathRules(
                partitioning=partitioning if partitioning is None or len(partitioning) else None,
                glob=self._spec.glob,
                in_store=self._spec.in_store,
                text_columns=self._spec.texts,
                spelled_as=self._spec.spelled_as,
            ),
            metrics=request.reader.metrics,
        )


def _pages_of(tables: Sequence[SegmentTables], most: int) -> list[tuple[SegmentTables, ...]]:
    """Split the segments into pages whose paths do not overlap, of at most `most` files where that can be."""
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
    """The one `ListingClient` there is: of what a catalog lists, in the directory `base` of a store."""

    def __init__(self, entries: Sequence[ObjectEntry], *, root: str, base: str, index: str) -> None:
        self._root = root
        self._base = base
        self._index = index
        self._entries = sorted(entries, key=lambda entry: entry.path)

    def client(self, root: str, /) -> _CatalogListing:
        if root != self._root:
            raise StoreError("the index lists no files of that store", path=root, hint=f"it is {self._index}")
        return self

    async def list_below(
        self, prefix: str, *, metrics: Metrics | None = None, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        if not below.startswith(self._base):
            # What lies beside the directory of the index would be missing.
            raise StoreError(
                f"the index lists files below {url_in(self._root, self._base)} only",
                path=url_in(self._root, prefix),
                hint=f"scan that directory, or let the store list the files; the index is {self._index}",
            )
        return [entry for entry in self._entries if entry.path.startswith(below) or entry.path == prefix]

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        for entry in self._entries:
            if entry.path == path:
                return entry
        raise ObjectNotFoundError("the index lists no such file", path=url_in(self._root, path))

    async def read_tail(self, path: str, length: int, *, metrics: Metrics) -> Payload:
        # The commit of a catalog is its own: there is no journal beside its files.
        raise ObjectNotFoundError("the index lists no such file", path=url_in(self._root, path))
