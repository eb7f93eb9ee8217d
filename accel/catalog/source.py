"""CatalogSource: the files of a source, without those that a catalog proves to hold nothing that is asked for.

What a catalog says of a file is used for the version that it was said of, and for no other. A file that the catalog does
not know, or knows in another version, is passed on as if there were no catalog: an index that is out of date costs time,
and never a row.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.describing import column_text
from accel.catalog.objects import ObjectHome
from accel.catalog.segments import CatalogSnapshot, SegmentReader, SegmentTables
from accel.errors import AccelError, IndexFormatError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.projection import settle_schemas
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.fetch import same_etag
from accel.store.range_store import ObjectEntry, PageSeen
from accel.store.tasks import Group
from accel.tables.path_source import discover

if TYPE_CHECKING:
    from accel.arrays import Bools
    from accel.scanning.spec import ScanSpec

__all__ = ["CatalogSource", "Listing"]


class Listing(enum.StrEnum):
    """Where the list of files comes from."""

    STORE = "store"
    """The store lists them: whatever is there is read."""
    INDEX = "index"
    """The catalog lists them, as they were when it was refreshed last."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the catalog has a file."""

    tables: SegmentTables
    ordinal: int


class CatalogSource(FileSource):
    """The files of a source, pruned by a catalog.

    Parameters
    ----------
    files : FileSource
        Names the files where the store lists them.
    home : ObjectHome
        Where the catalog is.
    spec : ScanSpec
        What the scan is asked for.
    listing : Listing
    cache : Cache or None
    in_store : bool
        The caller gave a store.
    """

    def __init__(
        self,
        files: FileSource,
        home: ObjectHome,
        spec: ScanSpec,
        *,
        listing: Listing,
        cache: Cache | None,
        in_store: bool,
    ) -> None:
        self._files = files
        self._home = home
        self._spec = spec
        self._listing = listing
        self._cache = cache
        self._in_store = in_store

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """See `FileSource.blocks`: one block."""
        metrics = request.reader.metrics
        if self._listing is Listing.INDEX:
            snapshot, trips = await self._home.load(self._cache, metrics)
            reader = self._reader(request)
            for tables in snapshot.tables:
                await reader.load_directory(tables)
            block = await self._listed_by(snapshot, request)
            block = replace(block, round_trips=trips + reader.round_trips, listed=False)
            yield await self._pruned(block, snapshot, reader, request)
            return
        loaded: tuple[CatalogSnapshot, int] | None = None
        block = None

        async def load() -> None:
            nonlocal loaded
            loaded = await self._load_or_warn(metrics)

        try:
            async with Group() as group:
                group.create_task(load())
                block = await self._find(request)
        except BaseExceptionGroup as failures:
            from accel.store.request_errors import foremost

            raise foremost(failures) from None
        if loaded is None:
            yield block
            return
        snapshot, trips = loaded
        block = replace(block, round_trips=max(block.round_trips, trips))
        try:
            yield await self._pruned(block, snapshot, self._reader(request), request)
        except (IndexFormatError, StoreError) as error:
            self._pass_over(error, metrics)
            yield block

    def hint_for(self, column: str, url: str) -> str | None:
        """See `FileSource.hint_for`."""
        return self._files.hint_for(column, url)

    # -- the files -------------------------------------------------------------------------------

    async def _find(self, request: SourceRequest) -> FileBlock:
        # What is opened early would be opened whether the catalog rules it out or not.
        blocks = self._files.blocks(replace(request, on_entries=None))
        return await anext(blocks)

    async def _listed_by(self, snapshot: CatalogSnapshot, request: SourceRequest) -> FileBlock:
        """The files that the source names among those that the catalog lists."""
        _, base = self._home.base(snapshot.head)
        entries = []
        for tables in snapshot.tables:
            directory = tables.directory
            if directory is None:
                raise TypeError("the directory of a segment is read first")
            listed = zip(
                directory.paths, directory.sizes, directory.etags, tables.live().tolist(), strict=True
            )
            entries += [ObjectEntry(base + path, size, etag) for path, size, etag, live in listed if live]
        entries.sort(key=lambda entry: entry.path)
        listing = _CatalogListing(entries)
        return await discover(
            self._spec.source,
            client_for=lambda _: listing,
            partitioning=self._spec.partitioning,
            glob=self._spec.glob,
            in_store=self._in_store,
            as_text=self._spec.texts,
            metrics=request.reader.metrics,
        )

    # -- the catalog -----------------------------------------------------------------------------

    def _reader(self, request: SourceRequest) -> SegmentReader:
        return self._home.reader(
            cache=self._cache, options=self._spec.options, metrics=request.reader.metrics
        )

    async def _load_or_warn(self, metrics: Metrics) -> tuple[CatalogSnapshot, int] | None:
        try:
            return await self._home.load(self._cache, metrics)
        except (IndexFormatError, StoreError) as error:
            self._pass_over(error, metrics)
            return None

    def _pass_over(self, error: AccelError, metrics: Metrics) -> None:
        """Go on without the catalog, or refuse to where scans are strict."""
        self._home.forget(self._cache)
        if self._spec.options.strict:
            raise error
        missing = isinstance(error, ObjectNotFoundError)
        text = (
            f"there is no index at {self._home}"
            if missing
            else f"the index at {self._home} is not used: {error}"
        )
        metrics.add("indexes_ignored")
        metrics.warn(text)
        warnings.warn(text, stacklevel=2)

    async def _pruned(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader, request: SourceRequest
    ) -> FileBlock:
        """The block without the files that the catalog rules out, with what it knows of the others.

        The first file stays: it settles the schema.
        """
        metrics, before = request.reader.metrics, reader.round_trips
        places = await self._match(block, snapshot, reader)
        metrics.add("catalog_stale", len(block.files) - len(places))
        first = block.files[0]
        if 0 in places:
            (first,) = await self._with_facts([first], {0: places[0]}, reader)
        verdicts = await self._verdicts(first, block, snapshot, reader, request)
        left: list[FileEntry] = [first]
        left_places: dict[int, _Place] = {}
        for at, file in enumerate(block.files):
            place = places.get(at)
            if at == 0:
                continue
            if (
                place is not None
                and verdicts is not None
                and not verdicts[place.tables.segment.id][place.ordinal]
            ):
                continue
            if place is not None:
                left_places[len(left)] = place
            left.append(file)
        dropped = len(block.files) - len(left)
        metrics.catalog.add(total=len(places), kept=len(places) - dropped)
        metrics.files.add(total=dropped, kept=0)
        left = [
            first,
            *(await self._with_facts(left[1:], {at - 1: p for at, p in left_places.items()}, reader)),
        ]
        self._home.reweigh(self._cache, snapshot)
        trips = block.round_trips + reader.round_trips - (before if block.listed else reader.round_trips)
        return replace(block, files=tuple(left), round_trips=max(trips, block.round_trips))

    async def _match(
        self, block: FileBlock, snapshot: CatalogSnapshot, reader: SegmentReader
    ) -> Mapping[int, _Place]:
        """Where the catalog has the current version of each file, by its place in the block."""
        root, base = self._home.base(snapshot.head)
        at_path: dict[str, int] = {file.path: at for at, file in enumerate(block.files) if file.root == root}
        places: dict[int, _Place] = {}
        for tables in snapshot.tables:
            directory = await reader.load_directory(tables)
            live = tables.live().tolist()
            for ordinal, path in enumerate(directory.paths):
                at = at_path.get(base + path)
                if at is None or not live[ordinal]:
                    continue
                file = block.files[at]
                same = file.etag is not None and same_etag(file.etag, directory.etags[ordinal])
                if same and file.size == directory.sizes[ordinal]:
                    places[at] = _Place(tables, ordinal)
        return places

    async def _verdicts(
        self,
        first: FileEntry,
        block: FileBlock,
        snapshot: CatalogSnapshot,
        reader: SegmentReader,
        request: SourceRequest,
    ) -> Mapping[str, Bools] | None:
        """Whether each file of each segment may match; None where that cannot be said."""
        where = self._spec.where
        if where is None or self._spec.selection is not None or self._spec.embedded:
            return None
        from accel.predicate.bind import bind

        if self._spec.schema is not None and not len(block.partition_schema):
            schema = self._spec.schema
            own = frozenset(schema.names)
        else:
            handle, _ = await request.reader.open(first)
            own = frozenset(handle.arrow_schema.names)
            schema = self._spec.schema or request.reader.opener.schema_of(handle)
        constant = frozenset(name for name in block.partition_schema.names if name not in own)
        extra = [f for f in block.partition_schema if f.name in constant and f.name not in schema.names]
        try:
            data_set, _ = settle_schemas(pa.schema([*schema, *extra]), None, alone=False, folded=True)
            bound = bind(where, data_set)
        except AccelError:
            return None  # the scan itself says what is wrong
        names = {column_text(column.path) for column in bound.columns if column.path[0] not in constant}
        verdicts = {}
        for tables in snapshot.tables:
            await reader.load_bounds(tables, names)
            verdicts[tables.segment.id] = tables.may_match(bound, constant=constant)
        return verdicts

    async def _with_facts(
        self, files: Sequence[FileEntry], places: Mapping[int, _Place], reader: SegmentReader
    ) -> list[FileEntry]:
        """The files with the metadata that the catalog has of them."""
        out = list(files)
        by_segment: dict[str, list[tuple[int, _Place]]] = {}
        for at, place in places.items():
            by_segment.setdefault(place.tables.segment.id, []).append((at, place))
        for found in by_segment.values():
            tables = found[0][1].tables
            ordinals = sorted(place.ordinal for _, place in found)
            metadata = await reader.metadata(tables, ordinals)
            for at, place in found:
                file = out[at]
                if file.size is not None:
                    facts = FileFacts(size=file.size, etag=file.etag, tail=metadata[place.ordinal])
                    out[at] = replace(file, facts=facts)
        return out


class _CatalogListing:
    """A `ListingClient` that lists what a catalog lists."""

    def __init__(self, entries: Sequence[ObjectEntry]) -> None:
        self._entries = entries

    async def list_below(
        self, prefix: str, *, metrics: Metrics | None = None, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        return [entry for entry in self._entries if entry.path.startswith(below) or entry.path == prefix]

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        for entry in self._entries:
            if entry.path == path:
                return entry
        raise ObjectNotFoundError("the catalog lists no such file", path=path)
